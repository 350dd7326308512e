"""Names and expressions of queues, in policies and attachments alike; `match`, the third way, is among the keys."""

from collections.abc import Mapping
from typing import Final

from dlx_router.config.findings import MISSING_KEY, Report, shown
from dlx_router.config.language import values
from dlx_router.config.language.regex import RegexError, Search, compiled
from dlx_router.config.language.shape import Field
from dlx_router.config.language.values import takes
from dlx_router.config.language.yaml_tree import Items, Node, Pairs
from dlx_router.core.policy import Selector, SelectorKind

SELECTORS: Final = tuple(kind.value for kind in SelectorKind)


@takes({"type": "string", "minLength": 1, "maxLength": 1000})
def pattern(node: Node) -> Selector:
    """Queues whose names an RE2 expression finds."""
    written = values.text(max_bytes=1000)(node)
    try:
        return Selector(SelectorKind.PATTERN, written, Search(compiled(written)))
    except RegexError as error:
        words = "; for words with * and # between dots write match:" if written.startswith(("*", "#")) else ""
        raise values.rejected(node, f"{shown(written)}: {error}{words}") from None


@takes(values.text().schema)
def queue(node: Node) -> Selector:
    """The queue of this name."""
    if isinstance(node, Items):
        raise values.rejected(node, "expected text, found a list; write match: or pattern:, or a policy for each queue")
    return Selector(SelectorKind.QUEUE, values.text()(node))


def chosen(fields: Mapping[str, Field], node: Node, what: str, report: Report) -> Selector | None:
    """The selector that a mapping has, by exactly one of its keys; None where the report says why there is none."""
    written = [kind for kind in SELECTORS if isinstance(node, Pairs) and kind in {key.text for key, _ in node.pairs}]
    if len(written) != 1:
        kinds = " and ".join(written) or "none"
        message = f"{what} has exactly one of queue:, match: or pattern:; this one has {kinds}"
        report.error(MISSING_KEY, node.line, message)
        return None
    return fields[written[0]].value if written[0] in fields else None
