"""The policy language as JSON Schema, for editors: made from the tables that parse it, so that nothing is said twice.

It takes what the parsers take, and more: what keys mean together only `policy lint` knows.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from dlx_router.config.language.keys import DEFINITION, REASONS, Key
from dlx_router.config.language.shape import Shape
from dlx_router.config.policy_files.attachments import ATTACHMENT
from dlx_router.config.policy_files.delayed_exchanges import DELAYED
from dlx_router.config.policy_files.document import OVERLAY, POLICY, SUPPORTED_VERSION
from dlx_router.core.policy import SelectorKind
from dlx_router.core.words import APPLICATION

_Schema = dict[str, Any]
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_REASON: Final = rf"^({'|'.join(REASONS)}|{APPLICATION}:.+)$"
_DESCRIPTIONS: Final[Mapping[str, str]] = {
    "version": "The language that this file is written in.",
    "policies": "What happens to messages that failed; all policies that select a queue are merged key by key.",
    "attachments": "Further queues that the router attends, besides its own.",
    "name": "A word that no other policy has, over all files.",
    "vhost": "The vhost; without it every served one.",
    "queue": "The queue of exactly this name.",
    "match": "Queues by the words of their names: * is one word, # any number.",
    "pattern": "Queues whose names this RE2 expression finds, unanchored.",
    "apply-to": "Which of the selected queues.",
    "priority": "A policy of higher priority wins; 0 without it.",
    "inherit": "false: nothing below this policy contributes.",
    "labels": "Words for people: team, owner, runbook.",
    "definition": "What happens, by keys.",
    "on": "Keys that hold for one reason only.",
    "mode": "How the queue is attended: inbox (each message is a letter), relay (the living go on to forward-to) or "
    "guard (others consume, the router enforces the limits).",
    "forward-to": "Where a relay leads: an exchange, and a routing-key where the key is to change.",
    "delayed": "Exchanges whose messages go on after the wait that header x-delay (ms) asks for.",
    "exchange": "The exchange that the router declares, and that is published to.",
    "to": "The exchange that messages go on to, with their own routing key and headers.",
    "default": "How long a message waits that asks for no wait; 0s without it.",
    "dead-letter-exchanges": "The exchange, or a list of exchanges, by which the broker brings dead letters to the "
    'queue. x-death is believed of what came by them, and of nothing else. "" is the default exchange, [] says: none.',
    "accept-delivery-limit": "true: attend a quorum queue too that deletes messages after some returns.",
}


def schema() -> _Schema:
    """The JSON Schema (draft 2020-12) of a policy file."""
    policies = {"type": "array", "items": {"$ref": "#/$defs/policy"}}
    attachments = {"type": "array", "items": {"$ref": "#/$defs/attachment"}}
    delayed = {"type": "array", "items": {"$ref": "#/$defs/delayed"}}
    lists = {"policies": policies, "attachments": attachments, "delayed": delayed}
    root = _object({"version": {"const": SUPPORTED_VERSION}, **lists})
    overlay = _object({name: _key(DEFINITION[name]) for name in OVERLAY.parsers})
    definitions = {"policy": _policy(), "definition": _definition(), "overlay": overlay, "attachment": _attachment()}
    definitions["delayed"] = {**_object(_parsed(DELAYED)), "required": ["exchange", "to"]}
    return {"$schema": _DIALECT, "title": "dlx-router policies", **root, "required": ["version"], "$defs": definitions}


def schema_text() -> str:
    """The schema as it is printed."""
    return json.dumps(schema(), indent=2, ensure_ascii=False)


def _object(properties: Mapping[str, Any]) -> _Schema:
    documented = {
        key: {**value, **({"description": _DESCRIPTIONS[key]} if key in _DESCRIPTIONS else {})}
        for key, value in properties.items()
    }
    return {"type": "object", "properties": documented, "additionalProperties": False}


def _parsed(shape: Shape) -> _Schema:
    return {key: dict(parser.schema) for key, parser in shape.parsers.items()}


def _policy() -> _Schema:
    base = _object({**_parsed(POLICY), "definition": {"$ref": "#/$defs/definition"}})
    return {**base, "required": ["name"], "oneOf": [{"required": [kind.value]} for kind in SelectorKind]}


def _attachment() -> _Schema:
    return {**_object(_parsed(ATTACHMENT)), "oneOf": [{"required": [kind.value]} for kind in SelectorKind]}


def _definition() -> _Schema:
    """The keys of an overlay and those of the queue itself, and the overlays."""
    same = {
        name: {"$ref": f"#/$defs/overlay/properties/{name}"} if name in OVERLAY.parsers else _key(key)
        for name, key in DEFINITION.items()
    }
    overlays = {
        "type": "object",
        "propertyNames": {"pattern": _REASON},
        "additionalProperties": {"$ref": "#/$defs/overlay"},
    }
    return _object({**same, "on": overlays})


def _key(key: Key) -> _Schema:
    """A key as its parser takes it; where the default depends on other keys, the text tells it."""
    field = {**key.parse.schema, "description": f"{key.doc}{f' Default: {key.says}.' if key.says else ''}"}
    if key.default is not None:
        field["default"] = list(key.default) if isinstance(key.default, tuple) else key.default
    return field
