"""`dlx-router policy test`."""

from pathlib import Path

from dlx_router.cli import output
from dlx_router.config.environment import prefix
from dlx_router.config.environment.prefix import PrefixError
from dlx_router.config.policy_files.loader import PolicyErrors
from dlx_router.config.policytest import run_tests


def run(path: Path) -> int:
    """Print every test that failed, and why. 0 where all passed, 1 where one did not, 2 where there are none."""
    try:
        results = run_tests(path, prefix.names())
    except PolicyErrors as error:
        return output.refuse(error)
    except PrefixError as error:
        return output.wrong_use(error)
    failed = [result for result in results if not result.passed]
    for result in failed:
        output.say(str(result))
    for doubt in filter(None, (result.doubt for result in results)):
        output.warn(doubt)
    output.warn(f"{len(results) - len(failed)} passed, {len(failed)} failed")
    return output.FINDINGS if failed else output.OK
