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
    """Yield the lines of a letter; none of them commands the terminal that shows it.

    What an older router does not tell (`.get`) is left out.
    """
    return map(printable, _lines(letter))


def place(exchange: str, routing_key: str) -> str:
    """Return a target in short."""
    return f"{exchange} → {routing_key}" if exchange else routing_key


def _lines(letter: Mapping[str, Any]) -> Iterator[str]:
    event, target = letter["event"] or {}, letter["target"]
    error, parked = event.get("error") or {}, letter.get("parked") or {}
    yield f"Letter {letter['id']}: {letter['state']}{'' if target is None else f', lies at {_where(**target)}'}"
    yield f"  failed in   {letter['failed_queue']} (vhost {letter['vhost']}), {letter['reason']}"
    for name, value in (
        *((name.replace("_", " "), letter.get(name)) for name in ("cause", "policy", "group", "message_id", "serial")),
        ("copies", f"there may be {letter['copies']} more: a router was killed" if letter.get("copies") else ""),
        ("size", number_of(letter["size"], "byte")),
        ("helped", _HELPED.get(letter.get("outcome") or "", "")),
        (letter["state"], f"because {parked['why']}" if parked else ""),
        ("to resolve", parked.get("resolve")),
        ("error", "" if parked else ": ".join(str(error[name]) for name in ("type", "message") if error.get(name))),
        ("at", "" if parked else error.get("frame")),
    ):
        if value:
            yield f"  {name:<11} {value}"
    yield ""
    yield from _deaths(event.get("deaths") or ())
    yield "Journey"
    yield from _journey(letter)
    yield ""
    yield from _body(letter["body"])


def _journey(letter: Mapping[str, Any]) -> Iterator[str]:
    """Each step, the rules that decided it, and what people noted on the way."""
    noted = [{**comment, "kind": _NOTED} for comment in letter.get("comments") or ()]
    before = None
    for step in sorted([*letter["journey"], *noted], key=lambda step: step["ts_ms"]):
        if before is not None and step["ts_ms"] > before:
            yield f"  │   {lasting(step['ts_ms'] - before)}"
        before = step["ts_ms"]
        sign = "✗" if step.get("outcome") == "refused" else _SIGNS.get(step["kind"], "●")
        yield f"  {sign} {shown(step['ts_ms'])}  {_step_text(step, letter['failed_queue'])}"
        for rule in step.get("rules") or ():
            yield f"  │ by {rule['key']}: {rule['value']}, {rule['set_by']}"
    if not letter["journey"]:
        yield "  imported: what was before is not known"


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


def _step_text(step: Mapping[str, Any], queue: str) -> str:
    if step["kind"] == _NOTED:
        return f"noted by {step['actor']}: {' '.join(step['text'].split())}"
    kind = step["kind"].replace("_", "-")
    at = "" if step["routing_key"] is None else f" → {_where(step['exchange'] or '', step['routing_key'])}"
    if step.get("outcome") == "refused":
        cause = f" ({step['outcome_cause']})" if step["outcome_cause"] else ""
        text = f"not {kind}: the target did not take it{cause}{at}"
    else:
        text = _event_text(kind, step, queue, at)
    signature = step.get("signature", "ok")  # whether somebody else than a router may have written the event
    return text if signature == "ok" else f"{text} [not verified: {signature}]"


def _event_text(kind: str, step: Mapping[str, Any], queue: str, at: str) -> str:
    why = step["reason"] + (f" ({step['cause']})" if step["cause"] else "")
    lasts = "" if step["due_ms"] is None else lasting(step["due_ms"] - step["ts_ms"])
    waits = f", waits {lasts}" if lasts else ""
    match kind:
        case "retried":
            return f"retried: delivery {step['attempts']} in {queue} failed, {why}{waits}"
        case "held":
            return f"held: {why}{', refused by ' + step['refused'] if step['refused'] else ''}{waits}"
        case "redriven":
            return f"redriven: time {step['redrives']}{at}{', by ' + step['redrive_id'] if step['redrive_id'] else ''}"
        case "released" | "leased" | "lease-ended":
            lasted = {"released": f"back to {queue}", "leased": f"received, for {lasts}"}.get(kind, step["cause"])
            return f"{kind.replace('-', ' ')}: {lasted}"
        case _:
            return (
                f"{kind}: after {number_of(step['attempts'] or 0, 'failed delivery', 'failed deliveries')}, {why}{at}"
            )


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


def _where(exchange: str, routing_key: str) -> str:
    return place(exchange, routing_key) if exchange else f"queue {routing_key}"
