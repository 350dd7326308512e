"""Readiness: every part that cannot work says why, without credentials.

The router is ready once it has started, as long as at least one vhost works: a probe that fails takes the API and the
console of all vhosts away. What else is wrong then is a note.
"""

from dlx_router.core.printable import printable_lines, redacted


class Readiness:
    """Reasons against being ready, and notes that are none; keyed, so that each is said once and taken back."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {"start": "starting"}
        self._notes: dict[str, str] = {}
        self._vhosts: dict[str, Speaker] = {}

    def vhost(self, name: str, *, is_awaited: bool = False) -> "Speaker":
        """Return the readiness of a vhost; `drop_vhost` ends it.

        `is_awaited`: the router is not ready before its first connection was made or has failed.
        """
        part = self._vhosts[name] = Speaker(self)
        part.set(f"link {name}", f"vhost {name!r}: connecting")
        part.awaited = part.problems() if is_awaited else []
        return part

    def drop_vhost(self, name: str) -> None:
        """Forget the vhost, and take back all that was reported for it."""
        self._vhosts.pop(name).take_back()

    def vhosts(self) -> dict[str, bool]:
        """Return whether each vhost works."""
        return {name: not part._reasons for name, part in self._vhosts.items()}  # noqa: SLF001 - its own class

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
        """Whether no part objects but those of vhosts, and one of these works."""
        of_vhosts = {key for part in self._vhosts.values() for key in part._reasons}  # noqa: SLF001 - its own class
        awaits = any(part.awaited and part.awaited == part.problems() for part in self._vhosts.values())
        works = any(self.vhosts().values()) or not self._vhosts
        return self._reasons.keys() <= of_vhosts and works and not awaits

    def problems(self) -> list[str]:
        """Return every objection, oldest first."""
        return list(self._reasons.values())

    def reasons(self) -> list[str]:
        """Return the objections that keep the router from being ready."""
        return [] if self.ready else self.problems()

    def notes(self) -> list[str]:
        """Return every note, and the objections in spite of which the router is ready."""
        return [*(self.problems() if self.ready else ()), *self._notes.values()]


class Speaker(Readiness):
    """A part that ends before the router does: what it said ends with it, though nobody is left to take it back."""

    def __init__(self, to: Readiness) -> None:
        super().__init__()
        self._reasons.clear()
        self._to = to
        self.awaited: list[str] = []  # while these are all its problems, nothing is known yet

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
