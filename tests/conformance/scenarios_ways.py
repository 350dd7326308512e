"""Ways: exchanges, keys, CC and BCC, broker policies; what happens where there is no way, or it leads in a circle."""

from tests.conformance.scenario import KINDS, ON_4, Table, everywhere, on
from tests.conformance.world import Dies, World

scenario = Table()
TO_T = Dies(to="t")
HELD = on(("3.10",), "field order")  # a letter that waited is written anew, and 3.10 sorts headers only when it dies
PARKED = everywhere("parked instead of dropped")
PARKED_AND_HELD = on(("3.10",), "parked instead of dropped", "field order")


@scenario(
    "15",
    "the DLX does not exist; made later, the next arrives",
    differs={**PARKED, **PARKED_AND_HELD},
    may_wait=True,  # the router looks for the exchange again after 5 s
    s=Dies("x"),
)
def missing_exchange(w: World) -> None:
    w.queue("t")
    w.source("s")
    w.publish("s", "m1")
    w.fail("s")
    w.stays(s=0, t=0)
    w.parks("m1", "missing_exchange")
    w.exchange("x")
    w.bind("t", "x", w.name("s"))
    w.publish("s", "m2")
    w.fail("s")
    w.ends(t=1)


@scenario("16", "nothing is bound to the DLX; bound later, the next arrives", differs=PARKED, s=Dies("x"))
def unbound(w: World) -> None:
    w.queue("t")
    w.exchange("x")
    w.source("s")
    w.publish("s", "m1")
    w.fail("s")
    w.stays(s=0, t=0)
    w.parks("m1", "unroutable")
    w.bind("t", "x", w.name("s"))
    w.publish("s", "m2")
    w.fail("s")
    w.ends(t=1)


@scenario("16 b", "the same at-least-once: both arrive", needs_resend=True, differs=HELD, s=Dies("x"))
def unbound_safely(w: World) -> None:
    w.queue("t")
    w.exchange("x")
    w.source("s", safe=True)
    w.publish("s", "m1")
    w.fail("s")
    w.stays(t=0)
    w.bind("t", "x", w.name("s"))
    w.ends(t=1)
    w.publish("s", "m2")
    w.fail("s")
    w.ends(t=2)


@scenario("18", "a queue that only BCC names", differs=everywhere("BCC keys"), s=Dies("x"))
def blind_copy(w: World) -> None:
    w.queue("t")
    w.queue("blind")
    w.exchange("x")
    w.source("s")
    w.bind("t", "x", w.name("s"))
    w.bind("blind", "x", "secret")
    w.publish("s", "m1", headers={"BCC": ["secret"]})
    w.fail("s")
    w.ends(t=1)


@scenario("19", "over max-length, and the DLX leads back to the same queue", differs=PARKED, s=Dies())
def circle_by_length(w: World) -> None:
    w.source("s", max_length=1)
    w.publish("s", "m1")
    w.publish("s", "m2")
    w.parks("m1", "cycle")
    w.ends(s=1)


@scenario("20", "expired, and the DLX leads back to the same queue", differs=PARKED, kinds=KINDS, s=Dies())
def circle_by_time(w: World, kind: str) -> None:
    w.source("s", kind, message_ttl=1)
    w.publish("s", "m1", "m2")
    w.parks("m1", "cycle")
    w.parks("m2", "cycle")
    w.ends(s=0)


@scenario("46", "at-least-once, expired, back to the same queue: kept", differs=PARKED, s=Dies())
def circle_safely(w: World) -> None:
    w.source("s", safe=True, message_ttl=1)
    w.publish("s", "m1")
    w.parks("m1", "cycle")
    w.ends()


@scenario("70", "expired at work, expired at a delay that leads back to work", differs=PARKED, s=Dies(to="wait"),
          wait=Dies(to="s"))  # fmt: skip
def circle_by_a_delay(w: World) -> None:
    w.source("s", message_ttl=1)
    w.source("wait", message_ttl=1)
    w.publish("s", "m1")
    w.parks("m1", "cycle")
    w.ends(s=0, wait=0)


@scenario("own: no circle", "rejected at work, expired at a delay that leads back to work, twice", s=Dies(to="wait"),
          wait=Dies(to="s"))  # fmt: skip
def delay_and_back(w: World) -> None:
    w.source("s")
    w.source("wait", "quorum", message_ttl=1)
    w.publish("s", "m1")
    w.fail("s")
    w.fail("s")
    w.ends(s=1)


@scenario("22", "a DLX that only a broker policy sets, while a message is unacknowledged", s=TO_T)
def policy_meanwhile(w: World) -> None:
    w.queue("t")
    w.queue("s")
    w.publish("s", "m1", "m2")
    first, second = w.get("s", 2)
    first.reject()
    w.stays(t=0)
    w.policy("s", w.death("s"))
    second.reject()
    w.ends(t=1)


@scenario("23", "an argument says one target, a broker policy another: the argument wins", s=Dies("x", to="t"))
def argument_over_policy(w: World) -> None:
    w.queue("t")
    w.exchange("x")
    w.bind("t", "x", w.name("t"))
    w.queue("other")
    w.source("s")
    w.policy("s", {"dead-letter-exchange": "", "dead-letter-routing-key": w.name("other")})
    w.publish("s", "m1")
    w.fail("s")
    w.ends(t=1, other=0)


@scenario("24", "a broker policy set after the declaration changes nothing for arguments", s=TO_T)
def policy_too_late(w: World) -> None:
    w.queue("t")
    w.queue("other")
    w.source("s")
    w.publish("s", "m1")
    (message,) = w.get("s")
    w.policy("s", {"dead-letter-exchange": "amq.fanout", "dead-letter-routing-key": w.name("other")})
    message.reject()
    w.ends(t=1, other=0)


@scenario("32", "CC without a key in the policy: to every key, CC still there", kinds=KINDS, s=Dies("x"))
def carbon_copy(w: World, kind: str) -> None:
    w.queue("t")
    w.queue("u")
    w.exchange("x")
    w.source("s", kind)
    w.bind("t", "x", w.name("s"))
    w.bind("u", "x", "copy")
    w.publish("s", "m1", headers={"CC": ["copy"], "tenant": "a"})
    w.fail("s")
    w.ends(t=1, u=1)


@scenario("33", "CC with a key in the policy: only there", differs=on(ON_4, "CC removed"), kinds=KINDS,
          s=Dies("x", key="dead"))  # fmt: skip
def carbon_copy_with_a_key(w: World, kind: str) -> None:
    w.queue("t")
    w.queue("u")
    w.exchange("x")
    w.source("s", kind)
    w.bind("t", "x", "dead")
    w.bind("u", "x", "copy")
    w.publish("s", "m1", headers={"CC": ["copy"], "tenant": "a"})
    w.fail("s")
    w.ends(t=1, u=0)


@scenario(
    "43",
    "at-least-once: the target is not bound, and is later",
    needs_resend=True,
    differs=HELD,
    s=Dies("x", key="dead"),
)
def target_unbound(w: World) -> None:
    w.queue("t")
    w.exchange("x")
    w.source("s", safe=True)
    w.publish("s", "m1")
    w.fail("s")
    w.stays(t=0)
    w.bind("t", "x", "dead")
    w.ends(t=1)


@scenario("44", "at-least-once: the target is deleted, and declared again", needs_resend=True, differs=HELD, s=TO_T)
def target_deleted(w: World) -> None:
    w.queue("t")
    w.amqp.channel.queue_delete(w.name("t"))
    w.source("s", safe=True)
    w.publish("s", "m1")
    w.fail("s")
    w.stays(s=0)
    w.queue("t")
    w.ends(t=1)


@scenario("45", "at-least-once: the DLX does not exist, and does later", needs_resend=True, differs=HELD, s=Dies("x"))
def exchange_made_later(w: World) -> None:
    w.queue("t")
    w.source("s", safe=True)
    w.publish("s", "m1")
    w.fail("s")
    w.stays(t=0)
    w.exchange("x")
    w.bind("t", "x", w.name("s"))
    w.ends(t=1)


@scenario(
    "52", "at-least-once: the target is full until somebody takes from it", needs_resend=True, differs=HELD, s=TO_T
)
def target_full(w: World) -> None:
    w.queue("t", max_length=1, overflow="reject-publish")
    w.source("s", safe=True)
    w.publish("s", "m1", "m2")
    w.fail("s")
    w.ends(t=1)
    w.fail("s")
    w.stays(t=1)
    w.take("t")
    w.ends(t=1)


@scenario("own: original key", "a topic DLX routes by the key of the first publish", kinds=KINDS, s=Dies("x"))
def original_key(w: World, kind: str) -> None:
    w.queue("t")
    w.exchange("shop", "topic")
    w.exchange("x", "topic")
    w.source("s", kind)
    w.bind("s", "shop", "#")
    w.bind("t", "x", "order.*")
    w.publish("s", "m1", exchange="shop", key="order.created")
    w.fail("s")
    w.ends(t=1)


@scenario("own: fanout", "a fanout DLX copies to each of its queues", s=Dies("x"))
def to_all(w: World) -> None:
    w.exchange("x", "fanout")
    for queue in ("t", "u"):
        w.queue(queue)
        w.bind(queue, "x")
    w.source("s")
    w.publish("s", "m1", headers={"tenant": "a"})
    w.fail("s")
    w.ends(t=1, u=1)


@scenario("own: headers", "a headers DLX routes by the letter's own headers", s=Dies("x"))
def by_headers(w: World) -> None:
    w.exchange("x", "headers")
    w.queue("t")
    w.queue("u")
    w.bind("t", "x", **{"x-match": "all", "tenant": "a"})
    w.bind("u", "x", **{"x-match": "all", "tenant": "b"})
    w.source("s")
    w.publish("s", "m1", headers={"tenant": "a"})
    w.publish("s", "m2", headers={"tenant": "b"})
    w.fail("s", 2)
    w.ends(t=1, u=1)


@scenario("own: by its death", "a headers DLX routes by x-first-death-reason", s=Dies("x"))
def by_the_first_death(w: World) -> None:
    w.exchange("x", "headers")
    w.queue("t")
    w.queue("u")
    w.bind("t", "x", **{"x-match": "all-with-x", "x-first-death-reason": "rejected"})
    w.bind("u", "x", **{"x-match": "all-with-x", "x-first-death-reason": "expired"})
    w.source("s")
    w.publish("s", "m1")
    w.fail("s")
    w.publish("s", "m2", expiration="1")
    w.ends(t=1, u=1)


@scenario("own: alternate", "the DLX cannot route it, its alternate exchange can", s=Dies("x", key="nowhere"))
def alternate(w: World) -> None:
    w.exchange("else", "fanout")
    w.exchange("x", alternate_exchange="else")
    w.queue("t")
    w.bind("t", "else")
    w.source("s")
    w.publish("s", "m1")
    w.fail("s")
    w.ends(t=1)


@scenario("own: bound exchanges", "the DLX is bound to another exchange", s=Dies("x"))
def exchange_to_exchange(w: World) -> None:
    w.exchange("x", "fanout")
    w.exchange("y", "topic")
    w.amqp.channel.exchange_bind(w.name("y"), w.name("x"))
    w.queue("t")
    w.bind("t", "y", "#")
    w.source("s")
    w.publish("s", "m1")
    w.fail("s")
    w.ends(t=1)


@scenario("own: twice bound", "two bindings of one queue match: one copy", s=Dies("x"))
def twice_bound(w: World) -> None:
    w.exchange("x", "topic")
    w.queue("t")
    w.bind("t", "x", "#")
    w.bind("t", "x", "order.*")
    w.source("s")
    w.exchange("shop", "fanout")
    w.bind("s", "shop")
    w.publish("s", "m1", exchange="shop", key="order.created", headers={"CC": ["order.paid"]})
    w.fail("s")
    w.ends(t=1)


@scenario("own: order", "thirty letters keep their order (a quorum queue itself mixes more than 32 that die at once)",
          kinds=KINDS, s=TO_T)  # fmt: skip
def thirty(w: World, kind: str) -> None:
    w.queue("t")
    w.source("s", kind)
    w.publish("s", *(f"m{number}" for number in range(30)))
    w.fail("s", 30)
    w.ends(t=30)


@scenario("own: quorum target", "the target is a quorum queue", differs=on(("4.3",), "delivery count"), s=TO_T)
def quorum_target(w: World) -> None:
    w.queue("t", "quorum")
    w.source("s")
    w.publish("s", "m1", "m2")
    w.fail("s", 2)
    w.ends(t=2)
