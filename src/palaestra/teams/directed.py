"""`directed`: a debate in which a director opens few edges, those whose past exchanges were graded best.

OPTAGENT ([24], arXiv 2510.18032). Each exchange is graded twice, for robustness and for coherence; the mean moves the
score of its edge, and the best edges of each receiver are open in the next round. Left out: feedback in words; grades
are a verifier's numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import polars as pl

from palaestra.envs.protocol import EnvFactory, Observation
from palaestra.envs.replies import read_reply
from palaestra.errors import InputError
from palaestra.evaluation.teamwork.edges import EdgeScores
from palaestra.teams.deliberation import Deliberation
from palaestra.teams.graph import Graph
from palaestra.teams.rules import VERIFIERS, Message, Verdict

DIVERSE = "In the first round give {} different answers, separated by /; one of them is drawn."


class DirectedDebate(Deliberation):
    """Team env: `Deliberation` over `tasks`; each role reads `keep` senders, the best by verifier `grade` in the past.

    facts: its own; heard_grade, of each message that arrived, in order.

    Args:
        keep: open edges to each role. eta: how far a grade moves the score of an edge. grade: text of a verifier.
        first: different answers that a role gives in the first round, of which one is drawn.

    Raises:
        InputError: an option is out of range.
    """

    facts = {**Deliberation.facts, "heard_grade": list[float]}

    def __init__(
        self, tasks: EnvFactory, graph: Graph, *, keep: int, eta: float, grade: str, first: int, **options: Any
    ) -> None:
        super().__init__(tasks, graph, **options)
        if not 1 <= keep < len(self.agents) or first < 1:
            raise InputError(f"directed: keep={keep} from 1 to {len(self.agents) - 1}, first={first} at least 1")
        self.keep, self.eta, self.first, self._grade = keep, eta, first, VERIFIERS.build(grade)
        self._scores = EdgeScores(self.agents, eta)
        self._exchanges: list[tuple[str, str, float]] = []

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Begin as `Deliberation` does, with equal scores of all edges."""
        self._scores, self._exchanges = EdgeScores(self.agents, self.eta), []
        return super().reset(seed)

    def _ask(self) -> dict[str, Observation]:
        if self._exchanges:
            self._scores.update(pl.DataFrame(self._exchanges, schema=["sender", "receiver", "quality"], orient="row"))
            self._exchanges = []
        self._open = self._scores.route(self.keep, self._draw())
        self._grades: dict[str, list[float]] = {}
        observations = super()._ask()
        self._told["heard_grade"] = {role: self._grades.get(role, []) for role in observations}
        return observations

    def _verdicts(self, role: str, own: Message | None, coming: list[Message]) -> list[Verdict]:
        """Verdicts by the director; what is heard is graded."""
        found: list[Verdict] = []
        for said in coming:
            score = self._scores.scores[self.agents.index(said.role), self.agents.index(role)]
            heard = said.role in self._open[role]
            if heard:
                quality = (self._graded(said) + self._graded(said)) / 2  # robustness, coherence
                self._exchanges.append((said.role, role, quality))
                self._grades.setdefault(role, []).append(quality)
            found.append((float(score), None if heard else "closed by the director"))
        return found

    def _graded(self, said: Message) -> float:
        return self._grade(self._true[said.text], self._draw) or 0.0

    def _read(self, role: str, reply: str) -> Message:
        if self._round == 0 and self.first > 1:
            told = read_reply(reply, "answer").text
            answers = list(dict.fromkeys(part.strip() for part in told.split("/") if part.strip()))[: self.first]
            if len(answers) > 1:
                reply = answers[int(self._draw().integers(len(answers)))]
        return super()._read(role, reply)


def directed(
    tasks: EnvFactory,
    agents: int = 6,
    rounds: int = 3,
    *,
    keep: int = 2,
    eta: float = 0.2,
    grade: str = "exact()",
    first: int = 3,
    **options: Any,
) -> EnvFactory:
    """Env factory from another, `tasks`: debaters answer, then read only senders of best past grades, and vote.

    [24].
    """
    if agents < 2 or rounds < 2:
        raise InputError(f"directed: agents={agents} and rounds={rounds}, expected at least 2 of both")
    persona = DIVERSE.format(first) if first > 1 else ""
    names = {f"debater-{number}": persona for number in range(1, agents + 1)}
    graph = Graph.of(names, edges="all", rounds=rounds, aggregate="vote()", workflow="debate")
    factory = functools.partial(DirectedDebate, tasks, graph, keep=keep, eta=eta, grade=grade, first=first, **options)
    factory()
    return factory
