"""The file of the index: its tables, and how it is opened. Anything but an index of ours is never touched.

SQLite 3.40 or newer, WAL: one process writes, any number read. A file that is ours and damaged is made anew.
"""

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Final

APPLICATION_ID: Final = 0x646C7872  # "dlxr"
VERSION: Final = 9  # another layout is made anew from the journal
FILE_NAME: Final = "index.sqlite"
_MAGIC: Final = b"SQLite format 3\x00"
_ID_AT: Final = 68
_OURS: Final = ".owner"  # stands beside the file, and says that even a damaged one is ours
_SIDES: Final = ("", "-wal", "-shm")

TABLES: Final = """
CREATE TABLE streams (vhost TEXT PRIMARY KEY, offset INTEGER NOT NULL, digest BLOB NOT NULL,
    events INTEGER NOT NULL, unread INTEGER NOT NULL, last_ms INTEGER NOT NULL);
CREATE TABLE gaps (event_id TEXT PRIMARY KEY, vhost TEXT, router_id TEXT, events INTEGER, from_ms INTEGER,
    to_ms INTEGER);
CREATE TABLE audits (event_id TEXT PRIMARY KEY, vhost TEXT, ts_ms INTEGER, actor TEXT, action TEXT, details TEXT,
    signature TEXT NOT NULL);
CREATE TABLE signatures (vhost TEXT, signature TEXT, events INTEGER NOT NULL, PRIMARY KEY (vhost, signature))
    WITHOUT ROWID;
CREATE INDEX audits_when ON audits (ts_ms);
CREATE INDEX audits_what ON audits (action, ts_ms);
CREATE TABLE queues (number INTEGER PRIMARY KEY, vhost TEXT NOT NULL, name TEXT NOT NULL, UNIQUE (vhost, name));
CREATE TABLE places (number INTEGER PRIMARY KEY, vhost TEXT NOT NULL, exchange TEXT NOT NULL,
    routing_key TEXT NOT NULL, UNIQUE (vhost, exchange, routing_key));
CREATE TABLE groups (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, queue INTEGER NOT NULL, reason TEXT,
    error_type TEXT, frame TEXT, message TEXT, first_ms INTEGER, last_ms INTEGER, deaths INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'open', state_ms INTEGER NOT NULL DEFAULT 0, until_ms INTEGER, note TEXT, actor TEXT);
CREATE TABLE letters (number INTEGER PRIMARY KEY, id TEXT NOT NULL, queue INTEGER NOT NULL,
    grp INTEGER NOT NULL, place INTEGER NOT NULL, state TEXT NOT NULL, reason TEXT, cause TEXT, policy TEXT,
    attempts INTEGER, redrives INTEGER, first_ms INTEGER, last_ms INTEGER, due_ms INTEGER, size INTEGER,
    message_id TEXT, serial INTEGER, copies INTEGER NOT NULL);
CREATE INDEX letters_group ON letters (grp, state);
CREATE INDEX letters_id ON letters (id);
CREATE TABLE steps (letter INTEGER, step TEXT, ts_ms INTEGER, kind TEXT, source TEXT, reason TEXT, cause TEXT,
    attempts INTEGER, redrives INTEGER, tries INTEGER, policy TEXT, revision TEXT, exchange TEXT, routing_key TEXT,
    refused TEXT, redrive_id TEXT, due_ms INTEGER, signature TEXT NOT NULL, PRIMARY KEY (letter, step)) WITHOUT ROWID;
CREATE INDEX steps_task ON steps (redrive_id, kind) WHERE redrive_id IS NOT NULL;
CREATE TABLE events (letter INTEGER PRIMARY KEY, shared BLOB, line BLOB, text TEXT NOT NULL);
CREATE TABLE bodies (letter INTEGER PRIMARY KEY, mode TEXT, sha256 TEXT, content_type TEXT, body BLOB);
CREATE TABLE comments (event_id TEXT PRIMARY KEY, letter INTEGER NOT NULL, ts_ms INTEGER, actor TEXT, text TEXT);
CREATE INDEX comments_letter ON comments (letter);
CREATE TABLE counts (grp INTEGER, place INTEGER, state TEXT, n INTEGER NOT NULL,
    PRIMARY KEY (grp, place, state)) WITHOUT ROWID;
CREATE VIRTUAL TABLE found USING fts5 (text, content='', columnsize=0, tokenize='unicode61');
INSERT INTO found (found, rank) VALUES ('automerge', 8);
"""


class IndexFileError(Exception):
    """The file cannot be used as an index; says which, why, and what now."""


class Damaged(Exception):
    """The file is ours and cannot be read; it is to be made anew."""


def place_of(path: str) -> Path:
    """The file that INDEX_PATH means: itself, or one in it where it is a folder."""
    named = Path(path)
    return named / FILE_NAME if path.endswith("/") or named.is_dir() else named


def open_writer(path: Path, *, max_bytes: int) -> sqlite3.Connection:
    """The index, made where it is absent, at most so large. Raises IndexFileError, Damaged, OperationalError."""
    _claim(path)
    connection = sqlite3.connect(path, isolation_level=None, timeout=10)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")  # what a power cut takes is read from the journal again
        connection.execute("PRAGMA cache_size = -65536")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA wal_autocheckpoint = 8192")  # pages that change often go to the file seldom
        connection.execute("PRAGMA journal_size_limit = 67108864")
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        connection.execute(f"PRAGMA max_page_count = {max_bytes // size}")
        _ensure(connection)
    except sqlite3.DatabaseError as error:
        connection.close()
        raise (error if is_passing(error) else Damaged(str(error))) from None
    except Damaged:
        connection.close()
        raise
    return connection


def open_reader(path: Path) -> sqlite3.Connection:
    """The index for reading, from any thread but one at a time. sqlite3.Error where there is none."""
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, check_same_thread=False, timeout=5)
    connection.row_factory = sqlite3.Row
    return connection


def is_passing(error: sqlite3.Error) -> bool:
    """Whether it is the disk or a lock, and not the file that is wrong."""
    name = getattr(error, "sqlite_errorname", "") or ""
    return name.startswith(("SQLITE_FULL", "SQLITE_BUSY", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN"))


def identity(path: Path) -> int | None:
    """The file that is there: another number is another file. None: there is none, or it is no database any more.

    SQLite may not look at a page for hours that it has in memory; readers do.
    """
    try:
        with path.open("rb") as opened:
            return os.fstat(opened.fileno()).st_ino if opened.read(len(_MAGIC)) == _MAGIC else None
    except OSError:
        return None


def remove(path: Path) -> None:
    """The file goes, so that it can be made anew; only one that `open_writer` has claimed."""
    for side in _SIDES:
        with suppress(FileNotFoundError):
            Path(f"{path}{side}").unlink()


def _claim(path: Path) -> None:
    """Refuse what is not ours; say on disk that from now on it is."""
    marker = Path(f"{path}{_OURS}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as opened:
            opened.seek(0)
            head = opened.read(100)
        ours = head[:16] == _MAGIC and int.from_bytes(head[_ID_AT : _ID_AT + 4]) == APPLICATION_ID
        if head and not ours and not marker.exists():
            raise IndexFileError(f"INDEX_PATH {path}: this is no index of the router; name another file")
        marker.touch()
    except OSError as error:
        raise IndexFileError(f"INDEX_PATH {path}: {error.strerror}; name a file that can be written") from None


def _ensure(connection: sqlite3.Connection) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == VERSION:
        connection.execute("SELECT count(*) FROM streams").fetchone()
        connection.execute("CREATE INDEX IF NOT EXISTS audits_what ON audits (action, ts_ms)")  # a file of before
        return
    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise Damaged(f"layout {version}, not {VERSION}")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.executescript(f"BEGIN; {TABLES} PRAGMA user_version = {VERSION}; COMMIT;")
