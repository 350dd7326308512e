"""Redrive policies of Xiaomi EMQ: `{queueName, redrivePolicy: {dlqName, maxReceiveTime}}`, one or a list.

maxReceiveTime n (1..100) is n deliveries: max-delivery-attempts n. Dead letters carry EMQ's attributes as headers.
"""

from typing import Any, Final

from dlx_router.config.dialects.import_result import Carried, ImportRefused, Parse, mapping, parsed_json, whole

MOST: Final = 100
_KNOWN: Final = frozenset({"queueName", "redrivePolicy"})


def read(data: bytes, parse: Parse = parsed_json) -> Carried:
    """A policy for each queue. ImportRefused for what EMQ itself would refuse."""
    document = parse(data)
    requests = document if isinstance(document, list) else [document]
    queues = [_request(item, at + 1) for at, item in enumerate(requests)]
    out = Carried()
    sources, targets = {name for name, _, _, _ in queues}, {target: name for name, target, _, _ in queues}
    if len(sources) != len(queues):
        names = [name for name, _, _, _ in queues]
        at = next(at for at, name in enumerate(names) if name in names[:at])
        raise ImportRefused(f"queue {names[at]} has two redrive policies; EMQ allows one: keep one", near=requests[at])
    for request, (name, target, attempts, others) in zip(requests, queues, strict=True):
        if target in sources:
            raise ImportRefused(
                f"queue {target} is the DLQ of {targets[target]} and has a redrive policy; EMQ forbids both: keep one",
                near=request,
            )
        for key in others:
            out.leave(f"queue {name}, {key}", "is not known, and not about dead letters")
        definition = {
            "max-delivery-attempts": attempts,
            "dead-letter-exchange": "",
            "dead-letter-routing-key": target.replace("{", "{{").replace("}", "}}"),
            "dead-letter-headers": ["emq"],
        }
        out.add(name, {"queue": name}, definition)
        out.leave(f"queue {name}", "tags: each counts on its own in EMQ; here each queue of a fan-out does")
    return out


def _request(item: Any, number: int) -> tuple[str, str, int, list[str]]:
    request = mapping(item, f"policy {number}")
    name = request.get("queueName")
    if not isinstance(name, str) or not name:
        raise ImportRefused(f"policy {number}: queueName is missing; write the name of the queue")
    redrive = mapping(request.get("redrivePolicy"), f"queue {name}, redrivePolicy")
    target, attempts = redrive.get("dlqName"), whole(redrive.get("maxReceiveTime"))
    if not isinstance(target, str) or not target:
        raise ImportRefused(f"queue {name}: dlqName is missing; write the name of its dead-letter queue")
    if target == name:
        raise ImportRefused(f"queue {name}: it is its own DLQ; name another")
    if attempts is None or not 1 <= attempts <= MOST:
        received = f"maxReceiveTime {redrive.get('maxReceiveTime')!r:.60}"
        raise ImportRefused(f"queue {name}: {received} is not 1..{MOST}; write how often it may be received")
    others = [key for key in (*request, *redrive) if key not in _KNOWN | {"dlqName", "maxReceiveTime"}]
    return name, target, attempts, others
