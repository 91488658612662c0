"""Rewards read back from the critics of inverse soft Q-learning ([11])."""

from __future__ import annotations

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.learning.stages.stage import Context, Stage, stage


@stage
class recovered_reward(Stage):
    """Stage: column `recovered`, the reward read back from the critics of the learner `inverse_soft_q`.

    It is the reward that would explain the experts.

    r̂_i(s, a) = Q_i(s, a) - γ E V̄_i(s'), the least-squares fit of one number per agent, state and joint action to the
    transitions of the table. It is known up to shaping, and up to a constant. Null before the first update, at states
    that no expert met, and at the last turn of an episode that was cut off.

    Source: Haynam et al. 2025, arXiv 2503.04679; the constraints of its regression are not known, and there are none.
    """

    step = "relabel"

    needs = ("state", "action_ids", "turn", "group", "episode", "agent")
    adds = {"recovered": "reward read back from the learner's critics"}

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with `recovered`."""
        from palaestra.learning.inverse_soft_q import InverseSoftQ  # its learner has loaded torch

        learner = context.learner
        if not isinstance(learner, InverseSoftQ):
            raise InputError("recovered_reward: the learner must be inverse_soft_q: learn.kind: inverse_soft_q")
        found = np.full(len(turns.frame), np.nan)
        if learner.last is not None:
            rows, steps, kept = learner.numbered(turns.frame.with_row_index("_row"))
            for place in range(len(learner.agents)):
                values = learner.critics.recovered(place, steps, learner.last)
                alike = np.column_stack([steps.here, steps.went])
                _, of = np.unique(alike, axis=0, return_inverse=True)
                means = np.bincount(of.reshape(-1), values) / np.bincount(of.reshape(-1))
                found[rows["_row"].to_numpy().reshape(-1, len(learner.agents))[kept, place]] = means[of.reshape(-1)]
        return turns.with_column(recovered=pl.Series(found).fill_nan(None))
