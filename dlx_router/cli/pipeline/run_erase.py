"""What `dlx-router pipeline erase` does, once it is clear that Spark is wanted."""

from pathlib import Path
from typing import Final

from dlx_router.cli import output
from dlx_router.spark.archive.erase import Erasure, erase
from dlx_router.spark.archive.files import require_writable
from dlx_router.spark.archive.layout import Archive
from dlx_router.spark.conditions import unseen
from dlx_router.spark.session import build_session

_ONE_WAY: Final = "--where, or --letter and --message-id, or --since and --until: one of these three"


def run(archive: Path, what: Erasure, *, master: str | None, remote: str | None) -> int:
    """The exit code; says how much is gone, and what is not."""
    if sum((bool(what.where), bool(what.letters or what.message_ids), what.is_time)) != 1:
        return output.wrong_use(_ONE_WAY)
    if "" in (*what.letters, *what.message_ids):  # stands in every line: all in _bad/ would lose their text
        return output.wrong_use("--letter '' or --message-id '': an id is not empty")
    if not remote:
        Archive(archive).require_folder()
        require_writable(Archive(archive).root, "erase")
    spark = build_session("dlx-router erase", master=master, remote=remote)
    try:
        done = erase(spark, archive, what)
    finally:
        spark.stop()
    output.say(f"{output.number(done.letters, 'letter')}, {output.number(done.events, 'event')} deleted")
    if message := unseen(what.where):
        output.say(message)
    if done.bad:
        kept = output.number(done.bad, "line that is no event keeps its", "lines that are no events keep their")
        output.say(f"{kept} text, {_why(what)}: see {Archive(archive).bad_lines}")
    return output.OK


def _why(what: Erasure) -> str:
    if what.is_time:
        return "because they were read at another time"
    return "where no such id stands" if what.letters or what.message_ids else "which no condition can search"
