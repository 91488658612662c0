"""Envs of this package as PettingZoo environments, turn by turn (AEC) or parallel.

What an agent sees is a dict: `observation`, the env's array, or where it has none its text as UTF-8 bytes padded with
zeros; and `action_mask` where actions are numbered. The text itself is in the agent's info, with what the env said of
the step. Not scored counts as a reward of 0. Spaces stay the same here, and the choices of an env may not: as many are
numbered as an agent had most in random play. Left out: rendering of anything but text.
"""

from __future__ import annotations

import math
import string
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

from palaestra.envs.protocol import Env, Observation, StepResult
from palaestra.errors import InputError

LETTERS = string.printable

LOOKS = 100
"""Steps of random play in which every agent should have acted."""


def _looked(env: Env) -> dict[str, list[Observation]]:
    """Observations of each agent in random play: of a whole episode, and of more until all have acted.

    Who may say anything says nothing, and only as long as somebody has not acted: an answer to text may cost something.
    """
    found: dict[str, list[Observation]] = {agent: [] for agent in env.agents}
    rng, over = np.random.default_rng(0), False
    seen = env.reset(0)
    for look in range(LOOKS):
        for agent, each in seen.items():
            found[agent].append(each)
        if all(found.values()) and (over or any(each.choices is None for each in seen.values())):
            break
        try:
            seen = env.step({who: str(rng.choice(each.legal or [""])) for who, each in seen.items()}).observations
        except Exception:  # an env that breaks is an error of play, which says more of it
            break
        if not seen:
            seen, over = env.reset(look + 1), True
    return found


class _Shown:
    """Spaces and observations, as both APIs want them. env: ours, as it is."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"], "name": "palaestra", "is_parallelizable": True}
    render_mode = "ansi"
    env: Env
    possible_agents: list[str]

    def _open(self, env: Env, longest: int) -> None:
        self.env, self.longest = env, longest
        self.possible_agents = list(env.agents)
        self.agents: list[str] = []
        self._seen: dict[str, Observation] = {}
        self._last: dict[str, Observation] = {}
        seen = _looked(env)
        all_seen = [each for own in seen.values() for each in own]
        self._spaces = {agent: self._spaces_of(own or all_seen) for agent, own in seen.items()}

    def _spaces_of(self, seen: list[Observation]) -> tuple[spaces.Dict, spaces.Space[Any]]:
        shown: dict[str, spaces.Space[Any]] = {"observation": spaces.Box(0, 255, (self.longest,), np.uint8)}
        array = next((each.array for each in seen if each.array is not None), None)
        if array is not None:
            shown["observation"] = spaces.Box(-np.inf, np.inf, np.shape(array), np.float32)
        if any(each.choices is None for each in seen):
            return spaces.Dict(shown), spaces.Text(max_length=self.longest, min_length=0, charset=LETTERS)
        count = max(len(each.choices or ()) for each in seen)
        shown["action_mask"] = spaces.Box(0, 1, (count,), np.int8)
        return spaces.Dict(shown), spaces.Discrete(count)

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """A dict."""
        return self._spaces[agent][0]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Numbers of the choices, or text."""
        return self._spaces[agent][1]

    def render(self) -> str:
        """Observations of the agents that act, as text."""
        return "\n\n".join(f"{agent}:\n{seen.text}" for agent, seen in self._seen.items())

    def close(self) -> None:
        """Nothing is open."""

    def _start(self, seed: int | None) -> None:
        self.agents = list(self.possible_agents)
        self._last = {}
        self._look(self.env.reset(int(np.random.default_rng().integers(2**31)) if seed is None else seed))

    def _look(self, seen: Mapping[str, Observation]) -> None:
        self._seen = dict(seen)
        self._last |= self._seen

    def _view(self, agent: str) -> dict[str, np.ndarray]:
        """Last observation of the agent, zeros before its first. Who does not act may do anything: no matter."""
        space, seen = self._spaces[agent][0], self._last.get(agent)
        box: Any = space["observation"]
        view = {"observation": np.zeros(box.shape, box.dtype)}
        if seen is not None and box.dtype == np.uint8:
            letters = np.frombuffer(seen.text.encode(errors="replace")[: self.longest], np.uint8)
            view["observation"][: len(letters)] = letters
        elif seen is not None and seen.array is not None:
            view["observation"][:] = seen.array
        if "action_mask" in space.spaces:
            count = math.prod(space["action_mask"].shape or ())
            view["action_mask"] = np.ones(count, np.int8)
            if (acting := self._seen.get(agent)) is not None and acting.choices is not None:
                legal = np.ones(len(acting.choices)) if acting.mask is None else acting.mask
                view["action_mask"] = np.append(legal, np.zeros(count))[:count].astype(np.int8)
        return view

    def _info(self, agent: str, said: Mapping[str, Any]) -> dict[str, Any]:
        seen = self._last.get(agent)
        return {"text": "" if seen is None else seen.text, "acts": agent in self._seen, **said}

    def _step(self, actions: Mapping[str, Any]) -> StepResult:
        asked = {agent: actions[agent] for agent in self._seen}
        result = self.env.step({agent: act if isinstance(act, str) else int(act) for agent, act in asked.items()})
        self._look(result.observations)
        return result


class ToAEC(_Shown, AECEnv):
    """PettingZoo AEC env around an env of this package, texts cut at `longest` bytes; joint turns go agent by agent."""

    def __init__(self, env: Env, longest: int) -> None:
        super().__init__()
        self._open(env, longest)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begin the episode of `seed`, any one without."""
        self._start(seed)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations, self.truncations = dict.fromkeys(self.agents, False), dict.fromkeys(self.agents, False)
        self.infos = {agent: self._info(agent, {}) for agent in self.agents}
        self._answers: dict[str, Any] = {}
        self.agent_selection = next(iter(self._seen))

    def observe(self, agent: str) -> dict[str, np.ndarray]:
        """Last observation of this agent, as arrays."""
        return self._view(agent)

    def step(self, action: Any) -> None:
        """Take the action of the selected agent; the env steps once all who act now have answered."""
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[agent] = 0.0
        self._clear_rewards()
        self._answers[agent] = action
        left = [other for other in self._seen if other not in self._answers]
        if left:
            self.agent_selection = left[0]
            return
        result = self._step(self._answers)
        self._answers = {}
        self.rewards |= {who: float(paid or 0.0) for who, paid in result.rewards.items()}
        self._accumulate_rewards()
        self.infos = {who: self._info(who, result.info) for who in self.agents}
        if self._seen:
            self.agent_selection = next(iter(self._seen))
            return
        self.terminations = dict.fromkeys(self.agents, not result.truncated)
        self.truncations = dict.fromkeys(self.agents, bool(result.truncated))
        self.agent_selection = self.agents[0]


class ToParallel(_Shown, ParallelEnv):
    """PettingZoo parallel env around an env, texts cut at `longest` bytes; actions of agents not to act are ignored."""

    def __init__(self, env: Env, longest: int) -> None:
        self._open(env, longest)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Any], Any]:
        """Begin the episode of `seed`, any one without."""
        self._start(seed)
        return self._views(), {agent: self._info(agent, {}) for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[Any, Any, Any, Any, Any]:
        """Take all agents' actions, by agent; returns PettingZoo's five dicts."""
        result = self._step(actions)
        over, cut = not self._seen and not result.truncated, bool(result.truncated)
        found = (
            self._views(),
            {agent: float(result.rewards.get(agent) or 0.0) for agent in self.agents},
            dict.fromkeys(self.agents, over),
            dict.fromkeys(self.agents, cut),
            {agent: self._info(agent, result.info) for agent in self.agents},
        )
        if over or cut:
            self.agents = []
        return found

    def _views(self) -> dict[str, Any]:
        return {agent: self._view(agent) for agent in self.agents}


def export(env: Env, api: str, longest: int) -> ToAEC | ToParallel:
    """Wraps an env as a PettingZoo env, texts cut at `longest` bytes: `ToAEC` for api "aec", else `ToParallel`."""
    if longest < 1:
        raise InputError(f"to_pettingzoo: longest={longest}, expected at least 1 byte")
    return ToAEC(env, longest) if api == "aec" else ToParallel(env, longest)
