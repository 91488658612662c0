"""[5] Supervoxel MARL: a team of many alike agents learns from what each of them changed, less from their mean.

The recipe `voxels`: 24 agents on a line, one per cell; a noisy feature tells foreground from background. Over five
rounds every agent adjusts its chance by a shared table; its reward is the drop of its own cross-entropy, which is
potential-based shaping with γ = 1 and Φ = -weight · CE. A weight of three near the boundary, the paper's point, is
measured as well. Clicks fall where the error is largest and tell a run of cells with one feature where it belongs.
The action set and the clicks are a reconstruction. Left out: medical volumes, and people who click.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.agents import TabularPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import Voxels
from palaestra.learning import PolicyGradient
from palaestra.play.rollout import rollout
from palaestra.rewards import supervoxel_reward
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

LOCAL = 'potential_difference(-col("ce"), terminal=-col("ce_after"))'
NEAR = 'where(col("edge") < 2.0, 3.0, 1.0)'
REWARDS = {
    "local": LOCAL,
    "team": f'mean({LOCAL}, over=("episode", "turn"))',
    "boundary": f'potential_difference(-({NEAR} * col("ce")), terminal=-({NEAR} * col("ce_after")))',
}
ARMS: dict[str, dict[str, Any]] = {
    name: {"reward": reward, "train": {"iterations": 40}} for name, reward in REWARDS.items()
}


def rows(edge: Sequence[float] = (0.0, 0.0)) -> Turns:
    """Two cells over two rounds: one whose loss falls from .9 to .5 to .3, one that is left as it is."""
    return Turns(
        {"group": [0] * 4, "episode": [0] * 4, "turn": [0, 0, 1, 1], "agent": ["cell_0", "cell_1"] * 2}
        | {"ce": [0.9, 0.7, 0.5, 0.7], "ce_after": [0.5, 0.7, 0.3, 0.7], "edge": [*edge] * 2}
    )


@exact
def own_gain() -> None:
    """Loss .9, .5, .3 pays .4 and .2; a cell that is left as it is earns nothing, whatever the other gains."""
    paid = np.asarray(supervoxel_reward(most=1.0).evaluate(rows()))
    np.testing.assert_allclose(paid, [0.4, 0.0, 0.2, 0.0], atol=1e-12)


@exact
def near_the_boundary() -> None:
    """Equal gains pay three times as much at the boundary as far from it, and less the farther."""
    cells = {"group": [0] * 3, "episode": [0] * 3, "turn": [0] * 3, "agent": ["cell_0", "cell_1", "cell_2"]}
    turns = Turns(cells | {"ce": [0.9] * 3, "ce_after": [0.5] * 3, "edge": [0.0, 2.0, 100.0]})
    paid = np.asarray(supervoxel_reward().evaluate(turns))
    np.testing.assert_allclose(paid / paid[-1], [3.0, 1.0 + 2.0 / np.e, 1.0], atol=1e-12)


def volume(**options: Any) -> tuple[Voxels, dict[str, str]]:
    """A volume at its start, and what raises every cell's chance by a tenth."""
    env = Voxels(cells=12, rounds=3, **options)
    env.reset(0)
    return env, dict.fromkeys(env.agents, "+0.1")


@exact
def rounds_add_up() -> None:
    """Chances go on from what they were, and each cell is shown its own."""
    env, raised = volume()
    first = env.step(raised).observations
    second = env.step(raised).observations
    np.testing.assert_allclose(env.state.chance, 0.7, atol=1e-12)
    assert all(first[agent].text != second[agent].text for agent in env.agents), "the chance is not shown"


@exact
def clicks() -> None:
    """A click falls on the largest error; all cells beside it with its feature are shown where it belongs."""
    env, raised = volume(clicks=True)
    moves = raised | {"cell_4": "-0.4" if env.state.truth[4] else "+0.4"}
    seen = env.step(moves).observations
    told = ["side" in seen[agent].text for agent in env.agents]
    alike = env.state.feature == env.state.feature[4]
    others = np.flatnonzero(~alike)
    first, last = max([-1, *others[others < 4]]) + 1, min([12, *others[others > 4]])
    assert [place for place in range(12) if told[place]] == list(range(first, last)), told
    assert seen["cell_4"].text.endswith(", inside" if env.state.truth[4] else ", outside")


@exact
def one_policy() -> None:
    """What one cell learns all cells do, in a longer volume than was trained on as well."""
    policy = TabularPolicy(6, capacity=64)
    team = Team(dict.fromkeys(Voxels().agents, policy))
    turns = rollout(lambda: Voxels(rounds=1), team, groups=1, group_size=1)
    one = turns.filter(pl.col("agent") == "cell_0")
    PolicyGradient(team, lr=1.0).update(one.with_column(advantage=1.0 + 0.0 * one["turn"]))
    longer = Team(dict.fromkeys(Voxels(cells=40).agents, policy))
    played = rollout(lambda: Voxels(cells=40, rounds=1), longer, groups=1, group_size=1).frame
    seen = str(one["observation"][0])[-len("feature 0, chance .5") :]
    others = played.filter(pl.col("observation").cast(pl.String).str.ends_with(seen) & (pl.col("agent") != "cell_0"))
    chance = policy.logits_of_rows(others).softmax(-1)[:, int(one["action_ids"][0][0])].detach().numpy()
    assert len(chance), "no other cell looks alike"
    assert (chance > 0.25).all(), f"other cells do what one has learned with a chance of {chance.min():.2f}"


def dice(learned: TrainingResult) -> dict[str, float]:
    """Mean overlap on fresh volumes."""
    turns = learned.play(groups=60).frame
    return {"dice": float(turns.group_by("group").agg(pl.col("reward").max())["reward"].mean())}  # type: ignore[arg-type]


@reproduction(
    5,
    claim="In a large team of alike agents the drop of one's own loss teaches; the team's mean drop teaches less.",
    baseline="the mean drop of all agents' loss in the round",
    criterion="Dice on fresh volumes after 40 iterations with the local reward above that with the team's mean in "
    "every seed, and by at least .05 on average; weights near the boundary are reported",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Local, team mean, and local with a weight of three at the boundary."""
    arms = train_arms("voxels", ARMS, seeds, dice)
    gap = arms.values["local"]["dice"] - arms.values["team"]["dice"]
    measured = arms.measured() | {"gap": float(gap.mean()), "least_gap": float(gap.min())}
    return Outcome(measured, bool(gap.min() > 0 and gap.mean() >= 0.05))
