"""Trainers whose groups meet opponents of a league. What a league knows is part of every checkpoint."""

from __future__ import annotations

from typing import Any

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import EnvFactory, Observation
from palaestra.errors import InputError
from palaestra.learning.alarms import Line
from palaestra.learning.league.population import League
from palaestra.learning.phases import PhasedTrainer
from palaestra.learning.trainer import Trainer
from palaestra.play.engine import Seats
from palaestra.play.executors import Executor, Plan

FOLDER = "league"
"""Folder of the pay-offs in the directory of a training."""


class _Opponents:
    """Executor that plays the learner's plan in a league, and anything else as it is."""

    def __init__(self, league: League, executor: Executor) -> None:
        self.league, self.executor, self.planned = league, executor, Plan(1)

    def play(self, env: EnvFactory, team: Seats, plan: Plan) -> Turns:
        if plan is self.planned:
            return self.league.play(env, plan, self.executor)
        return self.executor.play(env, team, plan)

    def starts(self, env: EnvFactory, plan: Plan) -> list[Observation | None]:
        return self.executor.starts(env, plan)

    def close(self) -> None:
        self.executor.close()


class LeagueTrainer(Trainer):
    """Trainer whose learner plays against opponents from a league of past selves and scripts.

    Args:
        league: made for the same team.
        further: as of `Trainer`; `lag` must be 0.

    Snapshots are taken after an update, and their matches count as training time. The metrics of an iteration tell the
    groups by opponent (`opponents`) and, after a snapshot, `league`: members, turns of matches so far, and how the
    answer weighs its members.
    """

    def __init__(self, env: EnvFactory, team: Any, *, league: League, **further: Any) -> None:
        self.league, self._joined = league, False
        super().__init__(env, team, **further)
        if self.lag:
            raise InputError("opponents: who is met depends on the iteration before; write train.lag: 0")

    def _enter(self, iteration: int) -> None:
        super()._enter(iteration)
        if self.league.settings.every is not None and not self.league.past:
            self.league.snapshot(0, self.env, self.executor)

    def _plan(self, iteration: int) -> Plan:
        plan = super()._plan(iteration)
        if isinstance(self.executor, _Opponents):  # what stages play for themselves is no concern of the league
            self.executor.planned = plan
        return plan

    def _play(self, iteration: int) -> tuple[Plan, Turns, float]:
        own = self.executor
        self.executor = _Opponents(self.league, own)
        try:
            return super()._play(iteration)
        finally:
            self.executor = own

    def _learn(self, trained: Turns, iteration: int) -> dict[str, dict[str, Any]]:
        found = super()._learn(trained, iteration)
        self._joined = self.league.due(iteration)
        if self._joined:
            self.league.snapshot(iteration, self.env, self.executor)
        return found

    def _of_now(self) -> Line:
        found = super()._of_now() | {"opponents": dict(self.league.met)}
        if self._joined:
            answer = self.league.answer()
            p = np.array(list(answer.values()))
            found["league"] = {
                "members": len(self.league.members),
                "match_turns": self.league.turns,
                "effective_members": float(np.exp(-(p * np.log(p)).sum())),
                "answer": answer,
            }
        return found

    def _keep(self, iteration: int, trained: Turns, rest: Turns) -> None:
        super()._keep(iteration, trained, rest)
        if self.folder is not None and (self.league.due(iteration) or iteration == self.iterations):
            self.league.payoffs.write(self.folder.path / FOLDER)

    def _state(self, iteration: int) -> dict[str, Any]:
        return super()._state(iteration) | {"league": self.league.state_dict()}

    def _restore(self, state: dict[str, Any]) -> None:
        super()._restore(state)
        self.league.load_state_dict(state["league"])

    def _settings(self) -> dict[str, Any]:
        return super()._settings() | {"opponents": self.league.settings_dict()}


class PhasedLeagueTrainer(LeagueTrainer, PhasedTrainer):
    """Trainer that is both `LeagueTrainer` and `PhasedTrainer`: a league of opponents, and phases of other settings."""
