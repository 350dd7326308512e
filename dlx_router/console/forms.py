"""What a page's form sends, bounded and decoded; nothing of it is trusted."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qs

from starlette.requests import Request

MAX_FORM_BYTES: Final = 1_500_000  # an edited body of 512 KiB, its text encoded
MAX_FIELDS: Final = 1_100
_KIND: Final = "application/x-www-form-urlencoded"


class FormError(Exception):
    """It cannot be taken; says why."""

    def __init__(self, said: str, status: int = 422) -> None:
        super().__init__(said)
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
        said = self.text(name).replace(",", "").replace("_", "")
        if not said:
            return default
        if not said.isascii() or not said.isdigit() or len(said) > 12:  # noqa: PLR2004 - more than any count
            raise FormError(f"{name}: {said[:40]!r} is no whole number")
        return int(said)

    def number(self, name: str, default: float = 0.0) -> float:
        """A number of 0 or more; empty: the default."""
        said = self.text(name)
        try:
            found = float(said) if said else default
        except ValueError:
            found = -1.0
        if not 0 <= found < 1e9:  # noqa: PLR2004 - nan and inf are neither
            raise FormError(f"{name}: {said[:40]!r} is no number of 0 or more")
        return found

    def words(self, name: str) -> list[str]:
        """The values of a field that may come several times, or has several words."""
        return [word for one in self._fields.get(name, ()) for word in one.split()]

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
        found = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError:
        raise FormError("the form cannot be read") from None
    return Form(found)
