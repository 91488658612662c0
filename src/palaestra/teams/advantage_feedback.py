"""`advantage_feedback`: what a team proposes is scored by a learned advantage, and asked again until it is good enough.

ReAd ([56], arXiv 2405.14314): the critic knows from logged play what growing prefixes of a joint action earn. Any env
whose agents act at once, any policies. Left out: a critic that is fitted to features of states instead of to states.
"""

from __future__ import annotations

import functools
from collections.abc import Generator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from palaestra.algebra.turns import Turns
from palaestra.credit.critics import PrefixCritic, refinement
from palaestra.credit.joint_actions import fitted_critic
from palaestra.envs.conversations import ChatMessage, Conversation, Reader
from palaestra.envs.facts import facts_of
from palaestra.envs.protocol import Action, Env, EnvFactory, Observation, StepResult
from palaestra.errors import EnvError, InputError

Order = Literal["sequential", "joint"]


class AdvantageFeedbackEnv:
    """Env wrapper (of an env factory): asks agents again, up to `max_queries` times, until `critic` gives `threshold`.

    sequential: the agents are asked one after the other, in the order of their names, and read what was decided before;
    joint: all at once, and again if their joint action is not good enough. Whoever is asked again reads the score. Then
    the env takes its step. facts: those of the env, on the row of who was asked last; round, how many steps it has
    taken; accepted, whether the proposal is good enough or the last one allowed.
    """

    _decided: int

    def __init__(
        self, env: EnvFactory, critic: PrefixCritic | None, threshold: float, max_queries: int, order: Order
    ) -> None:
        self.inner: Env = env()
        self.critic, self.threshold, self.max_queries, self.order = critic, threshold, max_queries, order
        self.agents, self.task = self.inner.agents, ""
        self.facts: dict[str, Any] = {**facts_of(self.inner), "round": int, "accepted": bool}

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Begin the episode, and ask for the first turn's actions."""
        self._round = 0
        seen = self.inner.reset(seed)
        self.task = self.inner.task
        return self._begin(seen)

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Score the proposed actions; ask again, or take the step in the env."""
        if actions.keys() != self._asked.keys():
            raise EnvError(f"actions of {sorted(actions)} were given, but the agents to act are {sorted(self._asked)}")
        plan = {agent: self._named(agent, action) for agent, action in actions.items()}
        told: dict[str, Any] = {"round": self._round, "valid": {a: name is not None for a, name in plan.items()}}
        try:
            decided, feedback = self._loop.send({agent: name or "" for agent, name in plan.items()})
        except StopIteration as done:
            return self._play({agent: name for each in done.value[0] for agent, name in each.items()}, told)
        accepted = len(decided) > self._decided
        self._decided = len(decided)
        return StepResult(self._ask(decided, feedback), {}, info=told | {"accepted": accepted})

    def _play(self, chosen: dict[str, str], told: dict[str, Any]) -> StepResult:
        result = self.inner.step(chosen)
        self._round += 1
        info = {**result.info, **told, "accepted": True}
        seen = self._begin(result.observations)
        return StepResult(seen, result.rewards, result.terminated, result.truncated, info)

    def _begin(self, seen: Mapping[str, Observation]) -> dict[str, Observation]:
        """Ask for the next turn of those who see something."""
        self._seen = {agent: seen[agent] for agent in sorted(seen)}  # the order in which the critic was fitted
        self._asked: dict[str, Observation] = {}
        if not self._seen:
            return {}
        self._state = "\x1f".join(sorted(f"{agent} {each.key()}" for agent, each in self._seen.items()))
        self._decided = 0
        self._loop: Generator[Any, Any, Any] = refinement(
            self._advantage,
            agents=len(self._seen),
            threshold=self.threshold,
            max_queries=self.max_queries,
            order=self.order,
        )
        return self._ask(*next(self._loop))

    def _ask(self, decided: list[dict[str, str]], feedback: str | None) -> dict[str, Observation]:
        before = [f"{agent}: {name}" for each in decided for agent, name in each.items()]
        said = [*(["decided: " + ", ".join(before)] if before else []), *([feedback] if feedback else [])]
        who = list(self._seen) if self.order == "joint" else [list(self._seen)[len(decided)]]
        self._asked = {agent: _told(self._seen[agent], "\n".join(said)) if said else self._seen[agent] for agent in who}
        return dict(self._asked)

    def _advantage(self, decided: list[dict[str, str]], plan: dict[str, str]) -> float:
        """Of a proposal after what is decided; without a critic 0, and -1 for what somebody does already."""
        done = [f"{agent} {name}" for each in decided for agent, name in each.items()]
        more = [f"{agent} {name}" for agent, name in plan.items()]
        if self.critic is not None:
            return self.critic.value(self._state, [*done, *more]) - self.critic.value(self._state, done)
        names = [each.split(" ", 1)[1] for each in [*done, *more]]
        return 0.0 if len(set(names)) == len(names) else -1.0

    def _named(self, agent: str, action: Action) -> str | None:
        """The action's name as turns have it; None if it is illegal."""
        seen = self._seen[agent]
        if seen.choices is None:
            return str(action)
        number = seen.index(action)
        return None if number is None else seen.choices[number]


def _told(seen: Observation, said: str) -> Observation:
    """The observation with what was decided and scored behind it, in its last message for chat models."""
    talk = seen.messages
    if talk is None:
        return replace(seen, text=f"{seen.text}\n{said}")

    def write(reader: Reader) -> tuple[ChatMessage, ...]:
        *earlier, last = talk.for_reader(reader) if isinstance(talk, Conversation) else talk
        return (*earlier, {**last, "content": f"{last['content']}\n\n{said}"})

    return replace(seen, text=f"{seen.text}\n{said}", messages=Conversation(write))


def advantage_feedback(
    env: EnvFactory,
    logged: str | Path | Turns | None = None,
    *,
    threshold: float = 0.0,
    max_queries: int = 10,
    order: Order = "sequential",
    reward: str = "reward",
    gamma: float = 1.0,
) -> EnvFactory:
    """Env factory from another, `env`: agents propose again while a critic fitted to `logged` turns scores low ([56]).

    Source: ReAd, arXiv 2405.14314.

    Args:
        env: agents that act at once.
        logged: turns of the same env, a table or a file, on which the critic is fitted; None: no critic, and only an
            action that another agent of the turn has is asked again, as by a physical check.
        threshold: least advantage that is accepted.
        max_queries: most proposals per plan; then the best is taken.
        order: agent by agent (ReAd-S) or the joint action (ReAd-J).
        reward: text of the signal that says what is earned in a logged turn.
        gamma: its discount.

    Raises:
        InputError: the order is unknown, no query is allowed, or the file cannot be read.
    """
    if order not in ("sequential", "joint") or max_queries < 1:
        raise InputError(f"advantage_feedback: order={order!r} is sequential or joint, max_queries={max_queries} >= 1")
    table = logged if isinstance(logged, Turns) or logged is None else Turns.load(logged)
    critic = None if table is None else fitted_critic(table, reward=reward, gamma=gamma)
    return functools.partial(AdvantageFeedbackEnv, env, critic, threshold, max_queries, order)
