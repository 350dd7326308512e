"""A scenario: who dies where to, what happens, and by which allowed differences the two worlds may end differently."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from tests.conformance.world import Dies, Play

VERSIONS: Final = ("3.10", "4.0", "4.3")
ON_4: Final = ("4.0", "4.3")
KINDS: Final = ("classic", "quorum")

# Differences by version; a name on its own holds on every version.
Differs = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, eq=False)
class Scenario:
    """`number` counts as the scenarios of RabbitMQ's own test suites do, or begins with `own`."""

    number: str
    says: str
    play: Play
    dies: Mapping[str, Dies]
    differs: Differs = field(default_factory=dict)
    kind: str = ""
    bug: str = ""  # why it is not so yet
    needs_resend: bool = False  # waits until at-least-once dead lettering tries again, which takes RabbitMQ 180 s
    may_wait: bool = False  # whether a letter of it is held depends on who is faster: the play, or the router

    @property
    def prefix(self) -> str:
        """What its queues, exchanges and bodies begin with; no other scenario's begins so."""
        plain = "".join(letter if letter.isalnum() else "-" for letter in self.number)
        return f"s{plain}{self.kind[:1]}"

    def differences(self, version: str) -> tuple[str, ...]:
        """The names of what differs on this version; one between those of the table is like the later."""
        like = version if version in VERSIONS else "4.3" if version.startswith("4.") else "3.10"
        return self.differs.get(like, ())

    def possible(self, version: str) -> tuple[str, ...]:
        """Of these differences those that are there only if a letter was held."""
        return tuple(
            difference for difference in self.differences(version) if self.may_wait and difference == "field order"
        )

    def drops(self, version: str) -> bool:
        """Whether RabbitMQ itself loses the letter on this version."""
        return "false cycle" in self.differences(version)

    def policies(self) -> list[dict[str, object]]:
        """The router's policies that mean what the sources' arguments mean natively."""
        return [self._policy(short, dies) for short, dies in self.dies.items()]

    def _policy(self, short: str, dies: Dies) -> dict[str, object]:
        exchange = f"{self.prefix}.{dies.exchange}" if dies.exchange else ""
        key = f"{self.prefix}.{dies.to}" if dies.to else dies.key
        if key is None and not exchange:
            key = "{routing_key}"  # the default exchange wants it said
        target = {"dead-letter-exchange": exchange} | ({"dead-letter-routing-key": key} if key else {})
        # RabbitMQ never tires, and a dead-letter queue may have one of its own
        definition = {"max-delivery-attempts": 1, "max-redrives": -1, "allow-chain": True, **target}
        name = f"{self.prefix}.{short}"
        return {"name": name, "queue": name, "definition": definition}


def policy_file(scenarios: list[Scenario]) -> str:
    """One file for all of them (JSON is YAML)."""
    every = [policy for scenario in scenarios for policy in scenario.policies()]
    return json.dumps({"version": 1, "policies": every}, indent=1)


def on(versions: tuple[str, ...], *names: str) -> Differs:
    """These differences on these versions."""
    return dict.fromkeys(versions, names)


def everywhere(*names: str) -> Differs:
    """These differences on every version."""
    return on(VERSIONS, *names)


class Table:
    """The scenarios of a file, in the order of their definition."""

    def __init__(self) -> None:
        self.rows: list[Scenario] = []

    def __call__(
        self,
        number: str,
        says: str,
        *,
        kinds: tuple[str, ...] = ("",),
        differs: Differs | None = None,
        needs_resend: bool = False,
        may_wait: bool = False,
        bug: str = "",
        **dies: Dies,
    ) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Decorates the play; with `kinds` it takes the queue type as its second argument and is a row for each."""

        def add(play: Callable[..., None]) -> Callable[..., None]:
            waits, table = may_wait or needs_resend, differs or {}
            row = Scenario(number, says, play, dies, table, bug=bug, needs_resend=needs_resend, may_wait=waits)
            for kind in kinds:
                self.rows.append(replace(row, kind=kind, play=_of_kind(play, kind) if kind else play))
            return play

        return add


def _of_kind(play: Callable[..., None], kind: str) -> Play:
    return lambda world: play(world, kind)
