"""For addresses with http://. Whoever asks httpx without it has it read all authorities first, each time."""

import ssl
from typing import Final

NO_TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Trusts nobody: an address with https:// is refused."""
