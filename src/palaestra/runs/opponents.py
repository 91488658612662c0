"""The part of a recipe that says who fills the other seats of a game in training, and its checks.

    opponents: {method: psro(nash), every: 20, matches: 64, floor: .1, scripts: [bluffer]}
    opponents: uniform(recent=.5)

What makes a league of it is `trainers.league_of`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import polars as pl
from pydantic import ConfigDict, Field, ValidationInfo, field_validator, model_validator

from palaestra.agents import Team, random_legal
from palaestra.envs.protocol import EnvFactory
from palaestra.errors import InputError, RecipeError, nearest
from palaestra.play.rollout import rollout
from palaestra.runs.config import Section, Texts, calls, checked, is_only_read, looked_up
from palaestra.runs.trust import code_in


def _or_text(schema: dict[str, Any]) -> None:
    whole = dict(schema)
    schema.clear()
    schema["anyOf"] = [{"type": "string"}, whole]


class OpponentsPart(Section):
    """Recipe section `opponents`: past selves and scripts, drawn per training group; a text gives the method alone."""

    model_config = ConfigDict(json_schema_extra=_or_text)

    method: str = Field(
        "uniform()",
        description="who is met: latest, uniform(recent=.5), pfsp(hard), psro(nash), scripts, or a registered one; "
        "see `palaestra names matchmaking`",
    )
    floor: float = Field(
        0.0, ge=0, le=1, description="share of groups that meet any past self or script, whatever the method says"
    )
    every: int | None = Field(
        10, ge=1, description="iterations between snapshots of the learner, the start included; null: scripts only"
    )
    matches: int = Field(
        32, ge=0, description="episodes of each pair of members, for the pay-off matrix; 0: no matrix is measured"
    )
    per_iteration: int | None = Field(
        None,
        ge=1,
        description="opponents drawn for an iteration, whom its groups meet in turn; null: each group draws its own",
    )
    scripts: Texts = Field((), description="policies without a seat that are opponents from the beginning, by name")
    seats: tuple[tuple[str, ...], ...] | None = Field(
        None,
        description="seats of the opponents; of several lists each group takes the next; null: all but one, in turn. "
        "In seats of a script, whom the proof is against, past selves of the one policy that learns sit in training",
    )

    @model_validator(mode="before")
    @classmethod
    def _may_be_a_text(cls, data: Any) -> Any:
        return {"method": data} if isinstance(data, str) else data

    @field_validator("scripts", mode="before")
    @classmethod
    def _calls(cls, value: Any) -> Any:
        return calls(value)

    @field_validator("seats", mode="before")
    @classmethod
    def _one_list_or_several(cls, value: Any) -> Any:
        value = [value] if isinstance(value, str) else value
        return [value] if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value) else value

    @field_validator("method")
    @classmethod
    def _is_a_method(cls, value: str, info: ValidationInfo) -> str:
        if not code_in(value):
            looked_up(_rule, value, info)
        return value

    @model_validator(mode="after")
    def _has_opponents(self, info: ValidationInfo) -> OpponentsPart:
        if self.seats is not None and (not self.seats or not all(self.seats)):
            raise ValueError("seats: a list without a seat; name those that opponents fill")
        if is_only_read(info) or code_in(self.method):
            return self
        rule = checked(_rule, self.method)
        if not self.scripts and rule.SCRIPTS:
            raise ValueError(
                f"a league without opponents: method {self.method} meets scripts; name some: scripts: [NAME]"
            )
        if not self.scripts and self.every is None and (self.floor > 0 or not rule.LATEST):
            raise ValueError(
                "a league without opponents: no snapshots are taken (every: null) and there are no scripts; give a "
                "number of iterations, or scripts: [NAME]"
            )
        if rule.PAYOFFS and self.matches < 2:
            raise ValueError(f"matches: method {self.method} needs the pay-offs of every pair; 2 episodes or more")
        if rule.PAYOFFS and self.every is None:
            raise ValueError(f"every: method {self.method} weighs past selves; give a number of iterations")
        return self

    def check_names(self, policies: Collection[str], team: Mapping[str, str]) -> None:
        """Raise RecipeError if an opponents' script is no policy of the recipe, or has a seat.

        Raises:
            RecipeError: one is not.
        """
        for name in self.scripts:
            if name not in policies:
                raise RecipeError(f"opponents.scripts: no policy {name!r}{nearest(name, policies)}")
            if name in team.values():
                raise RecipeError(f"opponents.scripts: {name!r} has a seat in the team; name a policy without one")


def seat_lists(part: OpponentsPart, team: Team, learned: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """Tuple of tuples of seats for opponents: an `OpponentsPart`'s, else per seat of a `learned` policy all others."""
    if part.seats is not None:
        return part.seats
    names = set(learned)
    return tuple(tuple(other for other in team if other != agent) for agent in team if team[agent].name in names)


def check(part: OpponentsPart, team: Team, learned: Collection[str], factory: EnvFactory) -> None:
    """Raise RecipeError if an `OpponentsPart` leaves a team no opponents or no learner, or misfits an env factory.

    Raises:
        RecipeError: names the field, the seat or the policy, and the fix.
    """
    if len(team) < 2:
        raise RecipeError(f"opponents: a league without opponents: the env has one agent, {next(iter(team))!r}")
    lists = seat_lists(part, team, learned)
    for seat in (seat for seats in lists for seat in seats):
        if seat not in team:
            raise RecipeError(f"opponents.seats: the env has no agent {seat!r}{nearest(seat, team)}")
    for seats in lists:
        if not any(policy.name in learned and agent not in seats for agent, policy in team.items()):
            raise RecipeError(
                f"opponents.seats: with opponents in {', '.join(seats)} nobody learns: no other seat is one of a "
                f"policy that does ({', '.join(learned)}); leave a seat to it"
            )
    for name in learned:
        own = [agent for agent, policy in team.items() if policy.name == name]
        if not any(agent not in seats for agent in own for seats in lists):
            raise RecipeError(
                f"opponents.seats: policy {name!r} sits in {', '.join(own)} only, which opponents always fill, so it "
                f"never learns; add a list without it, or name it in learn.freeze"
            )
    rule = _rule(part.method)
    met = {team[seat].name for seats in lists for seat in seats}
    if part.every is not None and not rule.SCRIPTS and met.isdisjoint(learned) and len(learned) != 1:
        raise RecipeError(
            f"opponents.seats: no past self can sit in {', '.join(sorted({s for each in lists for s in each}))}, where "
            "no policy learns, and several do elsewhere; name scripts and every: null, or seats of a policy that learns"
        )
    if rule.PAYOFFS and hasattr(rule, "evaluate"):
        _check_solvers(rule, part.method, team, factory)


def _rule(text: str) -> Any:
    from palaestra.learning.league.rules import read_rule  # brings SciPy

    return read_rule(text)


def _check_solvers(rule: Any, text: str, agents: Team, factory: EnvFactory) -> None:
    """Try the solvers on a game of the env's kind, as a few episodes of random play show it."""
    from palaestra.evaluation.games.game import Game  # brings SciPy

    player = random_legal()
    played = rollout(factory, Team(dict.fromkeys(agents, player)), groups=8, seed=0).frame
    returns = (
        played.filter(pl.col("error").is_null()).group_by("group", "episode").agg(pl.col("reward").sum())["reward"]
    )
    if len(returns) < 2 or np.ptp(returns.to_numpy()) <= 1e-9:
        return
    general = Game((np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([[1.0, 0.0], [0.0, 2.0]])))
    for solver in (rule.train, rule.evaluate):
        try:
            solver(general)
        except InputError as error:
            raise RecipeError(
                f"opponents.method: {text}: the env's returns do not add up to a constant, and {error}; take "
                "alpha_rank, replicator, qre or uniform"
            ) from error
