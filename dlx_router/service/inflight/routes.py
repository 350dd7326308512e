"""Routes: what letters that died the same way share, and where a revision of the policies keeps it; see compiled.py."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from dlx_router.core.bounded import MIB, Bounded
from dlx_router.core.words import Action
from dlx_router.journal.events import Fragments
from dlx_router.journal.privacy import Rule

MAX_ROUTES: Final = 4096
ROUTES_BYTES: Final = 8 * MIB  # and as much for shapes
Resource = tuple[str, ...]
Known = Mapping[Resource, str] | None
Key = tuple[Any, ...]


class Route(NamedTuple):
    """All that such letters share. `wait_ms` None: dead-lettered; else retried after it, always by the same rung."""

    failed_queue: str
    where: tuple[bytes, bytes]
    action: Action
    decided: tuple[str, str, str]
    resource: Resource | None
    exchange: bytes
    routing_key: bytes
    standing: str
    deaths: str
    first_ms: int
    wait_ms: int | None
    keeps_priority: bool
    longest: int
    told: Fragments | None
    rule: Rule


class Shape(NamedTuple):
    """What is equal in the header tables of such letters, as (from, to, bytes); the rest is values of their own.

    Same length, same names, types and lengths, same deaths: a walk over such a table would find what it found before.
    """

    fixed: tuple[tuple[int, int, bytes], ...]
    order: Route


class CompiledRoutes:
    """The routes of one revision, by what a walk through the headers finds, and by the shapes of header tables."""

    def __init__(self) -> None:
        self.by_key: Bounded[Key, Route] = Bounded(most=MAX_ROUTES, most_bytes=ROUTES_BYTES)
        self.by_shape: Bounded[Key, tuple[Shape, ...]] = Bounded(most=MAX_ROUTES, most_bytes=ROUTES_BYTES)
