"""The router is ready when nobody objects."""

from dlx_router.telemetry.readiness import Readiness, Speaker


def started() -> Readiness:
    readiness = Readiness()
    readiness.clear("start")
    return readiness


def test_a_router_that_has_not_started_is_not_ready() -> None:
    assert (Readiness().ready, Readiness().reasons()) == (False, ["starting"])


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


def test_a_note_is_no_objection() -> None:
    readiness = started()
    readiness.note("api", "policies not verified")
    assert (readiness.ready, readiness.notes()) == (True, ["policies not verified"])
    readiness.drop_note("api")
    assert readiness.notes() == []


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
