"""`Procedure`: plan, execute, judge, answer; the judge sends a wrong part back to the role that made it [143]."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError

VERDICTS = ("fine", "plan wrong", "execution wrong")


@dataclass
class _ProcedureState:
    question: int
    truth: int
    step: str = "plan"
    plan: int = 0
    execution: int = 0
    result: int = 0
    corrections: int = 0
    flagged: list[str] = field(default_factory=list)
    cues: list[int] = field(default_factory=lambda: [0, 0, 0])
    thoughts: int = 0


@ENVS.register("native/procedure")
class Procedure(NativeEnv):
    """Env of MACT's pipeline [143]: planners, executors, a judge and an answerer solve a question; paid 1 if right.

    arXiv 2508.03404; one of `questions` questions.

    The procedure of MACT [143] (arXiv 2508.03404), with seats such as `planner-1`. The planners plan at once, and the
    commonest plan is taken. The executors carry it out at once, and the candidate with the highest process score is
    taken. The judge names what is wrong, nothing or plan or execution, and rewrites nothing. Control returns to the
    role that it named, at most `corrections` times. The answerer sees the result. Each question has one right plan,
    each plan one right execution; the result is the true answer if both are right.

    The process scorer gives an executor 1 for the right execution of its plan, and a planner .9 for the right plan, 1
    for one wrong plan and 0 for the others. The judge sees signs of what is wrong, each of which is right with the
    chance `sure`. It must think `thoughts` times, and what it says before that does not count.

    facts: process, of planners and executors; outcome, of the judge (was the verdict right?) and the answerer; flagged,
    the role to which control returned before this turn, if it did.

    Args:
        questions, plans, executions: how many there are of each.
        planners, executors, thoughts: the budget of each role.
        corrections: most returns. sure: see above. prefers: what the process scorer thinks of the wrong plan.
        draw: seed of the right plans and executions.

    Raises:
        InputError: an option is out of range.
    """

    facts = {"process": float, "outcome": float, "flagged": str}

    def __init__(
        self,
        *,
        questions: int = 4,
        plans: int = 6,
        executions: int = 6,
        planners: int = 1,
        executors: int = 1,
        thoughts: int = 1,
        corrections: int = 3,
        sure: float = 0.7,
        prefers: float = 1.0,
        draw: int = 0,
    ) -> None:
        if min(questions, planners, executors, thoughts) < 1 or min(plans, executions) < 2 or corrections < 0:
            raise InputError(
                f"Procedure: {questions=}, {planners=}, {executors=}, {thoughts=} must be at least 1, {plans=} and "
                f"{executions=} at least 2, {corrections=} at least 0"
            )
        if not 0 <= sure <= 1:
            raise InputError(f"Procedure: {sure=} must lie in [0, 1]")
        self.questions, self.plans, self.executions = questions, plans, executions
        self.thoughts, self.corrections, self.sure, self.prefers = thoughts, corrections, sure, prefers
        self.planners = tuple(f"planner-{k}" for k in range(1, planners + 1))
        self.executors = tuple(f"executor-{k}" for k in range(1, executors + 1))
        self.agents: tuple[str, ...] = (*self.planners, *self.executors, "judge", "answerer")
        rng = np.random.default_rng(draw)
        self.right_plan = rng.integers(plans, size=questions)
        self.liked_plan = (self.right_plan + rng.integers(1, plans, size=questions)) % plans
        self.right_execution = rng.integers(executions, size=plans)

    def begin(self) -> tuple[str, _ProcedureState]:
        """Draw a question and its true answer."""
        question, truth = int(self.rng.integers(self.questions)), int(self.rng.integers(self.executions))
        return f"question {question}, case {int(self.rng.integers(2**31))}", _ProcedureState(question, truth)

    def look(self) -> dict[str, Observation]:
        """Observations of all agents of the role that acts next; they see the same."""
        state = self.state
        again = f", sent back {state.corrections}" if state.corrections else ""
        if state.step == "plan":
            seen = Observation(f"plan for question {state.question}{again}", choices=_numbers("plan", self.plans))
            return dict.fromkeys(self.planners, seen)
        if state.step == "execute":
            seen = Observation(f"execute plan {state.plan}{again}", choices=_numbers("way", self.executions))
            return dict.fromkeys(self.executors, seen)
        if state.step == "judge":
            signs = ", ".join(f"{name} {count}" for name, count in zip(VERDICTS, state.cues, strict=True))
            return {"judge": Observation(f"signs: {signs}", choices=VERDICTS)}
        if state.step == "answer":
            return {"answerer": Observation(f"result {state.result}", choices=_numbers("answer", self.executions))}
        return {}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Take one step of the procedure; an invalid choice counts as the first."""
        state = self.state
        said = {agent: action if isinstance(action, int) else 0 for agent, action in chosen.items()}
        came = dict.fromkeys(said, state.flagged[-1] if state.flagged and state.step == state.flagged[-1] else None)
        if state.step == "plan":
            state.plan, state.step = Counter(said.values()).most_common(1)[0][0], "execute"
            return {}, {"process": {agent: self.plan_score(each) for agent, each in said.items()}, "flagged": came}
        if state.step == "execute":
            scores = {agent: float(each == self.right_execution[state.plan]) for agent, each in said.items()}
            self._execute(said[max(scores, key=lambda agent: scores[agent])])
            return {}, {"process": scores, "flagged": came}
        if state.step == "judge":
            return {}, {"outcome": {"judge": self._judged(said["judge"])}}
        right = said["answerer"] == state.truth
        state.step = "over"
        return {"answerer": float(right)}, {"outcome": {"answerer": float(right)}, "success": right}

    def plan_score(self, plan: int) -> float:
        """The process scorer's score of a plan."""
        question = self.state.question
        return 0.9 if plan == self.right_plan[question] else self.prefers if plan == self.liked_plan[question] else 0.0

    def wrong(self) -> int:
        """The right verdict of the judge: 0 nothing is wrong, 1 the plan, 2 the execution alone."""
        if self.state.plan != self.right_plan[self.state.question]:
            return 1
        return 0 if self.state.execution == self.right_execution[self.state.plan] else 2

    def _execute(self, way: int) -> None:
        state = self.state
        state.execution, state.step, state.thoughts, state.cues = way, "judge", 0, [0, 0, 0]
        error = int(self.rng.integers(1, self.executions))
        state.result = state.truth if self.wrong() == 0 else (state.truth + error) % self.executions
        self._sign()

    def _sign(self) -> None:
        """One more sign of what is wrong."""
        truth = self.wrong()
        other = (truth + int(self.rng.integers(1, 3))) % 3
        self.state.cues[truth if self.rng.random() < self.sure else other] += 1

    def _judged(self, verdict: int) -> float:
        """Takes the verdict, if it was thought about for long enough; returns whether it is right."""
        state = self.state
        right = float(verdict == self.wrong())
        state.thoughts += 1
        if state.thoughts < self.thoughts:
            self._sign()
        elif verdict == 0 or state.corrections == self.corrections:
            state.step = "answer"
        else:
            state.step = ("plan", "execute")[verdict - 1]
            state.corrections += 1
            state.flagged.append(state.step)
        return right


def _numbers(what: str, count: int) -> tuple[str, ...]:
    return tuple(f"{what} {number}" for number in range(count))
