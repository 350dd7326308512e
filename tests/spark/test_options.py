"""Options: a wrong one says which and what to write; a secret is in none of them."""

import pytest

from dlx_router.spark.options import OptionError, Options

GOOD = {"connection": "env:URL", "streams": "a"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"connection": "env:URL"}, "streams: missing"),
        ({"streams": "a"}, "connection: missing"),
        (GOOD | {"startingOffset": "latest"}, "did you mean startingOffsets?"),
        (GOOD | {"prefetch": "0"}, "prefetch: '0'"),
        (GOOD | {"prefetch": "70000"}, "1 to 65535"),
        (GOOD | {"failOnDataLoss": "no"}, "write true or false"),
        (GOOD | {"startingOffsets": "first"}, "earliest, latest or"),
        (GOOD | {"endingOffsets": '{"a": -1}'}, "endingOffsets"),
    ],
)
def test_a_wrong_option_says_which_and_what_to_write(given: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError) as error:
        Options.read(given)
    assert says in str(error.value)


def test_a_url_where_a_reference_belongs_is_refused_and_not_repeated() -> None:
    with pytest.raises(OptionError) as error:
        Options.read({"connection": "amqp://me:secret@host/", "streams": "a"})
    assert "secret" not in str(error.value)


def test_names_are_in_any_case_and_the_address_is_looked_up_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    options = Options.read({"Connection": "env:URL", "STREAMS": "a, b", "vhost": "other"})
    with pytest.raises(OptionError, match="env:URL: the variable is not set"):
        options.address()
    monkeypatch.setenv("URL", "amqp://me:secret@host/v")
    assert (options.streams, options.address().vhost) == (("a", "b"), "other")
    assert "secret" not in repr(options) + repr(options.address())


def test_a_broken_url_is_told_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("URL", "http://me:secret@host/v")
    with pytest.raises(OptionError, match="not an AMQP URL") as error:
        Options.read(GOOD).address()
    assert "secret" not in str(error.value)
