"""Rectify or reject: every message is audited before anybody hears it ([111], AgentDropoutV2, arXiv 2602.23258).

    audited(5, audit="readable()", attempts=4)
    audited(5, audit="pool('indicators.jsonl', k=5)")

What fails is said again by who said it, told what is wrong; what fails to the end is held back from everybody, and from
the vote. If fewer than `least` messages survive, the team works once more without audits. An audit is a rule, or a pool
of indicators, typical errors about which seats `auditor-1` … `auditor-k` are asked, each about one: so any policy can
audit, its calls are turns, and a chat model does it at temperature 0. Left out: a model's summary of a message's
scenario, which is its question and its text here.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from palaestra.envs.conversations import Conversation
from palaestra.envs.protocol import Action, EnvFactory, Observation, StepResult
from palaestra.envs.tasks import read_answer
from palaestra.errors import EnvError, InputError
from palaestra.foundation.registry import Registry, load_object
from palaestra.teams.auditors import AUDITOR, audit_request, read_verdict
from palaestra.teams.deliberation import Deliberation
from palaestra.teams.graph import Graph
from palaestra.teams.indicators import Indicator, IndicatorPool, read_pool
from palaestra.teams.instructions import Instructions, family
from palaestra.teams.rules import Draw, Message

Audit = Callable[[Message, Draw], Sequence[str | None]]
"""(what was said, stream) -> of each indicator what should change, None if it finds nothing wrong."""
AUDITS: Registry[Audit | IndicatorPool] = Registry("audit", home=("palaestra.teams.audit",), example="readable()")
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


@AUDITS.register("pool")
def pool(path: str, k: int = 5) -> IndicatorPool:
    """Makes an audit by the `k` indicators of a file nearest to a message; seats `auditor-1` … are asked, one each.

    Args:
        path: File of indicators (`palaestra.teams.indicators`).
        k: How many are asked about, in turns of their own; they are found anew for each attempt.
    """
    return read_pool(path, k)


class AuditedDeliberation(Deliberation):
    """Team env (of a `TaskEnv` factory): `Deliberation` whose messages `audit` may refuse, each up to `attempts` times.

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
        self._audit: Any = AUDITS.build(audit)
        self.attempts, self.pass_rate, self.least = attempts, pass_rate, least

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
        self._check(actions)
        latest: dict[str, Message] = {}
        found: dict[str, list[str | None]] = {}
        for role, action in actions.items():
            latest[role] = self._read(role, read_answer(action))
            found[role] = list(self._audit(latest[role], self._draw)) if self._audits else []
        return self._settle(latest, found)

    def _check(self, actions: Mapping[str, Action]) -> None:
        if not self._acting or actions.keys() != self._waiting:
            due = sorted(self._waiting) if self._acting else []
            raise EnvError(f"actions of {sorted(actions)} were given, but the agents to act are {due}")

    def _passes(self, found: Sequence[str | None]) -> bool:
        return not found or found.count(None) / len(found) >= self.pass_rate - 1e-9

    def _settle(self, latest: Mapping[str, Message], found: Mapping[str, Sequence[str | None]]) -> StepResult:
        """Ask for failed messages again, or go on with those that passed."""
        told: dict[str, dict[str, Any]] = {name: {} for name in ("audit_failed", "audit_passed", "attempt")}
        again: dict[str, Observation] = {}
        for role, said in latest.items():
            wrong = [each for each in found[role] if each is not None]
            passed = self._passes(found[role])
            told["audit_failed"][role] = len(wrong) / len(found[role]) if found[role] else None
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
            return StepResult(again, info=self._facts_of(latest) | told)
        result = super().step(dict.fromkeys(self._acting, ""))
        info = {
            name: {role: each[role] for role in latest} if isinstance(each, Mapping) else each
            for name, each in result.info.items()
        } | told
        if result.terminated and self._audits and self._survivors() < self.least:
            self._audits, self._said = False, {}
            self._round = self._step = 0
            info = {name: value for name, value in info.items() if name not in ("success", "final", "final_role")}
            return StepResult(self._ask(), info=info)
        return dataclasses.replace(result, info=info)

    def _facts_of(self, latest: Mapping[str, Message]) -> dict[str, Any]:
        """Facts of messages that are not settled yet."""
        told = {name: {role: each[role] for role in each if role in latest} for name, each in self._told.items()}
        return {
            "round": self._round,
            "expected": self.inner.answer,
            **told,
            "valid": {role: self._readable(said) for role, said in latest.items()},
            "read_as": {role: said.form for role, said in latest.items()},
            "answer": {role: said.text for role, said in latest.items()},
            "score": {role: self._true[said.text] for role, said in latest.items()},
        }

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


class AuditorDeliberation(AuditedDeliberation):
    """Team env (of a `TaskEnv` factory): `AuditedDeliberation` whose audits are turns of seats, an indicator each.

    A message is audited before it counts: the pool's indicators nearest to its question and text are found, and
    `auditor-1` … are asked about one each, at once. A verdict is flawed if the auditor says so, suggests a change, and
    calls the error significant. One that cannot be read does not count, and its turn is not valid. Auditors get the
    team's score, too, and `price` is not asked for their turns.

    facts: its own; of an auditor's turn audited, whose message; indicator, by name; flawed, its verdict; and the
    attempt, audit_failed and audit_passed of that message, which stand there and not in its own turn.

    Args:
        audit: text of a pool. instructions: those of the role `auditor` are the auditors' system prompt.
    """

    facts = {**AuditedDeliberation.facts, "audited": str, "indicator": str, "flawed": bool}

    def __init__(
        self,
        tasks: EnvFactory,
        graph: Graph,
        *,
        audit: str,
        instructions: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        if options.get("reads", "whole") != "whole":
            raise InputError("audited: auditors read whole questions; leave reads='part' out, or audit by a rule")
        given = dict(instructions or {})
        own = {role: given.pop(role) for role in list(given) if family(role) == AUDITOR}
        super().__init__(tasks, graph, audit=audit, instructions=given, **options)
        self.pool: IndicatorPool = self._audit
        self.auditors = tuple(f"{AUDITOR}-{at}" for at in range(1, self.pool.k + 1))
        self.agents = (*self.agents, *self.auditors)
        self._brief = Instructions(AUDITOR, dict.fromkeys(self.auditors, ""), own)

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Begin as `AuditedDeliberation` does; every message will be audited."""
        self._open: dict[str, Indicator] = {}
        self._heard: set[str] = set()
        return super().reset(seed)

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Take messages, and ask the auditors about one after the other; or take the auditors' verdicts."""
        result = self._hear(actions) if self._open else self._listen(actions)
        if not result.terminated:
            return result
        worth = next(iter(result.rewards.values()))
        return dataclasses.replace(result, rewards={**result.rewards, **dict.fromkeys(self._heard, worth)})

    def _listen(self, actions: Mapping[str, Action]) -> StepResult:
        """Take messages, and begin to audit them."""
        if not self._audits:
            return super().step(actions)
        self._check(actions)
        self._latest = {role: self._read(role, read_answer(action)) for role, action in actions.items()}
        self._found: dict[str, list[str | None]] = {role: [] for role in actions}
        self._left = deque(self._latest)
        if observations := self._next_audit():
            tries = {role: self._tries[role] for role in actions}
            return StepResult(observations, info=self._facts_of(self._latest) | {"attempt": tries})
        return self._settle(self._latest, self._found)

    def _hear(self, actions: Mapping[str, Action]) -> StepResult:
        """Take the verdicts on a message; go on to the next one, or settle all that were said at once."""
        self._check(actions)
        role, asked, self._open = self._about, self._open, {}
        self._heard |= asked.keys()
        verdicts = {seat: read_verdict(read_answer(action)) for seat, action in actions.items()}
        found = self._found[role] = [suggestion for flawed, suggestion in verdicts.values() if flawed is not None]
        share = 1 - found.count(None) / len(found) if found else None
        info: dict[str, Any] = {
            "round": self._round,
            "audited": role,
            "attempt": self._tries[role],
            "audit_failed": share,
            "audit_passed": self._passes(found),
            "indicator": {seat: each.name for seat, each in asked.items()},
            "flawed": {seat: flawed for seat, (flawed, _) in verdicts.items()},
            "valid": {seat: flawed is not None for seat, (flawed, _) in verdicts.items()},
        }
        if observations := self._next_audit():
            return StepResult(observations, info=info)
        result = self._settle(self._latest, self._found)
        return dataclasses.replace(result, info={**result.info, **info})

    def _next_audit(self) -> dict[str, Observation]:
        """What the auditors of the next message see; nothing if none is left that an indicator fits."""
        while self._left:
            self._about = role = self._left.popleft()
            said = self._latest[role]
            question, text = self._questions[role], said.reply or said.text
            near = self.pool.nearest(f"{question}\n{text}")
            if near:
                self._open = dict(zip(self.auditors, near, strict=False))
                self._waiting = set(self._open)
                self._turn += 1
                values = {"question": question, "message": text, "role": role, "separator": self._separator}
                return {seat: audit_request(self._brief, seat, each, **values) for seat, each in self._open.items()}
        return {}


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

    talk: false, and they answer at once. Others: of `AuditedDeliberation`, and of every team. With a pool of
    indicators, `audit="pool('indicators.jsonl')"`, there are seats `auditor-1` … beside the agents.
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
    by_pool = isinstance(AUDITS.build(audit), IndicatorPool)
    team = AuditorDeliberation if by_pool else AuditedDeliberation
    factory = functools.partial(
        team, tasks, graph, audit=audit, attempts=attempts, pass_rate=pass_rate, least=least, **options
    )
    factory()
    return factory
