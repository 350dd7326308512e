"""The router is ready when nobody objects."""

from dlx_router.telemetry.readiness import Readiness


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
