"""What client libraries write of an error is understood; names and shapes are as their sources have them."""

from collections.abc import Mapping
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.clienterrors import MADE_OF, NAMES, first_frame, innermost, told

JAVA: Final = "a.B: x\n\tat a.C\nCaused by: e.F: y: z\n\tat g.H(H.java:1)\n\tat i.J"
DOTNET: Final = """System.InvalidOperationException: no stock
 ---> System.TimeoutException: the warehouse is silent
   at Shop.Warehouse.Ask(String sku) in C:\\src\\Warehouse.cs:line 12
   --- End of inner exception stack trace ---
   at Shop.OrderHandler.Handle(PlaceOrder message) in C:\\src\\OrderHandler.cs:line 42
   at NServiceBus.InvokeHandlerTerminator.Terminate(IInvokeHandlerContext context)"""
FRAMES: Final = "\n".join(DOTNET.splitlines()[4:])
NSERVICEBUS: Final = {
    "NServiceBus.ExceptionInfo.ExceptionType": "System.InvalidOperationException",
    "NServiceBus.ExceptionInfo.InnerExceptionType": "System.TimeoutException",
    "NServiceBus.ExceptionInfo.Message": "no stock",
    "NServiceBus.ExceptionInfo.Source": "Shop",
    "NServiceBus.ExceptionInfo.StackTrace": DOTNET,
    "NServiceBus.FailedQ": "Shop.Orders",
    "NServiceBus.TimeOfFailure": "2026-11-22 20:15:30:123456 Z",
}
MASSTRANSIT: Final = {
    "MT-Reason": "fault",
    "MT-Fault-ExceptionType": "System.InvalidOperationException",
    "MT-Fault-Message": "no stock",
    "MT-Fault-StackTrace": FRAMES,
    "MT-Fault-InputAddress": "rabbitmq://broker/orders",
    "MT-Fault-Timestamp": "2026-11-22T20:15:30.1234567Z",
    "MT-Host-MachineName": "shop-1",
}


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        (
            NSERVICEBUS,
            {
                "type": "System.InvalidOperationException",
                "message": "no stock",
                "frame": "Shop.Warehouse.Ask(String sku) in C:\\src\\Warehouse.cs:line 12",
            },
        ),
        (
            MASSTRANSIT,
            {
                "type": "System.InvalidOperationException",
                "message": "no stock",
                "frame": "Shop.OrderHandler.Handle(PlaceOrder message) in C:\\src\\OrderHandler.cs:line 42",
            },
        ),
        (
            {"x-exception-message": "y", "x-exception-stacktrace": JAVA},
            {"type": "e.F", "message": "y: z", "frame": "g.H(H.java:1)"},
        ),
        ({"x-error-type": "E", **MASSTRANSIT, "MT-Fault-StackTrace": ""}, {"type": "E", "message": "no stock"}),
        ({"MT-Reason": "skipped", "NServiceBus.FailedQ": "Shop.Orders"}, None),
        ({"x-exception-stacktrace": ""}, None),
    ],
    ids=["NServiceBus", "MassTransit", "Spring", "ours first", "neither", "empty"],
)  # fmt: skip
def test_what_other_libraries_tell_is_an_error(headers: Mapping[str, str], error: dict[str, str] | None) -> None:
    assert told(headers.get) == error


@pytest.mark.parametrize(
    ("trace", "found"),
    [
        ("", (None, None, None)),
        ("java.lang.Error", ("java.lang.Error", None, None)),
        ("a.B: text\n\tat a.C.d(C.java:1)\n", ("a.B", "text", "a.C.d(C.java:1)")),
        ("a.B: x\n\tat a.C\nCaused by: e.F: y: z\n\tat g.H\n\tat i.J", ("e.F", "y: z", "g.H")),
        ("   at Shop.Orders.Take()", (None, None, "Shop.Orders.Take()")),
        ("a.B: x\n\tSuppressed: s.T: u\n\tCaused by: w.X: y\nCaused by: e.F\n\tat g.H", ("e.F", None, "g.H")),
        ("a.B: two\nlines\n\tat a.C", ("a.B", "two\nlines", "a.C")),
    ],
)
def test_the_innermost_error_of_a_stack_trace(trace: str, found: tuple[str | None, ...]) -> None:
    assert (*innermost(trace), first_frame(trace)) == found


@given(st.lists(st.tuples(st.from_regex(r"[a-z]\.[A-Z]", fullmatch=True), st.text("xyz 1")), min_size=1, max_size=5))
def test_spring_type_and_message_are_of_the_same_exception(causes: list[tuple[str, str]]) -> None:
    """Spring's own message header is that of the first cause, whatever the innermost one is."""
    trace = "\nCaused by: ".join(f"{kind}: {text}\n\tat a.b(C.java:1)\n\t... 12 more" for kind, text in causes)
    error = told({"x-exception-message": "of another cause", "x-exception-stacktrace": trace}.get) or {}
    assert (error["type"], error.get("message")) == (causes[-1][0], causes[-1][1].strip() or None)


@given(st.dictionaries(st.sampled_from(sorted(NAMES)), st.text(max_size=200)))
def test_only_what_is_named_is_told_and_only_by_what_it_is_made_of(headers: dict[bytes, str]) -> None:
    """So a redacted header takes with it all that was made of it."""
    error = told(lambda name: headers.get(name.encode())) or {}
    for member in error:
        assert any(headers.get(name.encode()) for name in MADE_OF[member])
