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

from contextlib import suppress

from dlx_router.client.declaration import (
    FromDeadLetterQueue,
    InexactHeader,
    InvalidDeclaration,
    NotAcked,
    NotDeclared,
    Undeliverable,
)

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

with suppress(ImportError):  # told to whoever asks for one of them, below
    from dlx_router.client.asynchronous import Dead, Result, dead, dead_many


def __getattr__(name: str) -> object:
    """Only asked where aio-pika cannot be imported."""
    if name not in {"Dead", "Result", "dead", "dead_many"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from dlx_router.client import asynchronous  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ImportError(
            f"dlx_router.client.{name} is for aio-pika, which cannot be imported ({error}); "
            "dlx_router.client.sync has the same for pika"
        ) from error
    return getattr(asynchronous, name)
