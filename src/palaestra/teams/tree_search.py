"""`tree_search`: roles go on from partial answers, and of those the one that promises most is next.

MASTER ([12], arXiv 2501.14304): a node knows the way from the question to it and nothing else; it has an opinion of
itself, there are no rollouts, and what a failed answer takes back from those above it sends the search elsewhere.

    tree_search(2, depth=3, budget=14)

A role says the next step, and if it likes how good that is and how sure it is of it, from 0 to 1: `add 3 @ .8 .6`.
Without that the verifier says how good the partial answer is. Left out: tools, trees that are grown beside each other.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from palaestra.envs.protocol import Action, EnvFactory, Observation, StepResult
from palaestra.envs.replies import read_reply
from palaestra.envs.task_scores import numbers_in
from palaestra.envs.tasks import TaskEnv, read_answer
from palaestra.errors import EnvError, InputError
from palaestra.foundation.search import Candidate, SearchResult, confidence_uct, searching
from palaestra.teams.deliberation import DRAWS, SEPARATOR
from palaestra.teams.instructions import ASKS, Heard, Instructions
from palaestra.teams.rules import VERIFIERS
from palaestra.teams.task_wrapper import TaskTeamEnv, made_task

_OPINION = re.compile(r"@([\s\d.,;%/eE+-]*\d[\s.%]*)\Z")
"""Numbers behind the last `@`, and nothing else."""


class AnswerStep(NamedTuple):
    """Data of one step of a partial answer: its text, who said it, and in which turn."""

    text: str
    role: str
    turn: int


class TreeSearchEnv(TaskTeamEnv):
    """Team env (of a `TaskEnv` factory): tree search of partial answers, `branch` roles, `depth` deep, `budget` nodes.

    All are paid the answer's score.

    facts, of each turn: way, what it went on from; answer, that and its step; score, of that; opinion, and how sure,
    as the search counts them; expected, a right answer if one is known; read_as, where the step stood in the reply;
    heard, heard_turn: who said the way, and when.

    Args:
        tasks: makes the `TaskEnv`. branch: roles. depth: steps of an answer. budget: nodes that are made at most.
        verifier: what a partial answer is worth, where its role does not say. validator: an answer passes at 1.
        c, trust: of `palaestra.foundation.search.confidence_uct`. joint: between the steps of an answer. price: of each
        turn, for everybody. instructions: role, or "proposer" -> a Jinja template, the system prompt of chat models
        instead of the shipped one.

    Raises:
        InputError: the env is no task with one answer, or an option is out of range.
    """

    facts = {
        "way": str, "answer": str, "score": float, "opinion": float, "sure": float, "expected": str,
        "read_as": str, "heard": list[str], "heard_turn": list[int],
    }  # fmt: skip

    def __init__(
        self,
        tasks: EnvFactory,
        branch: int,
        *,
        depth: int,
        budget: int,
        verifier: str = "exact()",
        validator: str = "accepts()",
        c: float = 0.3,
        trust: float = 2.0,
        joint: str = " ",
        price: float = 0.0,
        instructions: Mapping[str, str] | None = None,
    ) -> None:
        self.inner: TaskEnv = made_task(tasks, "workflow")
        if branch < 1 or depth < 1 or budget < depth or not price >= 0:
            raise InputError(
                f"tree_search: branch={branch} and depth={depth} must be at least 1, budget={budget} at least the "
                f"depth, price={price} at least 0"
            )
        self.depth, self.budget, self.joint, self.price = depth, budget, joint, price
        self.agents: tuple[str, ...] = tuple(f"proposer-{number}" for number in range(1, branch + 1))
        roles = dict.fromkeys(self.agents, "")
        self._instructions = Instructions("tree_search", roles, instructions, depth=depth, hears=list(roles))
        self.task = ""
        self._verifier, self._validator = VERIFIERS.build(verifier), VERIFIERS.build(validator)
        self._select = functools.partial(confidence_uct, c=c, trust=trust)
        self._search: Generator[tuple[AnswerStep, ...], Sequence[Candidate], SearchResult] | None = None

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Ask for first steps."""
        self.inner.reset(seed)
        self.task, self._turn = self.inner.task, 0
        self._rng = np.random.default_rng([seed, DRAWS])
        self._search = searching((), self._passes, budget=self.budget, select=self._select)
        self._way = next(self._search)
        return self._ask()

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Add the proposed steps as nodes; ask from the next node, or end the search."""
        if self._search is None or actions.keys() != set(self.agents):
            due = [] if self._search is None else sorted(self.agents)
            raise EnvError(f"actions of {sorted(actions)} were given, but the agents to act are {due}")
        children, info = [], self._told()
        for role in self.agents:
            child, told = self._child(role, read_answer(actions[role]))
            children.append(child)
            for name, value in told.items():
                info.setdefault(name, {})[role] = value
        self._turn += 1
        try:
            self._way = self._search.send(children)
        except StopIteration as end:
            return self._end(end.value, info)
        return StepResult(self._ask(), info=info)

    def _ask(self) -> dict[str, Observation]:
        text = SEPARATOR.join([self.question, *(step.text for step in self._way)])
        heard = [Heard(step.role, step.text, step.turn) for step in self._way]
        ask = functools.partial(self._instructions.turn, ask="step", question=self.question, heard=heard)
        return {role: Observation(text, messages=ask(role), fields=ASKS["step"]) for role in self.agents}

    def _told(self) -> dict[str, Any]:
        """Facts that all members share."""
        return {
            "way": self._text(self._way),
            "expected": self.inner.answer,
            "heard": [step.role for step in self._way],
            "heard_turn": [step.turn for step in self._way],
        }

    def _child(self, role: str, text: str) -> tuple[Candidate, dict[str, Any]]:
        """A node, and what is told of it."""
        reply, sure_of = read_reply(text, "step", until=("confidence",)), read_reply(text, "confidence")
        said, own = reply.text, sure_of.text if sure_of.form in ("json", "line") else ""
        if reply.form == "whole" and (given := _OPINION.search(said)):
            said, own = said[: given.start()], given[1]
        way = (*self._way, AnswerStep(said.strip(), role, self._turn))
        score = self.inner.score(self._text(way))
        numbers = [min(max(each, 0.0), 1.0) for each in numbers_in(own, percent=0.01)]
        if numbers:
            opinion, sure = numbers[0], numbers[1] if len(numbers) > 1 else 1.0
        else:
            opinion, sure = self._verifier(score, self._draw) or 0.0, 1.0
        told = {
            "valid": bool(said.strip()),
            "read_as": reply.form,
            "answer": self._text(way),
            "score": score,
            "opinion": opinion,
            "sure": sure,
        }
        return Candidate(way, opinion, sure, len(way) == self.depth), told

    def _passes(self, way: tuple[AnswerStep, ...]) -> bool:
        passed = self._validator(self.inner.score(self._text(way)), self._draw)
        return passed is not None and passed >= 1

    def _end(self, found: SearchResult, info: dict[str, Any]) -> StepResult:
        self._search = None
        text = self._text(found.item or ())
        score = self.inner.score(text)
        info |= {"success": self.inner.solved(score), "final": text, "passed": found.passed, "nodes": found.made}
        worth = (score or 0.0) - self.price * self._turn * len(self.agents)
        return StepResult({}, dict.fromkeys(self.agents, worth), terminated=True, info=info)

    def _text(self, way: tuple[AnswerStep, ...]) -> str:
        return self.joint.join(step.text for step in way)

    def _draw(self) -> np.random.Generator:
        return self._rng


def tree_search(tasks: EnvFactory, branch: int = 2, *, depth: int = 3, budget: int = 14, **options: Any) -> EnvFactory:
    """Env factory from another, `tasks`: a team that tree-searches over partial answers; options of `TreeSearchEnv`."""
    factory = functools.partial(TreeSearchEnv, tasks, branch, depth=depth, budget=budget, **options)
    factory()
    return factory
