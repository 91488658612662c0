"""`Discussion`: agents solve, criticise and score in turn; nobody is told whether a solution is right [4]."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

SCORES = ("3", "2", "1", "?")
"""What a scorer can say: right and the critique useless, minor flaws, fatal flaw found; the last cannot be read."""
LOOKS = ("right", "flawed, the flaw was not found", "flawed, the flaw was found")


@dataclass
class _DiscussionState:
    question: int
    agent: int
    role: str = "solver"
    round: int = 0
    pair: int = 0
    solution: int = 0
    critiques: list[int] = field(default_factory=list)
    look: int = 0
    history: list[str] = field(default_factory=list)


@ENVS.register("native/discussion")
class Discussion(NativeEnv):
    """Group discussion env of CoMAS [4]: drawn agents solve a question, criticise and score; all rewards are 0.

    arXiv 2510.08529. `agents` agents discuss one of `questions` questions for `rounds` rounds.

    CoMAS's interaction [4] (arXiv 2510.08529). In a round one agent solves; then, `critics` times, one criticises the
    solution and one scores solution and critique with 3, 2 or 1. Each agent that acts is drawn uniformly. The solver
    reads solutions and critiques of the last `memory` rounds, but no scores. Of `answers` answers one is right; each
    wrong one has a flaw, and a critique names a flaw or finds none. A scorer sees how the matter looks, which is true
    with the chance `sure`. The env pays nothing.

    facts: role; round; pair, number of the critique, of evaluators and scorers; tau, the score, of scorers whose score
    can be read; parsed, whether it can; right, of solvers; named, of evaluators who criticise a wrong solution, whether
    they name its flaw. Success: the last solution is right.

    Args:
        draw: seed of the right answers and of the flaws.

    Raises:
        InputError: an option is out of range.
    """

    facts = {"role": str, "round": int, "pair": int, "tau": float, "parsed": bool, "right": float, "named": float}

    def __init__(
        self,
        *,
        agents: int = 3,
        questions: int = 8,
        answers: int = 4,
        rounds: int = 2,
        critics: int = 1,
        memory: int = 1,
        sure: float = 0.8,
        draw: int = 0,
    ) -> None:
        if min(agents, questions, rounds, critics) < 1 or answers < 2 or memory < 0 or not 0 <= sure <= 1:
            raise InputError(
                f"Discussion: {agents=}, {questions=}, {rounds=}, {critics=} must be at least 1, {answers=} at least "
                f"2, {memory=} at least 0, {sure=} in [0, 1]"
            )
        self.agents: tuple[str, ...] = tuple(f"agent-{k}" for k in range(1, agents + 1))
        self.questions, self.answers, self.rounds, self.critics = questions, answers, rounds, critics
        self.memory, self.sure = memory, sure
        rng = np.random.default_rng(draw)
        self.right = rng.integers(answers, size=questions)
        self.flaw = rng.integers(1, answers, size=(questions, answers))
        self.flaw[np.arange(questions), self.right] = 0

    def begin(self) -> tuple[str, _DiscussionState]:
        """Draw a question and the agent that solves first."""
        question = int(self.rng.integers(self.questions))
        return f"question {question}, case {int(self.rng.integers(2**31))}", _DiscussionState(question, self._drawn())

    def look(self) -> dict[str, Observation]:
        """The agent whose turn it is sees the question or solution that its role needs."""
        state = self.state
        if state.role == "solver":
            told = state.history[-self.memory :] if self.memory else []
            text = "; ".join([f"solve question {state.question}", *told])
            seen = Observation(text, choices=tuple(f"solution {number}" for number in range(self.answers)))
        elif state.role == "evaluator":
            flaws = ("no flaw", *(f"flaw {number}" for number in range(1, self.answers)))
            seen = Observation(f"criticise solution {state.solution} of question {state.question}", choices=flaws)
        elif state.role == "scorer":
            seen = Observation(f"score a solution that looks {LOOKS[state.look]}", choices=SCORES)
        else:
            return {}
        return {self.agents[state.agent]: seen}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Take a solution, a critique or a score; an invalid choice counts as the first."""
        ((agent, said),) = chosen.items()
        state, number = self.state, said if isinstance(said, int) else 0
        told: dict[str, Any] = {"role": state.role, "round": state.round}
        flaw = int(self.flaw[state.question, state.solution])
        if state.role == "solver":
            state.solution, state.critiques, state.role, state.pair = number, [], "evaluator", 0
            told["right"] = float(number == self.right[state.question])
        elif state.role == "evaluator":
            told["pair"] = state.pair
            if flaw:
                told["named"] = float(number == flaw)
            state.critiques.append(number)
            state.look, state.role = self._look_of(flaw, number), "scorer"
        else:
            told |= {"pair": state.pair, "parsed": number < 3}
            if number < 3:
                told["tau"] = float(SCORES[number])
            told |= self._scored()
        state.agent = self._drawn()
        return {agent: 0.0}, told

    def _drawn(self) -> int:
        """Who acts next, each agent with the same chance."""
        return int(self.rng.integers(len(self.agents)))

    def _look_of(self, flaw: int, critique: int) -> int:
        """How the matter looks to the scorer."""
        truth = 0 if not flaw else 2 if critique == flaw else 1
        return truth if self.rng.random() < self.sure else (truth + int(self.rng.integers(1, 3))) % 3

    def _scored(self) -> dict[str, Any]:
        """On to the next critique, the next round or the end; scores do not enter the history."""
        state = self.state
        state.pair += 1
        if state.pair < self.critics:
            state.role = "evaluator"
            return {}
        said = ", ".join(f"flaw {each}" if each else "no flaw" for each in state.critiques)
        state.history.append(f"solution {state.solution} was told: {said}")
        state.round += 1
        if state.round < self.rounds:
            state.role = "solver"
            return {}
        state.role = "over"
        return {"success": bool(state.solution == self.right[state.question])}
