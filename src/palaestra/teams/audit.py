"""Rectify or reject: every message is audited before anybody hears it ([111], AgentDropoutV2, arXiv 2602.23258).

    audited(5, audit="readable()", attempts=4)

What fails is said again by who said it, told what is wrong; what fails to the end is held back from everybody, and from
the vote. If fewer than `least` messages survive, the team works once more without audits. Left out: the pool of
indicators that a model extracts from failures; an audit is a rule, and one that asks a model is a function of yours.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from palaestra.envs.conversations import Conversation
from palaestra.envs.protocol import Action, EnvFactory, Observation, StepResult
from palaestra.envs.tasks import read_answer
from palaestra.errors import EnvError, InputError
from palaestra.foundation.registry import Registry, load_object
from palaestra.teams.deliberation import Deliberation
from palaestra.teams.graph import Graph
from palaestra.teams.rules import Draw, Message

Audit = Callable[[Message, Draw], Sequence[str | None]]
"""(what was said, stream) -> of each indicator what should change, None if it finds nothing wrong."""
AUDITS: Registry[Audit] = Registry("audit", home=("palaestra.teams.audit",), example="readable()")
NOTE = "audit: "


@AUDITS.register("readable")
def readable() -> Audit:
    """Makes an audit rule of messages: asks for a readable answer where the task can read none."""
    return lambda said, draw: [None if said.score is not None else "give an answer that can be read"]


@AUDITS.register("indicators")
def indicators(number: int = 5, *, wrong: float = 0.25, right: float = 0.03, threshold: float = 1.0) -> Audit:
    """Makes a simulated audit rule: `number` checks fire at rates `wrong` and `right` on messages, by the task's score.

    A wrong message passes with (1 - wrong)^number, a right one with (1 - right)^number: .237 and .859 by default.
    """
    if number < 1 or not 0 <= wrong <= 1 or not 0 <= right <= 1:
        raise InputError(f"indicators: number={number} must be at least 1, wrong={wrong} and right={right} from 0 to 1")

    def audit(said: Message, draw: Draw) -> list[str | None]:
        rate = right if said.score is not None and said.score >= threshold else wrong
        return ["look at it again" if luck < rate else None for luck in draw().random(number)]

    return audit


@AUDITS.register("checks")
def checks(function: str) -> Audit:
    """Makes an audit rule from a function `module:name` of a message's text, which lists what should change."""
    check = load_object(function, "checks")
    return lambda said, draw: list(check(said.text)) or [None]


class AuditedDeliberation(Deliberation):
    """Team env: `Deliberation` of a graph over `tasks` whose messages `audit` may refuse, each up to `attempts` times.

    facts: its own; of each turn audit_failed, share of indicators that fired; audit_passed; attempt, from 0.

    Args:
        audit: text of a rule. attempts: how often a message may be tried. pass_rate: share of indicators that must find
            nothing wrong. least: with fewer messages at the end the team works once more, without audits.
    """

    facts = {**Deliberation.facts, "audit_failed": float, "audit_passed": bool, "attempt": int}

    def __init__(
        self,
        tasks: EnvFactory,
        graph: Graph,
        *,
        audit: str,
        attempts: int,
        pass_rate: float,
        least: int,
        **options: Any,
    ) -> None:
        super().__init__(tasks, graph, **options)
        if attempts < 1 or not 0 < pass_rate <= 1 or least < 0:
            raise InputError(f"audited: {attempts=} >= 1, pass_rate={pass_rate} in (0, 1], {least=} >= 0")
        self._audit, self.attempts, self.pass_rate, self.least = AUDITS.build(audit), attempts, pass_rate, least

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Begin as `Deliberation` does; every message will be audited."""
        self._audits = True
        return super().reset(seed)

    def _ask(self) -> dict[str, Observation]:
        observations = super()._ask()
        self._settled: dict[str, Message] = {}
        self._asked, self._tries = dict(observations), dict.fromkeys(observations, 0)
        self._asking = {r: seen.messages for r, seen in observations.items() if isinstance(seen.messages, Conversation)}
        self._waiting = set(observations)
        return observations

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Audit the messages; ask for failed ones again, or go on with those that passed."""
        if not self._acting or actions.keys() != self._waiting:
            due = sorted(self._waiting) if self._acting else []
            raise EnvError(f"actions of {sorted(actions)} were given, but the agents to act are {due}")
        told: dict[str, dict[str, Any]] = {name: {} for name in ("audit_failed", "audit_passed", "attempt")}
        again: dict[str, Observation] = {}
        latest: dict[str, Message] = {}
        for role, action in actions.items():
            said = latest[role] = self._read(role, read_answer(action))
            found = list(self._audit(said, self._draw)) if self._audits else []
            wrong = [each for each in found if each is not None]
            passed = not found or 1 - len(wrong) / len(found) >= self.pass_rate - 1e-9
            told["audit_failed"][role] = len(wrong) / len(found) if found else None
            told["audit_passed"][role], told["attempt"][role] = passed, self._tries[role]
            self._tries[role] += 1
            if not passed:
                said = said._replace(held="failed the audit")
                if self._tries[role] < self.attempts:
                    self._every.append(said)
                    again[role] = self._note(role, said, wrong)
                    continue
            self._settled[role] = said
        if again:
            self._waiting = set(again)
            self._turn += 1
            facts = {
                name: {role: value for role, value in each.items() if role in actions}
                for name, each in self._told.items()
            }
            shown = {
                "round": self._round,
                "expected": self.inner.answer,
                **facts,
                **told,
                "valid": {role: self._readable(said) for role, said in latest.items()},
                "read_as": {role: said.form for role, said in latest.items()},
                "answer": {role: said.text for role, said in latest.items()},
                "score": {role: self._true[said.text] for role, said in latest.items()},
            }
            return StepResult(again, info=shown)
        result = super().step(dict.fromkeys(self._acting, ""))
        info = {
            name: {role: each[role] for role in actions} if isinstance(each, Mapping) else each
            for name, each in result.info.items()
        } | told
        if result.terminated and self._audits and self._survivors() < self.least:
            self._audits, self._said = False, {}
            self._round = self._step = 0
            info = {name: value for name, value in info.items() if name not in ("success", "final", "final_role")}
            return StepResult(self._ask(), info=info)
        return dataclasses.replace(result, info=info)

    def _read(self, role: str, text: str) -> Message:
        return self._settled.pop(role) if role in self._settled else super()._read(role, text)

    def _survivors(self) -> int:
        return sum(said.held is None for said in self._said.values())

    def _note(self, role: str, said: Message, wrong: Sequence[str]) -> Observation:
        """Observation after a rejection: the earlier prompt, the rejected answer, and the complaint."""
        note = NOTE + "; ".join(dict.fromkeys(wrong))
        mark, seen = self._separator.strip(), self._asked[role]
        text = self._separator.join([seen.text, self._cut(said.text.replace(mark, " ")), note.replace(mark, " ")])
        talk = self._instructions.turn(
            role,
            self.graph.ask(role, self._turns[role]),
            self._questions[role],
            before=(self._asking[role], said.reply),
            note=f"{note}. If you are sure, say it again.",
            round=self._round + 1,
        )
        self._asking[role] = talk
        if role in self._talks:
            self._talks[role] = (talk, "")
        return Observation(text, messages=talk, fields=seen.fields)


def audited(
    tasks: EnvFactory,
    agents: int = 5,
    *,
    rounds: int = 1,
    talk: bool = True,
    audit: str = "readable()",
    attempts: int = 4,
    pass_rate: float = 1.0,
    least: int = 2,
    aggregate: str = "vote()",
    **options: Any,
) -> EnvFactory:
    """Env factory from another, `tasks`: agents speak in turn, `audit` may have a message said again, then they vote.

    [111].

    talk: false, and they answer at once. Others: of `AuditedDeliberation`, and of every team.
    """
    if agents < 1 or least > agents:
        raise InputError(f"audited: {agents=} must be at least 1, and least={least} at most as many")
    names = [f"agent-{at}" for at in range(1, agents + 1)]
    edges = "all" if talk and agents > 1 else "none"
    graph = Graph.of(
        names,
        edges=edges,
        steps=names if talk else [names],
        rounds=rounds,
        aggregate=aggregate,
        own=rounds > 1,
        workflow="audited",
    )
    factory = functools.partial(
        AuditedDeliberation, tasks, graph, audit=audit, attempts=attempts, pass_rate=pass_rate, least=least, **options
    )
    factory()
    return factory
