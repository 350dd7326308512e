"""Signatures: the specification's own library takes what we sign, and nothing that was changed."""

import base64
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from dlx_router.config.webhooks.endpoint import secret_bytes
from dlx_router.webhooks.formats import rendered
from dlx_router.webhooks.sender import signed_headers as headers
from tests.core.test_notices import message

SECRET, OTHER = (f"whsec_{base64.b64encode(bytes([n]) * 32).decode()}" for n in (1, 2))
BODIES = st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=3)


@given(st.binary(min_size=24, max_size=64))
def test_the_own_library_of_the_specification_takes_our_signature(key: bytes) -> None:
    body, secret = b'{"specversion":"1.0"}', f"whsec_{base64.b64encode(key).decode()}"
    signed = headers("msg_1", int(time.time()), body, (secret_bytes(secret),))
    assert Webhook(secret).verify(body, signed) == {"specversion": "1.0"}


def test_what_was_changed_or_is_old_is_not_taken() -> None:
    now = int(time.time())
    signed = headers("msg_1", now, b"{}", (secret_bytes(SECRET),))
    for body, changed in (
        (b'{"a":1}', signed),
        (b"{}", {**signed, "webhook-id": "msg_2"}),
        (b"{}", {**signed, "webhook-timestamp": str(now + 1)}),
        (b"{}", headers("msg_1", now - 600, b"{}", (secret_bytes(SECRET),))),
        (b"{}", headers("msg_1", now, b"{}", (secret_bytes(OTHER),))),
        (b"{}", headers("msg_1", now, b"{}", ())),
    ):
        with pytest.raises(WebhookVerificationError):
            Webhook(SECRET).verify(body, changed)


def test_while_a_secret_is_changed_both_are_signed_with() -> None:
    signed = headers("msg_1", int(time.time()), b"{}", (secret_bytes(SECRET), secret_bytes(OTHER)))
    for secret in (SECRET, OTHER):
        assert Webhook(secret).verify(b"{}", signed) == {}


def test_the_example_of_the_page_checks_what_is_sent(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "webhooks.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    _, body = rendered(message("group.opened"), "cloudevents", "dlx-router", "https://console.example")
    given = {"secret": SECRET, "body": body, "headers": headers("m", int(time.time()), body, (secret_bytes(SECRET),))}
    exec(example, given)
    assert capsys.readouterr().out.startswith("dlx-router.group.opened New: letters die in orders.eu https://console")
