"""The lines that `permissions` prints: for a user that exists they only add; for one that is not known, comments.

`rabbitmqctl set_permissions` and `set_user_tags` replace what the user has. A line that can be pasted never takes
anything away.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dlx_router.broker.management import ManagementError
from dlx_router.broker.rights import Account, Rights
from dlx_router.config.rights import merge
from dlx_router.config.rights.permissions import Grant

_NOTHING: Final = ("^$", "^$", "^$")


@dataclass(frozen=True, slots=True)
class User:
    """What is known of a user. `unknown`: why nothing is; `account` None then, and where there is no such user."""

    name: str
    account: Account | None = None
    unknown: str = ""

    def has(self, vhost: str) -> Mapping[str, str] | None:
        """Its rights there; None where it has none, or they are not known."""
        return (self.account.permissions or {}).get(vhost) if self.account is not None else None

    @property
    def lacks_word(self) -> str:
        """Why its rights are not known; "" where they are."""
        if self.account is not None and self.account.permissions is None:
            return "only an administrator may ask for them"
        return self.unknown


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is printed for a shell, and the warnings that go with it."""

    lines: tuple[str, ...]
    warnings: tuple[str, ...] = field(default=())


async def known(rights: Rights | None, name: str, asking: str) -> User:
    """What the management API tells of a user. `asking`: the user that asks it; `rights` None: there is no API."""
    if rights is None:
        return User(name, unknown="no MANAGEMENT_URL")
    try:
        return User(name, await rights.account(name))
    except ManagementError as error:
        why = str(error)
    try:
        return User(name, await rights.asking()) if name == asking else User(name, unknown=why)
    except ManagementError:
        return User(name, unknown=why)


def expressions(user: User, grant: Grant) -> tuple[str, ...]:
    """Configure, write and read with what the user has already, where that is known."""
    return merge.rights(user.has(grant.vhost) or {}, grant)


def written(user: User, grants: Sequence[Grant], tag: str) -> Recipe:
    """For the user whose rights are meant. `tag` "": it needs none."""
    add = f"# {shlex.join(['rabbitmqctl', 'add_user', user.name])}  # where the user is new; asks for the password"
    lines = [] if user.account is not None else [add]
    lines += [line for grant in grants for line in _rights(user, grant.vhost, expressions(user, grant))]
    return Recipe((*lines, *(_tag(user, tag) if tag else ())), tuple(_warned(user, grants)))


def reading(user: User, grants: Sequence[Grant]) -> Recipe:
    """For another user, that only reads the management API: access to the vhosts, no rights on messages."""
    lines = [*_tag(user, merge.MONITORING)]
    for grant in grants:
        if user.has(grant.vhost) is None:
            lines += _rights(user, grant.vhost, _NOTHING)
    return Recipe(tuple(lines), tuple(_warned(user, grants)))


def _rights(user: User, vhost: str, wanted: Sequence[str]) -> Iterator[str]:
    line = shlex.join(["rabbitmqctl", "set_permissions", "--vhost", vhost, user.name, *wanted])
    had = user.has(vhost)
    if user.lacks_word:
        yield f"# {line}"
    elif had is not None and tuple(had[right.value] for right in merge.ORDER) == tuple(wanted):
        yield f"# {line}  # it has these rights already"
    else:
        yield line


def _tag(user: User, tag: str) -> Iterator[str]:
    had = () if user.account is None else user.account.tags
    wanted = merge.tags(had, tag)
    line = shlex.join(["rabbitmqctl", "set_user_tags", user.name, *wanted])
    if user.unknown:
        yield f"# {line}"
    elif had == wanted:
        yield f"# {line}  # {'it has it already' if tag in had else 'its tags are enough'}"
    else:
        yield line


def _warned(user: User, grants: Sequence[Grant]) -> Iterator[str]:
    """Whatever is not known stands as a comment, with the reason; what was added to is said."""
    if user.lacks_word:
        yield (
            f"What user {user.name} has already is not known ({user.lacks_word}), so lines about it are comments: they "
            f"set its rights and tags, and take away what is not in them. Paste them for a new user only, or add what "
            f"it has; MANAGEMENT_URL with an administrator prints lines that only add."
        )
    elif any(user.has(grant.vhost) for grant in grants):
        yield f"User {user.name} exists: its lines hold the rights and tags that it has, and add what it needs."
