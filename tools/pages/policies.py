"""docs/policies.md and docs/policies.schema.json, from the tables that parse policies: `python -m tools.pages.policies`."""

# ruff: noqa: E501 - text of a page
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dlx_router.config.language.keys import DEFINITION, Key
from dlx_router.config.policy_files.json_schema import schema, schema_text
from dlx_router.config.units import duration_text

DOCS: Final = Path(__file__).parents[2] / "docs"
HEAD: Final = """# The policy language

This page is made from the tables that read policies (`make pages`); a test fails where it is stale. Durations are integers
(milliseconds, as in RabbitMQ) or `250ms`, `5s`, `10m`, `1h`, `7d`; sizes are integers (bytes) or `64KiB`, `10MiB`. Unknown keys
are errors with file and line. `dlx-router policy explain QUEUE` shows what is in force and who set it.

All policies that select the failed queue are merged key by key: higher `priority` first, then `queue:` before `match:` before
`pattern:`, more literal words first. `inherit: false` ends the chain; keys under `on:` overlay the merged base.
Queues of the router, and those that are called as auto-created dead-letter queues are, are selected by `queue:` only.
"""
CONDITIONS: Final = """
**An alternate exchange** of a `dead-letter-exchange`, or of the exchange that a relay forwards to, is a way like any
other, whether an argument or a RabbitMQ policy says so: what it routes has arrived, and is neither parked nor tried
again. RabbitMQ treats its own dead letters likewise. The journal names the exchange and key that were published to, not
the queue; and with `auto-create-dead-letter-resources` a dead-letter queue that somebody deleted is not missed while
the alternate exchange takes its letters. On the router's own exchanges it is
[refused](provisioning.md#what-is-in-the-way).

## Conditions

`never-retry` and `retry-only` are lists of expressions in [CEL](https://cel.dev), checked and compiled when policies are read. One
that cannot be evaluated for a letter counts as false, is counted (`dlx_router_condition_errors_total`) and logged once.

| variable | |
|---|---|
| `reason` `cause` | why it died; cause in its record, `""` without one |
| `attempts` `redrives` | failed deliveries that count, this one included; how often it was sent back |
| `age` | whole seconds since its first death |
| `queue` `exchange` `routing_key` `vhost` | where it failed, and by which exchange and key it had come there |
| `content_type` `size` | property of the message; bytes of its body |

| function | |
|---|---|
| `header("name")` | a header as text, as in templates; `""` where it is missing or no scalar. Numbers: `int(header("n")) > 3` |
| `body("/json/pointer")` | a place of a JSON body of up to 1 MiB; `null` where there is none |
| `text.matches("re")` | RE2: linear time, whatever the message |

Names and pointers are written out in quotes: the journal tells what a decision looked at, so that it can be replayed. Values named
in `journal: {redact: […]}` are missing there, and a replay sees them so.

## Outage

`outage: {deaths: 50, within: 10s, probe-every: 5s}`: when so many letters of a queue died in that time, its breaker opens.
Letters that would use an attempt are then held, each for `probe-every` (`100ms` or more), doubling up to 5 minutes, without
using it. One of them at a time is sent to its queue as a probe. A probe that does not come back within `probe-every`, while the
others do not die as fast as before, closes the breaker: the rest is released at a ramp, 1, 2, 4 … a second, and held letters
whose wait is longer when it is over. Each replica has a breaker of its own, and forgets it when it ends.
`redelivery-max-elapsed` holds during an outage too, and conditions of `never-retry`.

**It counts bad letters, however many good ones there are**: the router sees none of those. A queue that handles 1,000 messages a second, 10 of them
bad, opens a breaker of 50 in 10 s. The good ones go on; probes are taken from the letters that are held, all of them bad, so none survives, the
breaker stays open, and without `redelivery-max-elapsed` the bad ones are held for ever. So take a number of `deaths` that bad messages alone
do not reach, and write `redelivery-max-elapsed` beside `outage`. A queue whose reasons have different `outage` rules (under `on:`) has a
breaker for each. One that is open and was asked about no letter for twice as long as it holds any (ten minutes, or two `probe-every`) closes.

## Alerts

`alert: {depth: 1000, oldest: 1h, rate: 5}`, or some of them: thresholds of a policy, which the [shipped rules](operations.md#alerts) compare
with what there is. `dlx_router_policy_threshold{policy,kind}` tells them.

| part | unit | compared with | alert |
|---|---|---|---|
| `depth` | letters, a whole number | dead letters of the policy that lie there now | [DeadLettersAbovePolicy](operations.md#deadlettersabovepolicy) |
| `oldest` | a duration (`90s`, `1h`, `7d`, milliseconds); the metric has seconds | how long the oldest of them lies there | [OldestDeadLetterAbovePolicy](operations.md#oldestdeadletterabovepolicy) |
| `rate` | letters a second, a number above 0 (`0.1`: six a minute) | dead letters a second, over five minutes | [DeadLetterRateAbovePolicy](operations.md#deadletterrateabovepolicy) |

## Order

`ordering: fifo`: give the queue `x-dead-letter-exchange: dlx-router.inbox.fifo`. Its letters are dead-lettered in the order in
which they arrived there, one at a time; nothing waits. A full target stops them; a missing one too, until `UNROUTABLE_GRACE` is
over and the letter is parked. Auto-created dead-letter queues are declared with `x-single-active-consumer`.
"""


def page() -> str:
    """The page."""
    defs = schema()["$defs"]
    parts = [HEAD, "## A policy\n", _table(defs["policy"]["properties"])]
    parts += ["\n## An attachment\n", _table(defs["attachment"]["properties"])]
    parts += ["\n## A delayed exchange\n", _table(defs["delayed"]["properties"])]
    rows = [f"| `{name}` | {_type(key.parse.schema)} | {_default(key)} | {_cell(key.doc)} |" for name, key in _keys()]
    parts += ["\n## Keys of a definition\n", "| key | takes | default | meaning |\n|---|---|---|---|", *rows]
    of_queue = ", ".join(name for name, key in _keys() if key.of_queue)
    on = "| `on` | mapping | – | Keys that hold for one reason only: rejected, expired, maxlen, delivery_limit, application, "
    on += f"application:NAME. Not those of the queue itself, which stand beside it: {of_queue}. |"
    return "\n".join([*parts, on, CONDITIONS])


def _keys() -> list[tuple[str, Key]]:
    return [*DEFINITION.items()]


def _table(properties: dict[str, Any]) -> str:
    rows = [f"| `{name}` | {_cell(definition.get('description', ''))} |" for name, definition in properties.items()]
    return "\n".join(["| key | meaning |", "|---|---|", *rows])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _default(key: Key) -> str:
    if key.says:
        return _cell(key.says)
    value = list(key.default) if isinstance(key.default, tuple) else key.default
    if "delay" in key.name and isinstance(value, int) and not isinstance(value, bool):
        return f"`{duration_text(value)}`"
    return f"`{json.dumps(value)}`"


def _type(definition: Mapping[str, Any]) -> str:
    """A schema in a few words."""
    if "enum" in definition:
        return ", ".join(f"`{value}`" for value in definition["enum"])
    if "anyOf" in definition:
        words = [_type(option) for option in definition["anyOf"]]
        text = " ".join(str(option.get("pattern", "")) for option in definition["anyOf"])
        return "duration" if "ms|s|m|h" in text else "size" if "KiB" in text else " or ".join(words)
    if "const" in definition:
        return f"`{json.dumps(definition['const'])}`"
    if definition.get("type") == "array":
        return f"list of {_type(definition['items'])}"
    if definition.get("type") == "object":
        return f"`{{{', '.join(definition.get('properties', {}))}}}`"
    return {"string": "text", "integer": "integer", "number": "number", "boolean": "true, false"}[definition["type"]]


def write() -> None:
    """Both files."""
    (DOCS / "policies.md").write_text(page(), encoding="utf-8")
    (DOCS / "policies.schema.json").write_text(f"{schema_text()}\n", encoding="utf-8")


if __name__ == "__main__":
    write()
