"""Who logged in at one replica is logged in at all of them; a proxy's word is taken from the proxy alone."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import ASGIApp

from dlx_router.config.api_access import passes as of_passes
from dlx_router.config.api_access.allowed_hosts import Hosts
from dlx_router.config.api_access.passes import IDLE_MS, LONGEST_MS, Passes, contents
from dlx_router.config.api_access.single_sign_on import HEADERS, Person, SingleSignOn, roles_of
from dlx_router.config.api_access.tokens import Role, Tokens
from dlx_router.config.api_access.trusted_proxies import networks
from dlx_router.config.environment.settings import Settings, SettingsError
from dlx_router.console import auth
from dlx_router.console.app import create_app
from dlx_router.console.auth import LOGINS, MAX_CLIENTS, LoginLimit, Session
from dlx_router.console.router_api import InProcess, RouterApi
from dlx_router.telemetry.wall_clock import wall_ms
from tests.admin.replicas import ANN, BOB, OLGA, Network, Replica
from tests.console.liar import browser, csrf

KEY: Final = b"s" * 32
NOW: Final = 1_800_000_000_000


def console(replica: Replica, **how: Any) -> ASGIApp:
    """As the router starts it."""
    router = RouterApi("router", "http://127.0.0.1", InProcess(replica.app))
    return create_app([router], Hosts(), passes=replica.context.passes, **how)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Replica, Replica]:
    network = Network()
    first, second = (Replica(network, tmp_path, name, ("/",), sessions=KEY) for name in ("first", "second"))
    first.lead("/", second)
    return first, second


async def log_in(client: httpx.AsyncClient, token: str) -> str:
    answer = await client.post("/login", data={"token": token})
    assert answer.status_code == 303, answer.text
    return str(client.cookies["dlx_console"])


# -- sessions of any replica ------------------------------------------------------------------------------------------


async def test_a_session_that_began_at_one_replica_holds_at_all(pair: tuple[Replica, Replica]) -> None:
    first, second = (console(replica) for replica in pair)
    async with browser(first) as client, browser(second) as other:
        cookie = await log_in(client, OLGA)
        assert OLGA not in cookie + json.dumps(contents(cookie))
        other.cookies.set("dlx_console", cookie)
        page = await other.get("/policies")
        assert (page.status_code, "olga · operator" in page.text) == (200, True)
        theme = {"csrf": csrf((await client.get("/policies")).text), "theme": "dark"}
        assert (await other.post("/theme", data=theme)).status_code == 303, "a form of the one, sent to the other"
        assert (await other.post("/theme", data={**theme, "csrf": "guessed"})).status_code == 403
        assert (await other.post("/theme", data={"theme": "dark"})).status_code == 403


async def test_a_token_that_is_taken_back_ends_its_sessions_at_every_replica(pair: tuple[Replica, Replica]) -> None:
    first, second = pair
    async with browser(console(first)) as client, browser(console(second)) as other:
        other.cookies.set("dlx_console", await log_in(client, ANN))
        assert (await other.get("/policies")).status_code == 200
        text = second.tokens_file.read_text(encoding="utf-8")
        second.tokens_file.write_text(text.replace(ANN, "ann-another-" + "x" * 20), encoding="utf-8")
        assert (await other.get("/policies")).headers["location"].startswith("/login")
        assert (await client.get("/policies")).status_code == 200, "there the file is as it was"


async def test_a_role_that_changes_changes_its_sessions(pair: tuple[Replica, Replica]) -> None:
    first, _ = pair
    async with browser(console(first)) as client:
        cookie = await log_in(client, OLGA)
        assert (await first.ask("POST", "/change", cookie))[0] == 200
        text = first.tokens_file.read_text(encoding="utf-8")
        first.tokens_file.write_text(text.replace("role: operator", "role: viewer"), encoding="utf-8")
        assert (await first.ask("POST", "/change", cookie))[0] == 403
        assert (await first.ask("GET", "/echo/a", cookie))[1]["role"] == "VIEWER"


async def test_who_logs_out_is_out_where_they_did_and_the_browser_forgets_it(pair: tuple[Replica, Replica]) -> None:
    first, _ = pair
    async with browser(console(first)) as client:
        cookie = await log_in(client, BOB)
        word = csrf((await client.get("/policies")).text)
        answer = await client.post("/logout", data={"csrf": word})
        assert 'dlx_console=""' in answer.headers["set-cookie"]
        client.cookies.set("dlx_console", cookie)
        assert (await first.ask("GET", "/status", cookie))[0] == 401
        assert (await client.get("/groups")).headers["location"].startswith("/login")


async def test_a_session_goes_on_while_it_is_used_and_ends_at_last(
    pair: tuple[Replica, Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = pair
    monkeypatch.setattr(auth, "RENEWED_MS", -1)
    async with browser(console(first)) as client:
        cookie = await log_in(client, OLGA)
        live = await client.get("/policies", headers={"hx-request": "true"})
        assert "set-cookie" not in live.headers, "what a page asks by itself is no use"
        await client.get("/policies")
        renewed = client.cookies["dlx_console"]
        assert renewed != cookie
        assert (contents(renewed)["i"], contents(renewed)["b"], contents(renewed)["c"]) == tuple(
            contents(cookie)[name] for name in "ibc"
        )
    passes = Passes(KEY)
    word, session = passes.begin("digest", NOW)
    for _ in range(100):
        later = session.until_ms - 1
        word, session = passes.renewed(session, later)
    assert session.until_ms == NOW + LONGEST_MS
    assert passes.session(word, session.until_ms - 1) is not None
    assert passes.session(word, session.until_ms) is None


async def test_without_a_key_that_replicas_share_sessions_hold_at_one(tmp_path: Path) -> None:
    alone, other = (Replica(Network(), tmp_path, name, ("/",)) for name in ("alone", "other"))
    alone.lead("/")
    async with browser(console(alone)) as client:
        cookie = await log_in(client, OLGA)
        assert (await client.get("/policies")).status_code == 200
    assert (await other.ask("GET", "/status", cookie))[0] == 401
    is_open = Replica(Network(), tmp_path, "open", ("/",), tokens=False)
    assert (await is_open.ask("POST", "/sessions"))[0] == 409
    async with browser(console(is_open)) as client:
        assert (await client.get("/policies")).status_code == 200, "on this machine"
        client.cookies.set("dlx_console", cookie)
        assert (await client.get("/policies")).status_code == 200, "a cookie of a router that asks for tokens"


async def test_a_console_over_several_routers_has_a_pass_of_each_that_knows_the_token(
    pair: tuple[Replica, Replica], tmp_path: Path
) -> None:
    first, alone = pair[0], Replica(Network(), tmp_path, "alone", ("/",))
    alone.lead("/")
    replicas = {"north": first, "south": alone}
    app = create_app([RouterApi(name, "http://127.0.0.1", InProcess(replicas[name].app)) for name in replicas], Hosts())
    async with browser(app) as client:
        cookie = await log_in(client, ANN)
        for name, word in zip(replicas, cookie.strip('"').split("~"), strict=True):
            assert (await client.get(f"/at/{name}/policies")).status_code == 200
            assert (await replicas[name].ask("GET", "/status", word))[0] == 200
        page = await client.get("/policies")
        assert (await client.post("/logout", data={"csrf": csrf(page.text)})).status_code == 303
        for name, word in zip(replicas, cookie.strip('"').split("~"), strict=True):
            assert (await replicas[name].ask("GET", "/status", word))[0] == 401, "log-out ends it at each router"


def test_an_address_may_try_some_times_and_then_slowly() -> None:
    now = [0.0]
    limit = LoginLimit(lambda: now[0])
    assert [limit.allows("a") for _ in range(int(LOGINS) + 1)] == [True] * int(LOGINS) + [False]
    assert limit.allows("b")
    now[0] = 2.0
    assert [limit.allows("a"), limit.allows("a")] == [True, False]
    limit.give_back("a")
    limit.give_back("nobody")
    assert [limit.allows("a"), limit.allows("a")] == [True, False]
    for number in range(MAX_CLIENTS + 10):
        limit.allows(str(number))
    assert len(limit._left) == MAX_CLIENTS


def test_nothing_tells_what_a_session_is_shown_with() -> None:
    session = Session({"router": "secret-pass"}, "c" * 32, "secret-pass")
    assert "secret" not in repr(session)
    assert session.csrf not in repr(session)
    assert session.allows(session.csrf)
    assert not session.allows("")
    assert not session.allows("\udc80é")


@given(st.sampled_from("itcbu"), st.text(max_size=12) | st.integers())
def test_nothing_of_a_pass_can_be_changed(member: str, value: object) -> None:
    passes = Passes(KEY)
    word, session = passes.begin("digest", NOW)
    kind, data, mac = word.split(".")
    claims = json.loads(urlsafe_b64decode(data))
    is_same = claims[member] == value
    claims[member] = value
    forged = f"{kind}.{urlsafe_b64encode(json.dumps(claims, separators=(',', ':')).encode()).decode()}.{mac}"
    assert (passes.session(forged, NOW) == session) == is_same
    assert Passes(b"x" * 32).session(word, NOW) is None
    assert Passes().session(word, NOW) is None
    assert passes.session(word, NOW + IDLE_MS) is None


@given(
    st.text(max_size=80)
    | st.tuples(st.sampled_from(["dlxs", "dlxp"]), st.text(max_size=40)).map(lambda p: f"{p[0]}.{p[1]}.x")
)
def test_any_text_is_a_pass_or_none(text: str) -> None:
    assert Passes(KEY).caller(text, None, NOW) is None
    assert isinstance(contents(text), dict)


def test_a_pass_stands_for_its_token_and_for_no_other(tmp_path: Path) -> None:
    file = tmp_path / "t"
    file.write_text(
        f"tokens:\n  - {{name: a, token: {ANN}, role: viewer}}\n  - {{name: b, token: {BOB}, role: admin}}\n"
    )
    tokens, passes = Tokens(file), Passes(KEY)
    for token, name in ((ANN, "a"), (BOB, "b")):
        word, session = passes.begin(Tokens.digest(token), NOW)
        viewer = passes.caller(word, tokens, NOW)
        assert viewer is not None
        assert viewer.name == name
        passes.end(session)
        assert passes.caller(word, tokens, NOW) is None
    word, _ = passes.begin("0" * 64, NOW)
    assert passes.caller(word, tokens, NOW) is None


# -- a proxy that logs people in --------------------------------------------------------------------------------------

SSO: Final = SingleSignOn("10.0.0.5,10.1.0.0/16,fd00::/64", "sre=admin,ops=operator,a=b=viewer")


def headers(user: str | None = "ann", groups: str = "ops") -> list[tuple[bytes, bytes]]:
    pairs = [(b"host", b"x"), (b"x-forwarded-groups", groups.encode())]
    return pairs if user is None else [*pairs, (b"x-forwarded-user", user.encode())]


@pytest.mark.parametrize("peer", ["10.0.0.5", "10.1.200.3", "::ffff:10.0.0.5", "fd00::1"])
def test_the_proxys_word_is_taken(peer: str) -> None:
    assert SSO.person(peer, headers()) == Person("ann", Role.OPERATOR)


@pytest.mark.parametrize(
    "peer", ["10.0.0.6", "10.2.0.1", "127.0.0.1", "::1", "fd00:0:0:1::1", "?", "", "10.0.0.5.evil", "unix:"]
)
def test_nobody_elses_is(peer: str) -> None:
    assert SSO.person(peer, headers()) is None
    assert SingleSignOn(None, None).person("10.0.0.5", headers()) is None


@pytest.mark.parametrize(
    ("separator", "groups", "role"),
    [
        (",", "ops", Role.OPERATOR), (",", "viewers, ops ,sre", Role.ADMIN), (",", "a=b", Role.VIEWER),
        (",", "pizza|sre", None), (",", "pizza;sre", None), (",", "sre2", None), (",", "xsre", None),
        (",", "OPS", None), (",", "", None), (",", "admin", None), ("|", "ops|sre", Role.ADMIN),
        ("|", "ops", Role.OPERATOR),
        ("|", "pizza,sre", None), ("|", "pizza| sre", None), (";", "pizza|sre;ops", Role.OPERATOR),
        (";", "a,sre", None),
    ],
)  # fmt: skip
def test_only_the_separator_that_the_operator_chose_separates_groups(
    separator: str, groups: str, role: Role | None
) -> None:
    proxy = "10.0.0.5"
    sso = SingleSignOn(proxy, "sre=admin,ops=operator,a=b=viewer", separator=separator)
    assert sso.person(proxy, headers(groups=groups)) == Person("ann", role)
    everybody = SingleSignOn(proxy, "*=viewer,sre=admin", separator=separator).person(proxy, headers(groups=groups))
    assert everybody == Person("ann", Role.ADMIN if role is Role.ADMIN else Role.VIEWER)


@given(st.lists(st.text("ops,;| re", max_size=8), max_size=4), st.sampled_from(",;|"))
def test_a_role_needs_a_group_of_exactly_that_name(names: list[str], separator: str) -> None:
    person = SingleSignOn("10.0.0.5", "sre=admin", separator=separator).person(
        "10.0.0.5", headers(groups=separator.join(names))
    )
    assert person is not None
    parts = [part for name in names for part in name.split(separator)]
    assert (person.role is Role.ADMIN) == ("sre" in ([part.strip() for part in parts] if separator == "," else parts))


@pytest.mark.parametrize("user", [None, "", "  ", "a\nb", "a\x00b", "x" * 300, "\u202eevil"])
def test_a_name_that_cannot_be_told_is_nobody(user: str | None) -> None:
    assert SSO.person("10.0.0.5", headers(user)) is None


def test_two_names_are_nobody() -> None:
    assert SSO.person("10.0.0.5", [*headers("ann"), *headers("root")]) is None


@pytest.mark.parametrize("said_", ["0.0.0.0/0", "::/0", "proxy", "10.0.0.300", "10.0.0.5/8"])
def test_addresses_of_proxies_are_addresses(said_: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=said_.replace(".", r"\.")):
        networks(said_)
    monkeypatch.setenv("DLX_ROUTER_SSO_PROXIES", said_)
    monkeypatch.setenv("DLX_ROUTER_SSO_ROLES", "*=viewer")
    with pytest.raises(SettingsError, match="SSO_PROXIES"):
        Settings.load({})


@pytest.mark.parametrize("roles", ["ops", "ops=root", "=viewer", "ops=viewer=x"])
def test_roles_of_groups_are_roles(roles: str) -> None:
    with pytest.raises(ValueError, match="GROUP=ROLE"):
        roles_of(roles)


def test_one_setting_needs_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLX_ROUTER_SSO_PROXIES", "10.0.0.5")
    with pytest.raises(SettingsError, match="need each other"):
        Settings.load({})
    monkeypatch.setenv("DLX_ROUTER_SSO_ROLES", "*=viewer")
    assert Settings.load({}).sso_headers == HEADERS
    monkeypatch.setenv("DLX_ROUTER_SSO_HEADERS", "X-User")
    with pytest.raises(SettingsError, match="two headers"):
        Settings.load({})
    monkeypatch.delenv("DLX_ROUTER_SSO_HEADERS")
    monkeypatch.setenv("DLX_ROUTER_SSO_ROLES", "pizza|sre=admin")
    assert Settings.load({}).sso_group_separator == ","
    for separator, why in (("|", "contains the separator"), (",;", "one character"), ("x", "one character")):
        monkeypatch.setenv("DLX_ROUTER_SSO_GROUP_SEPARATOR", separator)
        with pytest.raises(SettingsError, match=why):
            Settings.load({})


async def test_a_person_whom_the_proxy_names_needs_no_token_and_is_named_in_what_they_do(
    pair: tuple[Replica, Replica],
) -> None:
    first, _ = pair
    sso = SingleSignOn("127.0.0.1", "ops=operator")
    named = {"x-forwarded-user": "ann@example.com", "x-forwarded-groups": "dev, ops"}
    for replica in pair:
        async with browser(console(replica, sso=sso)) as client:
            page = await client.get("/policies", headers=named)
            assert (page.status_code, "ann@example.com · operator" in page.text) == (200, True)
            assert "Log out" not in page.text
            form = {"csrf": csrf(page.text), "theme": "dark"}
            assert (await client.post("/theme", data=form, headers=named)).status_code == 303
            assert (await client.post("/theme", data={**form, "csrf": "x" * 43}, headers=named)).status_code == 403
            assert (await client.get("/policies", headers={**named, "x-forwarded-groups": "dev"})).status_code == 403
            assert (await client.get("/policies")).status_code == 303, "the cookie alone opens nothing"
        vouched = replica.context.passes.vouch("ann@example.com", Role.OPERATOR, wall_ms())
        assert await replica.ask("POST", "/change", vouched) == (200, {"by": first.id})
    assert first.context.extras["done"] == ["ann@example.com"] * 2, "through the other replica, too"


async def test_nobody_vouches_for_themselves(pair: tuple[Replica, Replica]) -> None:
    first, second = pair
    foreign = second.context.passes.vouch("root", Role.ADMIN, wall_ms())
    old = first.context.passes.vouch("root", Role.ADMIN, wall_ms() - of_passes.PERSON_MS)
    kind, data, mac = first.context.passes.vouch("ann", Role.VIEWER, wall_ms()).split(".")
    claims = {**json.loads(urlsafe_b64decode(data)), "r": "ADMIN"}
    forged = f"{kind}.{urlsafe_b64encode(json.dumps(claims).encode()).decode()}.{mac}"
    for word in (foreign, old, forged, "dlxp.e30=.", "dlxp..", f"dlxs.{data}.{mac}"):
        assert (await first.ask("GET", "/status", word))[0] == 401
        async with browser(console(first)) as client:
            client.cookies.set("dlx_console", word)
            assert (await client.get("/policies")).status_code == 303
    async with browser(console(first)) as client:
        claimed = {"x-forwarded-user": "root", "x-forwarded-groups": "ops"}
        assert (await client.get("/policies", headers=claimed)).status_code == 303, "without SSO_PROXIES"
