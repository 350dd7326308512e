"""A reload builds all that may fail, of every vhost, and only then puts anything into force."""

import asyncio
import json
from pathlib import Path
from typing import Any

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


def _write(folder: Path, exchange: str) -> None:
    policy = {"name": "p", "queue": "orders", "definition": {"dead-letter-exchange": exchange}}
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
