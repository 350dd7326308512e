"""A tokens file that breaks while the router runs is told at once, and not by the first who asks.

The tokens that were valid last stay so: whoever takes one back by a file that cannot be read has not taken it back, and
that is what log, readiness and status say.
"""

import asyncio
from typing import Final

from dlx_router.config.api_access.tokens import Tokens
from dlx_router.telemetry.logs import Once
from dlx_router.telemetry.readiness import Readiness

EVERY_S: Final = 2.0
_KEY: Final = "tokens"
_FATE: Final = "the tokens of before stay valid, those that were taken out too; mend the file"


async def watch(tokens: Tokens, readiness: Readiness) -> None:
    """Look at the file for as long as the router runs."""
    once = Once()
    while True:
        trouble = await asyncio.to_thread(tokens.look)
        if trouble:
            readiness.note(_KEY, f"{trouble}; {_FATE}")
            once.warn(_KEY, "tokens.broken", error=trouble, fate=_FATE)
        else:
            readiness.drop_note(_KEY)
            once.healed(_KEY, "tokens.mended")
        await asyncio.sleep(EVERY_S)
