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
    browser = _Browser(port)
    began = time.monotonic()
    for number in itertools.count():
        due = began + number / a_second
        if select.select([sys.stdin], [], [], max(due - time.monotonic(), 0))[0]:
            return took
        asked = time.perf_counter()
        assert browser.shows(PATHS[number % len(PATHS)])
        took.append(time.perf_counter() - asked)
    raise AssertionError


class _Browser:
    """Keeps the cookies that it is given, as anybody's does: a page without one begins a session."""

    def __init__(self, port: int) -> None:
        self._client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        self._cookies: dict[str, str] = {}

    def shows(self, path: str) -> bool:
        """Whether there is such a page."""
        headers = {"cookie": "; ".join(f"{name}={value}" for name, value in self._cookies.items())}
        self._client.request("GET", path, headers=headers if self._cookies else {})
        answer = self._client.getresponse()
        answer.read()
        for cookie in answer.headers.get_all("set-cookie") or ():
            name, _, value = cookie.partition(";")[0].partition("=")
            self._cookies[name] = value
        return answer.status == http.client.OK


if __name__ == "__main__":
    os.nice(19)  # a browser is on another machine
    print(*_look(int(sys.argv[1]), int(sys.argv[2])), sep="\n")  # noqa: T201 - what it is for
