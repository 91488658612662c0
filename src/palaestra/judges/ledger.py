"""Ledger of judge calls: question, cost and answer, in a file that is written before anything is paid for.

SQLite with a write-ahead log: whatever happens to the process, what was written is there. A row is written before a
request is sent and completed when its answer is there; one that was never completed may have been paid for, so it
counts as the most it can have taken, and is not sent again unless somebody says so. Neither prompts nor keys are kept.
Every row has a checksum, so that neither an edited answer nor an edited price is believed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from palaestra.errors import DamagedFileError, StorageError
from palaestra.foundation.checksums import digest
from palaestra.foundation.files import refuse_link
from palaestra.judges.asking import Reply

State = Literal["sent", "said", "lost", "refused"]
SENT: Final = "sent"
SAID: Final = "said"
LOST: Final = "lost"
REFUSED: Final = "refused"
"""States of a call: under way; answered; perhaps seen, no answer came; refused, so nothing was paid."""

_TABLE = """CREATE TABLE IF NOT EXISTS calls (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL, state TEXT NOT NULL, tokens_in INTEGER NOT NULL,
    tokens_out INTEGER NOT NULL, cost REAL NOT NULL, seconds REAL NOT NULL, answer TEXT, error TEXT,
    checksum TEXT NOT NULL)"""
_COLUMNS = ("key", "state", "tokens_in", "tokens_out", "cost", "seconds", "answer", "error")
"""What a row's checksum covers."""
_READ = f"SELECT {', '.join(_COLUMNS)} FROM calls"
_SETTLED = ("state", "tokens_in", "tokens_out", "cost", "seconds", "answer", "error", "checksum")
_SIZE = "coalesce(sum(length(CAST(answer AS BLOB))), 0)"
_ROWS = 500
_OUTSIDE = ("BUSY", "LOCKED", "CANTOPEN", "READONLY", "IOERR", "FULL", "PERM", "AUTH")
"""SQLite's errors that say nothing about what the file holds."""


@dataclass
class LedgerTotal:
    """Data of totals of calls: requests sent, tokens in both directions, price; unknown amounts as their maximum."""

    calls: int = 0
    tokens: int = 0
    cost: float = 0.0


class Ledger:
    """Persistent store of paid model calls in a file, by the digest of each request. One process writes at a time.

    Args:
        path: The file; None keeps the calls in memory.
        limit: Most bytes of answers that are kept; beyond it the oldest calls are deleted, a tenth of the limit at a
            time, and are no longer part of what a reopened file has `spent`. None: all are kept.

    Attributes:
        spent: What all calls of the file took.

    Raises:
        DamagedFileError: The file is something else or damaged, or a row was changed after it was written.
        StorageError: The file cannot be written, is a link, or another process has it.
    """

    def __init__(self, path: str | Path | None = None, *, limit: int | None = None) -> None:
        self.path, self.limit = path, limit
        try:
            if path is not None:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                for end in ("", "-wal", "-shm", "-journal"):  # SQLite writes to these
                    refuse_link(f"{path}{end}")
            where = str(path or ":memory:")
            self._base = sqlite3.connect(where, isolation_level=None, timeout=1.0, check_same_thread=False)
        except (sqlite3.Error, OSError) as error:
            raise self._unusable(error) from error
        try:
            self._base.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._base.execute("PRAGMA journal_mode=WAL")
            self._base.execute("PRAGMA synchronous=NORMAL")
            self._base.execute(_TABLE)
            self._base.execute("CREATE INDEX IF NOT EXISTS by_key ON calls (key)")
            (fault,) = self._base.execute("PRAGMA integrity_check(1)").fetchone()
            if fault != "ok":  # e.g. an index that lacks answers, so that they would be paid for twice
                raise sqlite3.DatabaseError(fault)
            self.spent = self._checked()
            self._bytes = int(self._base.execute(f"SELECT {_SIZE} FROM calls").fetchone()[0])
        except (sqlite3.Error, DamagedFileError) as error:
            self._base.close()  # its lock would keep out whoever mends the file
            if isinstance(error, DamagedFileError):
                raise
            raise self._unusable(error) from error

    def known(self, keys: Sequence[str]) -> dict[str, Reply]:
        """Replies to these questions so far: answers, and calls that are lost. Refused ones may be sent again.

        Each has the tokens, the cost and the seconds of all calls of its question.

        Raises:
            DamagedFileError: The file was damaged since it was opened.
        """
        found: dict[str, Reply] = {}
        try:
            for begin in range(0, len(keys), _ROWS):
                some = keys[begin : begin + _ROWS]
                query = f"{_READ} WHERE state IN (?, ?) AND key IN ({','.join('?' * len(some))}) ORDER BY id"
                for row in self._base.execute(query, (SAID, LOST, *some)):
                    key, state, tokens_in, tokens_out, cost, seconds, answer, error = row
                    reply = found.setdefault(key, Reply(known=True))
                    reply.tokens_in, reply.tokens_out = reply.tokens_in + tokens_in, reply.tokens_out + tokens_out
                    reply.cost, reply.duration = reply.cost + cost, reply.duration + seconds
                    if state == SAID or reply.text is None:
                        why = error or ("no answer came before its run ended" if state == LOST else None)
                        reply.text, reply.error = answer, why
        except sqlite3.Error as error:
            raise self._unusable(error) from error
        return found

    def send(self, key: str, most_in: int, most_out: int, cost: float) -> int:
        """Record a call before it is sent, with its maximal tokens and cost; returns its number. `commit` follows."""
        self._add(1, most_in + most_out, cost)
        row = (key, SENT, most_in, most_out, float(cost), 0.0, None, None)
        query = f"INSERT INTO calls ({', '.join(_COLUMNS)}, checksum) VALUES ({','.join('?' * (len(row) + 1))})"
        return int(self._write(query, (*row, _checksum(row))).lastrowid or 0)

    def settle(self, number: int, key: str, state: State, reply: Reply, held: LedgerTotal) -> None:
        """Record the outcome of a call that `send` recorded; a lost call keeps its maximum, `held`, as its price."""
        took = (held.tokens, 0, held.cost) if state == LOST else (reply.tokens_in, reply.tokens_out, reply.cost)
        self._add(0, took[0] + took[1] - held.tokens, took[2] - held.cost)
        row = (key, state, *took[:2], float(took[2]), float(reply.duration), reply.text, reply.error)
        query = f"UPDATE calls SET {', '.join(f'{name} = ?' for name in _SETTLED)} WHERE id = ?"
        self._write(query, (*row[1:], _checksum(row), number))
        self._bytes += len((reply.text or "").encode(errors="replace"))
        if self.limit is not None and self._bytes > self.limit:
            self._forget_oldest(self.limit // 10)

    def commit(self) -> None:
        """Write all that was recorded to disk; a call that `send` recorded may be sent after this."""
        if self._base.in_transaction:
            self._write("COMMIT")

    def close(self) -> None:
        """Commit and close the file, so that another process can write it."""
        self.commit()
        self._base.close()

    def _forget_oldest(self, size: int) -> None:
        """Delete the oldest settled calls, whose answers have so many bytes together; the newest call stays."""
        size_of = "sum(length(CAST(coalesce(answer, '') AS BLOB)))"
        older = f"SELECT id, {size_of} OVER (ORDER BY id) AS size FROM calls WHERE state <> ?"
        last = f"SELECT min(id) FROM ({older}) WHERE size >= ?"
        newest = "SELECT max(id) FROM calls"
        self._write(
            f"DELETE FROM calls WHERE state <> ? AND id <= coalesce(({last}), 0) AND id < ({newest})",
            (SENT, SENT, size),
        )
        self._bytes = int(self._base.execute(f"SELECT {_SIZE} FROM calls").fetchone()[0])

    def _checked(self) -> LedgerTotal:
        """Check every row and sum what the calls took. Calls that were under way become lost ones."""
        spent, lost = LedgerTotal(), []
        for number, checksum, *row in self._base.execute(_READ.replace("SELECT", "SELECT id, checksum,", 1)):
            if checksum != _checksum(row):
                raise DamagedFileError(
                    f"{self.path}: row {number} of calls was changed after it was written. Restore the file from a "
                    f"backup, or delete the row, and its question is asked and paid for again: "
                    f'sqlite3 "{self.path}" "DELETE FROM calls WHERE id = {number}"'
                )
            spent.calls, spent.tokens, spent.cost = spent.calls + 1, spent.tokens + row[2] + row[3], spent.cost + row[4]
            if row[1] == SENT:
                row[1] = LOST
                lost.append((LOST, _checksum(row), number))
        self._base.executemany("UPDATE calls SET state = ?, checksum = ? WHERE id = ?", lost)
        return spent

    def _unusable(self, error: Exception) -> StorageError:
        """Error for a file that SQLite cannot use."""
        name = getattr(error, "sqlite_errorname", "").removeprefix("SQLITE_")
        if name.startswith(_OUTSIDE) or isinstance(error, OSError):
            why = "another process has it" if name.startswith(("BUSY", "LOCKED")) else str(error)
            return StorageError(f"{self.path}: cannot be used as a ledger of calls ({why})")
        return DamagedFileError(
            f"{self.path}: not a ledger of calls, or a damaged one ({' '.join(str(error).split())}). Restore it from a "
            "backup, or name another file; what only this one knows is then asked and paid for again"
        )

    def _add(self, calls: int, tokens: int, cost: float) -> None:
        self.spent.calls, self.spent.tokens = self.spent.calls + calls, self.spent.tokens + tokens
        self.spent.cost += cost

    def _write(self, query: str, values: tuple[object, ...] = ()) -> sqlite3.Cursor:
        try:
            if not self._base.in_transaction:
                self._base.execute("BEGIN")
            return self._base.execute(query, values)
        except sqlite3.Error as error:
            raise StorageError(f"{self.path}: cannot write the ledger of calls ({error})") from error


def _checksum(row: Sequence[object]) -> str:
    return digest(dict(zip(_COLUMNS, row, strict=True)))
