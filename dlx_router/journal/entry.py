"""An event on its way into a message of format 2: what it shares with others, and a row. See docs/journal.md.

Events that share the same strings share one line of the message; the strings come from caches, so that to compare them
costs nothing.
"""

from typing import Final

from dlx_router.journal.fields import VERSION

Shared = tuple[str, str, str, str]
"""Members, a comma behind each: of the ruling, of a declared death, of deaths; and those of `props`, none behind."""
Entry = tuple[Shared, str]
"""`Shared`, and the row behind the number of its line, its end included."""
_START: Final = f'{{"v":{VERSION},'


def line_of(shared: Shared) -> str:
    """The line of what events share, its end included."""
    ruled, asked, deaths, props = shared
    prop_text = f'"props":{{{props}}},' if props else ""
    return f'{_START}{ruled}{asked}{deaths}{prop_text}"body_mode":"none"}}\n'
