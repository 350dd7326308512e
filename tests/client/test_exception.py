"""What is told of an exception, whatever it is: bounded text, no matter what its own methods do."""

import asyncio
import json
import sys
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any, Final, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.client.declaration import MAX_FRAME, MAX_MESSAGE, MAX_TYPE, InvalidDeclaration, Words, header
from dlx_router.client.exception import described
from dlx_router.client.handlers import Settings, in_flight
from dlx_router.core import declaration
from tests.client.test_declaration import delivered

LIMITS: Final = {"type": MAX_TYPE, "message": MAX_MESSAGE, "frame": MAX_FRAME}


class Text(str):
    """A text whose methods lie."""

    __slots__ = ()

    def __len__(self) -> int:
        raise RuntimeError

    def __getitem__(self, _: object) -> NoReturn:
        raise RuntimeError

    def encode(self, *_: object) -> NoReturn:
        raise RuntimeError


class RaisesInItsText(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError


class NoText(Exception):
    __str__ = lambda self: 7  # type: ignore[assignment,return-value]  # noqa: E731 - what hostile code does


class Endless(Exception):
    def __str__(self) -> str:
        return str(self)


class Lying(Exception):
    def __str__(self) -> str:
        return Text("lies")


class NamesItself(type):
    def __getattribute__(cls, name: str) -> object:
        if name in {"__module__", "__qualname__"}:
            raise RuntimeError(name)
        return super().__getattribute__(name)


class Nameless(Exception, metaclass=NamesItself):
    pass


class Answers(Exception):
    def __getattribute__(self, name: str) -> NoReturn:
        raise RuntimeError(name)


class EndlessGroup(ExceptionGroup[Exception]):
    @property
    def exceptions(self) -> tuple[Exception, ...]:
        return (self, self)


def cyclic() -> Exception:
    error, other = ValueError("one"), ValueError("other")
    error.__cause__, other.__cause__ = other, error
    error.__context__, other.__context__ = other, error
    error.args = (error, [error])
    return error


def long_name() -> Exception:
    kind: type[Exception] = type("X" * 10_000, (Exception,), {"__module__": "m" * 10_000})
    return kind("told")


HOSTILE: Final[dict[str, Callable[[], BaseException]]] = {
    "its text raises": RaisesInItsText,
    "its text is none": NoText,
    "its text has no end": Endless,
    "its text lies": Lying,
    "10 MB": lambda: ValueError("ж" * 10_000_000),
    "halves of characters": lambda: ValueError("\ud800 and \udfff"),
    "bytes": lambda: ValueError(b"\xff\xfe"),
    "NUL and escapes": lambda: ValueError("\x00\x1b[31m\r\n"),
    "a cycle": cyclic,
    "long names": long_name,
    "its class answers for its name": Nameless,
    "it answers for everything": Answers,
    "a group without an end": lambda: EndlessGroup("g", [ValueError("v")]),
    "an exit": lambda: SystemExit(3),
}


def _declared(error: BaseException) -> dict[str, str]:
    """As the router reads it."""
    text = header(Words(reason="exception", error=error), delivered(), "dlx-router")
    assert len(text) < 60_000, "the header has to fit one frame"
    text.encode()
    details = declaration.read(text.encode()).error
    assert details is not None
    return dict(details)


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_exception_can_be_declared(what: str) -> None:
    """On the tree before, `dead(error=…)` raised what the exception's own text raised."""
    made = HOSTILE[what]()
    with suppress(BaseException):
        raise made
    details = _declared(made)
    assert details["type"]
    assert {name for name, text in details.items() if len(text) > LIMITS[name]} == set()


def test_of_a_hostile_exception_what_can_be_read_is_told() -> None:
    assert described(RaisesInItsText()) == {"type": f"{__name__}.RaisesInItsText"}
    assert described(Lying())["message"] == "lies"
    assert described(Nameless("told")) == {"type": "Exception", "message": "told"}
    assert described(ValueError("\ud800."))["message"] == "?."


def test_the_end_of_a_long_path_is_told_because_it_has_the_line() -> None:
    code = compile("raise ValueError", "/" + "very/" * 200 + "deep.py", "exec")
    with pytest.raises(ValueError) as caught:
        exec(code, {})
    frame = described(caught.value)["frame"]
    assert (len(frame), frame[0], frame.endswith("/deep.py:1 in <module>")) == (MAX_FRAME, "…", True)


def test_of_a_group_its_first_error_is_told() -> None:
    """A task group wraps whatever ended a task: letters are grouped by that, and not by the wrapping."""

    async def main() -> None:
        async def fails(number: int) -> None:
            raise ConnectionError(f"warehouse {number}")

        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(fails(number))

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(main())
    details = described(caught.value)
    assert (details["type"], details["message"]) == ("ConnectionError", "warehouse 0 (the first of 3 errors)")
    assert details["frame"].endswith(" in fails")
    nested = ExceptionGroup("outer", [ExceptionGroup("inner", [KeyError("only")])])
    assert described(nested) == {"type": "KeyError", "message": "'only'"}


def test_a_group_of_the_package_for_older_pythons_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class Group(Exception):
        exceptions = (ValueError("v"),)

    package: Any = ModuleType("exceptiongroup")
    package.BaseExceptionGroup = Group
    monkeypatch.setitem(sys.modules, "exceptiongroup", package)
    assert described(Group()) == {"type": "ValueError", "message": "v"}


@given(message=st.text(st.characters(), max_size=3000), module=st.text(max_size=300), name=st.text(max_size=300))
def test_whatever_it_says_the_router_reads_it(message: str, module: str, name: str) -> None:
    kind = type(name.replace("\0", "").encode(errors="ignore").decode() or "X", (Exception,), {"__module__": module})
    details = _declared(kind(message))
    assert {key for key, text in details.items() if len(text) > LIMITS[key]} == set()
    json.dumps(details).encode()


class TestRedaction:
    def test_what_it_returns_is_told_and_cut(self) -> None:
        hide = Settings(redact=lambda plain: {**plain, "message": "x" * 5000, "frame": "\ud800"})
        details = hide.told_of(ValueError("card 4111"))
        assert (details["type"], len(details["message"]), details["frame"]) == ("ValueError", MAX_MESSAGE, "?")

    @pytest.mark.parametrize("nothing", [None, {}])
    def test_it_may_tell_nothing(self, nothing: Any) -> None:
        assert Settings(redact=lambda _: nothing).told_of(ValueError("card 4111")) == {}

    @pytest.mark.parametrize(
        "redact", [lambda _: 1 / 0, lambda _: 7, lambda _: "text", lambda details: details["other"]]
    )
    def test_where_it_fails_only_the_type_is_told(self, redact: Any) -> None:
        """What it should have hidden must not get out."""
        assert Settings(redact=redact).told_of(ValueError("card 4111")) == {"type": "ValueError"}

    def test_what_it_does_to_its_argument_is_its_own_business(self) -> None:
        def clear(details: dict[str, str]) -> None:
            details.clear()
            raise OSError

        assert Settings(redact=clear).told_of(KeyError("k")) == {"type": "KeyError"}


@pytest.mark.parametrize("wrong", [
    {"reason": "no spaces"}, {"reason": None}, {"redact": "password"}, {"within": 0}, {"within": "5s"},
    {"within": float("nan")},
])  # fmt: skip
def test_wrong_settings_are_refused_where_they_are_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidDeclaration):
        Settings(**wrong)


async def test_to_be_cancelled_is_no_error() -> None:
    seen: list[object] = []

    async def handler() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append(in_flight())
            raise

    task = asyncio.create_task(handler())
    await asyncio.sleep(0)  # it waits now
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert seen == [None]


def test_what_was_being_handled_before_the_message_came_is_not_its_error() -> None:
    def fails(error: Exception) -> NoReturn:
        raise error

    before, later, seen = OSError("connection lost"), ValueError("of the handler"), []
    try:
        fails(before)
    except OSError:
        seen += [in_flight(), in_flight(before)]
        try:
            fails(later)
        except ValueError:
            seen.append(in_flight(before))
    assert seen == [before, None, later]
