"""The files that pages load, all from here. Those of others are released files, told in static/manifest.json."""

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

FOLDER: Final = Path(__file__).parent / "static"
KINDS: Final = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_FOR_EVER: Final = "public, max-age=31536000, immutable"


class Assets:
    """Read once; an address holds the content's digest, so that a browser may keep it for ever."""

    def __init__(self) -> None:
        self._files = {file.name: file.read_bytes() for file in sorted(FOLDER.iterdir()) if file.suffix in KINDS}
        self._digests = {name: sha256(data).hexdigest()[:12] for name, data in self._files.items()}

    @property
    def addresses(self) -> Mapping[str, str]:
        """By file name."""
        return {name: f"/static/{name}?v={digest}" for name, digest in self._digests.items()}

    async def serve(self, request: Request) -> Response:
        """One of them."""
        name = request.path_params["name"]
        data = self._files.get(name)
        if data is None:
            return Response("no such file", 404, {"content-type": "text/plain"})
        fresh = request.query_params.get("v") == self._digests[name]
        headers = {"content-type": KINDS[Path(name).suffix], "cache-control": _FOR_EVER if fresh else "no-store"}
        return Response(data, headers=headers)
