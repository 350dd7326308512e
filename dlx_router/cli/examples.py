"""Examples, at the end of every help: lines that can be typed as they stand there."""

import shutil
from collections.abc import Mapping
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from dlx_router.cli.layout import command_lines

_INDENT: Final = "  "
_LONGEST: Final = 500
_TASK: Final = "5cc63cdf0e4f"
_LETTER: Final = "1ed0d60940351971610c5d76cc5402ca"
_GROUP: Final = "g1-eea8d5709e2564de"

EXAMPLES: Final[Mapping[str, tuple[str, ...]]] = {
    "": ("dlx-router policy lint policies/", "dlx-router run --policies policies/", "dlx-router status"),
    "run": (
        "dlx-router run --policies policies/ --index-path letters.db",
        "dlx-router run --policies policies/ --observe",
    ),
    "policy": ("dlx-router policy lint policies/", "dlx-router policy explain orders.new --set"),
    "policy lint": ("dlx-router policy lint policies/", "dlx-router policy lint policies/ --broker --format sarif"),
    "policy explain": (
        "dlx-router policy explain orders.new --policies policies/ --set",
        "dlx-router policy explain orders.new --reason expired --queue-type quorum",
        "dlx-router policy explain orders.new --json",
    ),
    "policy diff": (
        "dlx-router policy diff in-force policies/",
        "dlx-router policy diff 1f0c9e3ab7d2 in-force --queue orders.new",
        "dlx-router policy diff policies/ new/ --json",
    ),
    "policy test": ("dlx-router policy test policies/", "dlx-router policy test policies/orders.test.yaml"),
    "policy import": (
        "dlx-router policy import definitions.json --from rabbitmq",
        "dlx-router policy import broker.xml --from artemis",
    ),
    "policy schema": ("dlx-router policy schema",),
    "plan": ("dlx-router plan --policies policies/", "dlx-router plan --adopt"),
    "apply": ("dlx-router apply --policies policies/", "dlx-router apply --policies policies/ --yes --json"),
    "destroy": ("dlx-router destroy --dry-run", "dlx-router destroy --drain --drain-seconds 120"),
    "permissions": (
        "dlx-router permissions --policies policies/",
        "dlx-router permissions --for apply --user deployer --format json",
    ),
    "doctor": ("dlx-router doctor --policies policies/", "dlx-router doctor --json"),
    "status": ("dlx-router status", "dlx-router status --api-url http://10.0.0.1:9719 --json"),
    "queues": ("dlx-router queues", "dlx-router queues --json"),
    "groups": ("dlx-router groups --queue orders.new --state open", f"dlx-router groups show {_GROUP}"),
    "groups show": (f"dlx-router groups show {_GROUP}",),
    "groups ignore": (f"dlx-router groups ignore {_GROUP} --until 2d --note 'fixed in 1.4'",),
    "groups share": (
        f"dlx-router groups share {_GROUP} --note 'We are at it.'",
        f"dlx-router groups share {_GROUP} --show-error --yes --json",
    ),
    "groups unshare": (f"dlx-router groups unshare {_GROUP}",),
    "groups shared": ("dlx-router groups shared", "dlx-router groups shared --json"),
    "groups resolve": (f"dlx-router groups resolve {_GROUP} --note 'fixed in 1.4'",),
    "groups open": (f"dlx-router groups open {_GROUP}",),
    "searches": ("dlx-router searches", "dlx-router searches save 'Late orders' --filter queue=orders.new"),
    "searches save": (
        "dlx-router searches save 'Late orders' --filter queue=orders.new --filter state=dead",
        "dlx-router searches save 'Open here' --of groups --filter queue=orders.new --filter state=open",
    ),
    "searches delete": ("dlx-router searches delete 'Late orders'",),
    "letters": ("dlx-router letters search order-4711", f"dlx-router letters show {_LETTER}"),
    "letters list": (
        "dlx-router letters list --queue orders.new --state dead",
        "dlx-router letters list --since 2h --limit 0 --json",
    ),
    "letters search": (
        "dlx-router letters search 'timeout order-4711'",
        "dlx-router letters search 'time*' --queue orders.new --since 1h",
    ),
    "letters show": (f"dlx-router letters show {_LETTER}", f"dlx-router letters show {_LETTER} --hex"),
    "letters comment": (f"dlx-router letters comment {_LETTER} 'asked the shop, see ticket 4711'",),
    "letters export": (
        "dlx-router letters export --queue orders.new --full -o orders.jsonl",
        "dlx-router letters export --from DLQ.orders.new -o letters.jsonl",
    ),
    "redrive": (
        "dlx-router redrive start DLQ.orders.new --dry-run",
        "dlx-router redrive start DLQ.orders.new --canary 10 --rate 200",
        "dlx-router redrive list",
    ),
    "redrive start": (
        "dlx-router redrive start DLQ.orders.new --dry-run",
        "dlx-router redrive start DLQ.orders.new --filter \"reason == 'rejected'\"",
        f"dlx-router redrive start DLQ.orders.new --group {_GROUP} --rate 10",
        "dlx-router redrive start DLQ.orders.new --canary 10 --ramp 1,10,50 --rate 200",
    ),
    "redrive park": (f"dlx-router redrive park DLQ.orders.new --id {_LETTER}",),
    "redrive list": ("dlx-router redrive list", "dlx-router redrive list --json"),
    "redrive show": (f"dlx-router redrive show {_TASK} --follow",),
    "redrive pause": (f"dlx-router redrive pause {_TASK}",),
    "redrive resume": (f"dlx-router redrive resume {_TASK}",),
    "redrive cancel": (f"dlx-router redrive cancel {_TASK}",),
    "edit": (
        f"dlx-router edit {_LETTER} --queue DLQ.orders.new --body order.json",
        f"dlx-router edit {_LETTER} --queue DLQ.orders.new --header tries=0",
    ),
    "discard": (
        "dlx-router discard DLQ.orders.new --dry-run",
        'dlx-router discard DLQ.orders.new --filter "age > 2592000"',
    ),
    "audits": ("dlx-router audits", "dlx-router audits --limit 500 --json"),
    "console": (
        "dlx-router console",
        "dlx-router console --router north=http://10.0.0.1:9719 --router south=http://10.0.0.2:9719",
    ),
    "webhooks": ("dlx-router webhooks test --file webhooks.yaml",),
    "webhooks test": (
        "dlx-router webhooks test --file webhooks.yaml",
        "dlx-router webhooks test chat --json",
    ),
    "pipeline": ("dlx-router pipeline doctor", "dlx-router pipeline ingest --archive archive --once"),
    "pipeline doctor": ("dlx-router pipeline doctor --archive archive",),
    "pipeline ingest": (
        "dlx-router pipeline ingest --archive archive --once",
        "dlx-router pipeline ingest --archive archive --every 60",
    ),
    "pipeline compact": ("dlx-router pipeline compact --archive archive --keep 400",),
    "pipeline repair": (
        "dlx-router pipeline repair --archive archive",
        "dlx-router pipeline repair --accept-loss raw/event_date=2026-10-05/seg=0000000042-1a2b3c4d",
    ),
    "pipeline erase": ("dlx-router pipeline erase --archive archive --where \"props.user_id = 'anna'\"",),
    "pipeline verify": ("dlx-router pipeline verify --archive archive --deep",),
    "pipeline sql": (
        'dlx-router pipeline sql "select failed_queue, count(*) as letters from letters group by all"',
        'dlx-router pipeline sql --json "select * from groups order by lost desc limit 10"',
    ),
    "pipeline export": ("dlx-router pipeline export copy --format delta --since 30d",),
    "pipeline groups": ("dlx-router pipeline groups --archive archive --since 30d",),
    "pipeline report": ("dlx-router pipeline report --archive archive --since 30d --out report.html",),
    "pipeline backtest": ("dlx-router pipeline backtest --policies policies/ --since 7d",),
    "pipeline advise": (
        "dlx-router pipeline advise --policies policies/ --since 30d",
        "dlx-router pipeline advise --queue orders.new --out policies/advised.yaml",
    ),
    "pipeline redrive": (
        "dlx-router pipeline redrive plan --queue orders.new --dry-run",
        "dlx-router pipeline redrive plan --reconcile",
    ),
    "support-bundle": ("dlx-router support-bundle --to support.zip",),
}


def text(command_path: str) -> str:
    """What stands below the help of a command; "" where it has no example."""
    lines = EXAMPLES.get(command_path.removeprefix("dlx-router").strip(), ())
    width = shutil.get_terminal_size().columns - len(_INDENT)
    shown = [f"{_INDENT}{part}" for line in lines for part in command_lines(line, width)]
    return "\n".join(["Examples:", *shown]) if shown else ""


class Command(TyperCommand):
    """A command whose help ends with its examples."""

    def get_help(self, ctx: Any) -> str:  # noqa: ANN401 - typer brings a click of its own
        """As always, and the examples."""
        return _below(super().get_help(ctx), ctx)


class Group(TyperGroup):
    """The same of a group; what its commands do is told whole."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - as above
        """Their names, and the first sentence about each."""
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        rows = [
            (name, command.get_short_help_str(_LONGEST))
            for name, command in commands.items()
            if command and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def get_help(self, ctx: Any) -> str:  # noqa: ANN401 - as above
        """As always, and the examples."""
        return _below(super().get_help(ctx), ctx)


def _below(printed: str, ctx: Any) -> str:  # noqa: ANN401 - as above
    examples = text(ctx.command_path)
    return "\n\n".join(part for part in (printed, examples) if part)


def attach(app: typer.Typer) -> None:
    """The help of every command of the app ends with its examples."""
    for command in app.registered_commands:
        command.cls = Command
    for group in app.registered_groups:
        group.cls = Group
        if group.typer_instance is not None:
            attach(group.typer_instance)
