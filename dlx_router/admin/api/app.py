"""The app: routers behind the gate. Who adds paths gives a router; it finds its Context by `Given`, its Caller too."""

from collections.abc import Iterable
from typing import Any, Final

import httpx
from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from dlx_router import __version__
from dlx_router.admin.api import comments, groups, leases, letters, policies, queues, sessions, tasks
from dlx_router.admin.api.answers import ELSEWHERE, EVERYWHERE, Answer, NotLed, refused
from dlx_router.admin.api.context import Context
from dlx_router.admin.api.gate import Gate
from dlx_router.admin.api.leader_proxy import LeaderProxy
from dlx_router.telemetry.logs import log

PREFIX: Final = "/api/v1"
API: Final = tuple(module.router for module in (queues, groups, letters, comments, policies, tasks, leases, sessions))


def create_app(
    context: Context, routers: Iterable[APIRouter] = API, transport: httpx.AsyncBaseTransport | None = None
) -> ASGIApp:
    """The API over this context, with these routers under /api/v1; its description at /api/v1/openapi.json.

    `transport`: how other replicas are reached, if not by their addresses.
    """
    app = FastAPI(
        title="dlx-router",
        version=__version__,
        description="What is dying in RabbitMQ and why, and what was done about it.",
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
    )
    app.state.context = context
    for router in routers:
        app.include_router(router, prefix=PREFIX, responses=EVERYWHERE)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(Exception, _failed)
    app.add_exception_handler(RequestValidationError, _misunderstood)
    return Gate(LeaderProxy(app, context, transport), context)


async def _refused(request: Request, error: Any) -> Answer:  # noqa: ANN401 - as starlette has it
    if isinstance(error, NotLed):
        request.scope[ELSEWHERE] = error
    message = str(error.detail) if error.status_code not in {404, 405} or error.detail else ""
    if message == "Not Found":
        message = f"no such path: {request.url.path}; see {PREFIX}/openapi.json"
    if error.status_code == 400:  # noqa: PLR2004 - a body that is not even UTF-8
        return await _misread(request, error)
    headers = dict(error.headers or {})
    if message == "Method Not Allowed":
        message = f"{request.method} is no method of {request.url.path}; see {PREFIX}/openapi.json"
    if error.status_code == 405:  # noqa: PLR2004 - each method is a route of its own, and knows itself only
        headers["allow"] = ", ".join(sorted(_methods(request)))
    answer = refused(error.status_code, message)
    answer.headers.update(headers)
    return answer


async def _failed(request: Request, error: Any) -> Answer:  # noqa: ANN401 - as FastAPI hands it over
    """A fault of ours: the log has it, the answer does not."""
    log.error("api.failed", method=request.method, path=request.url.path, error=repr(error), exc_info=error)
    return refused(500, "a fault of the router; its log says more")


async def _misread(_request: Request, error: Any) -> Answer:  # noqa: ANN401 - as FastAPI hands it over
    return refused(422, "the request cannot be understood", problems=[str(error.detail)])


def _methods(request: Request) -> set[str]:
    """The methods that the description has for this path."""
    paths: dict[str, dict[str, Any]] = request.app.openapi()["paths"]
    steps = request.url.path.split("/")
    for path, methods in paths.items():
        known = path.split("/")
        if len(known) == len(steps) and all(a == b or a[:1] == "{" for a, b in zip(known, steps, strict=True)):
            return {method.upper() for method in methods}
    return {"GET"}


async def _misunderstood(_request: Request, error: Any) -> Answer:  # noqa: ANN401 - as FastAPI hands it over
    """Where and what, without the value: it may be anything."""
    problems = [f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors()]
    return refused(422, "the request cannot be understood", problems=problems)
