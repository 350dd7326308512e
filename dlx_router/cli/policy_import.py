"""`dlx-router policy import`: policies of another system in our language on stdout, the report on stderr."""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from dlx_router.cli import output
from dlx_router.config.dialects import artemis, rabbitmq
from dlx_router.config.dialects.import_result import MAX_BYTES, Carried, ImportRefused, as_yaml, printable
from dlx_router.config.dialects.redrive_policies import read_emq, read_sqs
from dlx_router.config.environment import prefix
from dlx_router.config.findings import Report
from dlx_router.config.language import yaml_tree
from dlx_router.config.policy_files import document
from dlx_router.config.policy_files.loader import errors_of, why_unreadable
from dlx_router.core.names import Names
from dlx_router.core.policy import Policy

MOST_CHARS: Final = 600
_AWS: Final = "what `aws sqs get-queue-attributes --attribute-names All` prints"
_EXPECTED: Final[Mapping[str, str]] = {
    "rabbitmq": "what `rabbitmqctl export_definitions` writes", "sqs": _AWS, "yandex": _AWS,
    "artemis": "the broker.xml of a broker", "emq": "redrive policies: {queueName, redrivePolicy: {…}}, one or a list",
}  # fmt: skip


class Origin(StrEnum):
    """Systems whose policies can be imported."""

    RABBITMQ = "rabbitmq"
    ARTEMIS = "artemis"
    SQS = "sqs"
    YANDEX = "yandex"
    EMQ = "emq"


class Rejected(Exception):
    """Values that our language refuses: each with the number of its policy."""

    def __init__(self, rows: Sequence[tuple[int, str]]) -> None:
        super().__init__()
        self.rows = rows


_READERS: Final[Mapping[str, Callable[[bytes, Carried], None]]] = {
    "rabbitmq": rabbitmq.read, "artemis": artemis.read, "sqs": read_sqs, "yandex": read_sqs, "emq": read_emq,
}  # fmt: skip


def import_(
    path: Annotated[
        Path, typer.Argument(help="definitions.json, broker.xml, queue attributes or redrive policies as JSON.")
    ],
    origin: Annotated[Origin, typer.Option("--from", help="The system that the file is from.")],
) -> None:
    """Write policies of another system in our language, and say on stderr what was not carried over, and why.

    1 where the file is not what it should be, 2 where it cannot be read.
    """
    try:
        with path.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise typer.Exit(output.wrong_use(f"{path}:1: {why_unreadable(error)}")) from None
    carried = Carried()
    try:
        if len(data) > MAX_BYTES:
            raise ImportRefused(f"more than {MAX_BYTES >> 20} MiB; import it in parts", line=1)  # noqa: TRY301 - told below, as all others
        _READERS[origin](data, carried)
        text = _kept(carried, f"{path.name} ({origin})", prefix.names())
    except Rejected as rejected:
        for at, message in rejected.rows:
            refusal = f"policy {carried.policies[at]['name']}: {message}"
            refusal = printable(refusal)[:MOST_CHARS]
            output.warn(f"{path}:{carried.lines[at] or 1}: {refusal}; correct it, then import again")
        raise typer.Exit(output.FINDINGS) from None
    except ImportRefused as error:
        line = error.line or carried.line or 1
        first, *more = str(error).split("\n")
        first = first.replace("is --from right?", f"--from {origin} reads {_EXPECTED[origin]}")
        output.warn("\n".join([f"{path}:{line}: {printable(first)[:MOST_CHARS]}", *more]))
        raise typer.Exit(output.FINDINGS) from None
    print(text, end="")
    for remark in carried.left:
        output.warn(f"not carried over: {printable(str(remark))[:MOST_CHARS]}")
    policies = output.number(len(carried.policies), "policy", "policies")
    output.warn(f"{policies}, {output.number(len(carried.left), 'remark')}")


def _kept(carried: Carried, origin: str, names: Names) -> str:
    """The file of all policies that together mean something; one that would be an error there is left, and why.

    Each round leaves some, so there are as many as policies at most, and hardly ever more than two.
    """
    while True:
        text = as_yaml(carried, origin)
        policies = _proved(text)
        wrong = {_owner_of(finding.line, policies): finding for finding in reversed(errors_of(policies, names))}
        if not wrong:
            return text
        for at in sorted(wrong, reverse=True):
            del carried.policies[at]
        for at, finding in sorted(wrong.items()):
            carried.leave(f"policy {policies[at].name}", f"would be an error ({finding.code}): {finding.message}")


def _owner_of(line: int, policies: Sequence[Policy]) -> int:
    """Which policy stands at a line: the last that begins there or above."""
    return max(bisect_right([policy.source.line for policy in policies], line) - 1, 0)


def _proved(text: str) -> list[Policy]:
    """What is printed can be read by ourselves; what our language refuses is said here, not at the next start."""
    report = Report("imported")
    policies, _, _ = document.read(yaml_tree.parse(text.encode(), report), report)
    if report.findings:
        starts = [number for number, line in enumerate(text.splitlines(), 1) if line.startswith("  - ")]
        raise Rejected([(bisect_right(starts, finding.line) - 1, finding.message) for finding in report.findings[:20]])
    return policies
