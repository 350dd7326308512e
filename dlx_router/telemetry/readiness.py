"""Readiness: every part that cannot work says why, without credentials; the router is ready when nobody objects."""

from dlx_router.telemetry.logs import redacted


class Readiness:
    """Reasons against being ready, and notes that are none; keyed, so that each is said once and taken back."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {"start": "starting"}
        self._notes: dict[str, str] = {}

    def set(self, key: str, text: str) -> None:
        """Object to being ready."""
        self._reasons[key] = redacted(text)

    def clear(self, key: str) -> None:
        """Take the objection back."""
        self._reasons.pop(key, None)

    def note(self, key: str, text: str) -> None:
        """Something to know that is no objection."""
        self._notes[key] = redacted(text)

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
