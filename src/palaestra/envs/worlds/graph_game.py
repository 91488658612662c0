"""`GraphGame`: agents on a network talk to their neighbours in rounds, then everybody answers (arXiv 2507.08616).

Consensus, leader election, colouring, maximal matching and vertex cover; `worlds.exact.networks` has the graphs,
the scores and right answers, `protocols` scripted play. Left out: the published prompts and their one retry on
unparsable text (a turn here is one call; such a message is empty and its turn invalid).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.exact.networks import PROBLEMS, Answer, diameter, network, score
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError, nearest

GOALS = {
    "consensus": "In the end all agents must give the same answer, 0 or 1.",
    "leader": "In the end exactly one agent must answer yes and all others no.",
    "colouring": "In the end every agent names a group; neighbours must never be in the same group.",
    "matching": "In the end every agent names the neighbour that it is paired with, who must name it in return, or "
    "nobody if no neighbour is free.",
    "cover": "In the end agents answer yes or no so that of two neighbours at least one says yes, and nobody says yes "
    "whose neighbours all do.",
}


@dataclass
class _GraphGameState:
    adjacent: np.ndarray
    rounds: int
    heard: list[list[dict[int, str]]] = field(default_factory=list)  # by round and agent: sender -> message
    answers: list[Answer] | None = None


@ENVS.register("native/graph_game")
class GraphGame(NativeEnv):
    """Env of distributed graph problems: agents exchange messages with neighbours, then answer; one shared reward.

    Agents are `n0`, `n1` …

    In the end `info["score"]` is the soft score; success means that it is 1. Report both: random colours score 0.9.
    """

    facts = {"score": float}

    def __init__(
        self,
        problem: str = "consensus",
        *,
        family: str = "small_world",
        n: int = 4,
        rounds: int | None = None,
        words: int | None = None,
        graphs: int | None = None,
        reward: str = "score",
    ) -> None:
        """Set up the game.

        Args:
            problem: "consensus", "leader", "colouring", "matching" or "cover".
            family: "small_world", "preferential", "delaunay" or "ring".
            n: number of agents, at least 4.
            rounds: of messages. Default as published: 2 × diameter + 1 for consensus, leader and n > 16, else 4, 5, 6
                for up to 4, 8, 16 agents.
            words: None: a message is a JSON object {neighbour: text}. A number: every round an agent says one of so
                many words, and all its neighbours hear it; actions are then choices, also for tabular policies.
            graphs: draw from only so many graphs; None draws a new one for every seed.
            reward: "score" (soft) or "solved".
        """
        for value, known in ((problem, PROBLEMS), (reward, ("score", "solved"))):
            if value not in known:
                raise InputError(f"GraphGame: {value!r} is not known{nearest(value, known)}")
        for name, given, least in (("rounds", rounds, 0), ("words", words, 1), ("graphs", graphs, 1)):
            if given is not None and given < least:
                raise InputError(f"GraphGame: {name}={given}, expected at least {least}, or None")
        network(family, n, 0)
        self.problem, self.family, self.words, self.graphs, self.reward = problem, family, words, graphs, reward
        self.rounds = rounds
        self.agents = tuple(f"n{agent}" for agent in range(n))
        self.valid_answers = {
            "consensus": ("0", "1"),
            "colouring": tuple(f"group {colour + 1}" for colour in range(n)),
            "matching": (*self.agents, "nobody"),
        }.get(problem, ("no", "yes"))
        self.said = tuple(f"say {word}" for word in range(words or 0))

    def begin(self) -> tuple[str, _GraphGameState]:
        """Draw the graph."""
        seed = int(self.rng.integers(2**31 if self.graphs is None else self.graphs))
        adjacent = network(self.family, len(self.agents), seed)
        name = f"{self.problem}:{self.family}:{len(self.agents)}"
        return name if self.family == "ring" else f"{name}:{seed}", _GraphGameState(adjacent, self._rounds_of(adjacent))

    def _rounds_of(self, adjacent: np.ndarray) -> int:
        if self.rounds is not None:
            return self.rounds
        n = len(adjacent)
        if n > 16 or self.problem in ("consensus", "leader"):
            return 2 * diameter(adjacent) + 1
        return 4 if n <= 4 else 5 if n <= 8 else 6

    def look(self) -> dict[str, Observation]:
        """Each agent sees its neighbours' messages, until the answers are given."""
        if self.state.answers is not None:
            return {}
        last = len(self.state.heard) == self.state.rounds
        return {agent: self._see(number, last) for number, agent in enumerate(self.agents)}

    def _see(self, agent: int, last: bool) -> Observation:
        heard = self.state.heard
        neighbours = np.flatnonzero(self.state.adjacent[agent])
        legal = self._legal_answers(agent)
        if self.words is None:
            names = [self.agents[other] for other in neighbours]
            inbox = [{self.agents[other]: text for other, text in of[agent].items()} for of in heard]
            sent = [
                {self.agents[other]: of[other][agent] for other in neighbours if agent in of[other]} for of in heard
            ]
            facts = {"you": self.agents[agent], "neighbours": names, "round": len(heard) + 1,
                     "rounds": self.state.rounds, "received": inbox, "sent": sent}  # fmt: skip
            task = "Now give your answer." if last else 'Now write your messages as JSON: {"neighbour": "text"}.'
            text = f"{GOALS[self.problem]} {task}\n{json.dumps(facts)}"
            choices = tuple(a for a, ok in zip(self.valid_answers, legal, strict=True) if ok) if last else None
            return Observation(text, choices)
        comma = "," * (self.words > 10)  # words of two digits
        own = comma.join(of[neighbours[0]].get(agent, "-") for of in heard)
        others = " ".join(f"n{o}:{comma.join(of[agent].get(int(o), '-') for of in heard)}" for o in neighbours)
        mask = np.array([not last] * self.words + [last and ok for ok in legal])
        text = f"{'answer' if last else 'say'} {self.agents[agent]}:{own} | {others}"
        return Observation(text, self.said + self.valid_answers, mask)

    def _legal_answers(self, agent: int) -> list[bool]:
        adjacent = self.state.adjacent
        if self.problem == "colouring":
            return [colour <= adjacent.sum(1).max() for colour in range(len(self.agents))]
        return [*adjacent[agent].tolist(), True] if self.problem == "matching" else [True, True]

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Deliver a round of messages, or score the answers."""
        state = self.state
        if len(state.heard) < state.rounds:
            heard: list[dict[int, str]] = [{} for _ in self.agents]
            valid = {}
            for agent, name in enumerate(self.agents):
                messages = self._messages(agent, chosen[name])
                valid[name] = messages is not None
                for other, text in (messages or {}).items():
                    heard[other][agent] = text
            state.heard.append(heard)
            return {}, {"valid": valid}
        state.answers = [self._answer(agent, chosen[name]) for agent, name in enumerate(self.agents)]
        value = score(self.problem, state.adjacent, state.answers)
        solved = value == 1.0
        paid = float(solved) if self.reward == "solved" else value
        return dict.fromkeys(self.agents, paid), {"success": solved, "score": value}

    def _messages(self, agent: int, action: int | str | None) -> dict[int, str] | None:
        """Neighbour -> text; None if the action cannot be read."""
        neighbours = [int(other) for other in np.flatnonzero(self.state.adjacent[agent])]
        if self.words is not None:
            return None if action is None else dict.fromkeys(neighbours, str(action))
        text = str(action or "")
        try:
            found = json.loads(text[text.find("{") : text.rfind("}") + 1])
            return {other: str(found[f"n{other}"]) for other in neighbours if f"n{other}" in found}
        except (ValueError, RecursionError):
            return None

    def _answer(self, agent: int, action: int | None) -> Answer:
        if action is None:
            return None
        if self.words is None:  # the choices were the legal answers alone
            action = int(np.flatnonzero(self._legal_answers(agent))[action])
        else:
            action -= self.words
        return -1 if self.problem == "matching" and action == len(self.agents) else action
