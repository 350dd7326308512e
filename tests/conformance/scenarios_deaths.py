"""Deaths and what is told of them: rejected, expired, over a limit; x-death, x-first-death-*, properties."""

from typing import Any

from tests.conformance.scenario import KINDS, ON_4, Table, on
from tests.conformance.typed import counted, long
from tests.conformance.world import Dies, World

scenario = Table()
TO_T = Dies(to="t")


def no_limit(kind: str) -> dict[str, Any]:
    """Arguments by which RabbitMQ 3.10 too gives back to the head of a quorum queue."""
    return {"delivery_limit": 50} if kind == "quorum" else {}


def limit(kind: str) -> dict[str, Any]:
    """Quorum queues from 4.0 on limit deliveries of their own accord."""
    return {"delivery_limit": 50} if kind == "quorum" else {}


@scenario("1", "three messages rejected out of order arrive in the order of their deaths", kinds=KINDS, s=TO_T)
def rejected_out_of_order(w: World, kind: str) -> None:
    w.queue("t")
    w.source("s", kind)
    w.publish("s", "m1", "m2", "m3")
    first, second, third = w.get("s", 3)
    third.reject()
    w.ends(t=1)
    first.reject()
    second.reject()
    w.ends(t=3, s=0)


@scenario("2", "nack of several at once", kinds=KINDS, s=TO_T)
def rejected_at_once(w: World, kind: str) -> None:
    w.queue("t")
    w.source("s", kind)
    w.publish("s", "m1", "m2", "m3")
    last = w.get("s", 3)[-1]
    last.channel.basic_nack(last.tag, multiple=True, requeue=False)
    w.ends(t=3, s=0)


@scenario("3", "nack with requeue is no death", kinds=KINDS, s=TO_T)
def requeued(w: World, kind: str) -> None:
    w.queue("t")
    w.source("s", kind, **no_limit(kind))
    w.publish("s", "m1", "m2", "m3")
    w.get("s", 3)[-1].requeue()
    w.stays(t=0, s=1)


@scenario("4", "nack of several with requeue: all back in order, no death", kinds=KINDS, s=TO_T)
def requeued_at_once(w: World, kind: str) -> None:
    w.queue("t")
    w.source("s", kind, **no_limit(kind))
    w.publish("s", "m1", "m2", "m3")
    last = w.get("s", 3)[-1]
    last.channel.basic_nack(last.tag, multiple=True, requeue=True)
    w.stays(t=0, s=3)


@scenario("5", "one rejected, its neighbours stay", kinds=KINDS, s=TO_T)
def rejected_alone(w: World, kind: str) -> None:
    w.queue("t")
    w.source("s", kind)
    w.publish("s", "m1", "m2", "m3")
    first, *others = w.get("s", 3)
    first.reject()
    for message in reversed(others):
        message.requeue()
    w.ends(t=1, s=2)


@scenario(
    "6",
    "rejected, expired twice on the way back",
    differs=on(("3.10",), "tail order", "field order"),
    a=Dies(to="b"),
    b=Dies(to="c"),
    c=Dies(to="a"),
)
def lap(w: World) -> None:
    w.source("a")
    w.source("b", message_ttl=1)
    w.source("c", message_ttl=1)
    w.publish("a", "m1")
    w.fail("a")
    w.ends(a=1)


@scenario(
    "6 b",
    "the same, rejected again, a second lap",
    differs=on(("3.10",), "false cycle"),
    round=Dies(to="b"),
    b=Dies(to="c"),
    c=Dies(to="round"),
)
def two_laps_of_three(w: World) -> None:
    w.source("round")
    w.source("b", message_ttl=1)
    w.source("c", message_ttl=1)
    w.publish("round", "m1")
    w.fail("round")
    w.fail("round")
    w.comes(round=1)


@scenario("8", "reject with requeue below the delivery limit: back at the head, no death", s=TO_T)
def requeued_below_the_limit(w: World) -> None:
    w.queue("t")
    w.source("s", "quorum", delivery_limit=50)
    w.publish("s", "m1", "m2", "m3")
    w.get("s")[0].put_back()
    w.stays(t=0, s=3)


@scenario("9", "expired by the queue's time to live", kinds=KINDS, s=TO_T)
def expired(w: World, kind: str) -> None:
    w.queue("t")
    w.source("s", kind, message_ttl=1)
    w.publish("s", "m1", "m2")
    w.ends(t=2, s=0)


@scenario("10", "over max-length, the oldest die", kinds=KINDS, s=TO_T)
def too_many(w: World, kind: str) -> None:
    w.queue("t")
    w.source("s", kind, max_length=1)
    for body, dead in (("m1", 0), ("m2", 1), ("m3", 2)):
        w.publish("s", body)
        w.ends(t=dead)
    w.ends(t=2, s=1)


@scenario("14", "over max-length with reject-publish-dlx, the newest die", s=TO_T)
def too_many_refused(w: World) -> None:
    w.queue("t")
    w.source("s", max_length=1, overflow="reject-publish-dlx")
    w.publish("s", "m1")
    w.refused("s", "m2", "m3")
    w.ends(t=2, s=1)


@scenario("25", "x-death of one rejection: every field and its type", kinds=KINDS, s=TO_T)
def told_of_a_rejection(w: World, kind: str) -> None:
    w.queue("t")
    w.exchange("shop", "topic")
    w.source("s", kind)
    w.bind("s", "shop", "order.#")
    w.publish("s", "m1", exchange="shop", key="order.created", headers={"tenant": "a", "n": 7})
    w.fail("s")
    w.ends(t=1)


@scenario("26", "expired by the queue: no original-expiration", kinds=KINDS, s=TO_T)
def told_of_an_expiry(w: World, kind: str) -> None:
    w.queue("t")
    w.source("s", kind, message_ttl=1)
    w.publish("s", "m1", headers={"tenant": "a"})
    w.ends(t=1)


@scenario("27", "expired by its own property: original-expiration told, property gone", kinds=KINDS, s=TO_T)
def told_of_an_own_expiry(w: World, kind: str) -> None:
    w.queue("t")
    w.source("s", kind)
    w.publish("s", "m1", expiration="1")
    w.ends(t=1)


@scenario("own: expiration kept back", "rejected before it expired: the property is gone all the same", s=TO_T)
def rejected_with_an_expiration(w: World) -> None:
    w.queue("t")
    w.source("s")
    w.publish("s", "m1", expiration="600000")
    w.fail("s")
    w.ends(t=1)


@scenario("28", "x-death of an overflow", kinds=KINDS, s=TO_T)
def told_of_an_overflow(w: World, kind: str) -> None:
    w.queue("t")
    w.source("s", kind, max_length=1)
    w.publish("s", "m1", "m2", headers={"tenant": "a"})
    w.ends(t=1, s=1)


@scenario("29", "rejected three times at one queue: one entry, counted", s=Dies(to="s"))
def counted_at_one_queue(w: World) -> None:
    w.source("s")
    w.publish("s", "m1")
    w.fail("s")
    w.fail("s")
    w.fail("s")
    w.ends(s=1)


@scenario("31", "a client publishes a message with an x-death of its own, and it expires", kinds=KINDS, s=TO_T)
def foreign_history(w: World, kind: str) -> None:
    w.queue("t")
    w.source("s", kind, message_ttl=1)
    death = b"".join([
        long(b"count", b"l", (2).to_bytes(8)),
        long(b"reason", b"S", counted(b"rejected")),
        long(b"queue", b"S", counted(b"elsewhere")),
        long(b"time", b"T", (1_700_000_000).to_bytes(8)),
        long(b"exchange", b"S", counted(b"")),
        long(b"routing-keys", b"A", counted(b"S" + counted(b"elsewhere"))),
    ])  # fmt: skip
    table = long(b"x-death", b"A", counted(b"F" + counted(death)))
    w.publish_bytes("s", w.body("m1"), b"\x30\x00" + counted(table) + b"\x02")
    w.ends(t=1)


@scenario(
    "own: republished",
    "a consumer publishes a dead letter again as it came, and it dies at another queue",
    kinds=KINDS,
    differs=on(ON_4, "history continued"),
    s=TO_T,
    again=Dies(to="end"),
)
def republished(w: World, kind: str) -> None:
    w.queue("t")
    w.queue("end")
    w.source("s", kind)
    w.source("again", kind)
    w.publish("s", "m1", headers={"tenant": "a"}, message_id="1")
    w.fail("s")
    w.forward("t", "again")
    w.fail("again")
    w.ends(end=1)


@scenario("35", "x-first-death-* stays at the first of several deaths", s=Dies(to="u"), u=Dies(to="s"))
def first_death(w: World) -> None:
    w.source("s")
    w.source("u")
    w.publish("s", "m1")
    w.fail("s")
    w.fail("u")
    w.ends(s=1)


@scenario("41", "at-least-once, rejected", s=TO_T)
def safely_rejected(w: World) -> None:
    w.queue("t")
    w.source("s", safe=True)
    w.publish("s", "m1", "m2")
    w.fail("s", 2)
    w.ends(t=2)


@scenario("40", "at-least-once, expired by its own property", s=TO_T)
def safely_expired(w: World) -> None:
    w.queue("t")
    w.source("s", safe=True)
    w.publish("s", "m1", expiration="0")
    w.ends(t=1)


@scenario("42", "at-least-once, a consumer dies with it, delivery limit 0", s=TO_T)
def safely_over_the_limit(w: World) -> None:
    w.queue("t")
    w.source("s", safe=True, delivery_limit=0)
    w.publish("s", "m1")
    w.crash("s")
    w.ends(t=1)


@scenario("58", "delivery limit 1: the second crash is the death", s=TO_T)
def over_the_limit(w: World) -> None:
    w.queue("t")
    w.source("s", "quorum", delivery_limit=1)
    w.publish("s", "m1")
    w.crash("s")
    w.crash("s")
    w.ends(t=1)


@scenario(
    "69",
    "four queues one after the other: newest first",
    kinds=KINDS,
    differs=on(("3.10",), "tail order", "field order"),
    a=Dies(to="b"),
    b=Dies(to="c"),
    c=Dies(to="d"),
    d=TO_T,
)
def chain(w: World, kind: str) -> None:
    w.queue("t")
    for queue in ("a", "b", "c", "d"):
        w.source(queue, kind)
    w.publish("a", "m1", message_id="1")
    for queue in ("a", "b", "c", "d"):
        w.fail(queue)
    w.ends(t=1)


@scenario("own: three reasons", "rejected, over the limit and expired at three queues", a=Dies(to="b"), b=Dies(to="c"),
          c=TO_T, differs=on(("3.10",), "tail order", "field order"))  # fmt: skip
def three_reasons(w: World) -> None:
    w.queue("t")
    w.source("a")
    w.source("b", "quorum", delivery_limit=0)
    w.source("c", message_ttl=1)
    w.publish("a", "m1", correlation_id="7")
    w.fail("a")
    w.crash("b")
    w.ends(t=1)


@scenario("own: two laps", "rejected at each of two queues in turn, twice around", s=Dies(to="u"), u=Dies(to="s"))
def two_laps(w: World) -> None:
    w.source("s")
    w.source("u")
    w.publish("s", "m1")
    for queue in ("s", "u", "s", "u"):
        w.fail(queue)
    w.ends(s=1)


@scenario("own: counted, quorum", "as 29, at a quorum queue", differs=on(ON_4, "delivery count"), s=Dies(to="s"))
def counted_at_one_quorum_queue(w: World) -> None:
    w.source("s", "quorum")
    w.publish("s", "m1")
    w.fail("s")
    w.fail("s")
    w.ends(s=1)


@scenario("68", "headers of every type AMQP has, nested, are as they were", kinds=KINDS, s=TO_T)
def every_type(w: World, kind: str) -> None:
    w.queue("t")
    w.source("s", kind)
    inner = long(b"deep", b"F", counted(long(b"b", b"b", b"\xff"))) + long(b"none", b"V", b"")
    table = b"".join([
        long(b"a-bool", b"t", b"\x01"), long(b"b-int8", b"b", b"\x80"), long(b"c-int16", b"s", b"\x80\x00"),
        long(b"d-int32", b"I", b"\x00\x00\x00\x07"), long(b"e-int64", b"l", b"\x00" * 7 + b"\x07"),
        long(b"f-float", b"f", b"\x3f\x80\x00\x01"), long(b"g-double", b"d", b"\x3f\xf0" + b"\x00" * 5 + b"\x01"),
        long(b"h-decimal", b"D", b"\x02\x00\x00\x00\x07"), long(b"i-bytes", b"x", counted(b"\x00\xff")),
        long(b"j-text", b"S", counted("größe".encode())), long(b"k-time", b"T", (1_700_000_000).to_bytes(8)),
        long(b"l-table", b"F", counted(inner)), long(b"m-array", b"A", counted(b"S" + counted(b"x") + b"s\x00\x01")),
        long(b"n-nothing", b"V", b""),
    ])  # fmt: skip
    w.publish_bytes("s", w.body("m1"), b"\x30\x00" + counted(table) + b"\x02")
    w.fail("s")
    w.ends(t=1)


@scenario("own: every property", "all properties but expiration and user-id are as they were", kinds=KINDS, s=TO_T)
def every_property(w: World, kind: str) -> None:
    w.queue("t")
    w.source("s", kind)
    w.publish(
        "s",
        "m1",
        content_type="text/plain",
        content_encoding="gzip",
        headers={"tenant": "a"},
        priority=3,
        correlation_id="c-1",
        reply_to="answers",
        message_id="m-1",
        timestamp=1_700_000_000,
        type="order",
        app_id="shop",
        cluster_id="one",
    )
    w.fail("s")
    w.ends(t=1)


@scenario("own: bare", "no header and no property but the delivery mode; no body; a body of many frames", s=TO_T)
def bare(w: World) -> None:
    w.queue("t")
    w.source("s")
    w.publish_bytes("s", b"", b"\x10\x00\x02")
    w.publish("s", "m" * 300_000)
    w.fail("s", 2)
    w.ends(t=2)


@scenario("67", "an x-death that is a text", kinds=KINDS, s=TO_T)
def text_as_history(w: World, kind: str) -> None:
    w.queue("t")
    w.source("s", kind)
    w.publish("s", "m1", headers={"x-death": "once"})
    w.fail("s")
    w.ends(t=1)


@scenario("own: no history", "an x-death without an entry", s=TO_T)
def empty_history(w: World) -> None:
    w.queue("t")
    w.source("s")
    w.publish("s", "m1", headers={"x-death": []})
    w.fail("s")
    w.ends(t=1)
