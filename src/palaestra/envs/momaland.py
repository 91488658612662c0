"""MOMAland: several agents, several objectives; rewards are vectors (arXiv 2407.16312).

An agent is paid one number, the utility of its vectors; the vectors themselves stand in `info["vector"]` and thereby in
the column `metadata` (`vector_returns` reads them). Left out: continuous actions (its crazyflie games, Pistonball and
Multiwalker have them), and its own wrappers: normalising and scalarising are expressions here.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.envs.discrete import Illegal, isolated
from palaestra.envs.pettingzoo import PettingZooAEC, PettingZooParallel
from palaestra.envs.protocol import Action, EnvFactory, StepResult
from palaestra.errors import InputError, MissingColumnError, missing_extra, nearest

SWAPPED = ("beach", "gem_mining", "item_gathering", "route_choice")
"""Games that return `truncations` in the place of `terminations` and the other way round (momaland 0.2.0)."""


class _Scalar:
    """A MOMAland env whose rewards are numbers. totals: the sum of the vectors so far, by agent.

    It draws from the global generators, so each call runs inside a generator of (seed, number of the call).
    """

    def __init__(self, env: Any, name: str, weights: Mapping[str, np.ndarray], utility: str) -> None:
        self.env, self.name, self.weights, self.utility = env, name, weights, utility
        self.rewards: dict[str, float] = {}

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self.__dict__["env"], attribute)

    def reset(self, seed: int) -> Any:
        self._seed, self._calls = seed, 0
        self.totals = {agent: np.zeros(len(w)) for agent, w in self.weights.items()}
        self.rewards = {}
        with isolated(seed, numpy=True):
            return self.env.reset(seed=seed % 2**32)

    def step(self, action: Any) -> Any:
        self._calls += 1
        with isolated(self._seed + 7919 * self._calls, numpy=True):
            found = self.env.step(action)
        if found is None:  # turn-based: the rewards stand in an attribute
            self._pay(self.env.rewards, over=not any(self._alive()))
            return None
        values, given, terminations, truncations, infos = found
        if self.name in SWAPPED:
            terminations, truncations = truncations, terminations
        self._pay(given, over=not self.env.agents)
        return values, self.rewards, terminations, truncations, infos

    def _alive(self) -> list[bool]:
        return [not (self.env.terminations[a] or self.env.truncations[a]) for a in self.env.agents]

    def _pay(self, given: Mapping[str, Any], *, over: bool) -> None:
        vectors = {agent: np.asarray(given[agent], float) for agent in self.weights if agent in given}
        for agent, vector in vectors.items():
            self.totals[agent] += vector
        if self.utility == "linear":
            self.rewards = {agent: float(v @ self.weights[agent]) for agent, v in vectors.items()}
        else:
            from palaestra.envs.worlds.exact.objectives import UTILITIES  # brings statistics

            worth = UTILITIES[self.utility]
            self.rewards = {
                agent: float(worth(self.totals[agent], self.weights[agent])) if over else 0.0 for agent in self.weights
            }


class _Vectors:
    """Adds the vectors to what a step says."""

    env: Any

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """One step of MOMAland."""
        before = {agent: total.copy() for agent, total in self.env.totals.items()}
        result: StepResult = super().step(actions)  # type: ignore[misc]
        vector = {agent: (total - before[agent]).tolist() for agent, total in self.env.totals.items()}
        return StepResult(
            result.observations, result.rewards, result.terminated, result.truncated, {**result.info, "vector": vector}
        )


class MomalandAEC(_Vectors, PettingZooAEC):
    """Env wrapper of a turn-based (AEC) MOMAland game from a maker that scalarises rewards; `info` has the vectors.

    `env.env` is MOMAland's own.
    """


class MomalandParallel(_Vectors, PettingZooParallel):
    """Env wrapper of a parallel MOMAland game from a maker that scalarises rewards; `info` has the vectors.

    `env.env` is MOMAland's own.
    """


def momaland(
    name: str,
    *,
    weights: Sequence[float] | Mapping[str, Sequence[float]] | None = None,
    utility: str = "linear",
    text: Callable[[Any], str] | None = None,
    illegal: Illegal = "lose",
    penalty: float = -1.0,
    success: float | None = None,
    **options: Any,
) -> EnvFactory:
    """Env factory of a MOMAland game with scalarised reward vectors (`weights`, `utility`); checked at once.

    Args:
        name: "beach", "gem_mining", "item_gathering", "connect4", "breakthrough", "ingenious", "samegame" ….
        weights: one per objective, for all agents or by agent; default equal shares that add up to 1.
        utility: "linear" pays w · r at every step. "squares" Σ w r² (favours imbalance) and "product" Π r^w (favours
            balance) are paid at the end, of the episode's total: the expected utility of returns (ESR).
        text: observation to text, as in `palaestra.envs.pettingzoo`.
        illegal: "lose" or "random", as in `palaestra.envs.pettingzoo`.
        penalty: reward of an illegal action under "lose".
        success: total reward of an agent from which its episode counts as a success; None: nothing does.
        options: arguments of the game, `num_agents=20`.

    Raises:
        MissingExtraError: MOMAland or something that this game needs is not installed.
        InputError: unknown names, wrong options, weights that do not fit, or a game with continuous actions.

    >>> env = momaland("beach", num_agents=4, sections=3, capacity=2, weights=[1, 0])()
    >>> seen = env.reset(0)
    >>> sorted(env.step(dict.fromkeys(seen, 1)).info["vector"]["agent_0"])[0] >= 0
    True
    """
    from palaestra.envs.worlds.exact.objectives import UTILITIES

    if utility not in UTILITIES:
        raise InputError(f"momaland: utility={utility!r}{nearest(utility, UTILITIES)}")
    _module(name)
    factory = functools.partial(
        _make, name, weights, utility, text=text, illegal=illegal, penalty=penalty, success=success, **options
    )
    factory()
    return factory


def _make(
    name: str, weights: Any, utility: str, *, text: Any, illegal: Illegal, penalty: float, success: Any, **options: Any
) -> MomalandAEC | MomalandParallel:
    module = _module(name)
    parallel = hasattr(module, "parallel_env")

    def build(**kwargs: Any) -> _Scalar:
        try:
            with isolated(0, numpy=True):
                env = (module.parallel_env if parallel else module.env)(**kwargs)
        except KeyError as error:  # its route_choice reads files that networkx 3.6 no longer reads
            raise InputError(f"MOMAland cannot make {name!r} with the libraries installed: {error!r}") from error
        if name == "gem_mining":  # lists of one number, which NumPy 2.4 no longer adds to a number
            env.workers = {agent: int(np.ravel(workers)[0]) for agent, workers in env.workers.items()}
        sizes = {agent: int(np.prod(env.reward_space(agent).shape)) for agent in env.possible_agents}
        return _Scalar(env, name, {agent: _weights(weights, agent, size) for agent, size in sizes.items()}, utility)

    build.__name__ = f"momaland:{name}"
    kind = MomalandParallel if parallel else MomalandAEC
    return kind(build, text=text, illegal=illegal, penalty=penalty, success=success, **options)


def _weights(weights: Any, agent: str, size: int) -> np.ndarray:
    given = weights.get(agent) if isinstance(weights, Mapping) else weights
    found = np.full(size, 1 / size) if given is None else np.asarray(given, float)
    if found.shape != (size,) or not np.isfinite(found).all():
        raise InputError(f"momaland: weights of {agent!r} are {given}, expected {size} finite numbers")
    return found


def _module(name: str) -> Any:
    if importlib.util.find_spec("momaland") is None:
        raise missing_extra("MOMAland", "momaland")
    known = _known()
    if name not in known:
        raise InputError(f"MOMAland has no game {name!r}{nearest(name, known)}")
    try:
        return importlib.import_module(known[name])
    except ImportError as error:
        raise InputError(
            f"MOMAland's {name!r} needs another package ({error}): pip install 'palaestra[momaland]'"
        ) from error


@functools.cache
def _known() -> dict[str, str]:
    """Modules by game, found without importing them."""
    import momaland.envs  # type: ignore[import-untyped, unused-ignore]

    found = {}
    for game in pkgutil.iter_modules(momaland.envs.__path__):
        for module in pkgutil.iter_modules([f"{momaland.envs.__path__[0]}/{game.name}"]):
            if "_v" in module.name:
                found[game.name] = f"momaland.envs.{game.name}.{module.name}"
    return found


def vector_returns(turns: Turns) -> pl.DataFrame:
    """Table of vector returns in `Turns` of a MOMAland rollout: one row per episode and agent, `returns` list[f64].

    A step's vectors stand once for the whole step, on every row of it.

    Raises:
        MissingColumnError: the table has no `metadata`.
        InputError: no row has a vector.
    """
    if "metadata" not in turns.columns:
        raise MissingColumnError("vector_returns: column 'metadata' is missing; it is filled by a rollout of momaland")
    keys = list(turns.key_columns(["episode"]))
    steps = turns.frame.drop_nulls("metadata").unique([*keys, "turn"], maintain_order=True)
    rows = [
        (*row[:-1], agent, vector)
        for row in steps.select(*keys, "metadata").iter_rows()
        for agent, vector in json.loads(row[-1]).get("vector", {}).items()
    ]
    if not rows:
        raise InputError("vector_returns: no row's metadata has a 'vector'; play a momaland env")
    schema: Any = {**{key: turns.frame.schema[key] for key in keys}, "agent": pl.String, "vector": pl.List(pl.Float64)}
    table = pl.DataFrame(rows, schema=schema, orient="row")
    size = len(rows[0][-1])
    sums = [pl.col("vector").list.get(i).sum().alias(f"_{i}") for i in range(size)]
    totals = table.group_by([*keys, "agent"], maintain_order=True).agg(sums)
    return totals.select(*keys, "agent", returns=pl.concat_list([f"_{i}" for i in range(size)]))
