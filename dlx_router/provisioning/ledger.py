"""The ledger: which RabbitMQ policies are ours, so that nothing else is ever changed or removed.

It is a global parameter of the broker, one a vhost: durable, replicated, seen in definitions exports, and there for a
command that runs beside routers. (The state queue cannot serve: the active router holds its messages, and a single
active consumer refuses everybody else.) It is written before the policies that it names, so that a command that is
killed in between leaves nothing without an owner.
"""

from collections.abc import Iterable
from typing import Any, Final

from dlx_router.core.names import Names

PARAMETERS: Final = "global-parameters"  # of the management API


def parameter(names: Names, vhost: str) -> str:
    """Its name."""
    return f"{names.prefix}.ledger {vhost}"


def read(value: Any) -> frozenset[str]:  # noqa: ANN401 - somebody else may have written it
    """The names of our policies; what cannot be read names none, so that nothing is taken for ours."""
    policies = value.get("policies") if isinstance(value, dict) else None
    return frozenset(name for name in policies if isinstance(name, str)) if isinstance(policies, list) else frozenset()


def written(policies: Iterable[str]) -> dict[str, Any]:
    """The value that names these policies."""
    return {"v": 1, "policies": sorted(set(policies))}
