"""Shapley values of trained members: every coalition of trained and untrained members plays the same tasks.

v(S) is what the team achieves with the members of S as they are after training and the others as they were before; the
Shapley values of it add up to what training gained on these tasks ([88], arXiv 2502.00510).
"""

from __future__ import annotations

import polars as pl

from palaestra.agents import Team
from palaestra.credit.teams import EXACT, shapley_values
from palaestra.envs.protocol import EnvFactory
from palaestra.errors import RecipeError
from palaestra.play.coalitions import play_coalitions
from palaestra.runs.config import EvaluationPart


def check(part: EvaluationPart, agents: tuple[str, ...]) -> None:
    """Raise RecipeError if the evaluation asks for coalitions and there are too many agents to play all of them."""
    if part.coalitions and len(agents) > EXACT:
        raise RecipeError(
            f"evaluation.coalitions: {len(agents)} members have {2 ** len(agents):,} coalitions; at most {EXACT} "
            "members, or coalitions: 0"
        )


def worth(tasks: int, env: EnvFactory, start: Team, end: Team, *, seed: int) -> dict[str, float]:
    """Dict agent -> Shapley value of being as in team `end`, not `start`, by success in tasks of env factory `env`.

    `tasks` of them are played, held out; one episode per task and coalition.
    """
    untrained = start.frozen_copy()
    for policy in untrained.learnable.values():
        policy.name = f"{policy.name} before training"
    agents = list(end)
    played = play_coalitions(env, end, untrained, groups=tasks, seed=seed)
    values = dict(played.group_by("coalition").agg(pl.col("success").mean()).iter_rows())

    def value(members: frozenset[str]) -> float:
        return float(values["+".join(agent for agent in agents if agent in members)])

    return dict(zip(agents, shapley_values(value, agents).tolist(), strict=True))
