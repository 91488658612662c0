"""`stage_beam`: at every stage several candidates, of which the best by a process score are gone on from.

    stage_beam(8)            eight candidates at each stage, the best one is gone on from
    stage_beam(8, keep=8)    eight attempts from beginning to end: best of eight with as many steps

It goes around an env of single turns that can be gone back to (every native world) and that tells scores as facts.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from palaestra.envs.facts import facts_of
from palaestra.envs.protocol import Action, Env, EnvFactory, Observation, StepResult
from palaestra.errors import EnvError, InputError
from palaestra.play.monte_carlo import Restartable

DRAWS = 23
"""Number of the stream from which later chance of a candidate is drawn."""


class _Partial(NamedTuple):
    """An attempt so far: who acts next and sees what (nobody at the end), how to come back, and what was told last."""

    agent: str
    seen: Observation | None
    snapshot: Any
    told: Mapping[str, Any]
    reward: float | None


class StageBeam:
    """Env wrapper that plays a beam search: `candidates` answers per turn, of which the `keep` best by `score` go on.

    SWE-Reasoner's external test-time compute [190] (arXiv 2503.23803). The copies of seat `a` are `a-1`, `a-2`, …. A
    stage is a turn of the env. Attempts that ended are checked, those that pass are ranked, and the first one counts:
    `success` of the episode is its success, and its reward goes to the seat that made its last step. If none passes,
    all are ranked. With keep = candidates nothing is cut before the end.

    facts: those of the env; kept, whether the answer was gone on from, or is the one that counts.

    Args:
        env: Factory of the env.
        candidates: Number of answers at each stage; 2 at least.
        keep: Number of attempts that are gone on from, a divisor of `candidates`.
        score: Fact with the process score of a step, the higher the better.
        check: Fact that says whether an attempt that ended passes its tests; None: nothing is checked.
        rank: Fact with the outcome model's score of an attempt that ended; None: the process score.

    Raises:
        InputError: A number is out of range, the env cannot be gone back to, or lacks a fact.
        EnvError: When it is played, several agents act at once.
    """

    def __init__(
        self,
        env: EnvFactory,
        candidates: int,
        *,
        keep: int = 1,
        score: str = "process",
        check: str | None = "passes",
        rank: str | None = "outcome",
    ) -> None:
        self.env: Env = env()
        if candidates < 2 or not 1 <= keep <= candidates or candidates % keep:
            raise InputError(f"stage_beam: candidates={candidates} >= 2, and keep={keep} must divide them")
        if not isinstance(self.env, Restartable):
            raise InputError(
                f"stage_beam: {type(self.env).__name__} cannot be gone back to: no snapshot() and restore()"
            )
        known = facts_of(self.env)
        missing = [each for each in (score, check, rank) if each is not None and each not in known]
        if missing:
            raise InputError(f"stage_beam: {type(self.env).__name__} tells no fact {missing[0]!r}")
        self.candidates, self.keep, self.score, self.check, self.rank = candidates, keep, score, check, rank
        self.agents: tuple[str, ...] = tuple(
            f"{name}-{k}" for name in self.env.agents for k in range(1, candidates + 1)
        )
        self.facts: dict[str, Any] = {**known, "kept": bool}
        self.task = ""
        self._asked: dict[str, _Partial] = {}

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Begin with the first stage, once for every candidate."""
        seen = self.env.reset(seed)
        self.task, self._rng = self.env.task, np.random.default_rng([seed, DRAWS])
        self._ended: list[tuple[str, _Partial]] = []
        return self._ask([self._partial(seen, {}, None)])

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Take all candidates' steps; the best go on, and at the end one is chosen."""
        if actions.keys() != self._asked.keys():
            raise EnvError(f"actions of {sorted(actions)} were given, but the agents to act are {sorted(self._asked)}")
        made: list[tuple[str, _Partial]] = []
        for seat, before in self._asked.items():
            self.env.restore(before.snapshot, seed=int(self._rng.integers(2**63)))  # type: ignore[attr-defined]
            result = self.env.step({before.agent: actions[seat]})
            told = {key: _own(value, before.agent) for key, value in result.info.items()}
            made.append((seat, self._partial(result.observations, told, result.rewards.get(before.agent, 0.0))))
        self._ended += [each for each in made if each[1].seen is None]
        live = [each for each in made if each[1].seen is not None]
        onward = self._best(live, self.score)[: self.keep]
        if onward:
            chosen, rewards, over = onward, {}, {}
        else:
            chosen = self._finished()[:1]
            rewards = {seat: each.reward for seat, each in chosen if seat in self._asked}
            over = {"success": bool(chosen[0][1].told.get("success", False))}
        seats = {seat for seat, _ in chosen}
        info: dict[str, Any] = {"kept": {seat: seat in seats for seat, _ in made}}
        for seat, each in made:
            for key, value in each.told.items():
                if key != "success":
                    info.setdefault(key, {})[seat] = value
        return StepResult(self._ask([each for _, each in onward]), rewards, terminated=not onward, info=info | over)

    def _finished(self) -> list[tuple[str, _Partial]]:
        """Attempts that ended and pass, all if none does, the best first."""
        passed = [each for each in self._ended if self.check is None or each[1].told.get(self.check)]
        return self._best(passed or self._ended, self.rank or self.score)

    def _best(self, attempts: list[tuple[str, _Partial]], score: str) -> list[tuple[str, _Partial]]:
        def value(each: tuple[str, _Partial]) -> float:
            found = each[1].told.get(score)
            return float("-inf") if found is None else float(found)

        return sorted(attempts, key=value, reverse=True)

    def _partial(self, seen: Mapping[str, Observation], told: Mapping[str, Any], reward: float | None) -> _Partial:
        if len(seen) > 1:
            raise EnvError(f"stage_beam: {sorted(seen)} act at once; it needs an env of single turns")
        agent, each = next(iter(seen.items()), ("", None))
        return _Partial(agent, each, self.env.snapshot() if seen else None, told, reward)  # type: ignore[attr-defined]

    def _ask(self, live: list[_Partial]) -> dict[str, Observation]:
        """So many answers to each attempt that are `candidates` in all."""
        self._asked, count = {}, dict.fromkeys(self.env.agents, 0)
        for each in live:
            for _ in range(self.candidates // len(live)):
                count[each.agent] += 1
                self._asked[f"{each.agent}-{count[each.agent]}"] = each
        return {seat: each.seen for seat, each in self._asked.items() if each.seen is not None}


def _own(value: Any, agent: str) -> Any:
    """What the env told of one agent's turn."""
    return value.get(agent) if isinstance(value, Mapping) else value


def stage_beam(
    env: EnvFactory,
    candidates: int,
    *,
    keep: int = 1,
    score: str = "process",
    check: str | None = "passes",
    rank: str | None = "outcome",
) -> EnvFactory:
    """Env factory from another, `env`: an episode is a beam search of `candidates` answers a turn; see `StageBeam`.

    In a recipe `stage_beam(8)`.
    """
    factory = functools.partial(StageBeam, env, candidates, keep=keep, score=score, check=check, rank=rank)
    factory()
    return factory
