"""`dlx-router permissions` as people meet it: what it prints, for whom, and how it ends."""

import json
import shlex
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.broker.rights import may
from dlx_router.config.rights import merge
from dlx_router.config.rights.purpose import Purpose
from tests.cli.test_cli import in_a_process
from tests.security.conftest import EVERYTHING, Admit, url_for
from tests.support.vhost import Vhost

POLICY = "version: 1\npolicies: [{name: one, queue: 'orders', definition: {redelivery-delay: 1s}}]\n"


@pytest.fixture
def policies(tmp_path: Path) -> str:
    (tmp_path / "policies.yaml").write_text(POLICY, encoding="utf-8")
    return str(tmp_path)


def test_a_line_for_a_shell_and_a_reason_for_each_right(policies: str) -> None:
    done = in_a_process("permissions", "--policies", policies, AMQP_URL="amqp://shop:s3cret@h/shop's vhost")
    assert done.returncode == 0
    (line,) = [line for line in done.stdout.splitlines() if "rabbitmqctl set_permissions" in line]
    assert line.startswith("# rabbitmqctl set_permissions --vhost 'shop'\"'\"'s vhost' shop '^(?:dlx-router\\.")
    assert "policy one: binds them, so that letters can go back" in done.stdout
    assert "s3cret" not in done.stdout + done.stderr
    assert "What user shop has already is not known (no MANAGEMENT_URL)" in done.stderr


def test_another_user_and_prefix_and_several_vhosts(policies: str) -> None:
    asked = ("permissions", "--policies", policies, "--user", "router", "--format", "json")
    done = in_a_process(*asked, PREFIX="dead", VHOSTS="a,b")
    permissions = json.loads(done.stdout)["permissions"]
    assert [(entry["user"], entry["vhost"]) for entry in permissions] == [("router", "a"), ("router", "b")]
    assert all(r"dead\.inbox" in entry["read"] and "dlx-router" not in entry["read"] for entry in permissions)


def test_a_policy_for_every_queue_is_pointed_out(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        "version: 1\npolicies: [{name: all, match: '#', definition: {}}]\n", encoding="utf-8"
    )
    assert "needs write on every queue" in in_a_process("permissions", "--policies", str(tmp_path)).stderr


@pytest.mark.parametrize(
    ("variables", "code"),
    [({"AMQP_URL": "no"}, 2), ({"VHOSTS": "*", "MANAGEMENT_URL": "http://127.0.0.1:1"}, 2), ({"POLICIES": "/none"}, 0)],
)
def test_how_it_ends(policies: str, variables: dict[str, str], code: int) -> None:
    assert in_a_process("permissions", "--policies", policies, **variables).returncode == code


def test_mistakes_in_policies_end_with_1_and_no_folder_with_2(tmp_path: Path) -> None:
    assert in_a_process("permissions", "--policies", str(tmp_path / "none")).returncode == 2
    (tmp_path / "p.yaml").write_text("version: 1\npolicies: [{}]\n", encoding="utf-8")
    assert in_a_process("permissions", "--policies", str(tmp_path)).returncode == 1


@pytest.mark.usefixtures("newest")
def test_who_else_has_rights_is_listed_for_an_administrator(vhost: Vhost, admit: Admit, policies: str) -> None:
    careless, careful = admit(*EVERYTHING), admit("^shop", "^shop", "^shop")
    publisher = admit("^$", "^amq.default$", "^$")
    urls = {"AMQP_URL": vhost.amqp_url, "MANAGEMENT_URL": vhost.management_url}
    done = in_a_process("permissions", "--policies", policies, **urls)
    assert done.returncode == 0, done.stderr
    by_user = {line.split()[2]: line for line in done.stdout.splitlines() if line.startswith("- user ")}
    assert "read the key that signs records" in by_user[careless]
    assert "publish to dlx-router.delay.*" in by_user[careless]
    assert "delete what the router owns" in by_user[careless]
    assert "publish to any queue by its name" in by_user[publisher]
    assert "key" not in by_user[publisher]
    assert careful not in by_user
    assert urlsplit(vhost.amqp_url).username not in by_user, "the router's own user is no stranger"


@pytest.mark.usefixtures("newest")
def test_a_user_that_only_monitors_is_enough_for_the_router_and_said_not_to_tell_who_has_rights(
    vhost: Vhost, admit: Admit, policies: str
) -> None:
    user = admit("^$", "^$", "^$", tags="monitoring")
    parts = urlsplit(vhost.management_url)
    api = f"http://{user}:secret@{parts.hostname}:{parts.port}"
    done = in_a_process("permissions", "--policies", policies, AMQP_URL=vhost.amqp_url, MANAGEMENT_URL=api)
    assert done.returncode == 0
    assert f"# rabbitmqctl set_user_tags {user} monitoring  # it has it already" in done.stdout
    assert pasted(done.stdout) == [], "nobody may ask what users have, so nothing is set"
    assert "is not known (it takes an administrator to ask)" in done.stderr


def pasted(printed: str) -> list[list[str]]:
    """What a shell would do with it: arguments of rabbitmqctl."""
    lines = [shlex.split(line, comments=True) for line in printed.partition("\nWhat for")[0].splitlines()]
    return [line[1:] for line in lines if line]


def stands(vhost: Vhost, user: str) -> tuple[set[str], list[dict[str, str]]]:
    """Tags and rights of a user."""
    return {*vhost.get(f"users/{user}")["tags"]}, vhost.get(f"users/{user}/permissions")


@pytest.mark.parametrize("purpose", [*Purpose])
@pytest.mark.usefixtures("newest")
def test_the_printed_lines_leave_an_administrator_what_it_has(
    vhost: Vhost, admit: Admit, policies: str, purpose: Purpose
) -> None:
    admin = admit(*EVERYTHING, tags="administrator")
    parts = urlsplit(vhost.management_url)
    urls = {
        "AMQP_URL": url_for(vhost, admin),
        "MANAGEMENT_URL": f"http://{admin}:secret@{parts.hostname}:{parts.port}",
    }
    before = stands(vhost, admin)
    done = in_a_process("permissions", "--policies", policies, "--for", purpose, **urls)
    assert done.returncode == 0, done.stderr
    for line in pasted(done.stdout):
        vhost.broker.rabbitmqctl(*line)
    assert stands(vhost, admin) == before
    assert "administrator" in before[0]


@pytest.mark.slow
def test_the_printed_lines_add_to_what_a_user_has(vhost: Vhost, admit: Admit, policies: str) -> None:
    user = admit("^shop", "^shop", "", tags="management,impersonator")
    urls = {"AMQP_URL": url_for(vhost, user), "MANAGEMENT_URL": vhost.management_url}
    for purpose in (Purpose.RUN, Purpose.APPLY):
        asked = ("permissions", "--policies", policies, "--user", user, "--for", purpose)
        done = in_a_process(*asked, **urls)
        for line in pasted(done.stdout):
            vhost.broker.rabbitmqctl(*line)
        assert f"User {user} exists" in done.stderr
        as_json = json.loads(in_a_process(*asked, "--format", "json", **urls).stdout)["permissions"]
        assert as_json == [stands(vhost, user)[1][0]], "a definitions file adds too"
    tags, (rights,) = stands(vhost, user)
    assert tags == {"management", "impersonator", "policymaker"}
    assert rights["configure"].startswith("^shop|^(?:dlx-router")
    assert "dlx-router" in rights["read"]
    for purpose in (Purpose.RUN, Purpose.APPLY):
        again = in_a_process("permissions", "--policies", policies, "--user", user, "--for", purpose, **urls)
        assert pasted(again.stdout) == [], "once is enough"


@pytest.mark.usefixtures("newest")
def test_a_user_that_is_not_there_gets_lines_that_can_be_pasted(vhost: Vhost, policies: str) -> None:
    urls = {"AMQP_URL": vhost.amqp_url, "MANAGEMENT_URL": vhost.management_url}
    done = in_a_process("permissions", "--policies", policies, "--user", "nobody-yet", **urls)
    assert [line[0] for line in pasted(done.stdout)] == ["set_permissions"]
    assert "# rabbitmqctl add_user nobody-yet" in done.stdout


NEEDED = ["^$", ".*", "^a", "b$", "^(a|b)$", "a|b", "^(?:x)$"]


@given(
    st.sampled_from(["", *NEEDED]),
    st.sampled_from(NEEDED),
    st.sampled_from(["a", "b", "ab", "x", "xa", "c"]),
)
def test_both_find_what_either_finds_and_once_is_enough(had: str, needed: str, name: str) -> None:
    pattern = merge.both(had, needed)
    assert may(pattern, name) == (may(had, name) or may(needed, name))
    assert merge.both(pattern, needed) == pattern


def test_flags_of_an_expression_stay_its_own() -> None:
    assert merge.both("(?i)shop", "^mine$") == "(?:(?i)shop)|^mine$"


@given(st.lists(st.sampled_from(["administrator", "monitoring", "policymaker", "mine"]), unique=True))
def test_tags_are_added_only(had: list[str]) -> None:
    for needed in ("monitoring", "policymaker"):
        tags = merge.tags(had, needed)
        assert {*had} <= {*tags} <= {*had, needed}
        assert {needed, "administrator"} & {*tags}


@pytest.mark.usefixtures("newest")
def test_who_else_may_write_to_what_attachments_name_is_listed(vhost: Vhost, admit: Admit, tmp_path: Path) -> None:
    attached = "attachments: [{queue: failed, dead-letter-exchanges: [old-dlx, other-dlx]}]\n"
    (tmp_path / "p.yaml").write_text(POLICY + attached, encoding="utf-8")
    publisher, other = admit("^$", "^old-dlx$", "^$"), admit("^$", "^shop$", "^$")
    urls = {"AMQP_URL": vhost.amqp_url, "MANAGEMENT_URL": vhost.management_url}
    for command in ("permissions", "doctor"):
        done = in_a_process(command, "--policies", str(tmp_path), **urls)
        lines = [line for line in done.stdout.splitlines() if f"user {publisher} " in line]
        assert len(lines) == 1, done.stdout
        assert "say by x-death where a letter failed (write on old-dlx, named by dead-letter-exchanges)" in lines[0]
        assert other not in done.stdout
