"""What a line of an audit says, whatever the journal holds."""

from typing import Any

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


def test_a_task_is_told_by_what_it_is_and_nothing_else() -> None:
    shown = audit_details({"action": "task.done", "details": {"task": TASK, "mac": "736e7519"}})
    assert shown == {"task": "bbf02c95ba45", "kind": "park (dry run)", "queue": "DLQ.orders", "would go": 3}
    sent = {**TASK, "spec": {**TASK["spec"], "dry_run": False}}
    assert audit_details({"action": "task.done", "details": {"task": sent}})["sent"] == 3


def test_a_message_is_told_by_what_it_is_and_to_whom() -> None:
    message = {"kind": "group.opened", "count": 1, "id": "m1", "text": "long"}
    shown = audit_details({"action": "webhook.told", "details": {"message": message, "to": "oncall"}})
    assert shown == {"to": "oncall", "kind": "group.opened", "count": 1, "id": "m1"}


def test_what_is_empty_is_left_out() -> None:
    assert audit_details({"action": "group.set", "details": {"note": "", "until_ms": None, "state": "open"}}) == {
        "state": "open"
    }


@given(
    st.sampled_from(("task.done", "group.set", "webhook.done")),
    st.dictionaries(st.text(), JSON),
    JSON,
)
def test_whatever_stands_there_is_told(action: str, details: dict[str, Any], task: Any) -> None:
    for variant in (
        details,
        {**details, "task": task},
        {**details, "task": {"id": task, "spec": {}, "counts": task}},
    ):
        shown = audit_details({"action": action, "details": variant})
        assert all(isinstance(plain(value), str) for value in shown.values())
