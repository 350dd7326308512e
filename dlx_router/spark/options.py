"""Options of the source `rabbitmq_stream`: each has a meaning and a default here, and a wrong one a clear error.

The connection is named, never given: options are shown in plans and in Spark's UI. `connection` says where a worker
finds the URL: `env:NAME` or `file:PATH`.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Self

from dlx_router.broker.address import Tls
from dlx_router.core.signature import Signer
from dlx_router.spark.amqp import PREFETCH, Connection
from dlx_router.wire import address

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
MEANINGS: Final[dict[str, tuple[str, str]]] = {  # as written → default, meaning
    "connection": ("", "`env:NAME` or `file:PATH`: where the AMQP URL is, on the driver and on every worker"),
    "vhost": ("", "vhost of the streams where it is not the URL's"),
    "streams": ("", "names of the streams, commas between"),
    "startingOffsets": (
        EARLIEST,
        'earliest, latest, or JSON: `{"orders.journal": 4711}`; only where no checkpoint says',
    ),
    "endingOffsets": (LATEST, "batch only: latest, or JSON; behind the last message to read"),
    "maxOffsetsPerTrigger": ("100000", "messages of all streams in one micro-batch, at most"),
    "maxBytesPerTrigger": ("268435456", "bytes in one micro-batch, about: guessed by the next messages' size"),
    "partitions": ("2", "tasks that read one stream at the same time"),
    "minOffsetsPerPartition": ("500", "fewer messages are not worth another task"),
    "prefetch": (str(PREFETCH), "messages that the broker sends ahead to each task"),
    "failOnDataLoss": (
        "true",
        "false: go on where retention was faster or the stream is another one; what is lost is lost",
    ),
    "timeout": ("30", "seconds without an answer or a message before a task gives up and is tried again"),
    "retryFor": (
        "60",
        "seconds to try again to ask a broker for its offsets that is unreachable, or shows less than was read of it",
    ),
    "provenanceKeyFile": ("", "the routers' PROVENANCE_KEY_FILE, on every worker: tells whether they signed a message"),
    "tlsCa": ("", "file of the CA that the broker's certificate is checked with; none: the system's"),
    "tlsCert": ("", "file of a client certificate"),
    "tlsKey": ("", "file of its key"),
    "tlsServerName": ("", "name in the broker's certificate where it is not the host's"),
}
_KNOWN: Final = {name.lower(): name for name in MEANINGS}


class OptionError(ValueError):
    """An option cannot be used; says which, why and what to write."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options, read. It holds no secret: `address` looks it up anew each time."""

    connection: str
    streams: tuple[str, ...]
    vhost: str | None = None
    starting: str | Mapping[str, Any] = EARLIEST  # offset or position by stream; "*": the others
    ending: str | Mapping[str, int] = LATEST
    max_offsets: int = 100_000
    max_bytes: int = 256 << 20
    partitions: int = 2
    min_offsets: int = 500
    prefetch: int = PREFETCH
    fail_on_data_loss: bool = True
    timeout_s: float = 30.0
    retry_for_s: float = 60.0
    tls: Tls = field(default_factory=Tls)
    key_file: str = ""

    @classmethod
    def read(cls, given: Mapping[str, str]) -> Self:
        """From Spark's options, names in any case. Raises OptionError."""
        values = {_name(name): value for name, value in given.items()}
        streams = tuple(name.strip() for name in values.get("streams", "").split(",") if name.strip())
        if not streams:
            raise OptionError("option streams: missing; name the streams to read, commas between")
        return cls(
            connection=_connection(values.get("connection", "")),
            streams=streams,
            vhost=values.get("vhost") or None,
            starting=_starting(values),
            ending=_offsets("endingOffsets", values, (LATEST,)),
            max_offsets=_number("maxOffsetsPerTrigger", values),
            max_bytes=_number("maxBytesPerTrigger", values),
            partitions=_number("partitions", values),
            min_offsets=_number("minOffsetsPerPartition", values),
            prefetch=_number("prefetch", values, most=65_535),
            fail_on_data_loss=_flag("failOnDataLoss", values),
            timeout_s=float(_number("timeout", values)),
            retry_for_s=float(_number("retryFor", values, least=0)),
            tls=Tls(*(values.get(name) or None for name in ("tlsCa", "tlsCert", "tlsKey", "tlsServerName"))),
            key_file=values.get("provenanceKeyFile", ""),
        )

    def address(self) -> address.Address:
        """Where the broker is and who we are, looked up now, here. OptionError says what is wrong, never the URL."""
        try:
            broker = address.parse(_looked_up(self.connection))
        except ValueError as error:
            raise OptionError(f"{self.connection}: {error}") from None
        return replace(broker, vhost=self.vhost) if self.vhost else broker

    def signers(self) -> dict[str, Signer]:
        """By stream, what tells whether a router signed a message; none without a key file. OptionError: unreadable."""
        if not self.key_file:
            return {}
        from dlx_router.service.vhost.signing_key import KeyFileError, from_file  # noqa: PLC0415 - workers only need it with a key

        try:
            key, vhost = from_file(Path(self.key_file)), self.address().vhost
        except KeyFileError as error:
            raise OptionError(f"option provenanceKeyFile: {error}") from None
        return {stream: Signer(key, vhost, stream) for stream in self.streams}

    def connect(self) -> Connection:
        """A connection to the broker; StreamError where there is none."""
        return Connection(self.address(), self.tls, timeout_s=self.timeout_s)


def _name(written: str) -> str:
    if (known := _KNOWN.get(written.lower())) is not None:
        return known
    near = get_close_matches(written.lower(), _KNOWN, 1)
    hint = f"; did you mean {_KNOWN[near[0]]}?" if near else f"; there are {', '.join(MEANINGS)}"
    raise OptionError(f"option {written}: not known{hint}")


def _connection(written: str) -> str:
    kind, colon, where = written.partition(":")
    if kind in {"env", "file"} and colon and where:
        return written
    problem = "missing" if not written else "is not a reference"  # it may be a URL with a password
    raise OptionError(f"option connection: {problem}; write env:NAME or file:PATH, which hold the AMQP URL")


def _looked_up(connection: str) -> str:
    kind, _, where = connection.partition(":")
    if kind == "env":
        if (value := os.environ.get(where)) is None:
            raise ValueError(f"the variable is not set on {os.uname().nodename}")
        return value
    try:
        return Path(where).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ValueError(f"cannot be read on {os.uname().nodename}: {error.strerror}") from None


def _starting(values: Mapping[str, str]) -> str | Mapping[str, Any]:
    """Offsets as a person writes them, or the positions of a checkpoint, which are checked before they are used."""
    try:
        offsets = json.loads(values.get("startingOffsets", ""))
    except ValueError:
        offsets = None
    if not isinstance(offsets, dict) or not any(isinstance(position, dict) for position in offsets.values()):
        return _offsets("startingOffsets", values, (EARLIEST, LATEST))
    return offsets


def _offsets(name: str, values: Mapping[str, str], words: tuple[str, ...]) -> str | Mapping[str, int]:
    written = values.get(name, MEANINGS[name][0])
    if written in words:
        return written
    try:
        offsets = json.loads(written)
    except ValueError:
        offsets = None
    if not isinstance(offsets, dict) or not all(type(offset) is int and offset >= 0 for offset in offsets.values()):
        raise OptionError(f'option {name}: {written!r}; write {", ".join(words)} or {{"STREAM": OFFSET}}')
    return offsets


def _number(name: str, values: Mapping[str, str], *, least: int = 1, most: int = 2**62) -> int:
    written = values.get(name, MEANINGS[name][0])
    number = int(written) if written.isascii() and written.isdigit() else -1
    if not least <= number <= most:
        bounds = f"from {least} on" if most > 1 << 32 else f"from {least} to {most}"
        raise OptionError(f"option {name}: {written!r} is no whole number {bounds}")
    return number


def _flag(name: str, values: Mapping[str, str]) -> bool:
    written = values.get(name, MEANINGS[name][0]).lower()
    if written not in {"true", "false"}:
        raise OptionError(f"option {name}: {written!r}; write true or false")
    return written == "true"
