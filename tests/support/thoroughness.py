"""How much a run of the tests looks at: `make test ALL=1 THOROUGH=10`."""

import os
from typing import Final

THOROUGH: Final = int(os.environ.get("DLX_ROUTER_TEST_THOROUGH") or 1)  # times the examples of the laws
NIGHT: Final = 10  # from here on slow tests run on every version
