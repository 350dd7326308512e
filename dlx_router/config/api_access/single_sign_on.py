"""SSO_*: people whom a proxy in front of the console has logged in. Its word is taken from its address only.

The proxy says who asks and in which groups they are, in two headers. Whoever else sends these headers is a person like
any other, who logs in with a token. Off unless SSO_PROXIES names an address.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from dlx_router.config.api_access.passes import MAX_NAME
from dlx_router.config.api_access.tokens import Role
from dlx_router.config.api_access.trusted_proxies import TrustedProxies

HEADERS: Final = "X-Forwarded-User,X-Forwarded-Groups"
EVERYBODY: Final = "*"
MAX_GROUPS: Final = 1_000
SEPARATOR: Final = ","
_NAME: Final = re.compile(r"[a-z0-9-]+")


class Person(NamedTuple):
    """Somebody whom the proxy named; `role` None: in none of the groups that have one."""

    name: str
    role: Role | None


class SingleSignOn:
    """`proxies`, `roles` and `headers` as the settings have them."""

    def __init__(
        self, proxies: str | None, roles: str | None, headers: str = HEADERS, separator: str = SEPARATOR
    ) -> None:
        self._proxies, self._roles, self._separator = TrustedProxies(proxies), roles_of(roles, separator), separator
        self._user, self._groups = header_names(headers)

    @property
    def headers(self) -> frozenset[bytes]:
        """The names of the two headers, which nobody else's word may come in."""
        return frozenset({self._user, self._groups})

    def person(self, peer: str, headers: Iterable[tuple[bytes, bytes]]) -> Person | None:
        """Whom this request is of; None: the proxy did not send it, or names nobody that can be told."""
        if not self._proxies.trusts(peer):
            return None
        names = [value for name, value in headers if name == self._user]
        if len(names) != 1 or (name := _text(names[0]).strip()) == "" or len(name) > MAX_NAME or not name.isprintable():
            return None
        return Person(name, self._role(_text(value) for name, value in headers if name == self._groups))

    def _role(self, values: Iterable[str]) -> Role | None:
        """Return the highest role of the groups. Around commas spaces do not count: HTTP itself adds them."""
        names = [name for value in values for name in value.split(self._separator)][:MAX_GROUPS]
        groups = {name.strip() if self._separator == "," else name for name in names} | {EVERYBODY}
        return max((role for group, role in self._roles.items() if group in groups), default=None)


def roles_of(listed: str | None, separator: str = SEPARATOR) -> dict[str, Role]:
    """Return group → role of SSO_ROLES; the last `=` parts them. ValueError says which entry is wrong.

    A group whose name contains the separator is refused: the header cannot name it, so it would grant nothing.
    """
    roles = {}
    for entry in filter(None, map(str.strip, (listed or "").split(","))):
        group, equals, role = entry.rpartition("=")
        if not equals or not group.strip() or role.strip().upper() not in Role.__members__:
            raise ValueError(f"{entry!r}: write GROUP=ROLE, of viewer, operator, admin; *=viewer for everybody")
        if separator in (group := group.strip()):
            raise ValueError(f"{group!r} contains the separator of groups {separator!r}, so nobody can be in it")
        roles[group] = Role[role.strip().upper()]
    return roles


def checked_separator(separator: str) -> str:
    """Return the separator. ValueError where it is not one character that group names can do without."""
    if len(separator) != 1 or not separator.isprintable() or separator.isalnum():
        raise ValueError(f"{separator!r}: write the one character that your proxy puts between groups, as , or ; or |")
    return separator


def header_names(listed: str) -> tuple[bytes, bytes]:
    """Those of the user and of the groups, in lower case. ValueError where they are not two."""
    names = [name.strip().lower() for name in listed.split(",")]
    if len(names) != len({*names}) or len(names) != len(("user", "groups")) or not all(map(_NAME.fullmatch, names)):
        raise ValueError(f"{listed!r}: write the names of two headers, USER,GROUPS; the usual ones are {HEADERS}")
    return names[0].encode(), names[1].encode()


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
