"""`dlx-router permissions` as people meet it: what it prints, for whom, and how it ends."""

import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cli.test_cli import in_a_process
from tests.security.conftest import EVERYTHING, Admit
from tests.support.vhost import Vhost

POLICY = "version: 1\npolicies: [{name: one, queue: 'orders', definition: {redelivery-delay: 1s}}]\n"


@pytest.fixture
def policies(tmp_path: Path) -> str:
    (tmp_path / "policies.yaml").write_text(POLICY, encoding="utf-8")
    return str(tmp_path)


def test_a_line_for_a_shell_and_a_reason_for_each_right(policies: str) -> None:
    done = in_a_process("permissions", "--policies", policies, AMQP_URL="amqp://shop:s3cret@h/shop's vhost")
    assert done.returncode == 0
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("rabbitmqctl set_permissions")]
    assert line.startswith("rabbitmqctl set_permissions --vhost 'shop'\"'\"'s vhost' shop '^(?:dlx-router\\.")
    assert "policy one: binds them, so that letters can go back" in done.stdout
    assert "s3cret" not in done.stdout + done.stderr
    assert "no MANAGEMENT_URL" in done.stderr


def test_another_user_and_prefix_and_several_vhosts(policies: str) -> None:
    asked = ("permissions", "--policies", policies, "--user", "router", "--format", "json")
    done = in_a_process(*asked, PREFIX="dead", VHOSTS="a,b")
    found = json.loads(done.stdout)["permissions"]
    assert [(one["user"], one["vhost"]) for one in found] == [("router", "a"), ("router", "b")]
    assert all(r"dead\.inbox" in one["read"] and "dlx-router" not in one["read"] for one in found)


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


def test_who_else_has_rights_is_listed_for_an_administrator(vhost: Vhost, admit: Admit, policies: str) -> None:
    careless, careful = admit(*EVERYTHING), admit("^shop", "^shop", "^shop")
    publisher = admit("^$", "^amq.default$", "^$")
    urls = {"AMQP_URL": vhost.amqp_url, "MANAGEMENT_URL": vhost.management_url}
    done = in_a_process("permissions", "--policies", policies, **urls)
    assert done.returncode == 0, done.stderr
    told = {line.split()[2]: line for line in done.stdout.splitlines() if line.startswith("- user ")}
    assert "read the key that signs records" in told[careless]
    assert "publish to dlx-router.delay.*" in told[careless]
    assert "delete what the router owns" in told[careless]
    assert "publish to any queue by its name" in told[publisher]
    assert "key" not in told[publisher]
    assert careful not in told
    assert urlsplit(vhost.amqp_url).username not in told, "the router's own user is no stranger"


def test_a_user_that_only_monitors_is_enough_for_the_router_and_said_not_to_tell_who_has_rights(
    vhost: Vhost, admit: Admit, policies: str
) -> None:
    user = admit("^$", "^$", "^$", tags="monitoring")
    parts = urlsplit(vhost.management_url)
    api = f"http://{user}:secret@{parts.hostname}:{parts.port}"
    done = in_a_process("permissions", "--policies", policies, AMQP_URL=vhost.amqp_url, MANAGEMENT_URL=api)
    assert done.returncode == 0
    assert f"rabbitmqctl set_user_tags {user} monitoring" in done.stdout
    assert "is not known (it takes an administrator to ask)" in done.stderr
