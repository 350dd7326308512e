"""A letter drawn: where it is, what it went through, what it says."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from dlx_router.cli.timestamps import lasting, shown
from dlx_router.config.units import number_of
from dlx_router.core.nested_json import in_lines
from dlx_router.core.printable import printable

_NOTED: Final = "noted"
_SIGNS: Final = {
    "retried": "↻", "held": "‖", "released": "→", "redriven": "⇒", "dead_lettered": "✝", "edited": "✎", _NOTED: "✍",
}  # fmt: skip
_MAX_LINES: Final = 200
_HELPED: Final = {
    "recovered": "yes: nothing was heard of it since it was given back",
    "open": "not known yet: it waits, or was given back too short a time ago",
}


def drawn(letter: Mapping[str, Any]) -> Iterator[str]:
    """The lines of a letter; none of them commands the terminal that shows it."""
    return map(printable, _lines(letter))


def _lines(letter: Mapping[str, Any]) -> Iterator[str]:
    target = letter["target"]
    lies = "" if target is None else f", lies at {_where(target['exchange'], target['routing_key'])}"
    yield f"Letter {letter['id']}: {letter['state']}{lies}"
    yield f"  failed in   {letter['failed_queue']} (vhost {letter['vhost']}), {letter['reason']}"
    for name, value in (
        ("cause", letter["cause"]),
        ("policy", letter["policy"]),
        ("group", letter["group"]),
        ("message id", letter["message_id"]),
        ("serial", letter.get("serial")),  # absent where the router is older, as `copies`
        ("copies", f"there may be {letter['copies']} more: a router was killed" if letter.get("copies") else ""),
        ("size", number_of(letter["size"], "byte")),
        ("helped", _HELPED.get(letter.get("outcome") or "", "")),  # absent where the router is older
    ):
        if value:
            yield f"  {name:<11} {value}"
    parked = letter.get("parked")  # absent where the router is older
    if parked:
        yield f"  {letter['state']:<11} because {parked['why']}"
        yield f"  {'to resolve':<11} {parked['resolve']}"
    else:
        yield from _error((letter["event"] or {}).get("error"))
    yield ""
    yield from _deaths((letter["event"] or {}).get("deaths") or ())
    yield "Journey"
    yield from _journey(letter)
    if not letter["journey"]:
        yield "  imported: what was before is not known"
    yield ""
    yield from _body(letter["body"])


def _journey(letter: Mapping[str, Any]) -> Iterator[str]:
    """Each step, the rules that decided it, and what people noted on the way."""
    noted = [  # absent where the router is older
        {**comment, "kind": _NOTED} for comment in letter.get("comments") or ()
    ]
    steps = sorted([*letter["journey"], *noted], key=lambda step: step["ts_ms"])
    for number, step in enumerate(steps, 1):
        sign = "✗" if step.get("outcome") == "refused" else _SIGNS.get(step["kind"], "●")
        yield f"  {sign} {shown(step['ts_ms'])}  {_step_text(step, letter['failed_queue'])}"
        side = "│" if number < len(steps) else " "
        for rule in step.get("rules") or ():
            yield f"  {side} by {rule['key']}: {rule['value']}, {rule['set_by']}"
        if number < len(steps):
            wait = steps[number]["ts_ms"] - step["ts_ms"]
            yield f"  │{f'   {lasting(wait)}' if wait > 0 else ''}"


def _deaths(deaths: Any) -> Iterator[str]:  # noqa: ANN401 - JSON
    """x-death, the oldest first: what the broker says."""
    if not deaths:
        return
    yield "Deaths"
    for death in reversed(deaths):
        times = f"{death['count']}×" if death["count"] > 1 else ""
        way = _where(death["exchange"], ", ".join(death["routing_keys"]))
        yield f"  ✝ {shown(death['time_ms'])}  {death['queue']}: {times}{death['reason']}, came by {way}"
    yield ""


def _doubt(step: Mapping[str, Any]) -> str:
    """Whether somebody else than a router may have written the event; absent where the router is older."""
    signature = step.get("signature", "ok")
    return "" if signature == "ok" else f" [not verified: {signature}]"


def _step_text(step: Mapping[str, Any], queue: str) -> str:
    if step["kind"] == _NOTED:
        return f"noted by {step['actor']}: {' '.join(step['text'].split())}"
    if step.get("outcome") == "refused":  # absent where the router is older
        cause = f" ({step['outcome_cause']})" if step["outcome_cause"] else ""
        at = "" if step["routing_key"] is None else f" → {_where(step['exchange'] or '', step['routing_key'])}"
        return f"not {step['kind'].replace('_', '-')}: the target did not take it{cause}{at}{_doubt(step)}"
    return _event_text(step, queue)


def _event_text(step: Mapping[str, Any], queue: str) -> str:
    why = step["reason"] + (f" ({step['cause']})" if step["cause"] else "") + _doubt(step)
    waits = "" if step["due_ms"] is None else f", waits {lasting(step['due_ms'] - step['ts_ms'])}"
    at = "" if step["routing_key"] is None else f" → {_where(step['exchange'] or '', step['routing_key'])}"
    match step["kind"]:
        case "retried":
            return f"retried: delivery {step['attempts']} in {queue} failed, {why}{waits}"
        case "held":
            refused = f", refused by {step['refused']}" if step["refused"] else ""
            return f"held: {why}{refused}{waits}"
        case "released":
            return f"released: back to {queue}{_doubt(step)}"
        case "redriven":
            by = f", by {step['redrive_id']}" if step["redrive_id"] else ""
            return f"redriven: time {step['redrives']}{at}{by}{_doubt(step)}"
        case "leased" | "lease_ended" as kind:
            how = f"received, for {waits.removeprefix(', waits ')}" if kind == "leased" else step["cause"]
            return f"{kind.replace('_', ' ')}: {how}{_doubt(step)}"
        case kind:
            failed = number_of(step["attempts"] or 0, "failed delivery", "failed deliveries")
            return f"{kind.replace('_', '-')}: after {failed}, {why}{at}"


def _error(error: Mapping[str, Any] | None) -> Iterator[str]:
    if error:
        text = ": ".join(str(error[name]) for name in ("type", "message") if error.get(name))
        yield f"  {'error':<11} {text}"
        if error.get("frame"):
            yield f"  {'at':<11} {error['frame']}"


def _body(body: Mapping[str, Any]) -> Iterator[str]:
    kind = f" ({body['content_type']})" if body["content_type"] else ""
    if body["form"] == "none":
        yield f"Body{kind}: not known; {body['why']}"
        return
    yield f"Body{kind}: {body['why']}" if body["why"] else f"Body{kind}"
    content = body["content"]
    if body["form"] == "json":
        content = in_lines(content)
    elif body["form"] == "hex":
        content = "\n".join(content[at : at + 64] for at in range(0, len(content), 64))
    lines = content.splitlines() or [""]
    yield from (f"  {line}" for line in lines[:_MAX_LINES])
    if len(lines) > _MAX_LINES:
        yield f"  … {number_of(len(lines) - _MAX_LINES, 'line')} more; --json shows all"


def _where(exchange: str, key: str) -> str:
    return f"{exchange} → {key}" if exchange else f"queue {key}"
