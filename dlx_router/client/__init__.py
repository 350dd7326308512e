"""What consumers import to say that a message is dead, and why. Stands alone: nothing else of the package is needed.

```python
from dlx_router.client import dead

await dead(message, reason="card-declined", retry="never")
```

`dead` and `dead_many` are for aio-pika; `dlx_router.client.sync` has the same for pika. See docs/client.md. Errors of
handlers are declared by themselves with one line of set-up, from the module that is called as
the library: docs/clients.md. It is a distribution of its own, dlx-router-client, for Python 3.9 and newer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlx_router.client.declaration import (
    Dead,
    FromDeadLetterQueue,
    InexactHeader,
    InvalidDeclaration,
    NotAcked,
    NotDeclared,
    Result,
    Undeliverable,
)

if TYPE_CHECKING:
    from dlx_router.client.asynchronous import dead, dead_many

__all__ = [
    "Dead",
    "FromDeadLetterQueue",
    "InexactHeader",
    "InvalidDeclaration",
    "NotAcked",
    "NotDeclared",
    "Result",
    "Undeliverable",
    "dead",
    "dead_many",
]


def __getattr__(name: str) -> object:
    """Import what needs aio-pika once it is used."""
    if name not in {"dead", "dead_many"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dlx_router.client import asynchronous  # noqa: PLC0415 - an extra

    return getattr(asynchronous, name)
