"""A definitions file of RabbitMQ: its policies, and the arguments of its queues.

RabbitMQ applies one policy to a queue, the one of highest priority, and our policies merge: `inherit: false` says so.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from dlx_router.config.dialects.import_result import Carried, ImportRefused, Placed, kind_of, mapping, parsed_json
from dlx_router.config.language.regex import RegexError, compiled

KEYS: Final = ("dead-letter-exchange", "dead-letter-routing-key", "message-ttl", "max-length", "max-length-bytes",
               "overflow", "delivery-limit", "expires")  # fmt: skip
_WHY: Final = {
    "dead-letter-strategy": "apply chooses at-least-once wherever it is safe",
    "queue-mode": "is about how a queue stores, not about dead letters; keep it in RabbitMQ (apply copies it)",
}
_KEPT: Final = "is not about dead letters; keep it in RabbitMQ (apply copies it into its own policy)"
_QUEUES: Final = {"all", "queues", "classic_queues", "quorum_queues"}


def read(data: bytes, out: Carried) -> None:
    """Add the policies of all vhosts. ImportRefused where it is no definitions file."""
    document = mapping(parsed_json(data), "definitions")
    if not {"policies", "queues"} & document.keys():
        raise ImportRefused("no policies and no queues in it; export with rabbitmqctl export_definitions")
    vhost = document.get("vhost") if isinstance(document.get("vhost"), str) else None
    for parameter in _items(document, "parameters", out):
        _parameter(parameter, out)
    for policy in _items(document, "policies", out):
        _policy(policy, out, vhost)
    for queue in _items(document, "queues", out):
        _queue(queue, out, vhost)


def _items(document: Mapping[str, Any], key: str, out: Carried) -> Iterator[Placed]:
    items = document.get(key, [])
    if not isinstance(items, list):
        raise ImportRefused(f"{key}: expected a list, found {kind_of(items)}; export it again")
    for at, item in enumerate(out.each(items)):
        mapping(item, f"{key}[{at}]")
        for member in ("name", "vhost", "pattern", "apply-to", "component"):
            if not isinstance(item.get(member, ""), str | None):
                raise ImportRefused(
                    f"{key}[{at}], {member}: expected a text, found {kind_of(item[member])}; export it again"
                )
        yield item


def _parameter(parameter: Mapping[str, Any], out: Carried) -> None:
    """Report what an export holds besides policies; an export of one vhost names no vhost in it."""
    component, name = parameter.get("component"), parameter.get("name")
    vhost = f" of vhost {parameter['vhost']}" if parameter.get("vhost") else ""
    if component == "operator_policy":
        rule = mapping(parameter.get("value"), f"operator policy {name}")
        keys = ", ".join(f"{key} {value}" for key, value in mapping(rule.get("definition"), f"operator {name}").items())
        out.leave(f"operator policy {name}{vhost}", f"stays in RabbitMQ: it limits {rule.get('pattern')!r} ({keys}) "
                  "beside any policy, and only an administrator changes it; plan reads it")  # fmt: skip
    elif component == "vhost-limits":
        out.leave(f"limits{vhost}", "stay in RabbitMQ; dead-letter queues and delay queues count for max-queues")
    else:
        out.leave(f"{component} {name}{vhost}", "is no policy; keep it in RabbitMQ")


def _policy(policy: Mapping[str, Any], out: Carried, vhost: str | None) -> None:
    name, pattern = str(policy.get("name") or "policy"), policy.get("pattern")
    where = f"policy {name}"
    apply_to = policy.get("apply-to", "all")
    definition = mapping(policy.get("definition", Placed()), f"{where}, definition")
    if apply_to not in _QUEUES:
        out.leave(where, f"applies to {apply_to}, which have no dead letters of this kind; keep it in RabbitMQ")
        return
    carried = _definition(definition, where, out)
    if not carried:
        out.leave(where, "has no key about dead letters")
        return
    if not isinstance(pattern, str):
        raise ImportRefused(f"{where}: pattern is missing; export it again")
    try:
        compiled(pattern or ".*")
    except RegexError as error:
        out.leave(where, f"its pattern needs a backtracking engine ({error}); write match: or pattern: by hand")
        return
    more: dict[str, Any] = {"vhost": policy.get("vhost", vhost)} if policy.get("vhost", vhost) else {}
    more |= {"apply-to": apply_to} if apply_to not in {"all", "queues"} else {}
    more |= {"priority": policy["priority"]} if policy.get("priority") else {}
    out.add(name, {"pattern": pattern or ".*"}, carried, **more, inherit=False)


def _queue(queue: Mapping[str, Any], out: Carried, vhost: str | None) -> None:
    name = queue.get("name")
    if not isinstance(name, str):
        raise ImportRefused("a queue without a name; export it again")
    arguments = {
        key.removeprefix("x-"): value
        for key, value in mapping(queue.get("arguments") or Placed(), f"queue {name}, arguments").items()
        if key.startswith("x-")
    }
    carried = {key: value for key, value in arguments.items() if key in KEYS and key.startswith("dead-letter-")}
    if "dead-letter-exchange" not in carried:
        return
    out.leave(f"queue {name}", "its arguments stay as they are, and no policy changes them (DLX201); declare it anew "
              "without them, or attach the queue where its dead letters end, and name their exchange in "
              "dead-letter-exchanges")  # fmt: skip
    place = queue.get("vhost", vhost)
    more: dict[str, Any] = {"vhost": place} if place else {}
    definition = _definition(carried, f"queue {name}", out)
    if definition:
        out.add(f"queue-{name}", {"queue": name}, definition, **more, priority=1000)


def _definition(settings: Mapping[str, Any], where: str, out: Carried) -> dict[str, Any]:
    carried: dict[str, Any] = {}
    for key, value in settings.items():
        if key in KEYS:
            carried[key] = _braced(value) if key == "dead-letter-routing-key" else value
        else:
            out.leave(f"{where}, {key}", _WHY.get(key, _KEPT))
    if "dead-letter-routing-key" in carried and "dead-letter-exchange" not in carried:
        del carried["dead-letter-routing-key"]
        out.leave(f"{where}, dead-letter-routing-key", "has no effect without dead-letter-exchange")
    if carried.get("dead-letter-exchange") == "" and "dead-letter-routing-key" not in carried:
        del carried["dead-letter-exchange"]
        out.leave(f"{where}, dead-letter-exchange", 'is "" without a routing key, which returns letters to their own '
                  "queue; left out, so that they go to an auto-created DLQ")  # fmt: skip
    elif carried and "dead-letter-exchange" not in carried:
        out.leave(where, "no dead-letter-exchange: what dies in a queue whose arguments have none RabbitMQ would drop; "
                  "it is kept in DLQ.<queue>; set discard: true to do the same")  # fmt: skip
    return carried and {**carried, "retry-on": []}  # RabbitMQ tries nothing again


def _braced(value: object) -> object:
    return value.replace("{", "{{").replace("}", "}}") if isinstance(value, str) else value
