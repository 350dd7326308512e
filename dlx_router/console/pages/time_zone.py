"""In which time zone this browser is shown times."""

from starlette.responses import Response

from dlx_router.console import zones
from dlx_router.console.asking import ZONE, Asked, local_path, page, remembered

_REFUSED = 422


async def time_zone(asked: Asked) -> Response:
    """The choice, and with a POST what was chosen: kept in a cookie that only the server reads."""
    if asked.request.method != "POST":
        return _form(asked, zones.current(), asked.query("back"))
    wanted, back = asked.form.text("zone"), asked.form.text("back")
    try:
        name = zones.named(wanted)
    except zones.ZoneError as error:
        return _form(asked, wanted[: zones.MAX_NAME], back, str(error))
    return remembered(asked.console, ZONE, name, back)


def _form(asked: Asked, wanted: str, back: str, problem: str = "") -> Response:
    given = {"wanted": wanted, "back": local_path(back), "said": problem, "names": zones.names()}
    return page(asked.console, asked.request, "time_zone.html", _REFUSED if problem else 200, asked=asked, **given)
