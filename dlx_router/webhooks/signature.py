"""The headers of Standard Webhooks (https://www.standardwebhooks.com): who sent it, when, and that nobody changed it.

What is signed is `msg_id.timestamp.payload`; the signature is HMAC-SHA256 as base64, its version in front. There is one
for each secret, so that a receiver that knows only the old or only the new one can go on.
"""

import base64
import hashlib
import hmac
from collections.abc import Sequence


def headers(message_id: str, ts_s: int, body: bytes, secrets: Sequence[bytes]) -> dict[str, str]:
    """All three; without a secret there is no signature."""
    signed = f"{message_id}.{ts_s}.".encode() + body
    plain = {"webhook-id": message_id, "webhook-timestamp": str(ts_s)}
    return (
        plain
        if not secrets
        else {**plain, "webhook-signature": " ".join(_signature(signed, secret) for secret in secrets)}
    )


def _signature(signed: bytes, secret: bytes) -> str:
    return f"v1,{base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()}"
