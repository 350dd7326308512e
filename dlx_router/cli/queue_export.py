"""`letters export --from QUEUE`: the letters as they lie in a queue, by a task of the router that takes none away.

Exit: 0 all of them, 1 the task ended before (the file is then named FILE.part), 2 wrong use or cannot reach.
"""

import json
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final, Self

import typer

from dlx_router.cli import output
from dlx_router.cli.api import Api

PART: Final = ".part"
Line = Mapping[str, Any]


def export_queue(api: Api, asked: Line, to: Path | None) -> int:
    """Write the letters that are meant, one a line; → the exit code. A file has its name once it is whole."""
    if to is None:
        return _export(api, asked, sys.stdout)
    part = to.with_name(to.name + PART)
    try:
        with part.open("w", encoding="utf-8") as file:
            code = _export(api, asked, file)
        if code == output.OK:
            part.replace(to)
    except OSError as error:
        output.warn(f"{error.filename or to}: {error.strerror}; name a file that can be written")
        return output.WRONG_USE
    return code


def _export(api: Api, asked: Line, file: IO[str]) -> int:
    task = api.ask("POST", "/tasks", body={**asked, "kind": "export", "rate": 0})
    with _Bar(task) as bar:
        try:
            state, why = _pages(api, task["id"], str(asked["vhost"]), file, bar)
        except BaseException:
            with suppress(typer.Exit):  # so that what is held goes back at once
                api.ask("POST", f"/tasks/{task['id']}/cancel", query={"vhost": asked["vhost"]})
            raise
    if state != "done":
        letters = output.number(bar.count, "letter")
        output.warn(f"not whole: {letters}, then the task was {state}: {why or 'by somebody'}")
        return output.FINDINGS
    output.warn(output.number(bar.count, "letter"))
    is_narrowed = any(asked.get(name) for name in ("filter", "group", "ids"))
    return output.FINDINGS if is_narrowed and not bar.count else output.OK


def _pages(api: Api, task: str, vhost: str, file: IO[str], advance: Callable[[int], None]) -> tuple[str, str]:
    """How the task ended."""
    after = 0
    while True:
        page = api.get(f"/tasks/{task}/letters", after=after, vhost=vhost)
        for letter in page["letters"]:
            file.write(f"{json.dumps(letter, separators=(',', ':'))}\n")
        advance(len(page["letters"]))
        if page["next"] is None:
            return page["state"], page["why"]
        after = page["next"]


class _Bar:
    """Counts, and shows how far it is where somebody looks."""

    def __init__(self, task: Line) -> None:
        self.count = 0
        self._total = task["spec"]["limit"] or task["total"]
        self._progress: Any = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
            from rich.progress import Progress  # noqa: PLC0415 - slow to import, and not wanted by each command

            self._progress = Progress(console=Console(stderr=True))
            self._row = self._progress.add_task("Letters", total=self._total)
            self._progress.start()
        return self

    def __call__(self, more: int) -> None:
        self.count += more
        if self._progress is not None:
            self._progress.update(self._row, completed=self.count)

    def __exit__(self, *_error: object) -> None:
        if self._progress is not None:
            self._progress.stop()
