"""The index's process; see `worker`."""

import sys

from dlx_router.index.worker import main

main(sys.argv[1:])
