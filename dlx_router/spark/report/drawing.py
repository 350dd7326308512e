"""A figure of matplotlib → SVG that stands in the page: its colours are the page's, every mark says its numbers.

matplotlib is used without pyplot: no window, no state between figures.
"""

import re
import warnings
from collections.abc import Iterable
from html import escape
from io import StringIO
from typing import Any, Final
from zlib import crc32

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dlx_router.spark.report.style import LIGHT

PER_INCH: Final = 72.0  # of SVG, so that sizes are its units
LONGEST: Final = 34  # characters of a name that has room beside a chart
LOOK: Final[dict[Any, Any]] = {
    "figure.frameon": False,
    "axes.facecolor": "none",
    "axes.edgecolor": LIGHT["axis"],
    "axes.spines.top": False,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "font.sans-serif": ["DejaVu Sans"],  # whose sizes it counts with; the page shows its own, which is not wider
    "font.size": 12,
    "grid.color": LIGHT["line"],
    "svg.fonttype": "none",  # words stay words: read aloud, searched, in the page's font
    "svg.hashsalt": "dlx-router",  # the same data, the same page
    "text.color": LIGHT["ink"],
    "text.parse_math": False,  # a queue may be called $x$
    "xtick.bottom": False,
    "xtick.labelcolor": LIGHT["soft"],
    "ytick.left": False,
    "ytick.labelcolor": LIGHT["ink"],
}
"""What charts are drawn under: `@mpl.rc_context(LOOK)`."""
_LEFT_OUT: Final = re.compile(  # what would name other sites, or change the page
    r"<\?xml.*?\?>|<!DOCTYPE.*?>|<metadata>.*?</metadata>|<defs>\s*<(style|clipPath).*?</defs>|<!--.*?-->", re.DOTALL
)
_NEEDLESS: Final = re.compile(r' clip-path="[^"]*"|(?<=<g) id="[^"]*"| transform="rotate\(-0 [^"]*"|(?<=\.\d\d)\d+')
_COLOURS: Final = {value: f"var(--{name})" for name, value in LIGHT.items()}
_COLOUR: Final = re.compile("|".join(_COLOURS))
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")


class Drawing:
    """One figure, `width` × `height` units of SVG; its axes one above the other, each beside `left` and `right`."""

    def __init__(self, width: float, height: float, *, room: tuple[float, float, float, float], rows: int = 1) -> None:
        """`room`: left, right, top and bottom of the axes, for names and numbers."""
        left, right, top, bottom = room
        height = max(height, top + bottom + 10)  # of no rows too there are axes
        inside = {"left": left / width, "right": 1 - right / width, "top": 1 - top / height, "bottom": bottom / height}
        self.figure = Figure(figsize=(width / PER_INCH, height / PER_INCH))
        grid = self.figure.subplots(rows, 1, sharex=True, squeeze=False, gridspec_kw=inside | {"hspace": 0.3})
        self.axes: list[Axes] = list(grid[:, 0])
        self._titles: list[str] = []

    def says(self, marks: Iterable[Artist], texts: Iterable[str]) -> None:
        """What each mark says where the pointer rests, and to readers of screens."""
        for mark, text in zip(marks, texts, strict=True):
            mark.set_gid(f"said-{len(self._titles)}")
            self._titles.append(f"<g><title>{escape(text)}</title>")

    def svg(self, title: str, sentences: Iterable[str]) -> str:
        """The drawing, as wide as its place. `sentences`: the same in sentences, for who cannot see it."""
        written = StringIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # letters that its font lacks: the browser's has them
            self.figure.savefig(written, format="svg")
        drawn = re.sub(r"<[^>]*>", lambda tag: self._in_page(tag[0]), _LEFT_OUT.sub("", written.getvalue()))
        name = f"chart-{crc32(title.encode('utf-8', 'surrogatepass')):08x}"
        size, inside = re.findall(r'<svg [^>]*(viewBox="[^"]*")[^>]*>(.*)', re.sub(r"\s*\n\s*", " ", drawn))[0]
        return (
            f'<svg {size} role="img" aria-labelledby="{name} {name}-told"><title id="{name}">{escape(title)}</title>'
            f'<desc id="{name}-told">{escape(" ".join(sentences))}</desc>{inside.strip()}'
        )

    def _in_page(self, tag: str) -> str:
        """A tag of matplotlib's as the page has it. What stands between tags are names, which stay as they are."""
        if match := re.fullmatch(r'<g id="said-(\d+)">', tag):
            return self._titles[int(match[1])]
        return _COLOUR.sub(lambda colour: _COLOURS[colour[0]], _NEEDLESS.sub("", tag))


def beside(axes: Axes, text: str, place: tuple[float, float], offset: tuple[float, float], **how: Any) -> None:  # noqa: ANN401 - matplotlib's
    """Words that end so far from a place: a share of the width, a value of the height."""
    at: Any = ("axes fraction", "data")
    axes.annotate(text, place, offset, at, "offset points", ha="right", annotation_clip=False, **how)


def shown(name: str) -> str:
    """A name as there is room for it, without what no font has; the mark beside it says all of it."""
    clean = _UNPRINTABLE.sub("\ufffd", name)
    return clean if len(clean) <= LONGEST else f"{clean[: LONGEST // 2]}…{clean[1 - LONGEST // 2 :]}"
