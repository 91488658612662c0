"""What each member of a trained team is worth: every coalition of trained and untrained members plays the same tasks.

v(S) is what the team achieves with the members of S as they are after training and the others as they were before; the
Shapley values of it add up to what training gained on these tasks (`credit.shapley_values`; [88], arXiv 2502.00510).
Left out: more than 12 members.
"""

from __future__ import annotations

from palaestra.agents import Team
from palaestra.credit.teams import EXACT, shapley_values
from palaestra.envs.base import EnvFactory
from palaestra.errors import RecipeError
from palaestra.evaluation import trials
from palaestra.play.executors import Executor
from palaestra.play.plan import Plan
from palaestra.runs.parts import EvaluationPart
from palaestra.runs.proof import judged, value_of


def check(proof: EvaluationPart, agents: tuple[str, ...]) -> None:
    """Raises RecipeError if there are too many members for all their coalitions."""
    if proof.coalitions and len(agents) > EXACT:
        raise RecipeError(
            f"evaluation.coalitions: {len(agents)} members have {2 ** len(agents):,} coalitions; at most {EXACT} "
            "members, or coalitions: 0"
        )


def worth(
    proof: EvaluationPart, executor: Executor, env: EnvFactory, start: Team, end: Team, *, seed: int
) -> dict[str, float]:
    """The Shapley value of each agent, from `proof.coalitions` held-out tasks, one episode each."""
    untrained = start.frozen_copy()
    for policy in untrained.learnable.values():
        policy.name = f"{policy.name} before training"
    agents = list(end)

    def value(members: frozenset[str]) -> float:
        team = Team({agent: (end if agent in members else untrained)[agent] for agent in agents})
        played = trials(executor.play(env, team, Plan(proof.coalitions, seed=seed, stream="eval", retries=0)),
                        where=judged(proof))  # fmt: skip
        return float(played[value_of(proof.measure, played)].cast(float).mean() or 0.0)  # type: ignore[arg-type]

    return dict(zip(agents, shapley_values(value, agents).tolist(), strict=True))
