"""Copies: a letter that a task means → what is published of it, and its event.

The letter keeps its id; its record says one redrive more, the task's id, and no attempts: it begins anew at its failed
queue. See docs/architecture.md ("Life of a letter").
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final
from zlib import crc32

from dlx_router.broker.consumer import Consumer
from dlx_router.core import publication
from dlx_router.core.letter import Letter
from dlx_router.core.publication import Publication, Way
from dlx_router.core.record import AT_REST_BYTES
from dlx_router.core.words import State
from dlx_router.journal import privacy
from dlx_router.journal.events import NO_BODY, Ruling
from dlx_router.journal.privacy import rule_of
from dlx_router.redrive.letter_edits import Edit, Value
from dlx_router.redrive.task import KINDS, Kind, Spec
from dlx_router.service.dispatch.events import letter_line
from dlx_router.service.inflight.decoder import Envelope
from dlx_router.service.inflight.in_force import InForce
from dlx_router.service.inflight.job import Job
from dlx_router.service.redrive.context import TaskContext
from dlx_router.wire import frames, properties, table

SHOWN_AS: Final = "dead_lettered"  # where the policy lets the journal keep a dead letter's body, an edited one's too


class Copies:
    """Makes jobs and events of one task. `tell_tasks`: who looks for tasks in the journal has to see the events."""

    tell_tasks = False

    def __init__(  # noqa: PLR0913 - what a copy says, and where it goes
        self,
        task_id: str,
        spec: Spec,
        *,
        router_id: str,
        return_exchange: str,
        parking: str,
        in_force: Callable[[], InForce],
        edit: Edit | None = None,
    ) -> None:
        self._task_id, self._spec = task_id, spec
        self._router_id, self._in_force = router_id, in_force
        self._edit = edit
        self._before: dict[int, tuple[Envelope, bytes]] = {}  # by delivery tag, of letters that are edited
        self._return, self._parking = return_exchange, parking

    def job(self, consumer: Consumer, delivery: frames.Delivery, letter: Letter, envelope: Envelope) -> Job:
        """The letter as the task will send it; its copy is made when the way is known."""
        job = Job(consumer, delivery, 0.0, self._in_force())
        job.letter = replace(
            letter,
            redrives=letter.redrives + (self._spec.kind is Kind.REDRIVE),
            possible_copy=letter.possible_copy or letter.state is None,  # an import may have told of it
        )
        job.envelope, job.policy = envelope, job.in_force.resolve(letter)
        if self._edit is not None:
            self._before[delivery.tag] = (envelope, delivery.body)
            job.delivery, job.envelope = edited(delivery, envelope, self._edit)
        return job

    def address(self, job: Job, return_key: str) -> None:
        """Give the job its copy; `return_key` is the binding that leads to the failed queue, "" by its plain name."""
        letter, envelope = job.letter, job.envelope
        assert letter is not None and envelope is not None  # noqa: PT018 - made by `job`
        policy = job.policy.policy if job.policy is not None else ""
        revision = job.in_force.policies.revision
        record = publication.redriven(
            letter, envelope.content, policy=policy, revision=revision, redrive_id=self._task_id
        )
        to = self._spec.to
        if self._spec.kind is Kind.PARK:
            job.copy = publication.to_parking(letter, replace(record, state=State.PARKED), self._parking)
        elif to is None:
            job.copy = publication.to_return(record, self._return, return_key)
        else:
            mode, priority = record.props.delivery_mode, record.props.priority
            job.copy = Publication(
                Way.TARGET,
                to.exchange,
                to.routing_key,
                record,
                AT_REST_BYTES,
                cc=(),
                delivery_mode=mode,
                priority=priority,
            )

    def events(self, job: Job, now_ms: int) -> list[bytes]:
        """The lines of the journal about this letter; the same for a letter that is sent again after a crash.

        An edited letter has two: `edited` tells it as it was, `redriven` as it goes.
        """
        assert job.envelope is not None
        after = self._event(job, KINDS[self._spec.kind], job.envelope, job.delivery.body, now_ms)
        before = self._before.pop(job.delivery.tag, None)
        return [after] if before is None else [self._event(job, "edited", *before, now_ms), after]

    def _event(self, job: Job, kind: str, envelope: Envelope, body: bytes, now_ms: int) -> bytes:
        letter, copy, rule = job.letter, job.copy, rule_of(job.policy)
        assert letter is not None
        ruling = Ruling(
            kind,
            0,
            self._router_id,
            policy=job.policy.policy if job.policy is not None else "",
            revision=job.in_force.policies.revision,
            exchange=None if copy is None else copy.exchange,
            routing_key="" if copy is None else copy.routing_key,
            redrive_id=self._task_id,
        )
        own = NO_BODY
        if letter.error is not None or not rule.is_plain:
            shown = kind if self._edit is None else SHOWN_AS
            own = privacy.disclosed(rule, shown, headers=envelope.props.headers, body=body, error=letter.error)
        return letter_line(letter, envelope, ruling, rule, ts_ms=now_ms, extra=own)


def copies_of(task_id: str, spec: Spec, context: TaskContext, edit: Edit | None = None) -> Copies:
    """Those of a task in these surroundings."""
    return Copies(
        task_id,
        spec,
        router_id=context.router_id,
        return_exchange=context.names.return_,
        parking=context.names.parking,
        in_force=context.in_force,
        edit=edit,
    )


def edited(delivery: frames.Delivery, envelope: Envelope, edit: Edit) -> tuple[frames.Delivery, Envelope]:
    """The delivery with the new body, and the envelope that fits it; every byte that is not edited is as it came."""
    body = delivery.body if edit.body is None else edit.body
    props, entries = envelope.props, envelope.found
    names = {_bytes(name) for name in edit.headers}
    headers = table.splice(props.headers, entries, names & entries.keys(), _entries(edit.headers))
    new = properties.parse(props.replaced(headers=headers), 0)
    content = replace(envelope.content, crc32=crc32(body), size=len(body))
    changed = envelope._replace(props=new, found=table.entries(new.headers), content=content)
    return delivery._replace(body=body), changed


def _entries(headers: Mapping[str, Value]) -> bytes:
    return b"".join(_entry(_bytes(name), value) for name, value in headers.items() if value is not None)


def _entry(name: bytes, value: Value) -> bytes:
    if isinstance(value, bool):
        return table.boolean(name, value)
    if isinstance(value, int):
        return table.long_(name, value)
    return table.longstr(name, _bytes(value or ""))


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")
