"""Keys that a cut record lost are learnt again from x-death, and from that of the rung which it waited on."""

from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.letter import Arrival
from dlx_router.core.record import AT_REST_BYTES, encode
from dlx_router.core.remembered import decode
from tests.core.core_samples import KEY, arrived, death, law, record

KEYS = tuple(f"elsewhere.{number}.{'k' * 100}" for number in range(90))
RUNG = death("dlx-router.delay.5000", "expired", exchange="dlx-router.delay.5000", routing_keys=KEYS)
names = st.lists(st.text(min_size=1, max_size=9), min_size=1, max_size=20, unique=True).map(
    lambda drawn: tuple(f"{key}.{number}.{'k' * 100}" for key in drawn for number in range(20))
)


@law
@given(keys=names, restarts=st.booleans())
def test_behind_a_rung_a_letter_has_its_keys(keys: tuple[str, ...], restarts: bool) -> None:  # noqa: FBT001 - drawn
    """RabbitMQ 3.10 continues x-death, 4.x begins anew: then only the rung tells them."""
    newest = death(routing_keys=keys)
    kept = decode(encode(record(deaths=(newest,), due_ms=5, wait_ms=5000), KEY, AT_REST_BYTES), KEY)
    rung = RUNG._replace(routing_keys=keys)
    history = (rung,) if restarts else (rung, newest)
    letter = arrived(history, kept, arrival=Arrival.RELEASE, source="dlx-router.release")
    assert (letter.history, letter.fresh) == ((newest,), ())


def test_at_rest_a_letter_has_the_keys_of_its_x_death() -> None:
    newest = death(routing_keys=KEYS)
    kept = decode(encode(record(state="dead", deaths=(newest,)), KEY, AT_REST_BYTES), KEY)
    assert kept.cut
    assert kept.deaths[0].routing_keys != KEYS
    letter = arrived((newest,), kept, native=False)
    assert letter.history == (newest,)


def test_the_keys_of_a_record_that_is_whole_are_its_own() -> None:
    kept = record(deaths=(death(routing_keys=("a",)),))
    letter = arrived((death(routing_keys=("a", "b")),), kept, native=False)
    assert letter.history[0].routing_keys == ("a",)
