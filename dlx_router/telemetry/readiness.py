"""Readiness: every part that cannot work says why, without credentials; the router is ready when nobody objects."""

from dlx_router.core.printable import printable_lines, redacted


class Readiness:
    """Reasons against being ready, and notes that are none; keyed, so that each is said once and taken back."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {"start": "starting"}
        self._notes: dict[str, str] = {}

    def set(self, key: str, text: str) -> None:
        """Object to being ready."""
        self._reasons[key] = printable_lines(redacted(text))

    def clear(self, key: str) -> None:
        """Take the objection back."""
        self._reasons.pop(key, None)

    def note(self, key: str, text: str) -> None:
        """Something to know that is no objection."""
        self._notes[key] = printable_lines(redacted(text))

    def drop_note(self, key: str) -> None:
        """Take the note back."""
        self._notes.pop(key, None)

    @property
    def ready(self) -> bool:
        """Whether nobody objects."""
        return not self._reasons

    def reasons(self) -> list[str]:
        """Every objection, oldest first."""
        return list(self._reasons.values())

    def notes(self) -> list[str]:
        """Every note, oldest first."""
        return list(self._notes.values())


class Speaker(Readiness):
    """A part that ends before the router does: what it said ends with it, though nobody is left to take it back."""

    def __init__(self, to: Readiness) -> None:
        super().__init__()
        self._reasons.clear()
        self._to = to

    def set(self, key: str, text: str) -> None:
        """Object to being ready, there too."""
        super().set(key, text)
        self._to.set(key, text)

    def clear(self, key: str) -> None:
        """Take the objection back, there too."""
        super().clear(key)
        self._to.clear(key)

    def note(self, key: str, text: str) -> None:
        """Something to know, there too."""
        super().note(key, text)
        self._to.note(key, text)

    def drop_note(self, key: str) -> None:
        """Take the note back, there too."""
        super().drop_note(key)
        self._to.drop_note(key)

    def take_back(self) -> None:
        """All that was said and not taken back."""
        for key in [*self._reasons]:
            self.clear(key)
        for key in [*self._notes]:
            self.drop_note(key)
