"""What OTEL_* ask for, checked: the standard's own variables. See docs/tracing.md."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_TIMEOUTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT")
_SAMPLERS: Final = frozenset({
    "always_on", "always_off", "traceidratio",
    "parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio",
})  # fmt: skip
_MOST: Final = 1_000_000
_NUMBER: Final = re.compile(r"[0-9]+(\.[0-9]+)?")


class TracesError(Exception):
    """Traces are asked for and cannot be made: the text says which variable or package, and what to do."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much waits for the collector, and for how long; the standard's OTEL_BSP_*."""

    queue: int = 2048
    batch: int = 512
    delay_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked for."""

    limits: Limits = field(default_factory=Limits)
    collector: str = "http://localhost:4318"  # without path and credentials, for the log


def is_off(environment: Mapping[str, str]) -> bool:
    """Whether the standard's own switches say no."""
    disabled = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    return disabled or environment.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none"


def read(environment: Mapping[str, str]) -> Asked:
    """What is asked for; TracesError names the first variable that cannot be used and what to write, never a value."""
    _one_of(environment, "OTEL_TRACES_EXPORTER", {"otlp"})
    for name in _PROTOCOLS:
        _one_of(environment, name, {"http/protobuf"})
    _one_of(environment, "OTEL_TRACES_SAMPLER", _SAMPLERS)
    if not 0 <= _number(environment, "OTEL_TRACES_SAMPLER_ARG", 1) <= 1:
        raise TracesError("OTEL_TRACES_SAMPLER_ARG: not a share; write a number from 0 to 1")
    for name in _TIMEOUTS:
        _number(environment, name, 10)
    limits = Limits(
        queue=_count(environment, "OTEL_BSP_MAX_QUEUE_SIZE", 2048),
        batch=_count(environment, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512),
        delay_s=_count(environment, "OTEL_BSP_SCHEDULE_DELAY", 5000) / 1000,
    )
    return Asked(limits, _collector(environment))


def _one_of(environment: Mapping[str, str], name: str, known: set[str] | frozenset[str]) -> None:
    value = environment.get(name, "").strip().lower()
    if value and value not in known:
        raise TracesError(f"{name}: not known here; write {' or '.join(sorted(known))}, or leave it out")


def _number(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name, "").strip()
    if not text:
        return default
    if not _NUMBER.fullmatch(text):
        raise TracesError(f"{name}: not a number; write one, {default} for example")
    return float(text)


def _count(environment: Mapping[str, str], name: str, default: int) -> int:
    number = _number(environment, name, default)
    if not 1 <= number <= _MOST or number != int(number):
        raise TracesError(f"{name}: not a number from 1 to {_MOST}; write one, {default} for example")
    return int(number)


def _collector(environment: Mapping[str, str]) -> str:
    for name in ENDPOINTS:
        url = environment.get(name, "").strip()
        if not url:
            continue
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
            parts = urlsplit("")
        if parts.scheme not in {"http", "https"} or not host:
            raise TracesError(f"{name}: not a URL; write http://HOST:4318 for example")
        return f"{parts.scheme}://{host}" + (f":{port}" if port else "")
    return "http://localhost:4318"
