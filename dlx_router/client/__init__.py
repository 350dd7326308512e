"""What consumers import to say that a message is dead, and why. Stands alone: nothing else of the package is needed.

```python
from dlx_router.client import dead

await dead(message, reason="card-declined", retry="never")
```

`dead` and `dead_many` are for aio-pika; `dlx_router.client.sync` has the same for pika. See docs/client.md.
"""

from dlx_router.client.asynchronous import Dead, Result, dead, dead_many
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
