"""Every field of an event, once: what it means, its JSON type, and when it is there. docs/journal.md is made of it."""

from typing import Final, NamedTuple

VERSION: Final = 1
MEDIA_TYPE: Final = b"application/x-ndjson"
LINES: Final = 1  # formats of a message, its header `v`: an event in each line; or rows, compressed
ROWS: Final = 2


class Field(NamedTuple):
    """One member of an event; `when` says when it is there, "" means always."""

    name: str
    type: str
    meaning: str
    when: str = ""


KINDS: Final[dict[str, str]] = {
    "retried": "the letter is tried again at its failed queue: after a wait in a rung, or at once (it has a `target`)",
    "dead_lettered": "the letter went to its final target",
    "parked": "the letter had nowhere to go and lies in parking",
    "quarantined": "the letter could not be read or published again and lies in quarantine as it came",
    "forwarded": "a relay passed a living message on, or the wait of a delayed one is over",
    "discarded": "the policy says so; the only way to drop",
    "held": "a target refused the letter, or its queue has an outage; it waits without using an attempt. "
    "Without a cause: a message of a delayed exchange begins to wait",
    "released": "the wait is over, the letter goes back to its failed queue; hops between rungs are not told",
    "redriven": "somebody sent the letter back",
    "edited": "somebody changed the letter",
    "retired": "the letter left a dead-letter queue by retention",
    "leased": "somebody received the letter, and holds it until they say what becomes of it, or their time is over",
    "lease_ended": "how that ended; where the letter is gone from its queue another event says so too",
    "audit": "somebody did something that concerns no single letter",
    "gap": "events of one router are missing here",
}
FINAL_KINDS: Final = frozenset({"dead_lettered", "parked", "quarantined", "discarded", "retired"})

FIELDS: Final = (
    Field("v", "int", f"version of this table, {VERSION}; readers accept one more or less"),
    Field("event_id", "string", "the same for a decision that is repeated after a crash; see below"),
    Field("id", "string", "letter id; with `failed_queue` and `serial` the key of a letter"),
    Field("serial", "int", "tells the letter from others that are equal byte for byte; see below", "it has one"),
    Field(
        "possible_copy",
        "bool",
        "the message had no record and was delivered before: the journal may know it by another serial",
        "true",
    ),
    Field("kind", "string", "what was decided; see above"),
    Field("observed", "bool", "`run --observe` decided it: nothing was done", "true"),
    Field("router_id", "string", "the router process"),
    Field("vhost", "string", "vhost of the letter"),
    Field("source", "string", "queue that the letter was taken from"),
    Field("arrival", "string", "inbox: a death brought it; release: the end of a wait; retired: retention took it"),
    Field("exchange", "string", "exchange of the delivery that was taken"),
    Field("routing_key", "string", "routing key of that delivery"),
    Field("failed_queue", "string", "queue of the newest death that is not the router's"),
    Field("reason", "string", "why it failed: rejected, expired, maxlen, delivery_limit, application:NAME, unknown"),
    Field("cause", "string", "why the letter did not take the plain way", "known"),
    Field("detail", "string", "what the parser or the broker said, at most 500 characters", "known"),
    Field("attempts", "int", "failed deliveries that count, this one included"),
    Field("base_attempts", "int", "the same before the deaths in `fresh`"),
    Field("redrives", "int", "how often the letter was sent back by hand or by a task"),
    Field("tries", "int", "rungs for a refused target before this decision"),
    Field("policy", "string", "name of the highest policy that contributed", "a policy matched"),
    Field("revision", "string", "revision of all policies, 12 hex digits"),
    Field("target", "object", "`exchange` and `routing_key` that the copy is published to", "it goes to no rung"),
    Field("rung_ms", "int", "the rung that it waits in first", "it waits in a rung"),
    Field("refused", "string", "exchange or queue that would not have it, or that does not exist", "known"),
    Field("state", "string", "state that the letter's record said on arrival", "it had a record"),
    Field("said_cause", "string", "cause that the letter's record said on arrival", "it had one"),
    Field("known_before", "bool", "it was dead, and died again at a queue in its record", "true"),
    Field("rejected_since", "bool", "and something was rejected since that queue's earlier death", "true"),
    Field(
        "breaker",
        "string",
        "what the failed queue's breaker said: closed, open, half_open, or probe (open, and this letter tries)",
        "it was asked",
    ),
    Field("redrive_id", "string", "the task or lease that did this to the letter; no death has it", "there is one"),
    Field(
        "lease",
        "object",
        "`id`; `by`: name of the token; `receives`: how often it was received, as far as known; `ended`: "
        "done, redriven, parked, edited, released, expired, lost; `key`: of the letter, where it is gone",
        "leased, lease_ended",
    ),
    Field("parent", "string", "id of the letter whose record was copied onto this message", "there is one"),
    Field(
        "deaths",
        "array",
        "x-death, newest first: `queue`, `reason`, `count`, `time_ms`, `exchange`, `routing_keys`, "
        "`original_expiration` where there is one",
    ),
    Field(
        "fresh",
        "array",
        "deaths since the router's last publication: `queue`, `reason`, `count`",
        "they are not simply `deaths`",
    ),
    Field(
        "first",
        "object",
        "where it failed first: `queue`, `exchange`, `routing_keys`, `reason`; null: not known",
        "it is not the last of `deaths`",
    ),
    Field("ts_ms", "int", "when it was decided, by the router's clock; the `now` of the decision"),
    Field("draw", "float", "the chance that the jitter was given, −1 to 1", "jitter is in force"),
    Field("due_ms", "int", "when the wait or the lease ends", "it waits, leased"),
    Field("first_death_ms", "int", "time of the oldest death known"),
    Field("since_ms", "int", "time of the first death since the last redrive", "it is not first_death_ms"),
    Field("last_death_ms", "int", "when the newest death came to the router"),
    Field(
        "props",
        "object",
        "AMQP properties that were set, strings as they came: message_id, correlation_id, content_type, "
        "content_encoding, type, app_id, reply_to, user_id, expiration, priority, delivery_mode, timestamp_s",
        "any is set",
    ),
    Field("digest", "object", "`crc32` and `size` (bytes) of the whole body"),
    Field("headers", "object", "headers that the policy reads; each value is JSON, as text", "it reads any"),
    Field("body_values", "object", "places of the body that the policy reads, as `headers`", "it reads any"),
    Field("redacted", "array", "headers and JSON pointers whose values were taken out", "any was"),
    Field("declared", "object", "of a declared death: `never`, `retry_after_ms`, `tag`, where said", "it was declared"),
    Field("error", "object", "type, message, frame: of a declared death, or of headers that tell one", "it is known"),
    Field("body_mode", "string", "none, hash, head (the first part of the body) or inline (all of it)"),
    Field("body_sha256", "string", "of the whole body, before redaction, hex", "body_mode is not none"),
    Field("body", "string", "base64", "body_mode is head or inline"),
    Field("events", "int", "how many events are missing", "gap"),
    Field("from_ms", "int", "when the first of them was lost", "gap"),
    Field("to_ms", "int", "when the last of them was lost", "gap"),
    Field("actor", "string", "name of the token that did it; local: nobody asked for one", "audit"),
    Field("action", "string", "what was done, as noun.verb: group.set", "audit"),
    Field("details", "object", "to what, and how; see below", "audit"),
)


ROW: Final = (
    Field("shared", "int", "number of the shared line, the first of the message is 0"),
    Field("id", "string", "`id`"),
    Field("step", "string", "`event_id` is `id`, a hyphen, and this"),
    Field("ts_ms", "int", "`ts_ms`"),
    Field("due", "int or null", "`due_ms` is `ts_ms` plus this; null: it does not wait"),
    Field("first", "int", "`first_death_ms` is `ts_ms` minus this"),
    Field("last", "int", "`last_death_ms` is `ts_ms` minus this"),
    Field("crc32", "int", "of `digest`"),
    Field("size", "int", "of `digest`"),
    Field("times", "array of int", "`time_ms` of each of `deaths`, in their order, in seconds"),
    Field("props", "object", "members of `props`, beside those that the shared line has"),
    Field("more", "object", "members of the event; they win over those of the shared line", "there are more"),
)
"""A row of format 2: a JSON array of these, in this order."""


def row() -> str:
    """The values of a row as the table of docs/journal.md."""
    rows = [f"| {at} | `{field.name}` | {field.type} | {field.meaning} |" for at, field in enumerate(ROW)]
    return "\n".join(["| | value | type | what it says |", "|---|---|---|---|", *rows])


def table() -> str:
    """The fields as the table of docs/journal.md."""
    rows = [f"| `{name}` | {type_} | {meaning} | {when or 'always'} |" for name, type_, meaning, when in FIELDS]
    return "\n".join(["| field | type | meaning | there when |", "|---|---|---|---|", *rows])


def kinds() -> str:
    """The kinds as the table of docs/journal.md."""
    return "\n".join(["| kind | meaning |", "|---|---|", *(f"| `{kind}` | {text} |" for kind, text in KINDS.items())])
