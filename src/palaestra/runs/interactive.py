"""One episode, told turn by turn to whoever watches or takes a seat. Left out: time-outs and retries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from palaestra.agents import Team
from palaestra.agents.human import Ask, HumanPolicy, Say, Shown, ask_action
from palaestra.agents.policy import Request
from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import Action, EnvFactory, Observation
from palaestra.errors import EnvError, InputError, PalaestraError, PolicyError, nearest
from palaestra.play.executors import Local, Plan


def episode(
    factory: EnvFactory,
    team: Team,
    *,
    seed: int = 0,
    say: Say = print,
    human: str | None = None,
    ask: Ask = input,
    max_turns: int = 1000,
) -> dict[str, float]:
    """Play and print an episode of an env factory and a team, a person in one seat if wanted; {agent: total reward}.

    human: the seat of a person, who is asked by `ask(prompt)`, None being the end of the input, and shown what that
    seat sees, as a chat model is where there are messages. Everybody else's turns are then not told.

    Raises:
        InputError: there is no such seat, or the input ends before the episode.
        EnvError, PolicyError: something broke; says what.
    """
    env = factory()
    if human is not None and human not in env.agents:
        raise InputError(f"--human {human!r}: no such agent{nearest(human, env.agents)}")
    observations: Mapping[str, Observation] = _of_env(env.reset, seed)
    say(f"task {seed}" + (f": {env.task}" if getattr(env, "task", None) else ""))
    streams = {agent: np.random.default_rng([seed, number]) for number, agent in enumerate(env.agents)}
    total: dict[str, float] = {}
    shown = Shown()
    for turn in range(max_turns):
        actions: dict[str, Action] = {}
        for agent, observation in observations.items():
            told = human in (None, agent)
            if told:
                text = shown.text(agent, observation) if agent == human else observation.text
                say(f"\n[turn {turn}] {agent} sees:\n{text}")
            if agent == human:
                chosen = ask_action(agent, observation, say, ask)
                if chosen is None:
                    raise InputError(f"the input ended before the episode did; {agent} had to act")
                actions[agent] = chosen
                continue
            decision = team.for_agent(agent).act([Request(observation, agent, streams[agent])])[0]
            if decision.error is not None:
                raise PolicyError(f"{agent} ({team.for_agent(agent).name}): {decision.error}")
            actions[agent] = decision.action
            if told:
                say(f"{agent} does: {_name(decision.action, observation)}")
        result = _of_env(env.step, actions)
        for agent, reward in {**dict.fromkeys(env.agents, 0.0), **result.rewards}.items():  # who is not named gets 0
            if reward is None:
                continue
            total[agent] = total.get(agent, 0.0) + reward
            if reward and human in (None, agent):
                say(f"{agent} receives {reward:g}")
        for agent, valid in _of(result.info.get("valid"), actions).items():
            if valid is False and human in (None, agent):
                say(f"{agent}'s action was not valid")
        observations = result.observations
        if not observations:
            won = result.info.get("success")
            ended = "" if won is None else f", success: {won}"
            earned = ", ".join(f"{a}: {r:g}" for a, r in total.items())
            say(f"\nover after {turn + 1} turns{ended}" + (f"; {earned}" if earned else ""))
            return total
    say(f"\nstopped after {max_turns} turns")
    return total


def play_recorded(
    factory: EnvFactory,
    team: Team,
    *,
    episodes: int = 1,
    first: int = 0,
    say: Say = print,
    human: str | None = None,
    ask: Ask = input,
) -> Turns:
    """Play tasks `first`, `first + 1`, … of an env factory with a team, a person in one seat if wanted; the `Turns`.

    Raises:
        InputError: there is no such seat.
    """
    agents = tuple(factory().agents)
    if human is not None and human not in agents:
        raise InputError(f"--human {human!r}: no such agent{nearest(human, agents)}")
    if human is not None:
        person = HumanPolicy(say=say, ask=ask)
        team = Team({agent: person if agent == human else team.for_agent(agent) for agent in agents})
    plan = Plan(groups=episodes, env_seeds=range(first, first + episodes), stream="eval", retries=0)
    return Local(concurrency=1).play(factory, team, plan)


def _of_env(call: Callable[[Any], Any], given: Any) -> Any:
    try:
        return call(given)
    except PalaestraError:
        raise
    except Exception as error:
        raise EnvError(f"env: {type(error).__name__}: {error}") from error


def _of(value: Any, actions: Mapping[str, Action]) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else dict.fromkeys(actions, value)


def _name(action: Action, observation: Observation) -> str:
    if isinstance(action, str) or observation.choices is None:
        return str(action)
    return observation.choices[action] if 0 <= action < len(observation.choices) else str(action)
