"""`dlx-router run`: every setting is an option. The options are made from Settings, so that none can be missing."""

import inspect
from typing import Annotated

import typer

from dlx_router.config.environment.settings import Settings, default_text, option, variable


def _run(*, observe: bool = False, **given: str | None) -> None:
    """Run the router until a signal. Options win over the environment; secrets belong into files or the environment.

    Exit: 0 after SIGTERM and a clean drain, 130 after SIGINT, 1 for findings in the policies, 2 for wrong settings.
    """
    from dlx_router.config.policy_files.loader import load_policies  # noqa: PLC0415 - `run --help` reads no policy
    from dlx_router.config.webhooks import file as webhooks  # noqa: PLC0415 - as above

    settings = Settings.load({name: value for name, value in given.items() if value is not None})
    warnings = settings.warnings()
    loaded = load_policies(settings.policies, settings.names)
    loaded.require_served(settings.vhost_list())
    loaded.require_types(told=settings.has_management())
    if (path := settings.webhooks_path()) is not None:
        webhooks.load(path)
    from dlx_router.cli.daemon import run  # noqa: PLC0415 - asyncio, HTTP and metrics only when all is well
    from dlx_router.telemetry import logs  # noqa: PLC0415 - as above

    logs.configure(settings.log_format, settings.log_level)  # what is odd is logged: nobody may be reading along
    for warning in warnings:
        logs.log.warning("settings.warning", problem=warning)
    for finding in loaded.warnings:
        logs.log.warning(
            "policies.warning", code=finding.code, file=finding.file, line=finding.line, problem=finding.message
        )
    raise typer.Exit(run(settings, loaded, observe=observe))


def _parameter(name: str) -> inspect.Parameter:
    default = default_text(name)
    ending = f"; default: {default}]" if default else "]"
    description = f"{Settings.model_fields[name].description} [{variable(name)}{ending}"
    metavar = name.removesuffix("_ms").rpartition("_")[2].upper()
    annotation = Annotated[str | None, typer.Option(option(name), help=description, metavar=metavar)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


_OBSERVE = inspect.Parameter(
    "observe",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool, typer.Option("--observe", help="Decide and journal copies of dead letters; take and move none.")
    ],
)
_parameters = [*(_parameter(name) for name in Settings.model_fields), _OBSERVE]
_run.__signature__ = inspect.Signature(_parameters)  # type: ignore[attr-defined]  # typer reads it, mypy knows no such thing
_run.__annotations__ = {parameter.name: parameter.annotation for parameter in _parameters}

app = typer.Typer()
app.command()(_run)
