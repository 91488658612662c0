"""`Investigation`: an analyst asks a log store in SQL until it knows what an attacker touched (ExCyTIn-Bench).

Incidents are made up; questions, paths and answers come from `worlds.exact.investigation`. SQL runs in SQLite in
memory, read-only, with a limit on work. Left out: the published data, and judgement of answers by a language model.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.exact.investigation import Question, incident, questions, right_answer
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError
from palaestra.rewards.paths import path_credit

ROWS, WORK, LONGEST_QUERY, LONGEST_VALUE = 15, 200_000, 10_000, 1000
"""Rows shown of a result; steps of SQLite's machine that a query may take; characters of it, and bytes of any value."""
SCHEMA = "alerts(alert, day), evidence(alert, kind, entity)"


@dataclass
class _InvestigationState:
    number: int
    question: Question
    log: list[str] = field(default_factory=list)
    found: list[bool] = field(default_factory=list)  # which steps of the solution were seen
    paid: float = 0.0
    over: bool = False


@ENVS.register("native/investigation")
class Investigation(NativeEnv):
    """Incident analysis env: `analyst` queries a database by SQL; a right answer pays 1, else Σ γ^i of steps found.

    It has at most `steps` turns.

    The return is 1 for the right answer, else γ^i for the i-th step before the answer that a result has shown and its
    query did not name. Who reads the whole store is paid for all of it. In the end info has `steps_found` and `score`.
    """

    agents: tuple[str, ...] = ("analyst",)
    facts = {"score": float, "steps_found": int}

    def __init__(
        self,
        *,
        alerts: int = 8,
        entities: int = 14,
        steps: int = 25,
        gamma: float = 0.4,
        dense: bool = False,
        incidents: int | None = None,
    ) -> None:
        """Set up the store.

        Args:
            alerts: alerts of an incident, at least 2.
            entities: entities of an incident, at least 4.
            steps: actions that the analyst has.
            gamma: see above; 0 pays the answer alone.
            dense: pay each step of the solution in the turn that first shows it (the same return).
            incidents: draw from only so many; None makes a new one for every seed.
        """
        if alerts < 2 or entities < 4 or steps < 1 or not 0 <= gamma <= 1 or (incidents is not None and incidents < 1):
            raise InputError(
                f"Investigation: need alerts={alerts} >= 2, entities={entities} >= 4, steps={steps} >= 1, "
                f"gamma={gamma} in [0, 1], incidents={incidents} >= 1, or None"
            )
        self.alerts, self.entities, self.steps, self.gamma, self.dense = alerts, entities, steps, gamma, dense
        self.incidents = incidents
        self._store: tuple[int, sqlite3.Connection] | None = None

    def begin(self) -> tuple[str, _InvestigationState]:
        """Draw the incident and the question about it."""
        number = int(self.rng.integers(2**31 if self.incidents is None else self.incidents))
        while not (asked := self._questions(number)):  # a small one can have nothing to ask
            number += 1
        choice = int(self.rng.integers(len(asked)))
        question = asked[choice]
        return f"investigation:{number}:{choice}", _InvestigationState(
            number, question, found=[False] * len(question.solution)
        )

    def _questions(self, number: int) -> list[Question]:
        try:
            return questions(self._incident(number), 20, np.random.default_rng(number))
        except InputError:
            return []

    def _incident(self, number: int) -> dict[str, tuple[str, ...]]:
        return incident(self.alerts, self.entities, np.random.default_rng(number))

    def look(self) -> dict[str, Observation]:
        """Observation of the analyst: the question, and all queries with their results."""
        state = self.state
        if state.over:
            return {}
        question = state.question
        kind = question.answer.split(":")[0]
        text = (
            f"{question.start_alert} named {', '.join(question.start)}. Which {kind} does the related alert "
            f"{question.end_alert} name? Tables: {SCHEMA}. Send one SELECT, or `answer: {kind}:…`."
        )
        return {"analyst": Observation("\n".join([text, *state.log]))}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Run a query, or score the answer."""
        state, text = self.state, str(chosen["analyst"] or "")
        answering = text.casefold().startswith("answer:")
        right = answering and right_answer(text[len("answer:") :], state.question.answer)
        valid = answering
        if not answering:
            rows, complaint = self._query(text)
            valid = complaint is None
            shown = complaint or "\n".join(" ".join(map(str, row)) for row in rows) or "no rows"
            state.log.append(f"> {' '.join(text.split())[:300]}\n{shown}")
            seen = {str(value) for row in rows for value in row}
            new = [step in seen and step not in text for step in state.question.solution]
            state.found = [had or step for had, step in zip(state.found, new, strict=True)]
        else:
            state.log.append(f"> {text[:300]}")
        state.over = answering or len(state.log) >= self.steps
        credit = float(path_credit([*state.found[:-1], right], self.gamma)) if self.gamma else float(right)
        info: dict[str, Any] = {"valid": {"analyst": valid}}
        reward = 0.0
        if state.over or self.dense:
            reward, state.paid = credit - state.paid, credit
        if state.over:
            info |= {"success": bool(right), "score": credit, "steps_found": sum(state.found[:-1])}
        return {"analyst": reward}, info

    def _query(self, text: str) -> tuple[list[tuple[Any, ...]], str | None]:
        """Rows, and what is wrong with the query."""
        if not text:
            return [], "error: nothing was asked"
        store = self._open()
        try:
            return store.execute(text).fetchmany(ROWS), None
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
            return [], f"error: {error}"

    def _open(self) -> sqlite3.Connection:
        number = self.state.number
        if self._store is None or self._store[0] != number:
            store = sqlite3.connect(":memory:", check_same_thread=False)
            store.execute("CREATE TABLE alerts (alert TEXT, day INTEGER)")
            store.execute("CREATE TABLE evidence (alert TEXT, kind TEXT, entity TEXT)")
            for day, (alert, entities) in enumerate(self._incident(number).items()):
                store.execute("INSERT INTO alerts VALUES (?, ?)", (alert, day))
                rows = [(alert, entity.split(":")[0], entity) for entity in entities]
                store.executemany("INSERT INTO evidence VALUES (?, ?, ?)", rows)
            store.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, LONGEST_QUERY)
            store.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
            store.set_authorizer(_authorise)
            self._store = (number, store)
        store = self._store[1]
        budget = iter(range(WORK // 1000))
        store.set_progress_handler(lambda: int(next(budget, None) is None), 1000)
        return store


def _authorise(action: int, first: str | None, second: str | None, *_: Any) -> int:
    """Reading only, and no function that makes big values."""
    reading = action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ)
    harmless = ("count", "min", "max", "sum", "avg", "lower", "upper", "length", "substr", "like", "instr")
    function = action == sqlite3.SQLITE_FUNCTION and str(second).casefold() in harmless
    return sqlite3.SQLITE_OK if reading or function else sqlite3.SQLITE_DENY
