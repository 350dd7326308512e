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
    found = DELAYED.read(node, report)
    if found is None:
        return None
    written = {key.text for key, _ in node.pairs} if isinstance(node, Pairs) else set()
    missing = [key for key in ("exchange", "to") if key not in written]
    if missing:
        said = " and ".join(f"{key}:" for key in missing)
        report.error(MISSING_KEY, node.line, f"a delayed exchange without {said}; write {{exchange: NAME, to: NAME}}")
    if "exchange" not in found or "to" not in found:
        return None
    return Delayed(
        found["exchange"].value,
        found["to"].value,
        found["default"].value if "default" in found else 0,
        found["vhost"].value if "vhost" in found else None,
        Source("", report.file, node.line),
    )


def findings_of(delayed: Sequence[Delayed], names: Names) -> list[Finding]:
    """What the delayed exchanges mean together."""
    return [*_names(delayed, names), *_twice(delayed), *_circles(delayed)]


def _names(delayed: Sequence[Delayed], names: Names) -> Iterator[Finding]:
    """Exchanges of the router's own or of the broker's cannot be delayed, and nobody publishes to the router's."""
    for one in delayed:
        if names.is_own(one.exchange) or one.exchange.startswith("amq."):
            whose = "the broker's" if one.exchange.startswith("amq.") else "the router's"
            message = (
                f"exchange {shown(one.exchange)} is {whose} own and cannot be delayed; write another name, under which "
                f"the router declares one"
            )
            yield _error(one, DELAYED_NAME, message)
        if names.is_own(one.to):
            message = (
                f"{shown(one.to)} is the router's own; write as to: the exchange that consumers' queues are bound to"
            )
            yield _error(one, DELAYED_NAME, message)


def _twice(delayed: Sequence[Delayed]) -> Iterator[Finding]:
    for at, one in enumerate(delayed):
        first = next((other for other in delayed[:at] if other.exchange == one.exchange and _meet(one, other)), None)
        if first is not None:
            message = f"exchange {shown(one.exchange)} is delayed already ({first.source}); keep one of them"
            yield _error(one, DELAYED_TWICE, message)


def _circles(delayed: Sequence[Delayed]) -> Iterator[Finding]:
    """Ways that lead back to where they began: a message would go round for ever."""
    for one in delayed:
        seen, here = [one], one
        while (after := next((o for o in delayed if o.exchange == here.to and _meet(here, o)), None)) is not None:
            if after in seen:
                break
            seen.append(after)
            here = after
        if here.to == one.exchange:
            way = " → ".join(shown(step.exchange) for step in (*seen, one))
            yield _error(one, DELAYED_CIRCLE, f"leads back to itself ({way}); write as to: an exchange of consumers")


def _meet(one: Delayed, other: Delayed) -> bool:
    return None in {one.vhost, other.vhost} or one.vhost == other.vhost


def _error(one: Delayed, code: str, message: str) -> Finding:
    return Finding(one.source.file, one.source.line, code, Severity.ERROR, message)
