"""docs/reliability.md has two writers: each replaces what is its own and leaves the other's as it is."""

from typing import Final

NODES: Final = "chaos-cluster"


def with_section(page: str, name: str, text: str) -> str:
    """The page with this section replaced, or at its end where there was none."""
    whole = f"{_begin(name)}\n\n{text.strip()}\n\n{_end(name)}\n"
    before, mark, rest = page.partition(_begin(name))
    if not mark:
        return f"{page.rstrip()}\n\n{whole}"
    return f"{before}{whole}{rest.partition(_end(name))[2].lstrip()}"


def section(page: str, name: str) -> str:
    """What the section says, "" where there is none."""
    return page.partition(_begin(name))[2].partition(_end(name))[0].strip()


def with_all_but(page: str, name: str, text: str) -> str:
    """A page that says `text`, and after it what this section said before."""
    kept = section(page, name)
    return with_section(text, name, kept) if kept else text


def _begin(name: str) -> str:
    return f"<!-- make {name} -->"


def _end(name: str) -> str:
    return f"<!-- end of make {name} -->"
