"""WEBHOOKS_FILE: who is told what happens, and how.

docs/webhooks.md has its keys. Neither URLs nor secrets appear in a repr, log or error.
"""

from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from dlx_router.config.findings import (
    BAD_VALUE,
    DUPLICATE_NAME,
    MISSING_KEY,
    UNREADABLE,
    PolicyErrors,
    Report,
    nearest,
    shown,
)
from dlx_router.config.language import values, yaml_tree
from dlx_router.config.language.keys import word_pattern
from dlx_router.config.language.shape import Field, Shape, raw
from dlx_router.config.language.values import Parser, rejected, takes
from dlx_router.config.language.yaml_tree import Items, Node, Pairs, Scalar, described
from dlx_router.config.webhooks.endpoint import (
    ALL_EVENTS,
    FORMATS,
    PREFIX,
    SECRET_ADVICE,
    Endpoint,
    Endpoints,
    made_name,
    secret_bytes,
    url_fault,
)
from dlx_router.core.addresses import Network, refusal
from dlx_router.core.notices import EVENTS
from dlx_router.core.selection import Index

MAX_ENDPOINTS: Final = 32
MAX_SECRETS: Final = 4


def load(path: Path) -> Endpoints:
    """By name. Raises PolicyErrors with all that is wrong."""
    report = Report(str(path))
    data = _read(path, lambda why: report.error(UNREADABLE, 1, why))
    node = yaml_tree.parse(data, report) if data is not None else None
    endpoints = [] if node is None else [*_endpoints(node, report)]
    if report.findings:
        raise PolicyErrors(report.findings)
    return {endpoint.name: endpoint for endpoint in endpoints}


# -- values -----------------------------------------------------------------------------------------------------


@takes({"type": "string", "minLength": 1})
def _event(node: Node) -> tuple[str, ...]:
    """An event, or all whose names begin so (`group.*`)."""
    written: str = values.text()(node)
    events = tuple(
        event for event in EVENTS if event == written or (written.endswith(".*") and event.startswith(written[:-1]))
    )
    if not events:
        known = f"; known: {', '.join(EVENTS)}, and group.* for a family"
        raise rejected(node, f"{shown(written)} is no event{nearest(written, EVENTS) or known}")
    return events


@takes({"type": "string", "minLength": 1})
def _network(node: Node) -> Network:
    written: str = values.text()(node)
    try:
        return ip_network(written)
    except ValueError as error:
        raise rejected(node, f"{shown(written)} is no network ({error}); write 10.1.2.0/24 or fd00::/8") from None


@takes({"type": "string", "minLength": 1})
def _url(node: Node) -> str:
    """Nothing of it is ever shown."""
    if not isinstance(node, Scalar) or not isinstance(node.value, str) or not node.text:
        raise rejected(node, "expected a URL as text")
    if why := url_fault(node.text):
        raise rejected(node, why)
    return node.text


@takes({"type": "string", "minLength": 1})
def _path(node: Node) -> str:
    """The name of a file; what is its content instead is not shown."""
    written: str = values.text(max_bytes=4096)(node)
    if written.startswith(PREFIX) or "://" in written:
        raise rejected(node, "expected the name of a file, found what should stand in it; write it there")
    return written


def _one_or_more(item: Parser, wanted: str) -> Parser:
    several = values.list_of(item, wanted)

    @takes({"anyOf": [item.schema, several.schema]})
    def parse(node: Node) -> tuple[Any, ...]:
        items: tuple[Any, ...] = several(node) if isinstance(node, Items) else (item(node),)
        if not items:
            raise rejected(node, f"an empty list; write {wanted}, or leave the key out")
        return items

    return parse


_FILE: Final = Shape("the webhooks file", {"webhooks": raw})
_ENDPOINT: Final = Shape(
    "a webhook",
    {
        "name": values.name, "url": _url, "url-file": _path, "format": values.one_of(*FORMATS),
        "events": _one_or_more(_event, "a list of events"), "match": _one_or_more(word_pattern, "words of queue names"),
        "vhost": values.text(), "secret-file": _path,
        "allow-addresses": _one_or_more(_network, "a list of networks"), "ca-file": _path,
    },
    hints=dict.fromkeys(("secret", "secrets"), "a secret stands in a file of its own: secret-file"),
)  # fmt: skip


# -- endpoints --------------------------------------------------------------------------------------------------


def _endpoints(node: Node, report: Report) -> Iterator[Endpoint]:
    fields = _FILE.read(node, report) or {}
    listed = fields["webhooks"].value if "webhooks" in fields else None
    if not isinstance(listed, Items) or not 1 <= len(listed.items) <= MAX_ENDPOINTS:
        actual = (
            "none" if listed is None else f"{len(listed.items)}" if isinstance(listed, Items) else described(listed)
        )
        wanted = f"a list `webhooks` of 1 to {MAX_ENDPOINTS} endpoints"
        report.error(MISSING_KEY, node.line, f"expected {wanted}, found {actual}; begin each with a dash")
        return
    lines: dict[str, int] = {}
    for entry in listed.items:
        endpoint = _endpoint(entry, report)
        if endpoint is None:
            continue
        if lines.setdefault(endpoint.name, entry.line) != entry.line:
            where = f"is there already, in line {lines[endpoint.name]}; give this one another name"
            report.error(DUPLICATE_NAME, entry.line, f"webhook {shown(endpoint.name)} {where}")
        yield endpoint


def _endpoint(node: Node, report: Report) -> Endpoint | None:
    before = len(report.findings)
    fields = _ENDPOINT.read(node, report)
    if fields is None:
        return None
    url = _url_of(fields, node, report)
    if "format" not in fields and not _is_refused(node, "format"):
        advice = f"write format: {values.alternatives(FORMATS)}"
        report.error(MISSING_KEY, node.line, f"a webhook without a format; {advice}")
    secrets = _secrets(fields, node, report)
    if len(report.findings) > before or url is None:
        return None
    parts, allowed = urlsplit(url), fields["allow-addresses"].value if "allow-addresses" in fields else ()
    _see_reachable(parts, allowed, node, report)
    match = fields["match"].value if "match" in fields else None
    events = ALL_EVENTS
    if "events" in fields:
        events = frozenset(event for several in fields["events"].value for event in several)
    return Endpoint(
        name=_value(fields, "name") or made_name(url),
        host=parts.hostname or "",
        url=url,
        format=fields["format"].value,
        events=events,
        vhost=_value(fields, "vhost"),
        match=match,
        secrets=secrets,
        allowed=allowed,
        ca_file=_value(fields, "ca-file"),
        _selector=None if match is None else Index((), enumerate(match), lambda _queue: ()),
    )


def _value(fields: Mapping[str, Field], key: str) -> str | None:
    return fields[key].value if key in fields else None


def _is_refused(node: Node, key: str) -> bool:
    """Whether it is there, so that its value was told to be wrong."""
    return isinstance(node, Pairs) and any(name.text == key for name, _ in node.pairs)


def _url_of(fields: Mapping[str, Field], node: Node, report: Report) -> str | None:
    written = [key for key in ("url", "url-file") if _is_refused(node, key)]
    if len(written) != 1:
        report.error(MISSING_KEY, node.line, "a webhook has one of url: and url-file:; write where it is to be sent")
        return None
    if "url-file" not in fields:
        return _value(fields, "url")
    text = (_content(fields["url-file"], "url-file", report) or "").strip()
    if text and (why := url_fault(text)):
        report.error(BAD_VALUE, fields["url-file"].line, f"url-file {fields['url-file'].value}: {why}")
    return text


def _secrets(fields: Mapping[str, Field], node: Node, report: Report) -> tuple[bytes, ...]:
    at = fields.get("secret-file")
    if at is None:
        if _value(fields, "format") == "cloudevents" and not _is_refused(node, "secret-file"):
            why = "its receiver could not tell who sent it"
            message = f"format cloudevents without secret-file: {why}; {SECRET_ADVICE} there"
            report.error(MISSING_KEY, node.line, message)
        return ()
    text = _content(at, "secret-file", report)
    try:
        keys = tuple(map(secret_bytes, (text or "").split()))
    except ValueError as error:
        report.error(BAD_VALUE, at.line, f"secret-file {at.value}: {error}")
        return ()
    if text is not None and not 1 <= len(keys) <= MAX_SECRETS:
        why = f"{len(keys)} lines, 1 to {MAX_SECRETS}; {SECRET_ADVICE}"
        report.error(BAD_VALUE, at.line, f"secret-file {at.value}: {why}")
    return keys


def _content(at: Field, key: str, report: Report) -> str | None:
    """The text of the file that a key names; None where it cannot be read, which is reported."""
    data = _read(Path(at.value), lambda why: report.error(UNREADABLE, at.line, f"{key} {at.value}: {why}"))
    return None if data is None else data.decode(errors="replace")


def _see_reachable(parts: SplitResult, allowed: tuple[Network, ...], node: Node, report: Report) -> None:
    """What is known to be refused without asking anybody."""
    if parts.scheme == "http" and not allowed:
        why = "http: anybody on the way could read it; write https, or name the networks in allow-addresses"
        report.error(BAD_VALUE, node.line, f"url: {why}")
    try:
        address = ip_address(parts.hostname or "")
    except ValueError:
        return
    if why := refusal(address, allowed):
        message = f"leads to {why}, where only this machine may get; name its network in allow-addresses to permit it"
        report.error(BAD_VALUE, node.line, f"url: {message}")


def _read(path: Path, refuse: Callable[[str], None]) -> bytes | None:
    try:
        with path.open("rb") as opened:
            return opened.read(yaml_tree.MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        refuse(f"cannot be read: {getattr(error, 'strerror', None) or error}; name a path that can")
        return None
