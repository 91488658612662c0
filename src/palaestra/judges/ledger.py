"""What was asked, what it took and what was said, in a file that is written before anything is paid for.

SQLite with a write-ahead log: whatever happens to the process, what was written is there. A row is written before a
request is sent and completed when its answer is there; one that was never completed may have been paid for, so it
counts as the most it can have taken, and is not sent again unless somebody says so. Neither prompts nor keys are kept.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from palaestra.algebra.files import refuse_link
from palaestra.errors import DamagedFileError, StorageError
from palaestra.judges.asking import Reply

State = Literal["sent", "said", "lost", "refused"]
SENT: Final = "sent"
SAID: Final = "said"
LOST: Final = "lost"
REFUSED: Final = "refused"
"""States of a call: under way; answered; perhaps seen, no answer came; refused, so nothing was paid."""

_TABLE = """CREATE TABLE IF NOT EXISTS calls (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL, state TEXT NOT NULL, tokens_in INTEGER NOT NULL,
    tokens_out INTEGER NOT NULL, cost REAL NOT NULL, seconds REAL NOT NULL DEFAULT 0, answer TEXT, error TEXT)"""
_ROWS = 500


@dataclass
class Spent:
    """Requests that were sent, tokens of both directions and price; what nobody knows counts as the most it can be."""

    calls: int = 0
    tokens: int = 0
    cost: float = 0.0


class Ledger:
    """The calls of one or many runs, by the digest of what was sent. One process writes at a time.

    path: None keeps them in memory. `spent`: all of its calls.

    Raises:
        DamagedFileError: the file is something else.
        StorageError: it cannot be written, it is a link, or another process has it.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = path
        try:
            if path is not None:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                for end in ("", "-wal", "-shm", "-journal"):  # SQLite writes to these
                    refuse_link(f"{path}{end}")
            self._base = sqlite3.connect(str(path or ":memory:"), isolation_level=None, timeout=1.0)
            self._base.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._base.execute("PRAGMA journal_mode=WAL")
            self._base.execute("PRAGMA synchronous=NORMAL")
            self._base.execute(_TABLE)
            self._base.execute("CREATE INDEX IF NOT EXISTS by_key ON calls (key)")
            self._base.execute("UPDATE calls SET state = ? WHERE state = ?", (LOST, SENT))
            found = self._base.execute("SELECT count(*), sum(tokens_in + tokens_out), sum(cost) FROM calls").fetchone()
        except sqlite3.OperationalError as error:
            why = "another process has it" if "locked" in str(error) else str(error)
            raise StorageError(f"{path}: cannot be used as a ledger of calls ({why})") from error
        except (sqlite3.DatabaseError, OSError) as error:
            raise DamagedFileError(f"{path}: not a ledger of calls ({error})") from error
        self.spent = Spent(found[0], found[1] or 0, found[2] or 0.0)

    def known(self, keys: Sequence[str]) -> dict[str, Reply]:
        """What came of these: answers, and calls that are lost; those that were refused may be sent again."""
        found: dict[str, Reply] = {}
        for begin in range(0, len(keys), _ROWS):
            some = keys[begin : begin + _ROWS]
            query = (
                f"SELECT key, state, answer, error FROM calls WHERE key IN ({','.join('?' * len(some))}) ORDER BY id"
            )
            for key, state, answer, error in self._base.execute(query, some):
                if state == SAID or (state == LOST and key not in found):
                    why = error or ("no answer came before its run ended" if state == LOST else None)
                    found[key] = Reply(answer, why, known=True)
        return found

    def send(self, key: str, most_in: int, most_out: int, cost: float) -> int:
        """Write that a call is under way and what it can take at most; its number. Call this and `commit` before."""
        self._add(1, most_in + most_out, cost)
        query = "INSERT INTO calls (key, state, tokens_in, tokens_out, cost) VALUES (?, ?, ?, ?, ?)"
        return int(self._write(query, (key, SENT, most_in, most_out, cost)).lastrowid or 0)

    def settle(self, number: int, state: State, reply: Reply, held: Spent) -> None:
        """Write what came of a call. held: what `send` was told; a lost one keeps it."""
        took = (held.tokens, 0, held.cost) if state == LOST else (reply.tokens_in, reply.tokens_out, reply.cost)
        self._add(0, took[0] + took[1] - held.tokens, took[2] - held.cost)
        columns = ("state", "seconds", "answer", "error", "tokens_in", "tokens_out", "cost")
        query = f"UPDATE calls SET {', '.join(f'{name} = ?' for name in columns)} WHERE id = ?"
        self._write(query, (state, reply.duration, reply.text, reply.error, *took, number))

    def commit(self) -> None:
        """Make sure of all that was written; a call that `send` wrote down may be sent now."""
        if self._base.in_transaction:
            self._write("COMMIT")

    def close(self) -> None:
        """Let others have the file."""
        self.commit()
        self._base.close()

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
