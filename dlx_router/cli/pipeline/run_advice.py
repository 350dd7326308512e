"""What `dlx-router pipeline advise` does, once it is clear that Spark is wanted."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from dlx_router.cli import output
from dlx_router.cli.pipeline import queue_types
from dlx_router.cli.pipeline.names import prefix
from dlx_router.cli.pipeline.run_analysis import Where, vhosts
from dlx_router.cli.pipeline.run_backtest import backtest_lines
from dlx_router.config.findings import PolicyErrors
from dlx_router.core.signature import Signature
from dlx_router.spark.advice import texts
from dlx_router.spark.advice.cost import Prices
from dlx_router.spark.advice.judge import Advice, QueueAdvice, advise
from dlx_router.spark.advice.proposal import Proposal, known_of, propose, reasons_of
from dlx_router.spark.advice.query import COLUMNS, Gathered, gather
from dlx_router.spark.backtest import differences
from dlx_router.spark.backtest.replay import Files, QueueTypes, files_of
from dlx_router.spark.backtest.run import Backtest, backtest
from dlx_router.spark.options import OptionError
from dlx_router.spark.recovery_windows import quiet_of

CANNOT: Final = (
    "It knows what these letters met. It does not know loads (more retries at one time may fail more), nor whether the",
    "next week is like this one; and what nobody tried, nobody knows: see `not known`. docs/advice.md",
)


class Answer(NamedTuple):
    """All that is said. `proven`: the backtest of the proposal; None where nothing is proposed."""

    found: list[QueueAdvice]
    gathered: Gathered
    proposal: Proposal
    proven: Backtest | None


def run(where: Where, policies: Path, *, queues: Sequence[str], prices: Prices, out: Path | None, as_json: bool) -> int:
    """Print the policy file, or write it to `out` and print what is in it; 1 where anything is advised."""
    try:
        files = files_of(policies, prefix())
    except PolicyErrors as errors:
        return output.refuse(errors)
    if out is not None and not out.parent.is_dir():
        raise OptionError(f"--out {out}: no such folder as {out.parent}; name a file that can be written")
    if (message := where.without_events()) is not None:
        return output.wrong_use(message)
    answer = _answer(where, files, queues, prices)
    if not answer.found:
        return output.wrong_use(_nothing(queues, answer.gathered))
    if out is not None:
        _write(out, answer.proposal.text)
    if as_json:
        output.as_json(document(answer))
    elif out is not None:
        output.say(*_lines(answer))
    else:
        print(answer.proposal.text, end="")
    for queue, why in answer.proposal.left:
        output.warn(f"not written, {queue}: {why}")
    return output.FINDINGS if answer.proposal.advice else output.OK


def _answer(where: Where, files: Files, queues: Sequence[str], prices: Prices) -> Answer:
    spark = where.session()
    events = where.events(spark).select(*{*COLUMNS, *differences.NEEDED, "policy", "redrive_id", "stream", "ingest_ts"})
    events = (events.where(f.col("failed_queue").isin(*queues)) if queues else events).cache()
    try:
        judge, types = queue_types.judge(files, prefix(), partial(vhosts, events))
        as_of_ms = where.as_of_ms(spark, events)
        gathered = gather(events, quiet_of(events, judge), as_of_ms)
        queue_advice = advise(gathered.evidence, partial(known_of, judge), prices)
        proposal = propose(queue_advice, files, prefix=prefix(), types=types)
        proven = _proven(events, files, proposal, as_of_ms, types) if proposal.advice else None
        return Answer(queue_advice, gathered, proposal.headed(_head(queue_advice, gathered, prices, proven)), proven)
    finally:
        events.unpersist()


def _proven(events: DataFrame, files: Files, proposal: Proposal, as_of_ms: int, types: QueueTypes) -> Backtest:
    """The backtest of the policies with the proposal, on the events of the queues that it is about."""
    queues = sorted({advice.queue for advice in proposal.advice})
    own = events.where(f.col("failed_queue").isin(*queues))
    return backtest(own, proposal.beside(files), as_of_ms=as_of_ms, prefix=prefix(), types=types)


def _head(
    queue_advice: Sequence[QueueAdvice], gathered: Gathered, prices: Prices, proven: Backtest | None
) -> list[str]:
    """The comments at the head of the file."""
    lines = ["Advice of dlx-router pipeline advise: put this file beside the policies in force, or copy what you like."]
    lines += [f"Prices, in retries: {prices.second:g} a second of waiting, {prices.redrive:g} a letter to be redriven."]
    lines += [*CANNOT, *_signed(gathered)]
    if proven is not None:
        lines += ["Backtest of these letters:"]
        lines += [f"  {line.strip()}" for line in backtest_lines(proven)]
    kept = [part for advice in queue_advice for part in advice.parts if part.verdict == texts.KEEP]
    return [
        *lines,
        *(line for part in kept for line in (f"{part.key.queue}", *(f"  {reason}" for reason in reasons_of(part)))),
    ]


def _signed(gathered: Gathered) -> list[str]:
    """Which events were believed."""
    lines = []
    if gathered.left_out:
        counts = ", ".join(f"{count} {name}" for name, count in gathered.left_out.items())
        lines.append(f"Events left out because of their signature: {counts}.")
    if gathered.believed != Signature.OK:
        lines.append("Nobody verified who wrote these events: let `pipeline ingest` have PROVENANCE_KEY_FILE.")
    return lines


def _lines(answer: Answer) -> list[str]:
    """For a person, where the file was written elsewhere."""
    lines = _signed(answer.gathered)
    for advice in answer.found:
        lines.append(advice.queue if advice.vhost == "/" else f"{advice.queue} ({advice.vhost})")
        lines += [f"  {line}" for part in advice.parts for line in reasons_of(part)]
    return [*lines, *(["backtest:", *backtest_lines(answer.proven)] if answer.proven is not None else [])]


def document(answer: Answer) -> dict[str, Any]:
    """For programs. Estimates are objects with `expected`, `low` and `high`, the ends of a 95 % interval."""
    return {
        "queues": [_queue(advice) for advice in answer.found],
        "policy_file": answer.proposal.text,
        "not_written": [{"queue": queue, "why": why} for queue, why in answer.proposal.left],
        "backtest": None if answer.proven is None else answer.proven.as_dict(),
        "events_left_out": answer.gathered.left_out,
        "signature": answer.gathered.believed,
        "cannot_be_known": " ".join(CANNOT),
    }


def _queue(advice: QueueAdvice) -> dict[str, Any]:
    return {
        "vhost": advice.vhost, "queue": advice.queue, "changes": advice.changes,
        "reasons": [_part(part) for part in advice.parts],
    }  # fmt: skip


def _part(part: Advice) -> dict[str, Any]:
    intervals = {name: getattr(part, name)._asdict() for name in ("saved", "spared", "sooner_s")}
    ladders = {"now": part.now._asdict(), "advised": None if part.advised is None else part.advised._asdict()}
    plain = part._asdict()
    del plain["key"], plain["known"]
    return {"reason": part.key.reason, **plain, **intervals, **ladders}


def _nothing(queues: Sequence[str], gathered: Gathered) -> str:
    named = f" of {', '.join(queues)}" if queues else ""
    left = sum(gathered.left_out.values())
    bad = f" ({output.number(left, 'event')} left out because of the signature)" if left else ""
    return f"no letter{named} was tried again in this time: nothing to advise{bad}; choose another --since"


def _write(out: Path, text: str) -> None:
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OptionError(f"--out {out}: {error.strerror}; name a file that can be written") from None
