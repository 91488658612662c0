"""PettingZoo environments, turn-based (AEC) and parallel, with numbered actions.

Observations that are dicts with `observation` and `action_mask` are taken apart; a mask in the agent's info counts too.
Left out: continuous actions, and environments that do not say who `possible_agents` are.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from palaestra.envs.discrete import Illegal, Slips, check_illegal, describe, read_turn
from palaestra.envs.facts import with_types
from palaestra.envs.gymnasium_spaces import features_of
from palaestra.envs.lazy import LazyObservation
from palaestra.envs.protocol import Action, EnvFactory, Observation, StepResult
from palaestra.errors import InputError, MissingExtraError, missing_extra, nearest

Api = Literal["auto", "aec", "parallel"]
FAMILIES = ("classic", "butterfly", "sisl", "atari")


CHECKS = ("OrderEnforcingWrapper", "AssertOutOfBoundsWrapper", "TerminateIllegalWrapper", "CaptureStdoutWrapper")
"""PettingZoo's wrappers that only look whether they are called rightly, as they are here; they take half the time."""


class _PettingZooEnv:
    """Base class of both PettingZoo APIs: names, observations, illegal actions, sums of rewards."""

    entry: str

    def __init__(
        self,
        name: str | Callable[..., Any],
        *,
        text: Callable[[Any], str] | None = None,
        illegal: Illegal = "lose",
        penalty: float = -1.0,
        success: float | None = None,
        facts: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """See `pettingzoo` for the arguments."""
        check_illegal(illegal)
        self.name = name if isinstance(name, str) else getattr(name, "__name__", "pettingzoo")
        make = getattr(_module(name), self.entry) if isinstance(name, str) else name
        try:
            self.env = make(**options)
        except TypeError as error:
            raise InputError(f"PettingZoo cannot make {self.name!r} with {options}: {error}") from error
        self._told = with_types(facts)
        if "out" in self._told:
            raise InputError(f"{self.name}: facts has 'out', which says here for whom it is over by the rules")
        self.facts = {**self._told, "out": bool}
        self._bare = self.env
        while type(self._bare).__name__ in CHECKS:
            self._bare = self._bare.env
        name = self.name
        if not hasattr(self.env, "possible_agents"):
            raise InputError(f"{name}: it has no possible_agents, so nobody can say who will play")
        self.agents: tuple[str, ...] = tuple(self.env.possible_agents)
        self.task = ""
        self._text = text or describe
        self._illegal, self._penalty, self._success = illegal, penalty, success
        self._choices, self._first, self._features = {}, {}, {}
        for agent in self.agents:
            space, seen = self.env.action_space(agent), self.env.observation_space(agent)
            if not hasattr(space, "n"):
                raise InputError(f"{name}: the action space of {agent!r} is {space}; this adapter needs a Discrete one")
            if "observation" in getattr(seen, "spaces", {}):
                seen = seen["observation"]
            self._choices[agent] = tuple(map(str, range(int(space.n))))
            self._first[agent] = int(getattr(space, "start", 0))
            self._features[agent] = features_of(seen)

    def _begin(self, seed: int) -> None:
        self._slips = Slips(seed)
        self._totals = dict.fromkeys(self.agents, 0.0)
        self._truncated = False
        self.task = f"{self.name}:{seed}"

    def _see(self, agent: str, value: Any, info: Mapping[str, Any]) -> Observation:
        mask = info.get("action_mask")
        if isinstance(value, Mapping) and "observation" in value:
            value, mask = value["observation"], value.get("action_mask", mask)
        legal = None if mask is None else np.asarray(mask, dtype=bool)
        if not isinstance(value, np.ndarray):
            return Observation(self._text(value), self._choices[agent], legal, self._features[agent](value))
        make = functools.partial(self._part, value.copy(), self._features[agent])  # the env may write into its own
        return LazyObservation.of(make, choices=self._choices[agent], mask=legal)

    def _part(self, value: np.ndarray, features: Callable[[Any], np.ndarray], name: str) -> Any:
        """One field of an observation: `text` or `array`."""
        return features(value) if name == "array" else self._text(value)

    def _moves(self, chosen: Mapping[str, int | None]) -> dict[str, int]:
        """PettingZoo's action numbers; illegal ones replaced by random legal ones."""
        return {
            agent: self._first[agent] + (self._slips.legal(self._turn[agent]) if action is None else action)
            for agent, action in chosen.items()
        }

    def _result(
        self,
        chosen: Mapping[str, int | None],
        rewards: Mapping[str, float],
        observations: dict[str, Observation],
        said: Mapping[str, Mapping[str, Any]] = {},
        ended: Mapping[str, bool] = {},
    ) -> StepResult:
        self._turn = observations
        for agent, reward in rewards.items():
            self._totals[agent] += reward
        over = not observations
        info: dict[str, Any] = {"valid": {agent: action is not None for agent, action in chosen.items()}}
        info["out"] = {agent: True for agent, out in ended.items() if out}
        for fact in self._told:
            info[fact] = {agent: of[fact] for agent, of in said.items() if fact in of}
        if over and self._success is not None:
            info["success"] = {agent: total >= self._success for agent, total in self._totals.items()}
        return StepResult(
            dict(observations), dict(rewards), over and not self._truncated, over and self._truncated, info
        )

    def _forfeited(self, chosen: Mapping[str, int | None]) -> bool:
        return self._illegal == "lose" and None in chosen.values()

    def _penalties(self, chosen: Mapping[str, int | None]) -> dict[str, float]:
        return {agent: self._penalty for agent, action in chosen.items() if action is None}


class PettingZooAEC(_PettingZooEnv):
    """Env wrapper of a PettingZoo AEC environment, given by name or maker: one agent acts at a time.

    env: the PettingZoo env. task: name and seed.
    """

    entry = "env"

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Start the episode of `seed`."""
        self._begin(seed)
        self.env.reset(seed=seed)
        self._turn = self._next()
        return dict(self._turn)

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Take the action of whoever was selected."""
        chosen = read_turn(actions, self._turn)
        if self._forfeited(chosen):
            return self._result(chosen, self._penalties(chosen), {})
        env = self._bare
        env.step(*self._moves(chosen).values())
        rewards = {agent: float(reward) for agent, reward in env.rewards.items()}
        self._truncated = any(env.truncations.values()) and not all(env.terminations.values())
        said, ended = dict(env.infos), dict(env.terminations)  # PettingZoo drops those of agents that are stepped over
        return self._result(chosen, rewards, self._next(), said, ended)

    def _next(self) -> dict[str, Observation]:
        """Who is selected and what it sees; agents that are out are stepped over, as PettingZoo demands."""
        env = self._bare
        while env.agents:
            agent = env.agent_selection
            if not (env.terminations[agent] or env.truncations[agent]):
                return {agent: self._see(agent, env.observe(agent), env.infos[agent])}
            env.step(None)
        return {}


class PettingZooParallel(_PettingZooEnv):
    """Env wrapper of a PettingZoo parallel environment, given by name or maker: all living agents act at once.

    env: the PettingZoo env. task: name and seed.
    """

    entry = "parallel_env"

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Start the episode of `seed`."""
        self._begin(seed)
        values, infos = self.env.reset(seed=seed)
        self._turn = self._all(values, infos)
        return dict(self._turn)

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Take the actions of all living agents."""
        chosen = read_turn(actions, self._turn)
        if self._forfeited(chosen):
            return self._result(chosen, self._penalties(chosen), {})
        values, given, terminations, truncations, infos = self.env.step(self._moves(chosen))
        rewards = {agent: float(reward) for agent, reward in given.items()}
        self._truncated = any(truncations.values()) and not all(terminations.values())
        return self._result(chosen, rewards, self._all(values, infos), infos, terminations)

    def _all(self, values: Mapping[str, Any], infos: Mapping[str, Mapping[str, Any]]) -> dict[str, Observation]:
        return {agent: self._see(agent, values[agent], infos.get(agent, {})) for agent in self.env.agents}


def pettingzoo(
    name: str | Callable[[], Any],
    *,
    api: Api = "auto",
    text: Callable[[Any], str] | None = None,
    illegal: Illegal = "lose",
    penalty: float = -1.0,
    success: float | None = None,
    facts: Mapping[str, Any] | None = None,
    **options: Any,
) -> EnvFactory:
    """Env factory of a PettingZoo environment (AEC or parallel), by name or maker; checked at once.

    Args:
        name: `"classic.tictactoe_v3"` (a module below `pettingzoo`), `"mpe.simple_spread_v3"` (of the package mpe2), or
            a function that makes a PettingZoo env.
        api: "auto" is parallel where the module offers `parallel_env`, else AEC.
        text: observation -> text; default `describe`.
        illegal: "lose" ends the episode; the offender's reward is `penalty`, all others' 0. "random" plays a random
            legal action instead.
        penalty: the reward of an illegal action under "lose".
        success: the sum of an agent's rewards that counts as its success; None reports no success.
        facts: entries of PettingZoo's infos that become columns, with their types. The column `out` is there anyway:
            of an agent's last turn, whether it ended by the rules; then it was not cut off, whatever came of the rest.
        options: arguments of the env, `max_cycles=25`.
    """
    kinds: dict[str, type[PettingZooAEC | PettingZooParallel]] = {"parallel": PettingZooParallel, "aec": PettingZooAEC}
    if isinstance(name, str):
        name = name.replace("/", ".")
        offered = [kind for kind in kinds if hasattr(_module(name), kinds[kind].entry)]
    else:
        offered = ["aec" if hasattr(name(**options), "agent_iter") else "parallel"]
    kind = offered[0] if api == "auto" else api
    if kind not in offered:
        raise InputError(f"PettingZoo's {name!r} has no {api!r} API{nearest(api, offered)}")
    factory = functools.partial(
        kinds[kind], name, text=text, illegal=illegal, penalty=penalty, success=success, facts=facts, **options
    )
    factory()
    return factory


def to_pettingzoo(env: EnvFactory, *, api: Literal["aec", "parallel"] = "aec", longest: int = 2000) -> Any:
    """PettingZoo environment made from an env factory of this package, as AEC or parallel env.

    See `palaestra.envs.export`.

    Args:
        env: makes it.
        api: "aec": agents that act at once are asked one after the other. "parallel": all agents act at every step, and
            what those say who do not act is not passed on.
        longest: bytes of text, read or said, where there is no array or no choices; what is longer is cut.

    Raises:
        MissingExtraError: PettingZoo is not installed. InputError: there is no such API.

    >>> from palaestra.envs import openspiel
    >>> game = to_pettingzoo(openspiel("tic_tac_toe"))
    >>> game.reset(seed=0)
    >>> game.agent_selection, game.observe("player_0")["action_mask"].sum()
    ('player_0', np.int64(9))
    """
    if importlib.util.find_spec("pettingzoo") is None:
        raise missing_extra("PettingZoo", "pettingzoo")
    from palaestra.envs.export import export

    if api not in ("aec", "parallel"):
        raise InputError(f"to_pettingzoo: api={api!r}{nearest(str(api), ['aec', 'parallel'])}")
    return export(env(), api, longest)


def _module(name: str) -> Any:
    package, name, extra = ("mpe2", name[4:], "marl") if name.startswith("mpe.") else ("pettingzoo", name, "pettingzoo")
    if importlib.util.find_spec(package) is None:
        raise missing_extra("PettingZoo" if package == extra else "MPE2", extra)
    try:
        return importlib.import_module(f"{package}.{name}")
    except ImportError as error:
        known = _known() if package == extra else _versioned("mpe2")
        if name not in known:
            raise InputError(f"PettingZoo has no env {name!r}{nearest(name, known)}") from error
        fix = f"pip install 'pettingzoo[{name.partition('.')[0]}]'"
        raise MissingExtraError(f"PettingZoo's {name!r} needs another package ({error}): {fix}") from error


def _known() -> Sequence[str]:
    """Names of PettingZoo's environments."""
    return [f"{family}.{name}" for family in FAMILIES for name in _versioned(f"pettingzoo.{family}")]


def _versioned(package: str) -> Sequence[str]:
    """Names of a package's modules that end with a version, found without importing them."""
    root, *inner = package.split(".")
    found = importlib.util.find_spec(root)
    folder = "/".join([*(found.submodule_search_locations or ()), *inner]) if found else ""
    return [each.name for each in pkgutil.iter_modules([folder]) if "_v" in each.name]
