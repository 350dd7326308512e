"""Spoil the router in one small way at a time, and see that a test notices: a suite is worth what it catches.

    make mutants                                # all of them, some two minutes
    python -m tools.mutants.run cc-lost due-ignored

Each mutant is one search and replace in a copy of the package, and names the test that must fail on that copy. On the
copy without any change the same tests must pass. Tests that need a broker share one.

Exit: 0 every mutant is caught · 1 one is not · 2 a mutant does not fit the source any more, or the tests cannot run.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from tools.brokers import BrokerError, chosen
from tools.mutants.table import MUTANTS, Mutant, MutantError

ROOT: Final = Path(__file__).parents[2]
COPIED: Final = ("dlx_router", "tests", "tools", "pyproject.toml")
AT_ONCE: Final = 2
TEST_S: Final = 120
SOME_FAILED: Final = 1  # pytest's exit code; 2 and more: nothing was tested


@contextmanager
def spoiled(name: str) -> Iterator[Path]:
    """A folder with a copy of everything that the tests need, spoiled by the mutant of this name; "" leaves it well."""
    with tempfile.TemporaryDirectory(prefix="dlx-router-mutant-", ignore_cleanup_errors=True) as folder:
        copy = Path(folder)
        for part in COPIED:
            source = ROOT / part
            if source.is_dir():
                shutil.copytree(source, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copyfile(source, copy / part)
        for mutant in MUTANTS:
            if mutant.name == name:
                file = copy / "dlx_router" / mutant.file
                file.write_text(mutant.applied(file.read_text(encoding="utf-8")), encoding="utf-8")
        yield copy


def failing(copy: Path, tests: Sequence[str], env: dict[str, str]) -> tuple[bool, str]:
    """Whether one of the tests fails there, and what pytest said; MutantError if nothing was tested."""
    quick = ["-x", "-q", "--no-header", "-p", "no:cacheprovider", f"--timeout={TEST_S}"]
    quick += [f"--basetemp={copy / 'tmp'}"]  # two at a time would tidy up each other's
    argv = [sys.executable, "-m", "pytest", *quick, *tests]
    done = subprocess.run(argv, cwd=copy, env=env, capture_output=True, text=True, check=False)
    output = done.stdout[-3000:] + done.stderr[-1000:]
    if done.returncode not in {0, SOME_FAILED} or (" passed" not in output and " failed" not in output):
        raise MutantError(f"pytest {' '.join(tests)}: exit {done.returncode}\n{output}")
    return done.returncode == SOME_FAILED, output


def judge(mutant: Mutant, env: dict[str, str]) -> tuple[bool, float]:
    """Whether its test fails on the spoiled copy, and the seconds it took."""
    started = time.monotonic()
    with spoiled(mutant.name) as copy:
        return failing(copy, [mutant.test], env)[0], time.monotonic() - started


def run(mutants: Sequence[Mutant]) -> list[str]:
    """The names of those that no test caught."""
    for mutant in mutants:
        mutant.applied((ROOT / "dlx_router" / mutant.file).read_text(encoding="utf-8"))
    with chosen() as broker:
        env = _environment(broker.amqp_url, broker.management_url)
        with spoiled("") as copy:
            red, output = failing(copy, sorted({mutant.test for mutant in mutants}), env)
        if red:
            raise MutantError(f"a test fails without any mutant:\n{output}")
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return [
                mutant.name
                for mutant, caught in zip(mutants, pool.map(partial(_is_caught, env), mutants), strict=True)
                if not caught
            ]


def _is_caught(env: dict[str, str], mutant: Mutant) -> bool:
    caught, took = judge(mutant, env)
    print(f"{'caught' if caught else 'ALIVE':6}  {mutant.name:22}  {took:4.1f} s  {mutant.test}", flush=True)
    return caught


def _environment(amqp_url: str, management_url: str) -> dict[str, str]:
    others = {key: value for key, value in os.environ.items() if not key.startswith(("DLX_ROUTER_", "PYTEST_"))}
    theirs = {"DLX_ROUTER_TEST_AMQP_URL": amqp_url, "DLX_ROUTER_TEST_MANAGEMENT_URL": management_url}
    return {**others, **theirs, "PYTHONDONTWRITEBYTECODE": "1"}


def main(argv: Sequence[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description="Spoil the router in small ways; a test must notice each.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(mutant.name for mutant in MUTANTS)}")
    names = parser.parse_args(argv).names
    if unknown := set(names) - {mutant.name for mutant in MUTANTS}:
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}")
    try:
        alive = run([mutant for mutant in MUTANTS if not names or mutant.name in names])
    except (MutantError, BrokerError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"not caught: {', '.join(alive)}" if alive else "every mutant is caught")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
