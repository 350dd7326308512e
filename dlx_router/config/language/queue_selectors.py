"""Names and expressions of queues, in policies and attachments alike; `match`, the third way, is among the keys."""

from typing import Final

from dlx_router.config.findings import shown
from dlx_router.config.language import values
from dlx_router.config.language.regex import RegexError, Search, compiled
from dlx_router.config.language.values import takes
from dlx_router.config.language.yaml_tree import Items, Node
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
