"""What a line of an audit says, whatever the journal holds."""

from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.audit_details import audit_details
from dlx_router.core.printable import plain

TASK: dict[str, Any] = {
    "v": 1,
    "id": "bbf02c95ba45",
    "spec": {"queue": "DLQ.orders", "kind": "park", "dry_run": True},
    "counts": {"sent": 3},
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda children: st.dictionaries(st.text(), children)
)


PAGE: Final = {
    "digest": "0" * 64, "group": "g1-1", "queue": "orders", "reason": "rejected", "note": "We are at it.",
    "shows_error": True, "by": "ann", "shared_ms": 1,
}  # fmt: skip


def test_a_status_page_is_told_by_its_group_and_many_by_their_number_and_never_by_their_digests() -> None:
    for action in ("page.shared", "page.revoked"):
        shown = audit_details({"action": action, "details": {"page": PAGE}})
        assert shown == {"group": "g1-1", "queue": "orders", "error": "shown", "note": "We are at it."}
    assert audit_details({"action": "page.kept", "details": {"pages": [PAGE, PAGE], "kept_ms": 1}}) == {"pages": 2}


def test_a_task_is_told_by_what_it_is_and_nothing_else() -> None:
    shown = audit_details({"action": "task.done", "details": {"task": TASK, "mac": "736e7519"}})
    assert shown == {"task": "bbf02c95ba45", "kind": "park (dry run)", "queue": "DLQ.orders", "would go": 3}
    sent = {**TASK, "spec": {**TASK["spec"], "dry_run": False}}
    assert audit_details({"action": "task.done", "details": {"task": sent}})["sent"] == 3


def test_a_message_is_told_by_what_it_is_and_to_whom() -> None:
    message = {"kind": "group.opened", "count": 1, "id": "m1", "text": "long"}
    shown = audit_details({"action": "webhook.told", "details": {"message": message, "to": "oncall"}})
    assert shown == {"to": "oncall", "kind": "group.opened", "count": 1, "id": "m1"}


def test_a_saved_search_is_told_by_its_name_and_filter_and_many_by_their_number() -> None:
    search = {"name": "Late", "page": "letters", "filter": {"queue": "orders", "since_ms": 7}, "by": "ann"}
    expected = {"search": "Late", "page": "letters", "queue": "orders", "since_ms": 7}
    for action in ("search.saved", "search.deleted"):
        assert audit_details({"action": action, "details": {"search": {**search, "saved_ms": 9}}}) == expected
    assert audit_details({"action": "search.kept", "details": {"searches": [search, search]}}) == {"searches": 2}


def test_what_is_empty_is_left_out() -> None:
    assert audit_details({"action": "group.set", "details": {"note": "", "until_ms": None, "state": "open"}}) == {
        "state": "open"
    }


@given(
    st.sampled_from(
        ("task.done", "group.set", "webhook.done", "search.saved", "search.kept", "page.shared", "page.kept")
    ),
    st.dictionaries(st.text(), JSON),
    JSON,
)
def test_whatever_stands_there_is_told(action: str, details: dict[str, Any], task: Any) -> None:
    for variant in (
        details,
        {**details, "task": task},
        {**details, "task": {"id": task, "spec": {}, "counts": task}},
        {**details, "search": task, "searches": task, "page": task, "pages": task},
    ):
        shown = audit_details({"action": action, "details": variant})
        assert all(isinstance(plain(value), str) for value in shown.values())
