"""[155] Proactive Agent (arXiv 2410.12361): the table of proposals and of silence, and an assistant trained by a judge.

The published counting was run beside ours on made-up traces. The world `proactive`: need .3 per event, a cue that is
wrong in 5 %, a judge who errs in 8 %. Left out: language models, and several candidates per event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import Proactive
from palaestra.evaluation.scorers import confusion
from palaestra.play.executors import Local, Plan
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms
from palaestra_atlas.verification.measures import Left, Measure

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

ARMS = {
    "judged": {},
    "unpunished": {"reward": 'where(col("proposed") & col("accepted"), 1.0, 0.0)'},
}


def events(tp: int, fp: int, tn: int, fn: int) -> pl.DataFrame:
    """Events of those counts; null is silence."""
    action = ["help"] * (tp + fp) + [None] * (tn + fn)
    return pl.DataFrame({"action": action, "accepted": [True] * tp + [False] * fp + [True] * tn + [False] * fn})


@exact
def published_rows() -> None:
    """The rows of an agent (227 events) and of the reward model (120), false alarm as 1 - precision."""
    agent, model = confusion(events(111, 112, 4, 0)), confusion(events(56, 6, 54, 4))
    found = [(each.recall, each.precision, each.accuracy, each.false_alarm, each.f1) for each in (agent, model)]
    expected = [(1.0, 0.49776, 0.50661, 0.50224, 0.66467), (0.93333, 0.90323, 0.91667, 0.09677, 0.91803)]
    np.testing.assert_allclose(found, expected, atol=5e-6)


def played(says: str) -> Turns:
    """Events with a judge who does not err, always answered the same."""
    team = Team(assistant=ScriptedPolicy(lambda request: says, name="same"))
    return Local().play(lambda: Proactive(error=0.0), team, Plan(groups=20, group_size=1, seed=155))


@exact
def silence_is_judged() -> None:
    """Silence is accepted where nobody needs help and rejected where somebody does; it earns 0 in both cases."""
    frame = played("stay silent").frame
    assert frame["accepted"].to_list() == (~frame["needed"]).to_list()
    assert frame["reward"].to_list() == [0.0] * frame.height
    table = confusion(frame, action="proposed")
    assert min(table.tn, table.fn) > 0, table


@exact
def rejection_costs() -> None:
    """A proposal earns 1 where it is needed and costs 1 where it is not."""
    frame = played("propose help").frame
    assert frame["reward"].to_list() == [1.0 if each else -1.0 for each in frame["needed"]]


def precision(recall: float = 0.8) -> Measure:
    """Share of the held-out proposals that were needed, per seed; 0 where fewer of the needs than `recall` are met."""

    def measured(left: Left) -> list[float]:
        found = []
        for seed in left.seeds():
            frame = pl.read_parquet(seed / "evaluation.parquet").filter(pl.col("system") == "after")
            table = confusion(right_ones(frame), action="proposed", accepted="right")
            found.append(table.precision if table.recall >= recall else 0.0)
        return found

    return measured


def right_ones(frame: pl.DataFrame) -> pl.DataFrame:
    """Events with `right`: proposed where it was needed, silent where it was not."""
    frame = frame.drop_nulls(["proposed", "needed"])
    return frame.with_columns(right=pl.col("proposed") == pl.col("needed"))


def helpful(learned: TrainingResult) -> dict[str, float]:
    """Precision and recall on held-out events, against what was needed."""
    table = confusion(right_ones(learned.play(groups=300).frame), action="proposed", accepted="right")
    return {"precision": table.precision, "recall": table.recall}


@reproduction(
    155,
    claim="An assistant that a judge of proposals rewards and punishes learns to stay silent where nobody needs help.",
    baseline="the same recipe where a rejected proposal costs nothing",
    criterion="precision above .8 at recall above .8 in every seed, where the baseline stays "
    "below .5 precision (held on the three fresh seeds tried)",
    seeds=(0, 1),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Both rewards by the recipe `proactive`."""
    short = {"train": {"iterations": 30, "groups": 16, "group_size": 4}}
    arms = train_arms("proactive", {name: short | changes for name, changes in ARMS.items()}, seeds, helpful)
    good = min(float(arms.values["judged"][name].min()) for name in ("precision", "recall"))
    base = float(arms.values["unpunished"]["precision"].max())
    return Outcome(arms.measured(), good > 0.8 and base < 0.5)
