"""What a page's form sends, bounded and decoded; nothing of it is trusted."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import parse_qs

from starlette.requests import Request

from dlx_router.console.rendering import LATEST_MS, utc

MAX_FORM_BYTES: Final = 1_500_000  # an edited body of 512 KiB, its text encoded
MAX_FIELDS: Final = 1_100
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_KIND: Final = "application/x-www-form-urlencoded"


class FormError(Exception):
    """It cannot be taken; says why."""

    def __init__(self, message: str, status: int = 422) -> None:
        super().__init__(message)
        self.status = status


class Form:
    """The fields of a form; a field that is not there is empty."""

    def __init__(self, fields: Mapping[str, list[str]]) -> None:
        self._fields = fields

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def text(self, name: str) -> str:
        """The field's value without space around it."""
        return self.raw(name).strip()

    def raw(self, name: str) -> str:
        """The field's value as it came."""
        return self._fields.get(name, [""])[-1]

    def whole(self, name: str, default: int = 0) -> int:
        """A whole number; empty: the default."""
        text = self.text(name).replace(",", "").replace("_", "")
        if not text:
            return default
        if not text.isascii() or not text.isdigit() or len(text) > 12:  # noqa: PLR2004 - more than any count
            raise FormError(f"{name}: {text[:40]!r} is no whole number")
        return int(text)

    def number(self, name: str, default: float = 0.0) -> float:
        """A number of 0 or more; empty: the default."""
        text = self.text(name)
        try:
            value = float(text) if text else default
        except ValueError:
            value = -1.0
        if not 0 <= value < 1e9:  # noqa: PLR2004 - nan and inf are neither
            raise FormError(f"{name}: {text[:40]!r} is no number of 0 or more")
        return value

    def words(self, name: str) -> list[str]:
        """The values of a field that may come several times, or has several words."""
        return [word for value in self._fields.get(name, ()) for word in value.split()]

    def ticked(self, name: str) -> bool:
        """A box that was ticked."""
        return bool(self.text(name))


async def read(request: Request) -> Form:
    """The request's form. FormError: it is none, or too large."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _KIND:
        raise FormError("a form is expected", 415)
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_FORM_BYTES:
            raise FormError(f"at most {MAX_FORM_BYTES} bytes", 413)
    try:
        fields = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError:
        raise FormError("the form cannot be read") from None
    return Form(fields)


def moment_ms(text: str) -> str:
    """A moment of a field or an address as the API takes it: ms since 1970. Without an offset it is in UTC.

    What is neither stays as it is: the router says what is wrong with it.
    """
    moment = _moment(text)
    return text if moment is None else str((moment - _EPOCH) // timedelta(milliseconds=1))


def as_typed(text: str) -> str:
    """A time without an offset as such a field has it, so that what was refused is still there to be changed."""
    moment = _moment(text)
    return "" if moment is None else moment.replace(tzinfo=None).isoformat(timespec="seconds")


def _moment(text: str) -> datetime | None:
    if text.isascii() and text.isdigit():
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def moment_field(ms: str) -> str:
    """A moment in ms as a field of the kind datetime-local has it, in UTC, to the second; empty where it is none."""
    moment = utc(int(ms)) if ms.isascii() and ms.isdigit() and len(ms) <= len(str(LATEST_MS)) else None
    return "" if moment is None else moment.replace(tzinfo=None).isoformat(timespec="seconds")
