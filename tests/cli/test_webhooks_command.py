"""`webhooks test`: one message to each, what came back, and an exit code that scripts can use."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from standardwebhooks import Webhook

from tests.cli.test_cli import Done, dlx_router  # noqa: F401 - a fixture
from tests.support.receiver import Receiver
from tests.webhooks.test_signature import SECRET

HIDDEN: Final = "T0PSECRET"
Typed = Callable[..., Done]


def file(folder: Path, *receivers: tuple[str, str, str]) -> str:
    """A file of webhooks: name, format, URL."""
    (folder / "secret").write_text(SECRET, encoding="utf-8")
    rest = f"secret-file: {folder}/secret, allow-addresses: 127.0.0.0/8"
    entries = [f"  - {{name: {name}, format: {form}, url: '{url}', {rest}}}" for name, form, url in receivers]
    (folder / "webhooks.yaml").write_text("\n".join(["webhooks:", *entries]), encoding="utf-8")
    return str(folder / "webhooks.yaml")


def test_it_says_what_came_back_of_each(dlx_router: Typed, tmp_path: Path) -> None:  # noqa: F811 - a fixture that is imported
    with Receiver(text=b"ok") as good, Receiver(status=404, text=b"no_service") as bad:
        good.status = 200
        path = file(tmp_path, ("good", "cloudevents", good.url(f"/{HIDDEN}")), ("bad", "slack", bad.url(f"/{HIDDEN}")))
        done = dlx_router("webhooks", "test", "--file", path)
        assert done.returncode == 1
        assert "taken (HTTP 200)" in done.stdout
        assert "HTTP 404" in done.stdout
        assert "no_service" in done.stdout
        assert HIDDEN not in done.stdout + done.stderr
        event = Webhook(SECRET).verify(good.posts[0].body, dict(good.posts[0].headers))
        assert event["type"] == "dlx-router.webhook.test"
        assert json.loads(bad.posts[0].body)["text"] == "A test of dlx-router's webhooks"
        single = dlx_router("webhooks", "test", "good", WEBHOOKS_FILE=path)
        assert single.returncode == 0
        assert (len(good.posts), len(bad.posts)) == (2, 1)


def test_the_port_of_the_router_is_refused(dlx_router: Typed, tmp_path: Path) -> None:  # noqa: F811 - a fixture that is imported
    with Receiver() as receiver:
        path = file(tmp_path, ("a", "teams", receiver.url("/api/v1/index/rebuild")))
        done = dlx_router("webhooks", "test", WEBHOOKS_FILE=path, HTTP_PORT=str(receiver.port))
        assert (done.returncode, receiver.posts) == (1, [])
    assert "this router" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "text", "code", "why"),
    [
        ((), None, 2, "no file of webhooks; set DLX_ROUTER_WEBHOOKS_FILE"),
        (("--file", "/none"), None, 2, "/none:1: error DLX001"),
        (("--file", "FILE"), "webhooks: 7", 1, "webhooks.yaml:1: error DLX006"),
        (("other", "--file", "FILE"), "webhooks: [{name: mine, format: slack, url: 'https://h.example/'}]", 2, "mine"),
    ],
)
def test_wrong_use_says_what_now(
    dlx_router: Typed, tmp_path: Path, arguments: tuple[str, ...], text: str | None, code: int, why: str  # noqa: F811 - a fixture that is imported
) -> None:  # fmt: skip
    path = tmp_path / "webhooks.yaml"
    path.write_text(text or "", encoding="utf-8")
    done = dlx_router("webhooks", "test", *(str(path) if argument == "FILE" else argument for argument in arguments))
    assert (done.returncode, done.stdout) == (code, "")
    assert why in done.stderr
