"""What `dlx-router pipeline backtest` does, once it is clear that Spark is wanted."""

from functools import partial
from pathlib import Path

from dlx_router.cli import output
from dlx_router.cli.pipeline import queue_types
from dlx_router.cli.pipeline.names import prefix
from dlx_router.cli.pipeline.run_analysis import Where, vhosts
from dlx_router.config.findings import PolicyErrors
from dlx_router.spark.backtest.estimate import Estimate
from dlx_router.spark.backtest.replay import files_of
from dlx_router.spark.backtest.run import Backtest
from dlx_router.spark.backtest.run import backtest as backtested


def backtest(where: Where, policies: Path, *, as_json: bool) -> int:
    """Print what differs."""
    try:
        files = files_of(policies, prefix())
    except PolicyErrors as errors:
        return output.refuse(errors)
    spark = where.session()
    events = where.events(spark)
    _, types = queue_types.judge(files, prefix(), partial(vhosts, events))
    answer = backtested(events, files, as_of_ms=where.as_of_ms(spark, events), prefix=prefix(), types=types)
    if as_json:
        output.as_json(answer.as_dict())
    else:
        output.say("\n".join(backtest_lines(answer)))
    return output.FINDINGS if answer.differing_arrivals else output.OK


def backtest_lines(answer: Backtest) -> list[str]:
    """The answer for people."""
    letters, differing = output.number(answer.letters, "letter"), output.number(answer.differing_letters, "letter")
    judged = f"{output.number(answer.judged, 'decision')} about {letters} judged again"
    lines = [f"{judged}: {answer.differing_arrivals} differ, of {differing}"]
    if answer.unjudged:
        decisions = output.number(answer.unjudged, "decision")
        lines.append(f"not judged: {decisions}, told by events that no router writes so")
    for row in answer.changes:
        samples = f", {', '.join(row['sample_ids'])}" if row["sample_ids"] else ""
        counts = f"{output.number(row['letters'], 'letter')}, {output.number(row['arrivals'], 'decision')}{samples}"
        lines.append(f"  {row['failed_queue']}  {row['reason']}  {row['change']}: {counts}")
    if answer.cut:
        lines.append(
            f"recorded: {output.number(answer.retries_spared, 'retry', 'retries')} of "
            f"{output.number(answer.cut, 'letter')} would not have been made; "
            f"{answer.cut_recovered} of these letters recovered by them"
        )
    lines += [f"{queue_types.UNKNOWN}: {line}" for line in answer.left_out]
    return [*lines, *map(_estimated, answer.estimates)]


def _estimated(estimate: Estimate) -> str:
    letters = output.number(estimate.letters, "letter")
    return (
        f"estimate: of {letters} of {estimate.failed_queue} ({estimate.reason}) that are tried otherwise, "
        f"{estimate.expected:.0f} recover (95 %: {estimate.low} to {estimate.high}); as it was, "
        f"{estimate.recovered_then} did by retries"
    )
