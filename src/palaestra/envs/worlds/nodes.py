"""`Nodes`: several learners at once, each with a question of its own out of one pool, and none sees the others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError


@dataclass
class _NodesState:
    questions: tuple[int, ...]
    done: bool = False
    said: dict[str, int] = field(default_factory=dict)


@ENVS.register("native/nodes")
class Nodes(NativeEnv):
    """One-turn multi-learner env: each `node_k` sees its own question's number and is paid 1 for a right answer.

    `questions` questions with `answers` answers each.

    For learners that share what they found ([108], arXiv 2509.08721): every node draws its own question. Success: more
    than half of them are right. facts: gold, the right answer as the name of an action.
    """

    facts = {"gold": str}

    def __init__(self, *, nodes: int = 4, questions: int = 24, answers: int = 40, draw: int = 0) -> None:
        if nodes < 1 or questions < 1 or answers < 2:
            raise InputError(f"Nodes: nodes={nodes} >= 1, questions={questions} >= 1 and answers={answers} >= 2")
        self.agents = tuple(f"node_{number}" for number in range(nodes))
        self.questions = questions
        self.choices = tuple(f"answer {number}" for number in range(answers))
        self.right = np.random.default_rng(draw).integers(answers, size=questions)

    def begin(self) -> tuple[str, _NodesState]:
        """Draw a question for each node."""
        drawn = tuple(int(each) for each in self.rng.integers(self.questions, size=len(self.agents)))
        return f"questions {' '.join(map(str, drawn))}", _NodesState(drawn)

    def look(self) -> dict[str, Observation]:
        """Each node sees its own question's number."""
        if self.state.done:
            return {}
        asked = zip(self.agents, self.state.questions, strict=True)
        return {agent: Observation(f"question {number}", choices=self.choices) for agent, number in asked}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Score all answers."""
        self.state.done = True
        gold = {agent: int(self.right[q]) for agent, q in zip(self.agents, self.state.questions, strict=True)}
        paid = {agent: float(chosen[agent] == gold[agent]) for agent in self.agents}
        solved = sum(paid.values()) * 2 > len(self.agents)
        return paid, {"gold": {agent: self.choices[each] for agent, each in gold.items()}, "success": solved}
