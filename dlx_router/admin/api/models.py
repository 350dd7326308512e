"""The shapes of the API. Times are ms since 1970; null: not known, or there is none."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from dlx_router.core.signature import Signature

LetterState = Literal[
    "retrying",
    "held",
    "released",
    "dead",
    "parked",
    "quarantined",
    "discarded",
    "redriven",
    "edited",
    "retired",
    "gone",
]
Outcome = Literal["recovered", "open", "held", "dead_lettered", "parked", "quarantined", "discarded", "retired"]
GroupState = Literal["open", "ignored", "resolved"]


class Target(BaseModel):
    """Where a letter was published to for good."""

    exchange: str
    routing_key: str


class Letter(BaseModel):
    """A letter, as its newest event left it."""

    id: str
    vhost: str
    failed_queue: str
    group: str
    state: LetterState
    reason: str
    cause: str | None
    policy: str | None
    attempts: int
    redrives: int
    first_ms: int
    last_ms: int
    due_ms: int | None
    size: int
    message_id: str | None
    serial: int | None = Field(None, description="Tells it from messages that are equal byte for byte.")
    copies: int = Field(0, description="So many more copies of it there may be: a router was killed as it handled it.")
    target: Target | None
    sent_to: Target | None  # where the last redrive sent it, as long as it did not come back
    outcome: Outcome | None  # did it help: recovered, open (too early to say), or how it ended; see docs/operate.md
    cursor: int


AsOf = Annotated[
    dict[str, int | None],
    Field(description="Until when this router's index has the journal of a vhost, ms; null: it does not read it now."),
]


class Letters(BaseModel):
    """A page of letters; `next` is the cursor of the page after it."""

    letters: list[Letter]
    next: str | None
    as_of: AsOf = {}


class KeyInForce(BaseModel):
    """A key of a policy, its value as text, and the line that set it, or default."""

    key: str
    value: str
    set_by: str


class Step(BaseModel):
    """A step of a letter's journey: what was decided, and when."""

    ts_ms: int
    kind: str
    source: str
    reason: str
    cause: str | None
    attempts: int | None
    redrives: int | None
    tries: int | None
    due_ms: int | None
    policy: str | None
    exchange: str | None
    routing_key: str | None
    refused: str | None
    redrive_id: str | None
    outcome: Literal["done", "refused"] | None = Field(
        None, description="Of a step that sends the letter: whether the target took it, as far as the journal tells."
    )
    outcome_cause: str | None = None
    outcome_refused: str | None = Field(None, description="Exchange or queue that did not take it.")
    signature: Signature  # whether a router is known to have written the event
    revision: str | None = None  # of the policies that decided
    rules: list[KeyInForce] = []  # the keys that decided and who set each, while that revision is in force


class Body(BaseModel):
    """What is known of a body. `form` says what `content` is; null content: `why` says why."""

    form: Literal["json", "text", "hex", "none"]
    content: Any
    is_whole: bool
    content_type: str | None
    sha256: str | None
    why: str | None


class Comment(BaseModel):
    """What somebody noted on a letter."""

    ts_ms: int
    actor: str
    text: str


class NewComment(BaseModel, extra="forbid"):
    """A note on a letter. It stands in the journal: write no secrets."""

    text: str = Field(min_length=1, max_length=2000, pattern=r"\S")


class Comments(BaseModel):
    """The notes on a letter, the oldest first."""

    comments: list[Comment]


class Parked(BaseModel):
    """Why a letter is in parking or quarantine, and what to do about it."""

    why: str
    resolve: str


class WholeLetter(Letter):
    """A letter with its journey, its newest event as the journal has it, and its body as far as that is known."""

    journey: list[Step]
    comments: list[Comment] = []
    parked: Parked | None = None
    event: dict[str, Any] | None
    body: Body


class LetterCopies(BaseModel):
    """The letter, once for each failed queue that a copy of it died in."""

    letters: list[WholeLetter]


class Group(BaseModel):
    """Letters that died of the same thing. `returned`: it was resolved, and had a death since."""

    id: str
    vhost: str
    failed_queue: str
    reason: str
    error_type: str
    frame: str
    message: str
    first_ms: int
    last_ms: int
    deaths: int
    lying: int
    states: dict[str, int]
    state: GroupState
    until_ms: int | None
    returned: bool
    note: str | None
    actor: str | None


class Groups(BaseModel):
    """A page of groups; `next` is the offset of the page after it."""

    groups: list[Group]
    next: int | None
    as_of: AsOf = {}


class GroupChange(BaseModel, extra="forbid"):
    """What is to be changed; what is not named stays. `until_ms` belongs to ignored."""

    state: GroupState | None = None
    until_ms: int | None = Field(None, ge=0, le=2**53)
    note: str | None = Field(None, max_length=2000)


class FailedQueue(BaseModel):
    """A queue whose letters the index knows.

    `oldest_ms`: since when the letter rests that rests longest, as far as the first of each group tell. `policy`: what
    is in force for letters that are rejected there. `breaker`: of the router that leads; null: no policy asks for one,
    or nothing died since it started.
    """

    vhost: str
    failed_queue: str
    states: dict[str, int]
    last_ms: int
    oldest_ms: int | None
    policy: str | None
    breaker: Literal["closed", "half_open", "open"] | None


class Place(BaseModel):
    """Where letters lie: how many the index counts, and how many the queue held at the last look."""

    vhost: str
    exchange: str
    routing_key: str
    queue: str | None
    indexed: int
    depth: int | None
    checked_ms: int | None


class Queues(BaseModel):
    """Where letters failed, and where they lie."""

    failed: list[FailedQueue]
    lying: list[Place]
    signatures: dict[str, dict[str, int]]  # by vhost: how many events of the journal have which signature
    as_of: AsOf = {}


class Policy(BaseModel):
    """A policy in force."""

    name: str
    vhost: str | None
    selects: str
    priority: int
    file: str
    keys: dict[str, str]


class Policies(BaseModel):
    """The policies in force."""

    revision: str
    policies: list[Policy]


class Explanation(BaseModel):
    """What is in force for a queue: each key, its value and who set it.

    `queue_type` null: no policy asks for it, or the router does not know it (the queue is new, or not there); policies
    for one type that would hold then are in `left_out`.
    """

    vhost: str
    queue: str
    queue_type: str | None = None
    left_out: list[str] = []
    revision: str
    policies: list[str]
    keys: list[KeyInForce]


class Audit(BaseModel):
    """What somebody did."""

    event_id: str
    vhost: str
    ts_ms: int
    actor: str
    action: str
    details: dict[str, Any]
    signature: Signature  # whether a router is known to have written it
    cursor: str


class Audits(BaseModel):
    """The newest come first; `next` is the cursor of the page after it."""

    audits: list[Audit]
    next: str | None
    as_of: AsOf = {}


class Import(BaseModel, extra="forbid"):
    """Which queue's letters are to be known to the index, and at most how many."""

    queue: str = Field(min_length=1, max_length=255)
    limit: int = Field(10_000, ge=1, le=100_000)


class Imported(BaseModel):
    """How many were read, and how many of them are no letters."""

    read: int
    unreadable: int


class Who(BaseModel):
    """Who asks, as the router knows them by their token; null: no limit."""

    name: str
    role: Literal["viewer", "operator", "admin"]
    vhost: str | None
    match: str | None


class Status(BaseModel):
    """How this router and its index are."""

    router_id: str
    version: str
    who: Who
    vhosts: dict[str, dict[str, Any]]
    index: dict[str, Any]
    tokens: dict[str, Any]
