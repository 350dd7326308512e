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


def test_an_expression_for_each_right_and_a_reason_for_each_name(policies: str) -> None:
    done = in_a_process("permissions", "--policies", policies, AMQP_URL="amqp://shop:s3cret@h/shop's vhost")
    assert done.returncode == 0
    assert "User shop in vhost shop's vhost:" in done.stdout
    assert "\nconfigure ^(?:dlx-router\\." in done.stdout
    assert "policy one: binds them, so that letters can go back" in done.stdout
    assert "s3cret" not in done.stdout + done.stderr
    assert "give the router a user of its own" in done.stderr


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
