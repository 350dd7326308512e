"""`dlx-router permissions --for observe|plan|apply|destroy`: enough for the command, and each right is needed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest

from dlx_router.broker.address import Tls
from dlx_router.broker.management import Management, ManagementError
from dlx_router.config.rights.permissions import Grant, Need, Setup
from dlx_router.config.rights.purpose import POLICYMAKER, Purpose
from dlx_router.core.names import Names
from dlx_router.core.policy import PolicySet
from dlx_router.provisioning import apply_plan, removal
from dlx_router.provisioning.command_rights import needs_of
from tests.cli.test_cli import Done, in_a_process
from tests.security.conftest import Admit, allow, rights_of, url_for
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.router import Router
from tests.support.version_draw import share
from tests.support.vhost import Vhost
from tools import brokers

pytestmark = pytest.mark.usefixtures("newest")
NOTHING: Final = ("^$", "^$", "^$")
INBOX: Final = "dlx-router.inbox"
POLICIES: Final = """
version: 1
policies:
  - {name: work, match: "work.#", definition: {max-delivery-attempts: 2, redelivery-delay: 1s}}
"""
SETUP: Final = Setup(Names(), journal=True)
OBSERVE: Final = needs_of(Purpose.OBSERVE, SETUP, "/")
OWN: Final = [
    need for need in OBSERVE.needs if "observe" in need.names or "default" in need.names or "nal" in need.names
]


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "policies.yaml").write_text(POLICIES, encoding="utf-8")
    return folder


def as_user(vhost: Vhost, user: str) -> dict[str, str]:
    """AMQP and management API by this user."""
    parts = urlsplit(vhost.management_url)
    api = f"http://{user}:secret@{parts.hostname}:{parts.port}"
    return {"AMQP_URL": url_for(vhost, user), "MANAGEMENT_URL": api}


def granted(vhost: Vhost, user: str, policies: Path, purpose: str) -> Done:
    """The user has what is printed for it; all of what was said."""
    asked = ("permissions", "--for", purpose, "--policies", str(policies), "--format", "json")
    done = in_a_process(*asked, **as_user(vhost, user))
    assert done.returncode == 0, done.stderr
    (printed,) = json.loads(done.stdout)["permissions"]
    assert (printed.pop("user"), printed.pop("vhost")) == (user, vhost.name)
    allow(vhost, user, **printed)
    return done


@pytest.mark.slow
def test_who_plans_applies_and_destroys_needs_what_is_printed(vhost: Vhost, admit: Admit, policies: Path) -> None:
    with Client(vhost.amqp_url) as client:
        client.queue("work.a")
    user = admit(*NOTHING, tags=POLICYMAKER)
    for purpose, code in (("apply", 0), ("plan", 0), ("destroy", 0)):
        errors = granted(vhost, user, policies, purpose).stderr
        assert f"user {user} needs the tag policymaker too" in errors
        done = in_a_process(purpose, "--policies", str(policies), **as_user(vhost, user))
        assert done.returncode == code, done.stdout + done.stderr
    assert vhost.queues() == ["work.a"]


def test_without_the_tag_plan_says_what_prints_the_rights(vhost: Vhost, admit: Admit, policies: Path) -> None:
    user = admit(*NOTHING, tags="management")
    done = in_a_process("plan", "--policies", str(policies), **as_user(vhost, user))
    assert done.returncode == 2
    assert "may not" in done.stderr


async def attempt(vhost: Vhost, user: str, purpose: Purpose, grant: Grant) -> str:
    """What a user with these rights is refused, "" where nothing is."""
    allow(vhost, user, *rights_of(grant))
    api = Management(lambda: as_user(vhost, user)["MANAGEMENT_URL"], Tls())
    names, without = Names(), PolicySet(())
    try:
        if purpose is Purpose.APPLY:
            await apply_plan.apply(api, await apply_plan.planned(api, without, names, vhost.name, journal=True), names)
        else:
            remains = await removal.remaining(api, without, names, vhost.name, uncounted)
            await removal.remove_exchanges(api, remains)
            await removal.remove_rest(api, remains, names)
    except ManagementError as error:
        return str(error)
    finally:
        await api.close()
    return ""


async def uncounted(_queues: object) -> dict[str, tuple[int, int]]:
    """Nobody looks how full they are."""
    return {}


@pytest.mark.slow
async def test_each_right_of_apply_and_destroy_is_needed(broker: brokers.Broker, vhost: Vhost, admit: Admit) -> None:
    """Where nothing stands, apply declares all, so each time in a vhost of its own."""
    user = admit(*NOTHING, tags=POLICYMAKER)
    apply, destroy = (needs_of(purpose, SETUP, "/") for purpose in (Purpose.APPLY, Purpose.DESTROY))
    for number, need in enumerate(apply.needs):
        empty = Vhost.make(broker, f"{vhost.name}-{number}")
        try:
            assert "may not" in await attempt(empty, user, Purpose.APPLY, apply.without(need)), f"{need} is not needed"
        finally:
            empty.close()
    assert await attempt(vhost, user, Purpose.APPLY, apply) == ""
    needs = {need.names.replace("\\", ""): need for need in destroy.needs}
    exchanges = sorted(
        exchange["name"] for exchange in vhost.get(f"exchanges/{vhost.quoted}") if exchange["name"] in needs
    )
    for name in dict.fromkeys([*exchanges, *vhost.queues()]):  # as they are removed: each attempt comes up to its own
        need = needs[name]
        assert "may not" in await attempt(vhost, user, Purpose.DESTROY, destroy.without(need)), f"{need} is not needed"
    assert await attempt(vhost, user, Purpose.DESTROY, destroy) == ""


def test_who_observes_needs_what_is_printed(
    vhost: Vhost, admit: Admit, policies: Path, start_router: Callable[..., Router]
) -> None:
    user = admit(*NOTHING)
    granted(vhost, user, policies, "observe")
    with Client(vhost.amqp_url) as client:
        router = start_router(policies, "--observe", AMQP_URL=url_for(vhost, user))
        client.queue("work.a", dead_letter_exchange=INBOX)
        client.publish("one", key="work.a")
        client.fail("work.a")
        eventually(lambda: router.metric("settled_total", action="retry") == 1, within=30)
        eventually(lambda: router.metric("in_flight") == 0, within=30)
        assert client.depth(INBOX) == 1
    assert "ACCESS_REFUSED" not in router.output
    assert "forbidden" not in router.output


@pytest.mark.parametrize("need", share(OWN, 3), ids=lambda need: f"{need.right}-{need.names}")
@pytest.mark.usefixtures("newest")
def test_with_one_right_less_the_observer_says_which(
    need: Need, vhost: Vhost, admit: Admit, start_router: Callable[..., Router]
) -> None:
    """Those that only an observer has, or that its journal takes; the rest is as a router's."""
    url = url_for(vhost, admit(*rights_of(OBSERVE.without(need))))
    router = start_router(POLICIES, "--observe", wait=False, AMQP_URL=url)
    name = need.names.replace("\\", "")

    def is_named() -> bool:
        text = router.output + router.ask("/readyz")[1]
        return "ACCESS_REFUSED" in text and name in text

    eventually(is_named, within=30)


def test_an_observer_has_no_right_on_anything_of_yours() -> None:
    names = {
        need.names
        for purpose in (Purpose.OBSERVE, Purpose.APPLY, Purpose.DESTROY)
        for need in needs_of(purpose, SETUP, "/").needs
    }
    assert all(name == r"amq\.default" or name.startswith(r"dlx-router\.") for name in names)
