"""Run by each Python that dlx-router-client is for, in an environment with nothing else: what needs no library works.

Written for the oldest of them, and imports nothing of the tests.
"""

import builtins
import json
import sys
from collections.abc import Callable

import dlx_router.client
from dlx_router.client import InexactHeader, InvalidDeclaration, NotDeclared, exact, handlers, worker
from dlx_router.client.declaration import Delivered, Words, header

DELIVERED = Delivered(queue="q", exchange="", routing_key="q", headers={"CC": ["k"]}, expiration="1", has_id=True)
WORDS = Words(reason="broken")


class Hostile(Exception):
    """Its text raises."""

    def __str__(self) -> str:
        raise ZeroDivisionError


def raised(kind: type, call: Callable[[], object]) -> Exception:
    """What it raises, which is of this kind."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - looked at below
        caught = error
    else:
        raise AssertionError(f"no {kind}")
    assert isinstance(caught, kind), repr(caught)
    return caught


def main() -> None:
    """Ends with 1 at the first thing that is not so."""
    for error in (Hostile(), ValueError("x" * 10_000_000), ValueError("\ud800"), RecursionError()):
        details = handlers.Settings().told_of(error)
        document = json.loads(header(Words(reason="exception", error=details), DELIVERED, "dlx-router"))
        assert document["error"]["type"].endswith(type(error).__name__), document
        assert len(document["error"].get("message", "")) <= 1000, document
    group = getattr(builtins, "ExceptionGroup", None)
    if group is not None:
        assert handlers.Settings().told_of(group("g", [ValueError("v"), KeyError("k")]))["type"] == "ValueError"
    assert isinstance(raised(InvalidDeclaration, lambda: Words(reason="no spaces")), NotDeclared)
    raised(InvalidDeclaration, lambda: Words(reason="r", retry_after="5s"))  # type: ignore[arg-type]  # it is wrong
    for headers, is_exact in (({"x": 1.5, "x-death": [], "t": True}, True), ({"x": b"\xff"}, False)):
        came = Delivered(queue="q", exchange="", routing_key="q", headers=headers, expiration=None, has_id=True)
        if is_exact:
            assert exact.declared_headers(WORDS, came, "dlx-router", dict).keys() == {"x", "t", "dlx-death"}
        else:
            raised(InexactHeader, lambda came=came: exact.declared_headers(WORDS, came, "dlx-router", dict))  # type: ignore[misc]  # bound now
    for name in ("dead", "dead_many"):
        raised(ImportError, lambda name=name: getattr(dlx_router.client, name))  # type: ignore[misc]  # bound now
    assert "http://HOST" in str(raised(ValueError, lambda: worker.Router("ftp://host")))
    sys.stdout.write(f"all is well on {sys.version_info[:2]}\n")


if __name__ == "__main__":
    main()
