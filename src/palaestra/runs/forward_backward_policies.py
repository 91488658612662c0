"""The kind of policy `forward_backward`: what imagined frames show, done at once and without training."""

from __future__ import annotations

import numpy as np

from palaestra.agents.policy import Policy
from palaestra.errors import InputError
from palaestra.runs.policies import POLICIES, Making


@POLICIES.register("forward_backward")
def forward_backward(made: Making) -> Policy:
    """Makes a policy from a `Making`: visits states like imagined frames; options.turns, options.frames: files."""
    found: Policy = made.call(imitating, made.take("turns"))
    return found


def imitating(
    turns: str,
    frames: str,
    *,
    rank: int = 16,
    gamma: float = 0.95,
    tasks: int = 64,
    name: str = "forward_backward",
) -> Policy:
    """Fits a policy on a file of reward-free turns: it visits states like imagined frames (RLZero [201], 2412.05718).

    Every frame stands for the state of the table with the nearest features; see
    `palaestra.agents.forward_backward.ForwardBackward`.

    Args:
        turns: File or folder of turns of one agent, of any play: `state`, `action_ids` and `features` are read.
        frames: Parquet file with the column `features`, a row for each imagined frame, from any generator.
        rank: Length of the embeddings.
        gamma: γ in (0, 1).
        tasks: Number of policies that a new one is made of.
        name: Of the policy.

    Raises:
        InputError: A file cannot be read, a column is missing, or a number is out of range.
    """
    import polars as pl

    from palaestra.agents.forward_backward import ForwardBackward
    from palaestra.algebra.turns import Turns

    try:
        seen = pl.read_parquet(frames, columns=["features"], glob=False).drop_nulls()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError(f"forward_backward: frames: no Parquet file with a column 'features': {error}") from error
    model = ForwardBackward(Turns.load(turns), rank=rank, gamma=gamma, tasks=tasks)
    return model.policy(model.task(np.array(seen["features"].to_list(), float)), name=name)
