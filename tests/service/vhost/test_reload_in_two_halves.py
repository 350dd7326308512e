"""A reload builds all that may fail, of every vhost, and only then puts anything into force."""

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import pytest

from dlx_router.broker.answers import LinkError
from dlx_router.broker.topology import TopologyError
from dlx_router.config.environment.settings import Settings
from dlx_router.config.policy_files.loader import load_policies
from dlx_router.core.names import Names
from dlx_router.core.policy import PolicySet
from dlx_router.service.app import App


class _Unwilling:
    """A vhost whose part of a revision cannot be built, until it can."""

    vhost = "unwilling"

    def __init__(self) -> None:
        self.refuses = True
        self.used: list[Any] = []

    async def prepare(self, _policies: PolicySet) -> None:
        await asyncio.sleep(0)

    def built(self, *_given: object) -> object:
        if self.refuses:
            raise TopologyError("not to be had here")
        return self

    def use(self, revision: object) -> None:
        self.used.append(revision)

    def attend(self) -> None:
        assert self.used


class _Session:
    """That has what any policies need."""

    def __init__(self) -> None:
        self.provision = self

    async def prepare(self, _resources: object) -> None:
        """It is there."""

    def renew(self) -> None:
        """It is as before."""

    def attend_only(self, _setting: object) -> None:
        """No queue is attached."""


TYPES: Final = {"orders": "quorum"}


@pytest.mark.parametrize(
    ("state", "known", "before", "is_taken"),
    [
        ("gone", {}, "queues", True),
        ("away", TYPES, "queues", True),
        ("away", {}, "queues", False),
        ("attended", TYPES, "quorum_queues", True),
        ("attended", TYPES, "queues", False),  # nobody asked for long, so that may be over
        ("attended", {}, "quorum_queues", False),
    ],
)
async def test_a_vhost_whose_types_nobody_tells_keeps_no_other_one_from_its_policies(
    tmp_path: Path, state: str, known: dict[str, str], before: str, *, is_taken: bool
) -> None:
    """New policies were refused in all vhosts, whatever was known; also for one that had just been deleted."""
    _write(tmp_path, "old", **{"apply-to": before})
    nowhere = {"amqp_url": "amqp://guest:guest@127.0.0.1:1/", "management_url": "http://guest:guest@127.0.0.1:1"}
    app = App(Settings.load(nowhere | {"policies": str(tmp_path)}), load_policies(tmp_path, Names()))
    runner = app.attendants["v"] = app._attendant("v")
    runner._attempts.failed(LinkError("vhost v not found" if state == "gone" else "connection refused"), 0.0)
    runner._session = _Session() if state == "attended" else None  # type: ignore[assignment]  # asked for nothing else
    runner._kinds.known = known
    _write(tmp_path, "new", **{"apply-to": "quorum_queues"})
    await app._reloader(["v"], asyncio.Event())._reload()
    assert (app.metrics.reloads["success"], app.metrics.policies_refused) == (is_taken, not is_taken)
    assert runner._kinds.known == known


def _write(folder: Path, exchange: str, **more: str) -> None:
    policy = {"name": "p", "queue": "orders", "definition": {"dead-letter-exchange": exchange}, **more}
    (folder / "p.yaml").write_text(json.dumps({"version": 1, "policies": [policy]}), encoding="utf-8")


async def test_where_one_vhost_cannot_be_built_all_others_stay_as_they_were(tmp_path: Path) -> None:
    _write(tmp_path, "old")
    settings = Settings.load({"amqp_url": "amqp://guest:guest@127.0.0.1:1/", "policies": str(tmp_path)})
    app = App(settings, load_policies(tmp_path, Names()))
    willing, unwilling = app._attendant("/"), _Unwilling()
    app.attendants |= {"/": willing, "unwilling": unwilling}  # type: ignore[dict-item]  # it is asked for nothing else
    reloader, before = app._reloader(["/"], asyncio.Event()), willing._decider.in_force
    _write(tmp_path, "new")
    await reloader._reload()
    assert willing._decider.in_force is before
    assert (app.metrics.reloads["failure"], app.metrics.reloads["success"]) == (1, 0)
    unwilling.refuses = False
    await reloader._reload()
    assert len(unwilling.used) == app.metrics.reloads["success"] == 1
    policy = willing.policy_for("orders", "rejected")
    assert policy is not None
    assert policy.dead_letter_exchange == "new"
    assert before.policy_of("orders", "rejected") != policy, "what is in flight is judged by what it came to"
