"""Gymnasium environments with numbered actions, as games of one agent called `player`.

One whose spaces are tuples is a game of several agents, `player_0`, `player_1` …, who act at once.
Left out: continuous actions, vector environments, and `info["action_mask"]` (in Gymnasium it marks actions without
effect, Taxi's for example, not illegal ones).
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from palaestra.envs.discrete import Illegal, Slips, check_illegal, describe, read_turn
from palaestra.envs.facts import with_types
from palaestra.envs.gymnasium_spaces import features_of, library
from palaestra.envs.gymnasium_team import TupleTeam
from palaestra.envs.pettingzoo import PettingZooParallel
from palaestra.envs.protocol import Action, EnvFactory, Observation, StepResult
from palaestra.errors import InputError, MissingExtraError, missing_extra, nearest


class GymnasiumEnv:
    """Single-agent Gymnasium environment, by id or maker, as an env: agent `player`, flattened `array` observations.

    env: the Gymnasium environment. task: id and seed (from outside nobody can tell whether two seeds start alike).
    """

    def __init__(
        self,
        name: str | Callable[[], Any],
        *,
        actions: Sequence[str] | None = None,
        text: Callable[[Any], str] | None = None,
        illegal: Illegal = "lose",
        penalty: float = -1.0,
        success: float | None = None,
        facts: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """Make the environment.

        Args:
            name: Gymnasium's id, or a function that makes an environment.
            actions: names of the actions; default `"0"`, `"1"` ....
            text: observation -> text; default `describe`.
            illegal: "lose" ends the episode with `penalty` as reward; "random" plays a random action instead.
            penalty: the reward of an illegal action under "lose".
            success: the sum of rewards that counts as success; None reports no success.
            facts: entries of Gymnasium's info that become columns, with their types: {"x_position": float}.
            options: arguments of `gymnasium.make`.
        """
        check_illegal(illegal)
        self.agents: tuple[str, ...] = ("player",)
        self.facts = with_types(facts)
        gymnasium = library()
        self.name = name if isinstance(name, str) else getattr(name, "__name__", "gymnasium")
        self.env = _made(name, options) if isinstance(name, str) else name()
        space = self.env.action_space
        if not isinstance(space, gymnasium.spaces.Discrete):
            raise InputError(f"{self.name}: its action space is {space}; this adapter needs a Discrete one")
        self._first = int(space.start)
        self._choices = tuple(map(str, range(int(space.n)))) if actions is None else tuple(actions)
        if len(self._choices) != space.n:
            raise InputError(f"{self.name}: actions= names {len(self._choices)} actions, but there are {space.n}")
        self._features = features_of(self.env.observation_space)
        self._text = text or describe
        self._illegal, self._penalty, self._success = illegal, penalty, success
        self.task = ""
        self._turn: dict[str, Observation] = {}

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Start the episode of `seed`."""
        value, _ = self.env.reset(seed=seed)
        self._slips = Slips(seed)
        self._total = 0.0
        self.task = f"{self.name}:{seed}"
        return self._observe(value)

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Take the action of `player`."""
        action = read_turn(actions, self._turn)["player"]
        info: dict[str, Any] = {"valid": {"player": action is not None}}
        terminated, truncated = True, False
        if action is None and self._illegal == "lose":
            reward = self._penalty
        else:
            move = self._slips.legal(self._turn["player"]) if action is None else action
            value, reward, terminated, truncated, said = self.env.step(self._first + move)
            info |= {fact: said[fact] for fact in self.facts if fact in said}
        self._total += float(reward)
        if terminated or truncated:
            self._turn = {}
            if self._success is not None:
                info["success"] = self._total >= self._success
        observations = {} if terminated or truncated else self._observe(value)
        cut = bool(truncated) and not terminated  # an end in a time limit's last step has nothing behind it to estimate
        return StepResult(observations, {"player": float(reward)}, bool(terminated), cut, info)

    def _observe(self, value: Any) -> dict[str, Observation]:
        self._turn = {"player": Observation(self._text(value), self._choices, None, self._features(value))}
        return dict(self._turn)


def _made(name: str, options: Mapping[str, Any]) -> Any:
    """`gymnasium.make`, whose errors say what to do."""
    gymnasium = library()
    try:
        return gymnasium.make(name, disable_env_checker=True, **options)
    except gymnasium.error.UnregisteredEnv as error:
        raise InputError(f"Gymnasium has no env {name!r}{nearest(name, gymnasium.registry)}") from error
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        said = " ".join(str(error).split())
        if (missing := getattr(error, "name", None)) and "install" not in said:
            extra = {"jax": "jax", "pygame": "classic-control", "mujoco": "mujoco"}.get(missing, "all")
            said += f': pip install "gymnasium[{extra}]"'
        raise MissingExtraError(f"Gymnasium's {name!r} needs another package: {said}") from error
    except (TypeError, gymnasium.error.Error) as error:
        raise InputError(f"Gymnasium cannot make {name!r} with {options}: {error}") from error


class _Team:
    """Makes an environment of several agents; a class, so that a recipe's workers can be sent it."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, **options: Any) -> TupleTeam:
        return TupleTeam(_made(self.__name__, options))


def gymnasium(
    name: str | Callable[[], Any],
    *,
    actions: Sequence[str] | None = None,
    text: Callable[[Any], str] | None = None,
    illegal: Illegal = "lose",
    penalty: float = -1.0,
    success: float | None = None,
    facts: Mapping[str, Any] | None = None,
    **options: Any,
) -> EnvFactory:
    """Env factory of a Gymnasium environment by id or maker, single-agent or with `Tuple` spaces; checked at once.

    >>> env = gymnasium("FrozenLake-v1", actions=["left", "down", "right", "up"], success=1.0, is_slippery=False)()
    >>> env.reset(seed=0)["player"].legal
    ('left', 'down', 'right', 'up')
    """
    if isinstance(name, str) and isinstance(_made(name, options).action_space, library().spaces.Tuple):
        if actions is not None:
            raise InputError(f"env gymnasium/{name}: actions= names those of one agent, and it has several")
        shared: dict[str, Any] = {"text": text, "illegal": illegal, "penalty": penalty, "success": success}
        team = functools.partial(PettingZooParallel, _Team(name), facts=facts, **shared, **options)
        team()
        return team
    factory = functools.partial(
        GymnasiumEnv,
        name,
        actions=actions,
        text=text,
        illegal=illegal,
        penalty=penalty,
        success=success,
        facts=facts,
        **options,
    )
    factory()
    return factory


def lbforaging(name: str, **options: Any) -> EnvFactory:
    """Env factory of a level-based foraging game by id, such as `Foraging-8x8-2p-2f-v3` (8 × 8, 2 players, 2 food).

    Raises:
        InputError: there is no such game. MissingExtraError: the package is not installed.
    """
    if importlib.util.find_spec("lbforaging") is None:
        raise missing_extra("level-based foraging", "marl")
    return gymnasium(f"lbforaging:{name}", **options)
