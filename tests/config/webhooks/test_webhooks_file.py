"""The file of webhooks: what is taken, what is refused and why, and that no URL and no secret is told by either."""

import base64
import re
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.config.environment.settings import Settings, SettingsError
from dlx_router.config.findings import PolicyErrors
from dlx_router.config.webhooks import file
from dlx_router.config.webhooks.endpoint import secret_bytes
from dlx_router.config.webhooks.file import load
from dlx_router.core.notices import EVENTS

SECRET: Final = f"whsec_{base64.b64encode(b's' * 32).decode()}"
URL: Final = "https://hooks.example/services/T0PSECRET"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text(f"{SECRET}\n", encoding="utf-8")
    (tmp_path / "url").write_text(f"{URL}\n", encoding="utf-8")
    return tmp_path


def written(folder: Path, text: str) -> Path:
    path = folder / "webhooks.yaml"
    path.write_text(text.replace("FOLDER", str(folder)), encoding="utf-8")
    return path


def refused(folder: Path, text: str) -> list[str]:
    with pytest.raises(PolicyErrors) as raised:
        load(written(folder, text))
    message = str(raised.value)
    assert "T0PSECRET" not in message
    assert SECRET.removeprefix("whsec_") not in message
    return [str(finding) for finding in raised.value.findings]


def test_an_endpoint_is_read_with_all_that_it_says(folder: Path) -> None:
    endpoints = load(
        written(
            folder,
            """
webhooks:
  - name: oncall
    url-file: FOLDER/url
    format: slack
    events: [group.*, breaker.opened]
    match: ["orders.#", mail]
    vhost: shop
    allow-addresses: [10.0.0.0/8, fd00::/8]
  - {url: "https://events.example/in", format: cloudevents, secret-file: FOLDER/secret}
""",
        )
    )
    first, second = endpoints.values()
    assert (first.name, first.url, first.host, first.format) == ("oncall", URL, "hooks.example", "slack")
    assert first.events == {"group.opened", "group.returned", "breaker.opened"}
    assert second.events == {*EVENTS}
    assert second.name.startswith("events.example-")
    assert second.secrets == (b"s" * 32,)
    assert first.wants("group.opened", "shop", ["orders.eu"])
    assert not first.wants("group.opened", "shop", ["warehouse"])
    assert not first.wants("group.opened", "/", ["mail"])
    assert not first.wants("letter.parked", "shop", ["mail"])
    assert second.wants("breaker.opened", "", [])
    assert "T0PSECRET" not in repr(endpoints)
    assert "ssssssss" not in repr(endpoints)


ONE: Final = f'url: "{URL}", format: slack'
WRONG: Final = [
    ("", 1, "a list `webhooks`"),
    ("webhooks: []", 1, "found 0"),
    ("webhooks: [7]", 1, "expected a webhook"),
    (f"webhooks: [{', '.join(['{' + ONE + '}'] * 33)}]", 1, "found 33"),
    (f"webhooks:\n  - {{{ONE}, sekret: x}}", 2, 'unknown key "sekret"'),
    (f"webhooks:\n  - {{{ONE}, secret: {SECRET}}}", 2, "a file of its own"),
    (f"webhooks:\n  - {{{ONE}, secret-file: {SECRET}}}", 2, "found what should stand in it"),
    (f'webhooks:\n  - {{url-file: "{URL}", format: slack}}', 2, "found what should stand in it"),
    (f"webhooks:\n  - {{{ONE}}}\n  - {{{ONE}}}", 3, "is there already, in line 2"),
    (f"webhooks:\n  - {{{ONE}, url-file: FOLDER/url}}", 2, "one of url: and url-file:"),
    ("webhooks:\n  - {format: slack}", 2, "one of url: and url-file:"),
    (f'webhooks:\n  - {{url: "{URL}"}}', 2, "without a format"),
    (f'webhooks:\n  - {{url: "{URL}", format: slak}}', 2, 'did you mean "slack"?'),
    (f'webhooks:\n  - {{url: "{URL}", format: cloudevents}}', 2, "without secret-file"),
    (f"webhooks:\n  - {{{ONE}, secret-file: FOLDER/none}}", 2, "cannot be read: No such file"),
    (f"webhooks:\n  - {{{ONE}, secret-file: FOLDER/url}}", 2, "not base64"),
    ("webhooks:\n  - {url-file: FOLDER/secret, format: slack}", 2, "no URL that can be posted to"),
    ("webhooks:\n  - {url-file: FOLDER/none, format: slack}", 2, "cannot be read"),
    ('webhooks:\n  - {url: "ftp://T0PSECRET/", format: slack}', 2, "no URL that can be posted to"),
    ('webhooks:\n  - {url: "https://u:T0PSECRET@h/", format: slack}', 2, "credentials"),
    ('webhooks:\n  - {url: "https://h:99999/T0PSECRET", format: slack}', 2, "no URL"),
    ('webhooks:\n  - {url: "https://h/T0PSECRET #x", format: slack}', 2, "no URL"),
    ('webhooks:\n  - {url: "https://xn--a/T0PSECRET", format: slack}', 2, "no URL"),
    ('webhooks:\n  - {url: "https://a..b/T0PSECRET", format: slack}', 2, "no URL"),
    ('webhooks:\n  - {url: "https://a,b/T0PSECRET", format: slack}', 2, "its host is no name"),
    ('webhooks:\n  - {url: "http://hooks.example/T0PSECRET", format: slack}', 2, "anybody on the way"),
    ('webhooks:\n  - {url: "https://127.0.0.1/T0PSECRET", format: slack}', 2, "a loopback address"),
    ('webhooks:\n  - {url: "https://[fe80::1]/T0PSECRET", format: slack}', 2, "a link-local address"),
    ('webhooks:\n  - {url: "https://10.0.0.1/T0PSECRET", format: slack}', 2, "a private address"),
    (f"webhooks:\n  - {{{ONE}, events: []}}", 2, "an empty list"),
    (f"webhooks:\n  - {{{ONE}, events: [group.open]}}", 2, 'did you mean "group.opened"?'),
    (f"webhooks:\n  - {{{ONE}, events: [nonsense.*]}}", 2, "is no event; known: group.opened"),
    (f'webhooks:\n  - {{{ONE}, match: "orders*"}}', 2, "mixes a word with a wildcard"),
    (f"webhooks:\n  - {{{ONE}, allow-addresses: 10.0.0.1/8}}", 2, "is no network"),
    ("webhooks: {x: [", 2, "not YAML"),
]


@pytest.mark.parametrize(("text", "line", "why"), WRONG)
def test_what_is_wrong_is_told_with_its_line_and_without_what_is_secret(
    folder: Path, text: str, line: int, why: str
) -> None:
    problems = refused(folder, text)
    assert any(f"webhooks.yaml:{line}" in problem and why in problem for problem in problems), problems


def test_a_file_that_is_not_there_is_wrong_use(folder: Path) -> None:
    with pytest.raises(PolicyErrors) as raised:
        load(folder / "none.yaml")
    assert raised.value.unreadable


def test_all_that_is_wrong_is_told_at_once(folder: Path) -> None:
    problems = refused(folder, "webhooks:\n  - {format: slak}\n  - {url: x, format: slack}\n  - {foo: 1}")
    assert {int(problem.split(":")[1]) for problem in problems} == {2, 3, 4}


@given(st.binary(max_size=80))
def test_a_secret_is_a_key_of_24_to_64_bytes_or_refused(key: bytes) -> None:
    text = f"whsec_{base64.b64encode(key).decode()}"
    if 24 <= len(key) <= 64:
        assert secret_bytes(text) == key
    else:
        with pytest.raises(ValueError, match="24 to 64"):
            secret_bytes(text)


def test_while_a_secret_is_changed_two_stand_there(folder: Path) -> None:
    other = f"whsec_{base64.b64encode(b't' * 24).decode()}"
    (folder / "secret").write_text(f"{other}\n{SECRET}\n", encoding="utf-8")
    (endpoint,) = load(written(folder, f"webhooks:\n  - {{{ONE}, secret-file: FOLDER/secret}}")).values()
    assert endpoint.secrets == (b"t" * 24, b"s" * 32)


def test_webhooks_without_an_index_are_wrong_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DLX_ROUTER_WEBHOOKS_FILE", "w.yaml")
    with pytest.raises(SettingsError, match="DLX_ROUTER_WEBHOOKS_FILE needs DLX_ROUTER_INDEX_PATH"):
        Settings.load().webhooks_path()
    monkeypatch.setenv("DLX_ROUTER_INDEX_PATH", str(tmp_path / "index"))
    assert Settings.load().webhooks_path() == Path("w.yaml")
    monkeypatch.setenv("DLX_ROUTER_JOURNAL", "off")
    with pytest.raises(SettingsError, match="DLX_ROUTER_WEBHOOKS_FILE needs"):
        Settings.load().webhooks_path()


@pytest.mark.parametrize("url", ["console", "ftp://h", "https://u:p@h/", "https://h/?q", "https://h/#x"])
def test_where_the_console_is_has_to_be_a_page(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("DLX_ROUTER_CONSOLE_URL", url)
    with pytest.raises(SettingsError, match="DLX_ROUTER_CONSOLE_URL"):
        Settings.load()


def test_the_page_names_every_key_and_event_and_its_example_is_read(folder: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "webhooks.md").read_text(encoding="utf-8")
    rows = {
        name for cell in re.findall(r"^\| (`[^|]+) \|", page, re.MULTILINE) for name in re.findall(r"`([^`]+)`", cell)
    }
    assert rows >= {*EVENTS, *file._ENDPOINT.parsers}
    (example,) = re.findall(r"^```yaml\n(webhooks:.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for name, text in (("slack-url", URL), ("teams-url", f"{URL}/2"), ("webhook", SECRET)):
        (folder / name).write_text(text, encoding="utf-8")
    endpoints = load(written(folder, example.replace("/run/secrets", "FOLDER")))
    assert [endpoint.format for endpoint in endpoints.values()] == ["slack", "teams", "cloudevents"]
