"""Exact measures of a team in small games, computed from its probabilities rather than from play."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from palaestra.agents.policy import Policy
from palaestra.agents.team import Team
from palaestra.envs.protocol import EnvFactory
from palaestra.envs.worlds.exact.exploitability import (
    InformationState,
    average_policy,
    expected_returns,
    exploitability,
    nash_conv,
    policy_table,
    uniform_policy,
)
from palaestra.errors import RecipeError, nearest
from palaestra.foundation.registry import Registry

Table = Mapping[str, Mapping[int, float]]
AVERAGE = "average_"
"""`average_exploitability` is that of the average policy over the iterations, later ones weighing more."""
LEAGUE = "league_"
"""`league_exploitability` is that of the answer of a league: past selves weighed by its rule."""


def table_of(factory: EnvFactory, team: Team) -> tuple[str, dict[str, dict[int, float]]]:
    """Pair (OpenSpiel game's name, {information state: {legal action: probability}}) of an env factory and a team."""
    env = _playable(factory())

    def probabilities(states: Sequence[InformationState]) -> list[np.ndarray]:
        answers: list[np.ndarray] = [np.empty(0)] * len(states)
        seats: dict[int, list[int]] = {}
        for number, state in enumerate(states):
            seats.setdefault(state.player, []).append(number)
        for player, numbers in seats.items():
            policy = _with_probabilities(team.for_agent(env.agents[player]))
            observed = [env.look(states[number].state, player) for number in numbers]
            chosen, _ = policy.choice_probabilities(observed)
            for number, row in zip(numbers, chosen, strict=True):
                answers[number] = row[list(states[number].legal)]
        return answers

    return env.name, policy_table(env.name, probabilities)


def check(names: Sequence[str], factory: EnvFactory, team: Team) -> None:
    """Raise RecipeError if one of the exact measures `names` cannot be computed for an env factory and team.

    Raises:
        RecipeError: there is no such measure, or the env or a policy of the team does not allow exact ones.
        InputError: the measure has no meaning in this game.
    """
    for policy in team.policies.values() if names else ():
        _with_probabilities(policy)
    for name in names:
        game = _playable(factory()).name
        measure(name, game, [uniform_policy(game)])


def _playable(env: Any) -> Any:
    if not hasattr(env, "look"):
        raise RecipeError("evaluation.metrics: exact measures need an env of OpenSpiel (openspiel/NAME)")
    return env


def _with_probabilities(policy: Policy) -> Any:
    if not hasattr(policy, "choice_probabilities"):
        raise RecipeError(f"evaluation.metrics: policy {policy.name!r} cannot tell its probabilities exactly")
    return policy


def _expected_return(game: str, table: Table) -> float:
    """Exact expected return of the first seat (of everybody, in a game with one common return)."""
    return float(expected_returns(game, table)[0])


MEASURES: Registry[float] = Registry("measure", home=("palaestra.runs.measures",), example="exploitability")
"""Exact measures: functions of the name of a game and a table of its play."""
MEASURES.add("exploitability", exploitability)
MEASURES.add("nash_conv", nash_conv)
MEASURES.add("expected_return", _expected_return)


def lower_is_better(name: str) -> bool:
    """Whether a team improves when the measure of this name falls."""
    return name.removeprefix(AVERAGE).removeprefix(LEAGUE) in ("exploitability", "nash_conv")


def bare_name(name: str) -> str:
    """The bare name of an exact measure, without `average_` or `league_`; RecipeError if there is no such measure.

    Raises:
        RecipeError: there is no measure of that name.
    """
    bare = name.removeprefix(AVERAGE).removeprefix(LEAGUE)
    if bare not in MEASURES:
        raise RecipeError(f"unknown measure {name!r}{nearest(bare, MEASURES)}")
    return bare


def measure(
    name: str, game: str, tables: Sequence[Table], *, league: Sequence[tuple[Table, float]] | None = None
) -> float:
    """Float: exact measure `name` in OpenSpiel `game` of the last of policy `tables`, or their average, or a `league`.

    With the prefix `average_` it is that of their average with weights 1, 2, 3 …; with `league_` that of the mixture of
    `league`, tables and their weights, and without one that of the last table.

    Raises:
        RecipeError: there is no measure of that name.
    """
    bare = bare_name(name)
    if name.startswith(AVERAGE) and len(tables) > 1:
        return MEASURES[bare](game, average_policy(game, tables, [float(n) for n in range(1, len(tables) + 1)]))
    if name.startswith(LEAGUE) and league:
        mixed, weights = zip(*league, strict=True)
        return MEASURES[bare](game, average_policy(game, mixed, list(weights)))
    return MEASURES[bare](game, tables[-1])
