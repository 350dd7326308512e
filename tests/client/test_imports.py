"""A module of the client asks for the library that it is called after, and for nothing else."""

import subprocess
import sys
from importlib.util import find_spec
from typing import Final

import pytest

LIBRARIES: Final = {"aio_pika", "aiormq", "amqp", "celery", "dramatiq", "faststream", "kombu", "pamqp", "pika"}
AIO_PIKA: Final = {"aio_pika", "aiormq", "pamqp"}
# Module → what it may import of these.
ASKS_FOR: Final[dict[str, set[str]]] = {
    "": set(),
    ".declaration": set(),
    ".exact": set(),
    ".exception": set(),
    ".handlers": set(),
    ".worker": set(),
    ".asynchronous": AIO_PIKA,
    ".aio_pika": AIO_PIKA,
    ".sync": {"pika"},
    ".pika": {"pika"},
    ".celery": {"celery", "kombu", "amqp"},
    ".dramatiq": {"dramatiq", "pika"},
    ".faststream": {"faststream", *AIO_PIKA},
}
PROGRAM: Final = """
import sys
absent = set({absent!r})

class Absent:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Absent())
import dlx_router.client{module}
ours = [name for name in sys.modules if name.startswith("dlx_router.") and not name.startswith("dlx_router.client")]
assert ours == [], ours
"""


@pytest.mark.parametrize("module", ASKS_FOR)
def test_it_asks_for_its_own_library_only(module: str) -> None:
    """`dlx_router.client.sync` asked for aio-pika before, and so did all others."""
    if any(find_spec(name) is None for name in ASKS_FOR[module]):
        pytest.skip("that is not installed")
    source = PROGRAM.format(absent=sorted(LIBRARIES - ASKS_FOR[module]), module=module)
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
