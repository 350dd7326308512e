"""Redrive policies of Amazon SQS, Yandex Message Queue and Xiaomi EMQ.

SQS and Yandex: queue attributes as `get-queue-attributes` prints them. EMQ: `{queueName, redrivePolicy: {dlqName,
maxReceiveTime}}`, one or a list. maxReceiveCount or maxReceiveTime n is n deliveries, dead instead of delivery n + 1:
max-delivery-attempts n. A visibility timeout is the wait before the next delivery: redelivery-delay. Dead letters of
EMQ carry its attributes as headers.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from dlx_router.config.dialects.import_result import Carried, ImportRefused, mapping, parsed_json, whole

MOST: Final = 1000
MOST_OF_EMQ: Final = 100
_EMQ: Final = frozenset({"queueName", "redrivePolicy", "dlqName", "maxReceiveTime"})
_SECONDS: Final = "s"
_WHY: Final = {
    "MessageRetentionPeriod": "is the age at which messages are deleted; RabbitMQ's message-ttl would let them die as "
    "expired instead: write it if you want that",
    "DelaySeconds": "delays every message before its first delivery; the router delays only what failed",
    "ReceiveMessageWaitTimeSeconds": "is long polling; RabbitMQ pushes",
    "ContentBasedDeduplication": "RabbitMQ has no deduplication",
    "RedriveAllowPolicy": "says which queues may use a DLQ; here rights do (dlx-router permissions)",
    "KmsMasterKeyId": "is about encryption at rest",
}
_TEMPLATES: Final = {
    "CloudFormation": rb"AWSTemplateFormatVersion|AWS::SQS",
    "Terraform": rb"aws_sqs_queue|terraform_version",
}
_IRRELEVANT: Final = frozenset({
    "QueueArn", "QueueUrl", "CreatedTimestamp", "LastModifiedTimestamp", "FifoQueue", "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesDelayed", "ApproximateNumberOfMessagesNotVisible", "RedrivePolicy", "VisibilityTimeout",
    "QueueName",
})  # fmt: skip


def read_sqs(data: bytes, out: Carried) -> None:
    """Add a policy for each queue with a RedrivePolicy. ImportRefused where there is none that can be read."""
    for what, mark in _TEMPLATES.items():  # what declares queues may compute their names and numbers
        if re.search(mark, data):
            raise ImportRefused(f"a {what} file; is --from right?", line=1)
    for name, attributes in _queues(parsed_json(data), out):
        _queue(name, attributes, out)


def _queues(document: Any, out: Carried) -> Iterator[tuple[str, dict[str, Any]]]:
    """One queue, a list of them, or an object of queue names; attributes under "Attributes" or by themselves."""
    many = document if isinstance(document, list) else [document]
    if isinstance(document, dict) and document and not _is_one_queue(document):
        for name, value in document.items():
            mapping(value, f"queue {name}").setdefault("QueueName", name)
        many = [*document.values()]
    for at, item in enumerate(out.each(many)):
        queue = mapping(item, f"queue {at + 1}")
        attributes = mapping(queue.get("Attributes", queue), f"queue {at + 1}, Attributes")
        arn = attributes.get("QueueArn") or queue.get("QueueUrl") or ""
        name = queue.get("QueueName") or _last(str(arn))
        if not name:
            raise ImportRefused(f"queue {at + 1} has neither QueueArn, QueueUrl nor QueueName; add one of them")
        yield str(name), attributes


def _is_one_queue(document: Mapping[str, Any]) -> bool:
    """Its own attributes, and not queues by their names, which may be called as attributes are."""
    named = any(isinstance(document.get(key), str) for key in ("QueueArn", "QueueUrl", "QueueName"))
    return named or "RedrivePolicy" in document or "Attributes" in document


def _last(text: str) -> str:
    return text.rstrip("/").replace("/", ":").rpartition(":")[2]


def _queue(name: str, attributes: Mapping[str, Any], out: Carried) -> None:
    where = f"queue {name}"
    for key in attributes:
        if key in _WHY:
            out.leave(f"{where}, {key}", _WHY[key])
        elif key not in _IRRELEVANT:
            out.leave(f"{where}, {key}", "is not about dead letters")
    if "RedrivePolicy" not in attributes:
        out.leave(where, "has no RedrivePolicy: nothing dies there")
        return
    value = attributes["RedrivePolicy"]
    try:  # JSON in a text of the JSON, as AWS has it; its own lines tell nothing about the file
        value = parsed_json(value.encode()) if isinstance(value, str) else value
    except ImportRefused as error:
        raise ImportRefused(f"{where}, RedrivePolicy: {error}") from None
    redrive = mapping(value, f"{where}, RedrivePolicy")
    count, target = whole(redrive.get("maxReceiveCount")), redrive.get("deadLetterTargetArn")
    if count is None or not 1 <= count <= MOST:
        received = f"maxReceiveCount {redrive.get('maxReceiveCount')!r:.60}"
        raise ImportRefused(f"{where}: {received} is not 1..{MOST}; write how often it may be received")
    if not isinstance(target, str) or not target:
        raise ImportRefused(f"{where}: RedrivePolicy without deadLetterTargetArn; add the ARN of its dead-letter queue")
    fifo, dead = name.endswith(".fifo"), _last(target)
    if fifo != dead.endswith(".fifo"):
        raise ImportRefused(f"{where}: FIFO and standard do not mix, and its DLQ is {dead}; name a DLQ of its kind")
    definition = _definition(count, dead)
    _wait(attributes, definition, where, out, fifo=fifo)
    out.add(name, {"queue": name}, definition)


def _definition(attempts: int, dead_letter_queue: str) -> dict[str, Any]:
    key = dead_letter_queue.replace("{", "{{").replace("}", "}}")
    return {"max-delivery-attempts": attempts, "dead-letter-exchange": "", "dead-letter-routing-key": key}


def _wait(attributes: Mapping[str, Any], definition: dict[str, Any], where: str, out: Carried, *, fifo: bool) -> None:
    if fifo:
        definition["ordering"] = "fifo"
        out.leave(
            where,
            "a FIFO queue blocks a message group while one fails; here dead letters keep their order, and "
            "the source goes on: declare it with x-single-active-consumer",
        )
        return
    if "VisibilityTimeout" in attributes:
        seconds = whole(attributes["VisibilityTimeout"])
        if seconds is None or seconds < 0:
            waits = f"VisibilityTimeout {attributes['VisibilityTimeout']!r:.60}"
            raise ImportRefused(f"{where}: {waits} is no number of seconds; write a whole one")
        definition["redelivery-delay"] = f"{seconds}{_SECONDS}"


# -- EMQ --------------------------------------------------------------------------------------------------------------


def read_emq(data: bytes, out: Carried) -> None:
    """Add a policy for each queue. ImportRefused for what EMQ itself would refuse."""
    document = parsed_json(data)
    requests = document if isinstance(document, list) else [document]
    queues = [_request(item, at + 1) for at, item in enumerate(out.each(requests))]
    targets = {target: name for name, target, _, _ in queues}
    seen: set[str] = set()
    for _, (name, target, attempts, others) in zip(out.each(requests), queues, strict=True):
        if name in seen:
            raise ImportRefused(f"queue {name} has two redrive policies; EMQ allows one: keep one")
        seen.add(name)
        if name in targets:
            raise ImportRefused(
                f"queue {name} is the DLQ of {targets[name]} and has a redrive policy; EMQ forbids both: keep one"
            )
        for key in others:
            out.leave(f"queue {name}, {key}", "is not known, and not about dead letters")
        out.add(name, {"queue": name}, _definition(attempts, target) | {"dead-letter-headers": ["emq"]})
        out.leave(f"queue {name}", "tags: each counts on its own in EMQ; here each queue of a fan-out does")


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
    if attempts is None or not 1 <= attempts <= MOST_OF_EMQ:
        received = f"maxReceiveTime {redrive.get('maxReceiveTime')!r:.60}"
        raise ImportRefused(f"queue {name}: {received} is not 1..{MOST_OF_EMQ}; write how often it may be received")
    others = [key for key in (*request, *redrive) if key not in _EMQ]
    return name, target, attempts, others
