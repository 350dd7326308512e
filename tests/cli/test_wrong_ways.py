"""What a new user does wrong with a broker or a router: each error says where, what and what now, and no secret."""

from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest

from tests.cli.test_cli import in_a_process
from tests.security.conftest import Admit, admit, url_for  # noqa: F401 - a fixture
from tests.support.vhost import Vhost

SECRET: Final = "hunter2-hunter2"
NOTHING: Final = ("^$", "^$", "^$")


@pytest.fixture
def folder(tmp_path: Path) -> str:
    (tmp_path / "p.yaml").write_text("version: 1\npolicies: [{name: work, match: 'work.#'}]\n")
    return str(tmp_path)


def place(vhost: Vhost) -> str:
    parts = urlsplit(vhost.management_url)
    return f"{parts.hostname}:{parts.port}"


@pytest.mark.usefixtures("newest")
@pytest.mark.parametrize("command", ["plan", "apply", "destroy"])
def test_provisioning_says_what_is_wrong_with_the_management_api(command: str, vhost: Vhost, folder: str) -> None:
    amqp = urlsplit(vhost.amqp_url)
    user = f"guest:{SECRET}"
    for url, words in (
        (f"http://{user}@{place(vhost)}", ("401", "password is wrong", "dlx-router permissions")),
        (f"http://{user}@127.0.0.1:1", ("http://127.0.0.1:1: ", "is MANAGEMENT_URL the address", "is it enabled?")),
        (f"http://{user}@{amqp.hostname}:{amqp.port}", ("is MANAGEMENT_URL the address", "port 15672")),
        ("nonsense", ("not the URL of a management API", "write http://")),
    ):
        done = in_a_process(command, "--policies", folder, AMQP_URL=vhost.amqp_url, MANAGEMENT_URL=url)
        assert done.returncode == 2, done.stdout + done.stderr
        assert all(word in done.stderr for word in words), done.stderr
        assert SECRET not in done.stdout + done.stderr
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_doctor_says_which_rights_a_user_lacks_that_may_only_read(vhost: Vhost, folder: str, admit: Admit) -> None:  # noqa: F811 - a fixture that is imported
    user = admit("^$", "^$", ".*", password=SECRET, tags="management")
    url = url_for(vhost, user, SECRET)
    done = in_a_process("doctor", "--policies", folder, AMQP_URL=url, MANAGEMENT_URL=vhost.management_url)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"user '{user}' lacks rights in vhost" in done.stdout
    assert "configure dlx-router.quarantine" in done.stdout
    assert SECRET not in done.stdout + done.stderr
    api = f"http://{user}:{SECRET}@{place(vhost)}"
    done = in_a_process("doctor", "--policies", folder, AMQP_URL=url, MANAGEMENT_URL=api)
    assert f"whether '{user}' has all that it needs is not known" in done.stdout, "it is not passed over"
    everything = in_a_process(
        "doctor", "--policies", folder, AMQP_URL=vhost.amqp_url, MANAGEMENT_URL=vhost.management_url
    )
    assert "lacks rights" not in everything.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_doctor_names_the_right_that_has_names_of_new_queues_written(vhost: Vhost, folder: str, admit: Admit) -> None:  # noqa: F811 - a fixture that is imported
    """Without it the router waits 2 s for each new queue; nothing else fails."""
    user = admit(r"^(?!dlx-router\.flush\.).*$", ".*", ".*", password=SECRET, tags="management")
    url = url_for(vhost, user, SECRET)
    done = in_a_process("doctor", "--policies", folder, AMQP_URL=url, MANAGEMENT_URL=vhost.management_url)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "lacks rights in vhost" in done.stdout
    assert "configure dlx-router.flush." in done.stdout, done.stdout


@pytest.mark.usefixtures("newest")
def test_doctor_does_not_ask_for_a_url_that_is_there(vhost: Vhost, folder: str) -> None:
    wrong = f"http://guest:{SECRET}@{place(vhost)}"
    done = in_a_process("doctor", "--policies", folder, AMQP_URL=vhost.amqp_url, MANAGEMENT_URL=wrong)
    assert done.returncode == 1
    assert "correct MANAGEMENT_URL or its user" in done.stdout
    assert "set MANAGEMENT_URL:" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) < 600, "a line is for people"


@pytest.mark.usefixtures("newest")
@pytest.mark.parametrize(
    "asks", [("letters", "list"), ("groups",), ("queues",), ("redrive", "start", "q", "--dry-run")]
)
def test_commands_of_a_router_know_what_is_none(asks: tuple[str, ...], vhost: Vhost) -> None:
    for url, ending in (
        (f"http://{place(vhost)}", "no router answers there; is DLX_ROUTER_API_URL its address?"),
        ("nonsense", "not the address of a router; write http://HOST:9719"),
        ("http://127.0.0.1:1", "is the router running, and DLX_ROUTER_API_URL its address?"),
    ):
        done = in_a_process(*asks, API_URL=url, API_TOKEN=SECRET)
        assert (done.returncode, done.stderr.strip().endswith(ending)) == (2, True), done.stdout + done.stderr
        assert SECRET not in done.stderr


def test_policy_test_of_a_file_without_tests_says_how_those_are_called(folder: str) -> None:
    done = in_a_process("policy", "test", f"{folder}/p.yaml")
    assert (done.returncode, "their files end in .test.yaml; name one of those" in done.stderr) == (2, True)


@pytest.mark.parametrize("origin", ["rabbitmq", "sqs", "yandex", "emq", "artemis"])
def test_an_import_of_another_kind_of_file_asks_for_from(origin: str, tmp_path: Path) -> None:
    file = tmp_path / "export"
    file.write_text('{"policies": []}' if origin == "artemis" else "<configuration/>")
    done = in_a_process("policy", "import", "--from", origin, str(file))
    assert (done.returncode, f"--from {origin} reads" in done.stderr) == (1, True), done.stderr
