"""`dlx-router support-bundle`: what somebody who helps needs, in one zip file; no secret and no message data.

Settings are listed by name from a list of those that hold none; policies are left out, because their values may tell of
the business: only their findings and their revision are in it.
"""

import asyncio
import json
import platform
import zipfile
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Final

import httpx
import typer

from dlx_router import __version__
from dlx_router.cli import doctor, output
from dlx_router.cli.options import Policies, Url
from dlx_router.config.environment.settings import Settings, SettingsError
from dlx_router.config.policy_files.loader import PolicyErrors, load_policies

WITHIN_S: Final = 10.0
# What may be shown. What is new is not, until it stands here: a list of secrets would forget one.
SHOWN: Final = (
    "vhosts", "prefix", "declare", "http_host", "http_port", "prefetch", "in_flight_bytes", "drain_seconds",
    "http_allowed_hosts", "confirm_timeout_ms", "heartbeat", "journal", "log_format", "log_level",
    "unroutable_grace_ms", "max_dead_letter_queues",
)  # fmt: skip
LIBRARIES: Final = ("aio-pika", "aiormq", "httpx", "pamqp", "pydantic", "uvicorn", "uvloop")


def bundle(
    *,
    to: Annotated[Path, typer.Option("--to", help="File to write.")] = Path("dlx-router-support.zip"),
    policies: Policies = Path("policies"),
    url: Url = None,
) -> None:
    """Write what somebody who helps you needs into a zip file: no secrets, no message data."""
    settings = Settings.load({"policies": str(policies)})
    address = url or settings.api_url
    findings, reached = asyncio.run(doctor.examined(settings))
    files = {
        "about.json": _json(_about(settings, reached=reached)),
        "settings.json": _json({name: _plain(getattr(settings, name)) for name in SHOWN}),
        "doctor.json": _json([asdict(finding) for finding in findings]),
        "readyz.json": _asked(address, "/readyz"),
        "metrics.txt": _asked(address, "/metrics"),
    }
    try:
        with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(name, content)
    except OSError as error:
        raise SettingsError(f"{to}: {error.strerror}; say --to FILE") from None
    output.say(f"{to}: {', '.join(files)}")


def _about(settings: Settings, *, reached: bool) -> dict[str, Any]:
    try:
        loaded = load_policies(settings.policies, settings.names)
        policies: dict[str, Any] = {"revision": loaded.policies.revision, "policies": len(loaded.policies.policies)}
    except PolicyErrors as error:
        policies = {"findings": len(str(error).splitlines())}
    return {
        "dlx-router": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "libraries": {each.name: each.version for each in metadata.distributions() if each.name in LIBRARIES},
        "policies": policies,
        "broker_reached": reached,
    }


def _asked(url: str, path: str) -> str:
    """What a running router says, or that none does. These paths never show secrets or message data."""
    try:
        return httpx.get(f"{url.rstrip('/')}{path}", timeout=WITHIN_S, trust_env=False).text
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return "no router answered\n"


def _plain(value: Any) -> Any:  # noqa: ANN401 - a setting
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _json(document: Any) -> str:  # noqa: ANN401 - JSON
    return json.dumps(document, indent=2) + "\n"
