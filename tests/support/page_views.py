"""People who look at pages, as a process of its own: what they cost is not what a router costs.

python page_views.py PORT A_SECOND    # until its stdin ends; then a line for each page: seconds
"""

import http.client
import itertools
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

PATHS: Final = ("/", "/letters", "/groups", "/tasks")


@contextmanager
def page_views(port: int, a_second: int) -> Iterator[list[float]]:
    """So many pages a second are asked for while the block lasts; behind it: how long each took, in seconds."""
    took: list[float] = []
    argv = [sys.executable, __file__, str(port), str(a_second)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield took
        finally:
            said, _ = process.communicate(timeout=60)
            took += map(float, said.split())
    assert process.returncode == 0


def _look(port: int, a_second: int) -> list[float]:
    took: list[float] = []
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    began = time.monotonic()
    for number in itertools.count():
        due = began + number / a_second
        if select.select([sys.stdin], [], [], max(due - time.monotonic(), 0))[0]:
            return took
        asked = time.perf_counter()
        try:
            status = _shown(client, PATHS[number % len(PATHS)])
        except http.client.RemoteDisconnected:  # the port ends connections after some seconds
            status = _shown(client, PATHS[number % len(PATHS)])
        assert status == http.client.OK
        took.append(time.perf_counter() - asked)
    raise AssertionError


def _shown(client: http.client.HTTPConnection, path: str) -> int:
    client.request("GET", path)
    answer = client.getresponse()
    answer.read()
    return answer.status


if __name__ == "__main__":
    os.nice(19)  # a browser is on another machine
    print(*_look(int(sys.argv[1]), int(sys.argv[2])), sep="\n")  # noqa: T201 - what it is for
