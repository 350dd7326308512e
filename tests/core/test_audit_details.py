"""What a line of an audit says, whatever the journal holds."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.audit_details import audit_details
from dlx_router.core.printable import plain

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda children: st.dictionaries(st.text(), children)
)


@given(
    st.sampled_from(("task.done", "group.set", "webhook.told")),
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
