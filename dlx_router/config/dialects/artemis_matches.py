"""What the matches of Artemis's address-settings name: words, wildcards for words, and which match is the wider one.

Source: the Artemis manual, "Understanding the Wildcard Syntax" and "Configuring addresses".
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

ANY_WORDS, ONE_WORD = "#", "*"  # ours; Artemis's too, unless its file says others
OURS: Final = frozenset({ANY_WORDS, ONE_WORD})
DELIMITER: Final = "."


class Wildcards(NamedTuple):
    """`wildcard-addresses` of a file: what stands between the words of an address, and for words of it."""

    delimiter: str = DELIMITER
    any_words: str = ANY_WORDS
    single_word: str = ONE_WORD

    def apart_by(self, match: str) -> str:
        """What its words are apart by; slashes are taken for it too where a match has no dots."""
        return "/" if self.delimiter == DELIMITER and DELIMITER not in match else self.delimiter

    def words_of(self, match: str) -> tuple[str, ...] | None:
        """The words of a match, our wildcards in place of its; None where one is mixed with a word."""
        ours = {self.any_words: ANY_WORDS, self.single_word: ONE_WORD}
        words = match.split(self.apart_by(match))
        if any(OURS.union(ours) & {*word} for word in words if word not in ours):
            return None
        return tuple(ours.get(word, word) for word in words)

    def are_in(self, match: str) -> bool:
        """The match may name more than one address."""
        return self.any_words in match or self.single_word in match


def covers(wider: Sequence[str], narrow: Sequence[str]) -> bool:
    """Each address that the narrow words name is one that the wider ones name. Where that is hard to see: False."""
    places = {*_reached(wider, 0)}
    for word in narrow:
        following = [place if wider[place] == ANY_WORDS else place + 1
                     for place in places if place < len(wider) and _takes(wider[place], word)]  # fmt: skip
        places = {reached for place in following for reached in _reached(wider, place)}
        if not places:
            return False
    return len(wider) in places


def _takes(wide: str, word: str) -> bool:
    return wide in {ANY_WORDS, word} or (wide == ONE_WORD and word != ANY_WORDS)


def _reached(words: Sequence[str], place: int) -> Iterator[int]:
    """The place, and those behind wildcards that may stand for no word at all."""
    yield place
    while place < len(words) and words[place] == ANY_WORDS:
        place += 1
        yield place
