"""The console of one router, as that router starts it (admin/console_door.py): on its socket, until its stdin ends."""

import json
import os
import socket
import sys

from dlx_router.console.serving import embedded
from dlx_router.telemetry import logs

if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    os.nice(15)  # the letters come first
    logs.configure(*settings["log"])
    logs.take_faults()
    how = {name: settings[name] for name in ("names", "secure", "sealed")}
    embedded(socket.socket(fileno=settings["socket"]), settings["router"], settings["host"], **how)
