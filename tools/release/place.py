"""Where a release is published, written into what is published: images in the chart, links in the READMEs.

The tree itself names no place: a chart of a clone wants images of its own, and links there lead to files beside.
"""

import posixpath
import re
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

REGISTRY: Final = "ghcr.io"
_REPOSITORY: Final = re.compile(r"[\w.-]+/[\w.-]+")
_LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
_IMAGE: Final = re.compile(r"^( *repository: )(dlx-router(?:-pipeline)?)$", re.MULTILINE)
_UNPUBLISHED: Final = re.compile(r"^## Not in this version\n.*?(?=^## )", re.MULTILINE | re.DOTALL)


class PlaceError(Exception):
    """It cannot be named; says why."""


def write(source: Path, repository: str, version: str) -> None:
    """Into the files of a commit that lie in `source`. `repository`: OWNER/NAME on GitHub. Raises PlaceError."""
    if not _REPOSITORY.fullmatch(repository):
        raise PlaceError(f"--repository {repository!r}: OWNER/NAME as GitHub has it")
    for readme in (path.parent / "README.md" for path in source.rglob("pyproject.toml")):
        _rewrite(readme, linked(_UNPUBLISHED.sub("", _text(readme)), readme.parent, source, f"{repository}@{version}"))
    for chart in (source / "charts").glob("*/Chart.yaml"):
        _name_images(chart.parent, f"{REGISTRY}/{repository.partition('/')[0].lower()}")


def linked(text: str, folder: Path, source: Path, where: str) -> str:
    """Markdown with no link that is relative. `where`: OWNER/NAME@VERSION; PlaceError for a file that is not there."""
    repository, _, version = where.partition("@")

    def absolute(match: re.Match[str]) -> str:
        is_image, words, target, anchor = match.groups("")
        if urlsplit(target).scheme:
            return match[0]
        path = posixpath.normpath(posixpath.join(folder.relative_to(source).as_posix(), target))
        if not (source / path).exists():
            raise PlaceError(f"{folder.relative_to(source) / 'README.md'} links to {target}, which is not there")
        if is_image:
            return f"![{words}](https://raw.githubusercontent.com/{repository}/v{version}/{path})"
        kind = "tree" if (source / path).is_dir() else "blob"
        return f"[{words}](https://github.com/{repository}/{kind}/v{version}/{path}{anchor})"

    return _LINK.sub(absolute, text)


def _name_images(chart: Path, registry: str) -> None:
    """As the workflow pushes them; in the values, and in the table of the chart's README that shows them."""
    values, count = _IMAGE.subn(rf"\g<1>{registry}/\g<2>", _text(chart / "values.yaml"))
    if count != 2:  # noqa: PLR2004 - of the router, of the pipeline
        raise PlaceError(f"{chart.name}/values.yaml names {count} images in place of two")
    _rewrite(chart / "values.yaml", values)
    row = re.compile(r"^(\| `(?:pipeline\.)?image\.repository` \| `)", re.MULTILINE)
    _rewrite(chart / "README.md", row.sub(rf"\g<1>{registry}/", _text(chart / "README.md")))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _rewrite(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
