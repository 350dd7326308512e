"""The made-up week of dead letters, as a journal of the vhost that it is said to be of."""

import json

from tools.pipeline.week import week


def test_every_event_is_of_the_vhost_that_was_asked_for() -> None:
    """A letter that goes back is known by its record only in the vhost that the record names."""
    lines = [json.loads(line) for line in week(60, 3, vhost="shop").journal()]
    assert {event["vhost"] for event in lines} == {"shop"}
    others = [json.loads(line) for line in week(60, 3).journal()]
    assert [{**event, "vhost": "/"} for event in lines] == others
