"""[79] Towards a science of scaling agent systems (arXiv 2512.08296): what coordination costs beside one agent.

The paper's table of five architectures, whose efficiency and overhead follow from success and turns; the law of turns;
and teams that are really played: scripted agents in the shipped workflows, of which overhead and density of messages
are known beforehand. Left out: the regression, which needs the 260 configurations; error amplification as a count.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy, Team
from palaestra.agents.policy import Request
from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import EnvFactory
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.evaluation.teamwork import coordination, turn_law
from palaestra.play.rollout import rollout
from palaestra.teams import workflows
from palaestra_atlas.reproductions import Outcome, reproduction

SUCCESS = np.array([0.466, 0.370, 0.477, 0.463, 0.452])
TURNS = np.array([7.2, 11.4, 26.1, 27.7, 44.3])
EFFICIENCY, OVERHEAD = [0.466, 0.234, 0.132, 0.120, 0.073], [0, 58.3, 262.5, 284.7, 515.3]
MEMBERS, LAW = [1, 2, 3, 4, 6, 10], [5.5, 13.2, 23.6, 36.4, 68.6, 156.7]
GROUPS = 60


class Coins(TaskEnv):
    """Say heads or tails."""

    def draw(self, seed: int) -> Task:
        """Of a seed."""
        side = ("heads", "tails")[seed // 2 % 2]
        return Task(f"{seed}", "which?", lambda text: float(text == side), side)


def say(request: Request) -> str:
    """Either."""
    return ("heads", "tails")[int(request.rng.integers(2))]


def played(seed: int) -> pl.DataFrame:
    """Coordination of three workflows beside one agent."""
    made: dict[str, EnvFactory] = {
        "single": workflows.single(Coins), "debate": workflows.debate(Coins, 3, 2), "star": workflows.star(Coins, 3),
        "votes": workflows.self_consistency(Coins, 3),
    }  # fmt: skip
    parts = []
    for name, env in made.items():
        team = Team(dict.fromkeys(env().agents, ScriptedPolicy(say, name="coin")))
        turns = rollout(env, team, groups=GROUPS, seed=seed, run=name, timeout=None)
        parts.append(turns.with_column(system=pl.Series("system", [name] * len(turns))))
    every = Turns.concat(parts)
    return coordination(every, baseline="single")


@reproduction(
    79,
    claim="Overhead and efficiency of a team follow from its success and turns beside one agent's; turns grow faster "
    "than members.",
    baseline="one agent on the same tasks",
    criterion="the table's efficiencies to .001 and overheads to .1 points from its success and turns; the fitted "
    "power is 1.72; of workflows really played overhead is 5, 3 and 2 and density 1, .75 and 0, in every seed (exact)",
    seeds=(0, 1),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """The table, the law, real play."""
    efficiency, overhead = SUCCESS * TURNS[0] / TURNS, 100 * (TURNS / TURNS[0] - 1)
    off = float(max(abs(efficiency - EFFICIENCY).max(), abs(overhead - OVERHEAD).max() / 100))
    scale, power = turn_law(MEMBERS, LAW)
    holds, rows = True, {}
    for seed in seeds:
        rows = {row["system"]: row for row in played(seed).iter_rows(named=True)}
        for name, over, density in (("debate", 5, 1.0), ("star", 3, 0.75), ("votes", 2, 0.0)):
            holds &= abs(rows[name]["overhead"] - over) < 1e-9 and abs(rows[name]["density"] - density) < 1e-9
    measured = {"largest_difference": off, "law_scale": scale, "law_power": power}
    measured |= {f"efficiency_{name}": row["efficiency"] for name, row in rows.items()}
    return Outcome(measured, bool(holds and off <= 1e-3 and abs(power - 1.724) < 0.01))
