"""Saved searches: filters of the lists of letters and groups that somebody named, found again by all."""

from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

from dlx_router.console.asking import Asked
from dlx_router.console.command_lines import command
from dlx_router.console.forms import Form, FormError
from dlx_router.console.pages.overview import missing
from dlx_router.console.rendering import quoted, when
from dlx_router.console.router_api import ApiError
from dlx_router.core.printable import plain
from dlx_router.core.saved_searches import FIELDS, MAX_NAME

COLUMNS: Final = ["id", "vhost", "page", "name", "filter", "by", "saved_ms"]
KEPT_S: Final = 5.0
FEW: Final = 12  # beside a list; the page of all has the others
Row = dict[str, Any]


async def searches(asked: Asked) -> Response:
    """All of them, by page and name."""
    answer = await asked.get("/searches")
    listed = asked.listing("searches", COLUMNS, answer["searches"])
    return listed or asked.page(
        "searches.html",
        searches=_rows(asked, answer["searches"]),
        missing=missing(answer),
        command=command("searches"),
    )


async def saved_for(asked: Asked, page: str, given: Mapping[str, str]) -> dict[str, Any] | None:
    """What a list shows of them: those of its page, and its own filter to be saved. None: the router has none to tell.

    A list never waits for it, nor is it lost by it: routers of before have no such path.
    """
    token, query = asked.session.token, {"page": page}
    try:
        answer = await asked.recent(
            f"searches {page}", KEPT_S, lambda: asked.router.ask("GET", "/searches", token, query=query)
        )
    except ApiError:
        return None
    rows = _rows(asked, answer.get("searches") or [])
    chosen = {name: value for name, value in given.items() if value and name in FIELDS[page]}
    return {"page": page, "few": rows[:FEW], "count": len(rows), "filter": chosen, "most": MAX_NAME}


async def save(asked: Asked) -> Response:
    """What the list beside the form showed, under a name; then the list again, as it will be found."""
    form = asked.form
    page = form.text("page")
    if page not in FIELDS:
        raise FormError("page: letters or groups")
    if not form.text("name"):
        raise FormError("a search needs a name by which others find it")
    chosen = _filter(form, page)
    vhost = str(chosen.get("vhost") or await _first_vhost(asked))
    made = await asked.change(
        "POST", "/searches", {"name": form.text("name"), "vhost": vhost, "page": page, "filter": chosen}
    )
    return asked.go(_address(asked, made))


async def delete(asked: Asked) -> Response:
    """One is deleted for all."""
    name = asked.request.path_params["search_id"]
    await asked.change("DELETE", f"/searches/{quoted(name[:64])}", vhost=asked.form.raw("vhost"))
    return asked.go(asked.path("/searches"))


async def _first_vhost(asked: Asked) -> str:
    """Where a search is kept that names none: any that its reader may see too."""
    return next(iter(await asked.vhosts()), "/")


def _filter(form: Form, page: str) -> dict[str, str | int]:
    """As the API has it; what is no number there is for the router to refuse."""
    given = {name: form.raw(name) for name in FIELDS[page] if form.raw(name)}
    return {
        name: int(value) if name.endswith("_ms") and value.isascii() and value.isdigit() else value
        for name, value in given.items()
    }


def _rows(asked: Asked, entries: list[Row]) -> list[Row]:
    """Those whose page this console has, each with its address and its filter in words."""
    return [
        {**entry, "address": _address(asked, entry), "words": _words(entry)}
        for entry in entries
        if entry["page"] in FIELDS
    ]


def _address(asked: Asked, search: Row) -> str:
    """The list that it shows. An address has `sort` where the API has an order."""
    given = {name: search["filter"][name] for name in FIELDS[search["page"]] if name in search["filter"]}
    if given.pop("order", None) == "oldest":
        given["sort"] = "last"
    elif "sort" in given:
        given["sort"] = f"-{given['sort']}"
    return asked.path(f"/{search['page']}", **given)


def _words(search: Row) -> dict[str, str]:
    return {
        name.removesuffix("_ms"): when(value) if name.endswith("_ms") else plain(value)
        for name, value in search["filter"].items()
    }
