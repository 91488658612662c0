"""`nested`: roles of a team that are teams themselves, with rounds, a vote and a stop of their own.

    nested("chain(3)", {"link-2": "debate(3, rounds=2)"})           # the second of a chain is a debate of three

When the outer team asks such a role, its members work on what the role was asked; their answer is what the role says.
Members are seats like any other (`link-2/debater-1`), so each has its own policy, turns and credit. Left out: members
who remember what their team did earlier in the episode, beyond its last answer.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from palaestra.envs.conversations import first_words, words
from palaestra.envs.protocol import Action, EnvFactory, NoAction, Observation, StepResult
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.errors import InputError, PolicyError, nearest
from palaestra.foundation.registry import read_call
from palaestra.teams.deliberation import Deliberation
from palaestra.teams.instructions import TEMPLATES
from palaestra.teams.named import WORKFLOWS
from palaestra.teams.rules import Message
from palaestra.teams.task_wrapper import TaskTeamEnv

HEARD = ("heard", "heard_turn", "heard_weight", "heard_kept", "heard_reason", "heard_cut")
Shape = str | Mapping[str, Any]
"""A workflow as recipes write it: a call, or the parts of a graph."""


class RoleTask(TaskEnv):
    """Task env of an inner team, whose question is the one that its role is asked; scored as the outer task."""

    def __init__(self, outer: TaskEnv) -> None:
        self.outer = outer
        self.threshold = outer.threshold
        self.asked = ""

    def draw(self, seed: int) -> Task:
        """The `Task` whose question the role is asked now."""
        return Task(self.outer.task, self.asked, self.outer.current.score, self.outer.answer, says=self.outer.says)


@dataclasses.dataclass
class _Member:
    """A role that is a team: its game, what its members are asked as plain text, who opened, and its last speakers."""

    role: str
    env: Deliberation
    task: RoleTask
    plain: str = ""
    opening: bool = True
    asked: int = 0
    turns: dict[str, int] = dataclasses.field(default_factory=dict)
    acting: tuple[str, ...] = ()

    def seat(self, agent: str) -> str:
        return f"{self.role}/{agent}"

    def shown(self, observations: Mapping[str, Observation]) -> dict[str, Observation]:
        """What its members see; as plain text what policies without a chat read of the role itself."""
        self.acting = tuple(observations)
        found, question = {}, self.task.asked
        for agent, seen in observations.items():
            if seen.text.startswith(question):
                seen = dataclasses.replace(seen, text=self.plain + seen.text[len(question) :])
            found[self.seat(agent)] = seen
        return found


class Nested(TaskTeamEnv):
    """Team env (of a `TaskEnv` factory) of workflow `outer`; roles in `teams` are workflows, their seats `ROLE/NAME`.

    facts: those of the outer team and of all inner ones, of each turn; team: the role whose member acts, null for
    others. A member that opens hears what its role heard.

    Args:
        tasks: Makes the `TaskEnv`.
        outer: Workflow of the team around it.
        teams: Role of it -> workflow of its members.

    Raises:
        InputError: a role is unknown or is asked for something else than an answer, or a workflow is not made of a
            graph of roles.
    """

    def __init__(self, tasks: EnvFactory, outer: Shape, teams: Mapping[str, Shape]) -> None:
        self.outer = _deliberation(outer, tasks, "outer")
        self.inner = self.outer.inner
        roles = self.outer.graph.roles
        self._members: dict[str, _Member] = {}
        for role, shape in teams.items():
            if role not in roles:
                raise InputError(f"nested: teams has {role!r}, which is no role{nearest(role, roles)}")
            if asks := set(self.outer.graph.asks.get(role, ())) - {"answer"}:
                raise InputError(f"nested: {role!r} is asked for {', '.join(sorted(asks))}, which no team can say")
            task = RoleTask(self.inner)
            self._members[role] = _Member(role, _deliberation(shape, functools.partial(_same, task), role), task)
        self.agents = tuple(
            name
            for role in self.outer.agents
            for name in (
                [self._members[role].seat(each) for each in self._members[role].env.agents]
                if role in self._members
                else [role]
            )
        )
        if len(set(self.agents)) < len(self.agents):
            raise InputError(f"nested: two seats have one name among {', '.join(self.agents)}")
        self.tolerates = self.outer.tolerates or any(each.env.tolerates for each in self._members.values())
        self.facts: dict[str, Any] = {"team": str}
        for env in (self.outer, *(each.env for each in self._members.values())):
            self.facts |= env.facts
        self.task = ""

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Begin the outer team's episode, and ask its first roles or their members."""
        self._seed, self._now, self._extra = seed, 0, 0
        self._done: dict[str, Action] = {}
        self._spoke: dict[tuple[str, int], tuple[str, int]] = {}
        for member in self._members.values():
            member.turns, member.asked = {}, 0
        seen = self.outer.reset(seed)
        self.task = self.outer.task
        return self._ask(seen)

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Take the actions of roles and members; the outer team goes on once all roles it asked have answers."""
        info: dict[str, Any] = {}
        observations: dict[str, Observation] = {}
        for role, action in actions.items():
            if role in self._asked:
                self._done[role] = action
        for member in self._members.values():
            given = {agent: actions[member.seat(agent)] for agent in member.acting}
            if given:
                observations |= self._member_step(member, given, info)
        self._now += 1
        if self._asked - self._done.keys():
            return StepResult(observations, info=info)
        self.outer._turn = self._now - 1
        done = {role: self._done[role] for role in self._order}
        for role, action in done.items():
            if isinstance(action, NoAction) and not self.outer.tolerates:
                raise PolicyError(f"{role}: {action.error}")
        result = self.outer.step(done)
        self._merge(info, result.info)
        rewards = {seat: pay for role, pay in result.rewards.items() for seat in self._paid(role)}
        extra = self.outer.price * self._extra if rewards else 0.0
        rewards = {seat: None if pay is None else pay - extra for seat, pay in rewards.items()}
        if result.terminated:
            return StepResult({}, rewards, terminated=True, info=info)
        return StepResult(self._ask(result.observations), rewards, info=info)

    # -- members ------------------------------------------------------------------------------------------------------

    def _ask(self, seen: Mapping[str, Observation]) -> dict[str, Observation]:
        self._order, self._asked, self._done = tuple(seen), set(seen), {}
        found: dict[str, Observation] = {}
        for role, observation in seen.items():
            member = self._members.get(role)
            if member is None:
                found[role] = observation
                continue
            own = self.outer._said.get(role)
            heard = [self._shown(said) for said in self.outer._acting[role]]
            if self.outer._longest is not None:
                self.outer._told["heard_cut"][role] = [each["left_out"] for each in heard]
            member.task.asked = TEMPLATES.render(
                "nested",
                {
                    "persona": self.outer.graph.roles[role].strip(),
                    "question": self.outer._questions[role],
                    "heard": heard,
                    "own": own.text if own is not None and self.outer.graph.own else None,
                },
            ).strip()
            member.plain, member.opening, member.asked = observation.text, True, member.asked + 1
            place = [self._seed, self.outer.agents.index(role), member.asked]
            found |= member.shown(member.env.reset(int(np.random.SeedSequence(place).generate_state(1)[0])))
        return found

    def _shown(self, said: Message) -> dict[str, Any]:
        """A message as members read it: no longer than the outer team lets a message be."""
        text, longest = said.reply, self.outer._longest
        left_out = 0 if longest is None else max(0, words(text) - longest)
        return {"role": said.role, "text": first_words(text, longest) if longest else text, "left_out": left_out}

    def _member_step(self, member: _Member, given: dict[str, Action], info: dict[str, Any]) -> dict[str, Observation]:
        """One step of a team; its answer is kept if it is there."""
        member.env._turn = self._now
        member.acting = ()
        lost = [action for action in given.values() if isinstance(action, NoAction)]
        if lost and not member.env.tolerates:
            self._done[member.role] = lost[0]
            return {}
        try:
            result = member.env.step(given)
        except PolicyError as error:
            if not self.outer.tolerates:
                raise
            self._done[member.role] = NoAction(str(error))
            return {}
        self._extra += len(given)
        for agent in given:
            member.turns[agent] = self._now
        told = {name: self._named(member, value) for name, value in result.info.items() if isinstance(value, Mapping)}
        told["heard"] = {seat: tuple(map(member.seat, names)) for seat, names in told["heard"].items()}
        if member.opening:
            self._overheard(member, told)
        member.opening = False
        told["team"] = dict.fromkeys(map(member.seat, given), member.role)
        for name in ("round", "expected"):
            told[name] = dict.fromkeys(map(member.seat, given), result.info[name])
        for name, value in told.items():
            info[name] = {**info.get(name, {}), **value}
        if result.terminated:
            self._extra -= 1
            speaker = result.info["final_role"]
            self._done[member.role] = result.info["final"]
            self._spoke[member.role, self._now] = member.seat(speaker), member.turns[speaker]
        return member.shown(result.observations)

    def _named(self, member: _Member, value: Mapping[str, Any]) -> dict[str, Any]:
        return {member.seat(agent): each for agent, each in value.items()}

    def _overheard(self, member: _Member, told: dict[str, dict[str, Any]]) -> None:
        """Members who open have heard what their role heard."""
        heard = {name: tuple(self.outer._told.get(name, {}).get(member.role, ())) for name in HEARD}
        heard["heard"], heard["heard_turn"] = self._speakers(heard["heard"], heard["heard_turn"])
        for name in HEARD:
            for seat, own in told.get(name, {}).items():
                told[name][seat] = (*heard[name], *own)

    def _speakers(self, names: tuple[str, ...], turns: tuple[int, ...]) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """Of messages of teams, which member said it, and when."""
        pairs = [self._spoke.get((name, turn), (name, turn)) for name, turn in zip(names, turns, strict=True)]
        return tuple(name for name, _ in pairs), tuple(turn for _, turn in pairs)

    # -- the outer team -----------------------------------------------------------------------------------------------

    def _merge(self, info: dict[str, Any], outer: Mapping[str, Any]) -> None:
        """Facts of the outer team's step; those of a role that is a team are its members' own."""
        plain = [role for role in self._order if role not in self._members]
        for name, value in outer.items():
            if isinstance(value, Mapping):
                mine = {role: value[role] for role in plain if role in value}
                if name == "heard":
                    pairs = {role: self._speakers(value[role], outer["heard_turn"][role]) for role in mine}
                    info["heard"] = {**info.get("heard", {}), **{role: names for role, (names, _) in pairs.items()}}
                    turns = {role: found for role, (_, found) in pairs.items()}
                    info["heard_turn"] = {**info.get("heard_turn", {}), **turns}
                elif name != "heard_turn":
                    info[name] = {**info.get(name, {}), **mine}
            elif name in ("round", "expected"):
                info[name] = {**info.get(name, {}), **dict.fromkeys(plain, value)}
            else:
                info[name] = value

    def _paid(self, role: str) -> tuple[str, ...]:
        """Seats that earn what a role earns: members who spoke."""
        member = self._members.get(role)
        return (role,) if member is None else tuple(member.seat(agent) for agent in member.turns)


def _deliberation(shape: Shape, tasks: EnvFactory, what: str) -> Deliberation:
    if isinstance(shape, str):
        name, values, options = read_call(shape, "debate(3)")
    else:
        name, values, options = "graph", [], dict(shape)
    env = WORKFLOWS.find(name)(tasks, *values, **options)()
    if not isinstance(env, Deliberation):
        raise InputError(f"nested: {what}={shape!r} is a {type(env).__name__}, not a graph of roles")
    return env


def _same(task: RoleTask) -> RoleTask:
    return task


def nested(tasks: EnvFactory, outer: Shape, teams: Mapping[str, Shape]) -> EnvFactory:
    """Env factory from another, `tasks`: workflow `outer`, of which `teams` {role: workflow} fills roles; see `Nested`.

    Args:
        tasks: Makes the `TaskEnv`.
        outer: Workflow around it, as recipes write it: `"chain(3)"`, or the parts of a graph.
        teams: Role of it -> workflow of its members. Their seats are called `ROLE/NAME`.

    Raises:
        InputError: see `Nested`.
    """
    factory = functools.partial(Nested, tasks, outer, dict(teams))
    factory()
    return factory
