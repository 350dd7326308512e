"""The router is ready once it has started, while one of its vhosts works."""

from itertools import product

import pytest

from dlx_router.telemetry.readiness import Readiness, Speaker


def started() -> Readiness:
    readiness = Readiness()
    readiness.clear("start")
    return readiness


def test_every_objection_has_to_be_taken_back() -> None:
    readiness = started()
    readiness.set("a", "first")
    readiness.set("b", "second")
    readiness.set("a", "first, changed")
    assert readiness.reasons() == ["first, changed", "second"]
    readiness.clear("a")
    readiness.clear("never said")
    assert not readiness.ready
    readiness.clear("b")
    assert readiness.ready


def test_no_text_holds_credentials() -> None:
    readiness = started()
    readiness.set("link", "amqp://u:hunter2@host is not there")
    readiness.note("api", "http://u:hunter2@host is not there")
    assert "hunter2" not in f"{readiness.reasons()} {readiness.notes()}"


def test_what_a_part_said_ends_with_it_and_nothing_else() -> None:
    readiness = started()
    readiness.set("link", "no answer")
    readiness.note("api", "policies not verified")
    part = Speaker(readiness)
    for key in ("one", "two"):
        part.set(key, f"{key} cannot be consumed")
        part.note(key, f"{key} is not verified")
    part.clear("one")
    part.drop_note("one")
    assert readiness.reasons() == ["no answer", "two cannot be consumed"]
    assert readiness.notes() == ["policies not verified", "two is not verified"]
    part.take_back()
    assert (readiness.reasons(), readiness.notes()) == (["no answer"], ["policies not verified"])


@pytest.mark.parametrize(("general", "first", "second"), [*product((False, True), repeat=3)])
def test_one_vhost_that_works_is_enough_and_the_rest_are_notes(*, general: bool, first: bool, second: bool) -> None:
    readiness = started()
    vhosts = {"a": first, "b": second}
    parts = {vhost: readiness.vhost(vhost) for vhost in vhosts}
    for vhost, works in vhosts.items():
        parts[vhost].clear(f"link {vhost}")
        if not works:
            Speaker(parts[vhost]).set(f"own {vhost}", f"the inbox of {vhost} is foreign")
    if general:
        readiness.set("draining", "draining")
    readiness.note("api", "not verified")
    wrong = [f"the inbox of {vhost} is foreign" for vhost, works in vhosts.items() if not works]
    wrong += ["draining"] if general else []
    is_ready = not general and (first or second)
    assert (readiness.ready, readiness.vhosts(), readiness.problems()) == (is_ready, vhosts, wrong)
    assert readiness.reasons() == ([] if is_ready else wrong)
    assert readiness.notes() == [*(wrong if is_ready else ()), "not verified"]
    readiness.drop_vhost("b")
    assert readiness.ready == (first and not general)


def test_what_a_vhost_cleared_is_an_objection_while_the_router_itself_says_it() -> None:
    readiness = started()
    readiness.vhost("a").clear("link a")
    assert readiness.ready
    readiness.set("link a", "draining")
    assert not readiness.ready


@pytest.mark.parametrize("is_awaited", [True, False])
def test_a_start_waits_for_the_first_answer_of_each_vhost_and_a_vhost_that_comes_later_changes_nothing(
    *, is_awaited: bool
) -> None:
    readiness = started()
    readiness.vhost("a", is_awaited=is_awaited).clear("link a")
    second = readiness.vhost("b", is_awaited=is_awaited)
    assert readiness.ready is not is_awaited
    second.set("own b", "its inbox is foreign")
    assert readiness.ready
    second.clear("own b")
    second.set("link b", "refused")
    assert readiness.ready
