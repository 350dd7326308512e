"""Delayed exchanges: what is published to them goes on after the wait that its header `x-delay` asks for."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dlx_router.config.findings import (
    DELAYED_CIRCLE,
    DELAYED_NAME,
    DELAYED_TWICE,
    MISSING_KEY,
    Finding,
    Report,
    Severity,
    shown,
)
from dlx_router.config.language import values
from dlx_router.config.language.shape import Shape
from dlx_router.config.language.yaml_tree import Node, Pairs
from dlx_router.core.names import Names
from dlx_router.core.policy import Source


@dataclass(frozen=True, slots=True)
class Delayed:
    """Messages of `exchange` go on to exchange `to` after `x-delay` ms, else `default_ms`. `vhost` None: all served."""

    exchange: str
    to: str
    default_ms: int
    vhost: str | None
    source: Source

    def same_as(self, other: object) -> bool:
        """Whether both mean the same, wherever they were written."""
        return isinstance(other, Delayed) and replace(self, source=other.source) == other


DELAYED: Final = Shape(
    "a delayed exchange",
    {"exchange": values.text(), "to": values.text(), "default": values.duration, "vhost": values.text()},
)


def read(node: Node, report: Report) -> Delayed | None:
    """One delayed exchange; None where the report says what is wrong."""
    fields = DELAYED.read(node, report)
    if fields is None:
        return None
    written = {key.text for key, _ in node.pairs} if isinstance(node, Pairs) else set()
    missing = [key for key in ("exchange", "to") if key not in written]
    if missing:
        keys = " and ".join(f"{key}:" for key in missing)
        report.error(MISSING_KEY, node.line, f"a delayed exchange without {keys}; write {{exchange: NAME, to: NAME}}")
    if "exchange" not in fields or "to" not in fields:
        return None
    return Delayed(
        fields["exchange"].value,
        fields["to"].value,
        fields["default"].value if "default" in fields else 0,
        fields["vhost"].value if "vhost" in fields else None,
        Source("", report.file, node.line),
    )


def findings_of(delayed: Sequence[Delayed], names: Names) -> list[Finding]:
    """What the delayed exchanges mean together."""
    return [*_names(delayed, names), *_twice(delayed), *_circles(delayed)]


def _names(delayed: Sequence[Delayed], names: Names) -> Iterator[Finding]:
    """Exchanges of the router's own or of the broker's cannot be delayed, and nobody publishes to the router's."""
    for entry in delayed:
        if names.is_own(entry.exchange) or entry.exchange.startswith("amq."):
            whose = "the broker's" if entry.exchange.startswith("amq.") else "the router's"
            message = (
                f"exchange {shown(entry.exchange)} is {whose} own and cannot be delayed; write another name, under "
                f"which the router declares one"
            )
            yield _error(entry, DELAYED_NAME, message)
        if names.is_own(entry.to):
            message = (
                f"{shown(entry.to)} is the router's own; write as to: the exchange that consumers' queues are bound to"
            )
            yield _error(entry, DELAYED_NAME, message)


def _twice(delayed: Sequence[Delayed]) -> Iterator[Finding]:
    for at, entry in enumerate(delayed):
        first = next(
            (other for other in delayed[:at] if other.exchange == entry.exchange and _meet(entry, other)), None
        )
        if first is not None:
            message = f"exchange {shown(entry.exchange)} is delayed already ({first.source}); keep one of them"
            yield _error(entry, DELAYED_TWICE, message)


def _circles(delayed: Sequence[Delayed]) -> Iterator[Finding]:
    """Ways that lead back to where they began: a message would go round for ever."""
    for start in delayed:
        seen, here = [start], start
        while (after := next((o for o in delayed if o.exchange == here.to and _meet(here, o)), None)) is not None:
            if after in seen:
                break
            seen.append(after)
            here = after
        if here.to == start.exchange:
            way = " → ".join(shown(step.exchange) for step in (*seen, start))
            yield _error(start, DELAYED_CIRCLE, f"leads back to itself ({way}); write as to: an exchange of consumers")


def _meet(first: Delayed, second: Delayed) -> bool:
    return None in {first.vhost, second.vhost} or first.vhost == second.vhost


def _error(entry: Delayed, code: str, message: str) -> Finding:
    return Finding(entry.source.file, entry.source.line, code, Severity.ERROR, message)
