"""`dlx-router groups share`, `unshare` and `shared`: a page about one group, for people without a token."""

from typing import Annotated, Any, Final

import typer

from dlx_router.cli import output
from dlx_router.cli.groups import GroupId, Yes
from dlx_router.cli.letters import Json, Url, reach
from dlx_router.cli.output import Id
from dlx_router.cli.timestamps import ago

_COLUMNS: Final = (Id("group"), Id("queue"), Id("vhost"), "by", "shared", "error", "note")


def share(
    group: GroupId,
    note: Annotated[str, typer.Option(help="A text on the page; public.")] = "",
    show_error: Annotated[  # noqa: FBT002 - typer makes a flag of it
        bool, typer.Option("--show-error", help="The type of its error and its message without what varies, too.")
    ] = False,
    yes: Yes = False,  # noqa: FBT002 - typer makes a flag of it
    url: Url = None,
    as_json: Json = False,  # noqa: FBT002 - typer makes a flag of it
) -> None:
    """Make a link to a status page of it, for anybody who has the link. It is shown this once."""
    api = reach(url)
    known = api.get(f"/groups/{group}")
    sees = "the queue, the reason, the state, times and numbers of deaths" + (" and the error" if show_error else "")
    _confirm(f"{known['failed_queue']}: whoever has the link sees {sees}, without a token. Share it?", yes=yes)
    made = api.ask("POST", f"/groups/{group}/status-page", body={"note": note, "shows_error": show_error})
    if as_json:
        output.as_json(made)
        return
    link = made["url"] if made["url"] != made["path"] else f"{api.address}{made['path']}"
    output.say(link)


def unshare(
    group: GroupId,
    yes: Yes = False,  # noqa: FBT002 - typer makes a flag of it
    url: Url = None,
    as_json: Json = False,  # noqa: FBT002 - typer makes a flag of it
) -> None:
    """Revoke the link to its status page."""
    _confirm(f"{group}: the link of its status page will show nothing any more. Revoke it?", yes=yes)
    gone = reach(url).ask("DELETE", f"/groups/{group}/status-page")
    if as_json:
        output.as_json(gone)
    else:
        output.say(f"{gone['group']}: not shared")


def shared(url: Url = None, as_json: Json = False) -> None:  # noqa: FBT002 - typer makes a flag of it
    """Show which groups have a status page; never a link."""
    pages = reach(url).get("/status-pages")["pages"]
    if as_json:
        output.as_json(pages)
        return
    if not pages:
        output.say("No status pages.")
        return
    output.table(_COLUMNS, [_row(page) for page in pages])


def _row(page: dict[str, Any]) -> tuple[str, ...]:
    error = "shown" if page["shows_error"] else "not shown"
    return (page["group"], page["queue"], page["vhost"], page["by"], ago(page["shared_ms"]), error, page["note"])


def _confirm(question: str, *, yes: bool) -> None:
    if not yes and not output.confirmed(question):
        output.warn("Nothing was changed.")
        raise typer.Exit(output.FINDINGS)
