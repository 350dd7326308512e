"""The console of one router, as that router starts it (admin/console_door.py): on its socket, until its stdin ends."""

import json
import os
import socket
import sys

from dlx_router.console.serving import embedded
from dlx_router.telemetry import logs

if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    os.nice(15)  # the letters come first
    logs.configure(*told["log"])
    logs.take_faults()
    how = {name: told[name] for name in ("names", "secure", "sealed")}
    embedded(socket.socket(fileno=told["socket"]), told["router"], told["host"], **how)
