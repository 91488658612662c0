"""`Deliberation`: a task with one answer, played by the roles of a `Graph`.

What a role reads is the question, its own last answer if it has one, and what it hears:

    4 + 3 = | 8 | 7          (of two others; the word `ok` repeats what was heard last instead of answering)

Chat models read the same with names before the answers. What everybody heard, and what was held back and why, stands in
the columns of the receiver's turn, from which `palaestra.algebra.messages` makes the table of messages. Left out:
several tasks at once, partial credit for messages (that is `palaestra.credit`).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Literal, get_args

import numpy as np

from palaestra.envs.protocol import Action, EnvFactory, Observation, StepResult
from palaestra.envs.tasks import TaskEnv, read_answer
from palaestra.errors import EnvError, InputError, nearest
from palaestra.teams.graph import Graph
from palaestra.teams.rules import AGGREGATES, GATES, ROUTES, STOPS, VERIFIERS, Message, Verdict
from palaestra.teams.task_wrapper import AroundTask, made_task

ACCEPT = "ok"
SEPARATOR = " | "
LONGEST = 200
"""Longer answers are cut where another role reads them; they are scored whole."""
Reads = Literal["whole", "part"]
DRAWS = 7_919
"""Joins the reset seed: rules draw from a stream of their own."""


class Deliberation(AroundTask):
    """The roles of a graph answer a task together; everybody receives the score of the team's answer.

    facts, of each turn: round; answer, as it counts; score, of that answer; expected, a right answer if one is known;
    and of what was on its way to the role: heard (by whom), heard_turn (when they said it), heard_weight, heard_kept
    (whether it arrived), heard_reason (why not; empty if it did).

    Args:
        tasks: makes the `TaskEnv`. graph: who works with whom.
        price: what each turn costs the team: `price` less for everybody, for each of them.
        accept: what a role says to repeat the last message that it heard, without one its own last answer.
        verifier: what rules see of the score. improve: a role's answer replaces its last one only if it scores higher.
        separator: stands between what a role reads. longest: of an answer that others read, in characters.
        reads: of the question, everybody "whole", or the first role the first "part", the second one the second …

    Raises:
        InputError: the env is no task with one answer, or an option is out of range; when it is reset, a question that
            has not as many parts as there are roles.
    """

    facts = {
        "round": int, "answer": str, "score": float, "expected": str,
        "heard": list[str], "heard_turn": list[int], "heard_weight": list[float], "heard_kept": list[bool],
        "heard_reason": list[str],
    }  # fmt: skip

    def __init__(
        self,
        tasks: EnvFactory,
        graph: Graph,
        *,
        price: float = 0.0,
        accept: str = ACCEPT,
        separator: str = SEPARATOR,
        longest: int = LONGEST,
        reads: Reads = "whole",
        verifier: str = "exact()",
        improve: bool = False,
    ) -> None:
        if reads not in get_args(Reads):
            raise InputError(f"workflow: reads={reads!r}{nearest(str(reads), get_args(Reads))}")
        if not accept.strip() or not separator.strip() or longest < 1 or not price >= 0:
            raise InputError(
                f"workflow: accept={accept!r} and separator={separator!r} must not be blank, longest={longest} at "
                f"least 1, price={price} at least 0"
            )
        self.inner: TaskEnv = made_task(tasks, "workflow")
        self.graph, self.price, self.reads = graph, price, reads
        self.agents = tuple(graph.roles)
        self.task = ""
        self._accept, self._separator, self._longest = accept.strip().casefold(), separator, longest
        self._mark = separator.strip()
        self._gate, self._route = GATES.build(graph.gate), ROUTES.build(graph.route)
        self._verifier, self._improve = VERIFIERS.build(verifier), improve
        self._aggregate, self._stop = AGGREGATES.build(graph.aggregate), STOPS.build(graph.stop)
        self._acting: dict[str, list[Message]] = {}
        self._rng: np.random.Generator | None = None

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Ask the first roles the question of `seed`."""
        self.inner.reset(seed)
        self.task = self.inner.task
        self._seed, self._rng = seed, None
        self._questions = self._read_by()
        self._said: dict[str, Message] = {}
        self._true: dict[str, float | None] = {}
        self._shown: dict[str, str] = {}
        self._every: list[Message] = []
        self._round = self._step = self._turn = 0
        return self._ask()

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Take the answers of those who spoke at once; ask the next, or score the team's answer."""
        if actions.keys() != self._acting.keys():
            raise EnvError(f"actions of {sorted(actions)} were given, but the agents to act are {sorted(self._acting)}")
        info: dict[str, Any] = {"round": self._round, "expected": self.inner.answer, **self._told}
        spoken = [self._read(role, read_answer(action)) for role, action in actions.items()]
        info["answer"], info["score"], info["valid"] = answers, scores, valid = {}, {}, {}
        for said in spoken:  # only now, since those who speak at once do not hear each other
            role, score = said.role, self._true[said.text]
            answers[role], scores[role], valid[role] = said.text, score, score is not None
            before = self._said.pop(role, None)
            self._said[role] = before if before and self._improve and not _better(said, before) else said
        self._every += spoken
        self._turn += 1
        latest = [said for said in self._said.values() if said.held is None] or list(self._said.values())
        if not self._stop(latest) and (observations := self._next()):
            return StepResult(observations, info=info)
        self._acting = {}
        final = self._aggregate(latest, self._draw)
        score = self._true[final.text]
        info["success"] = self.inner.solved(score)
        info["final"], info["final_role"], info["final_read"] = final.text, final.role, score is not None
        worth = (score or 0.0) - self.price * len(self._every)
        return StepResult({}, dict.fromkeys(self._said, worth), terminated=True, info=info)

    def _read_by(self) -> dict[str, str]:
        """Part of the question that each role reads."""
        if self.reads == "whole":
            return dict.fromkeys(self.agents, self.question)
        parts = self.inner.current.parts
        if len(parts) != len(self.agents):
            raise InputError(
                f"workflow: reads='part', but the question has {len(parts) or 'no'} parts for {len(self.agents)} roles"
            )
        return dict(zip(self.agents, parts, strict=True))

    def _read(self, role: str, text: str) -> Message:
        """Message of a role as it counts: a word of acceptance stands for what it accepts."""
        if text.casefold() == self._accept:
            heard = self._acting[role]
            accepted = heard[-1] if heard else self._said.get(role)
            if accepted is not None:
                return Message(role, accepted.text, accepted.score, self._turn, self._round, accepts=True)
        if text not in self._true:
            self._true[text] = self.inner.score(text)
            self._shown[text] = text.replace(self._mark, " ")[: self._longest]
        return Message(role, text, self._verifier(self._true[text], self._draw), self._turn, self._round)

    def _draw(self) -> np.random.Generator:
        if self._rng is None:
            self._rng = np.random.default_rng([self._seed, DRAWS])
        return self._rng

    def _next(self) -> dict[str, Observation]:
        """The next step in which a route lets somebody act; nobody after the last round."""
        while True:
            self._step += 1
            if self._step == len(self.graph.steps):
                self._round, self._step = self._round + 1, 0
            if self._round == self.graph.rounds:
                return {}
            if observations := self._ask():
                return observations

    def _ask(self) -> dict[str, Observation]:
        """Whose turn it is, and what they hear."""
        roles = self._route(self.graph.steps[self._step], list(self._said.values()), self._draw)
        self._acting, observations = {}, {}
        self._told: dict[str, dict[str, tuple[Any, ...]]] = {name: dict.fromkeys(roles, ()) for name in _HEARD}
        senders, turns, weights, kept, reasons = self._told.values()
        for role in roles:
            own, coming = self._said.get(role), self._coming(role)
            arrived = coming
            if coming:
                weights[role], held = zip(*self._verdicts(role, own, coming), strict=True)
                senders[role], turns[role] = tuple(map(_ROLE, coming)), tuple(map(_TURN, coming))
                if held.count(None) < len(held):
                    kept[role] = tuple([each is None for each in held])
                    reasons[role] = tuple([each or "" for each in held])
                    arrived = list(itertools.compress(coming, kept[role]))
                else:
                    kept[role], reasons[role] = (True,) * len(coming), ("",) * len(coming)
            self._acting[role] = arrived
            observations[role] = self._observation(role, own if self.graph.own else None, arrived)
        return observations

    def _verdicts(self, role: str, own: Message | None, coming: list[Message]) -> list[Verdict]:
        """Verdicts of the gate on each message; messages that are held anyway are not asked about."""
        judged = [said for said in coming if said.held is None]
        verdicts = self._gate(role, own, judged, self._draw) if judged else []
        if len(verdicts) != len(judged):
            raise EnvError(f"the gate {self.graph.gate} gave {len(verdicts)} verdicts for {len(judged)} messages")
        if len(judged) == len(coming):
            return verdicts
        following = iter(verdicts)
        return [next(following) if said.held is None else (0.0, said.held) for said in coming]

    def _coming(self, role: str) -> list[Message]:
        """Messages to this role: the latest of each sender, or all."""
        senders = self.graph.heard[role]
        if self.graph.memory == "all":
            return [said for said in self._every if said.role in senders]
        return [self._said[sender] for sender in senders if sender in self._said]

    def _observation(self, role: str, own: Message | None, heard: list[Message]) -> Observation:
        question, shown = self._questions[role], self._shown
        mine = [] if own is None else [shown[own.text]]
        text = self._separator.join([question, *mine, *[shown[said.text] for said in heard]])
        if not self.graph.roles[role]:
            return Observation(text)
        lines = [question]
        lines += [f"You said: {own.text[: self._longest]}"] if own is not None else []
        lines += [f"{said.role}: {said.text[: self._longest]}" for said in heard]
        told = {"role": "system", "content": self.graph.roles[role]}
        return Observation(text, messages=(told, {"role": "user", "content": "\n".join(lines)}))


_HEARD = ("heard", "heard_turn", "heard_weight", "heard_kept", "heard_reason")
_ROLE, _TURN = attrgetter("role"), attrgetter("turn")


def _better(said: Message, before: Message) -> bool:
    return said.score is not None and (before.score is None or said.score > before.score)
