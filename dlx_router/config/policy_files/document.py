"""One policy file: its tree → policies and attachments, with every error in the report."""

from collections.abc import Iterable
from typing import Final, TypeVar

from dlx_router.config.findings import BAD_VALUE, MISSING_KEY, VERSION, Report
from dlx_router.config.language import values
from dlx_router.config.language.keys import DEFINITION, FOREIGN, match, overlay_reason
from dlx_router.config.language.queue_selectors import SELECTORS, chosen, pattern, queue
from dlx_router.config.language.shape import Field, Shape, raw, rejected
from dlx_router.config.language.values import Rejected, unexpected
from dlx_router.config.language.yaml_tree import Items, Node, Pairs, Scalar, described
from dlx_router.config.policy_files import attachments as attachments_of
from dlx_router.config.policy_files import delayed_exchanges as delayed_of
from dlx_router.config.policy_files.attachments import Attachment
from dlx_router.config.policy_files.delayed_exchanges import Delayed
from dlx_router.core.policy import Policy, Setting, Source

SUPPORTED_VERSION: Final = 1
MAX_PRIORITY: Final = 2**31 - 1

_Definition = dict[str, Setting]
Found = TypeVar("Found")


_UNDER_DEFINITION: Final = dict.fromkeys((*DEFINITION, "on"), 'write it under "definition:"')
_UNDER_POLICY: Final = ("name", "vhost", *SELECTORS, "apply-to", "priority", "inherit", "labels")
_FOREIGN: Final = {theirs: f"write {ours}" for theirs, ours in FOREIGN.items()}
_MOVED: Final = dict.fromkeys(_UNDER_POLICY, 'write it beside "definition:", not in it') | _FOREIGN

FILE: Final = Shape(
    "a policy file",
    {"version": raw, "policies": raw, "attachments": raw, "delayed": raw},
    hints={"tests": "write tests into a file whose name ends in .test.yaml"},
)
POLICY: Final = Shape(
    "a policy",
    {
        "name": values.name, "vhost": values.text(), "queue": queue, "match": match, "pattern": pattern,
        "apply-to": values.one_of("queues", "classic_queues", "quorum_queues"),
        "priority": values.integer(-MAX_PRIORITY, MAX_PRIORITY), "inherit": values.boolean,
        "labels": values.texts, "definition": raw,
    },
    hints=_UNDER_DEFINITION | _FOREIGN,
)  # fmt: skip
_OF_QUEUE: Final = dict.fromkeys(
    (key.name for key in DEFINITION.values() if key.of_queue),
    'it is about the queue, not about a reason; write it beside "on:"',
)
OVERLAY: Final = Shape(
    "a definition under on:", {key.name: key.parse for key in DEFINITION.values() if not key.of_queue},
    {"on": "a reason has no further reasons", **_OF_QUEUE, **_MOVED},
)  # fmt: skip
BASE: Final = Shape("a definition", {**{key.name: key.parse for key in DEFINITION.values()}, "on": raw}, _MOVED)


def read(node: Node | None, report: Report) -> tuple[list[Policy], list[Attachment], list[Delayed]]:
    """Policies, attachments and delayed exchanges of a file. Never raises; where the report has errors some lack."""
    if node is None:
        return [], [], []
    if isinstance(node, Scalar) and node.value is None:
        node = Pairs((), node.line)
    fields = FILE.read(node, report)
    if fields is None or not version_known(fields.get("version"), node.line, report):
        return [], [], []
    policies = [_policy(entry, report) for entry in listed(fields.get("policies"), "policies", report)]
    attachments = [
        attachments_of.read(entry, report) for entry in listed(fields.get("attachments"), "attachments", report)
    ]
    delayed = [delayed_of.read(entry, report) for entry in listed(fields.get("delayed"), "delayed", report)]
    return _whole(policies), _whole(attachments), _whole(delayed)


def _whole(items: Iterable[Found | None]) -> list[Found]:
    return [item for item in items if item is not None]


def version_known(version: Field | None, line: int, report: Report) -> bool:
    """Whether the file is written in the language that we read; else the report says so."""
    if version is None:
        report.error(VERSION, line, "version is missing; write version: 1 at the top")
        return False
    node: Node = version.value
    if isinstance(node, Scalar) and node.value == SUPPORTED_VERSION and not isinstance(node.value, bool | float):
        return True
    report.error(VERSION, node.line, f"version {described(node)} is not known; this dlx-router reads version: 1")
    return False


def listed(field: Field | None, key: str, report: Report) -> tuple[Node, ...]:
    """The items under a key of the file; none where the key is absent or, said in the report, no list."""
    if field is None:
        return ()
    if isinstance(field.value, Items):
        return field.value.items
    report.error(
        BAD_VALUE, field.line, f"{key}: expected a list, found {described(field.value)}; begin each with a dash"
    )
    return ()


def _policy(node: Node, report: Report) -> Policy | None:
    fields = POLICY.read(node, report)
    if fields is None:
        return None
    written = {key.text for key, _ in node.pairs} if isinstance(node, Pairs) else set()
    if "name" not in written:
        report.error(MISSING_KEY, node.line, "a policy without a name; write name: and a word that no other policy has")
    selector = chosen(fields, node, "a policy", report)
    name: str = fields["name"].value if "name" in fields else ""
    definition, on = _definition(fields.get("definition"), name, report)
    if selector is None or not name:
        return None
    given = {
        key.replace("-", "_"): fields[key].value
        for key in ("vhost", "apply-to", "priority", "inherit", "labels")
        if key in fields
    }
    return Policy(name, selector, Source(name, report.file, node.line), definition=definition, on=on, **given)


def _settings(node: Node, shape: Shape, policy: str, report: Report) -> dict[str, Setting]:
    fields = shape.read(node, report) or {}
    return {key: Setting(field.value, Source(policy, report.file, field.line)) for key, field in fields.items()}


def _definition(field: Field | None, policy: str, report: Report) -> tuple[_Definition, dict[str, _Definition]]:
    """The base and the overlays of a definition; without one the policy only names queues, and defaults hold."""
    base = _settings(field.value, BASE, policy, report) if field is not None else {}
    overlays: Node = base.pop("on").value if "on" in base else Pairs((), 0)
    if not isinstance(overlays, Pairs):
        rejected(unexpected(overlays, "a mapping of reasons to keys"), report, "on")
        return base, {}
    on: dict[str, _Definition] = {}
    for key, value in overlays.pairs:
        try:
            on[overlay_reason(key)] = _settings(value, OVERLAY, policy, report)
        except Rejected as error:
            rejected(error, report, "on")
    return base, on
