"""Auxiliary tasks on a policy's trunk, as in Lucy-SKG [21] (arXiv 2305.15801): what else its last layer must know.

Two heads read the trunk: one says which sign the reward will have, one gives the observation back. The term `auxiliary`
adds their losses to the policy's, so that the trunk learns also where credit says nothing. Left out: trunks of language
models, whose observations are text; attention and batch normalisation in the heads, which are the published network's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from palaestra.agents.policy import Learnable
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError

if TYPE_CHECKING:
    import polars as pl

NEGATIVE, ZERO, POSITIVE, UNKNOWN = 0, 1, 2, -100
"""Classes of a reward; one that is missing has none."""
HIDDEN = 32


@runtime_checkable
class Trunk(Learnable, Protocol):
    """Protocol of a policy whose logits are linear in `width` hidden units, which read `inputs` features."""

    inputs: int
    width: int

    def features_of_rows(self, rows: pl.DataFrame) -> np.ndarray:
        """Features of a table's rows, float32[rows, inputs]."""

    def represent(self, features: Tensor) -> Tensor:
        """Hidden units of features, [rows, width], with gradient."""


class Targets(NamedTuple):
    """Data: targets of one policy's auxiliary heads: features, windows of the agent's last turns, reward classes.

    features: float32[rows + 1, inputs]; the last row is zero. windows: int64[rows, sequence], the rows of the agent's
    last turns in the episode, this one last; -1, which is the row of zeros, before its first. classes: int64[rows].
    """

    features: Tensor
    windows: Tensor
    classes: Tensor


class Auxiliary(nn.Module):
    """Module of auxiliary heads on a policy's trunk that predict the reward's class (cross-entropy) and the features.

    The features' loss is smooth L1.
    The class is that of a row's own reward, which comes between its turn and the agent's next one. It is predicted from
    the trunk's hidden units at the last `sequence` turns, up to this one, by an LSTM of 32 units; turns before the
    first are zero observations. The features of a turn are rebuilt from its hidden units, through one layer of 32.

    Args:
        policy: has the trunk. The heads' first weights are the same in every run.
        reward, reconstruction: whether there is a head for the reward's class, and one for the features.
        sequence: turns from which the class is predicted; 20 in the released code.
        zero: a reward of at most this size counts as zero; .005 in the released code.

    Raises:
        InputError: the policy has no trunk.
    """

    def __init__(
        self,
        policy: Learnable,
        *,
        reward: bool = True,
        reconstruction: bool = True,
        sequence: int = 20,
        zero: float = 0.005,
    ) -> None:
        super().__init__()
        if not isinstance(policy, Trunk):
            raise InputError(
                f"auxiliary: policy {policy.name!r} ({type(policy).__name__}) has no trunk that heads could read; "
                "use kind 'mlp' (MLPPolicy), or give it inputs, width, features_of_rows() and represent()"
            )
        self.policy, self.zero, self.sequence = policy, zero, sequence
        self.reward, self.reconstruction = reward, reconstruction
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.memory = nn.LSTM(policy.width, HIDDEN, batch_first=True)
            self.sign = nn.Linear(HIDDEN, 3)
            self.decoder = nn.Sequential(nn.Linear(policy.width, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, policy.inputs))
        self.to(next(iter(policy.parameters())).device)

    def targets(self, rows: pl.DataFrame) -> Targets:
        """Targets of the heads for all rows of an update."""
        device = next(self.parameters()).device
        features = self.policy.features_of_rows(rows)
        blank = np.zeros((1, self.policy.inputs), np.float32)
        classes = reward_classes(rows["reward"], self.zero) if self.reward else np.zeros(len(rows))
        return Targets(
            torch.from_numpy(np.concatenate([features, blank])).to(device),
            torch.from_numpy(last_turns(Turns(rows), self.sequence)).to(device),
            torch.from_numpy(classes.astype(np.int64)).to(device),
        )

    def losses(self, targets: Targets, piece: np.ndarray, rows: int) -> dict[str, Tensor]:
        """Contribution of the rows `piece` to each loss of a step of `rows` rows; a row without reward adds 0."""
        at = torch.from_numpy(piece).to(targets.windows.device)
        windows = targets.windows[at] % len(targets.features)
        used, places = torch.unique(windows, return_inverse=True)
        hidden = self.policy.represent(targets.features[used]).index_select(0, places.flatten()).view(*places.shape, -1)
        parts = {}
        if self.reward:
            _, (last, _) = self.memory(hidden)
            logits, wanted = self.sign(last[0]), targets.classes[at]
            parts["reward_class"] = F.cross_entropy(logits, wanted, ignore_index=UNKNOWN, reduction="sum") / rows
        if self.reconstruction:
            rebuilt = self.decoder(hidden[:, -1])
            parts["reconstruction"] = F.smooth_l1_loss(rebuilt, targets.features[at]) * (len(piece) / rows)
        return parts


def reward_classes(reward: pl.Series, zero: float = 0.005) -> np.ndarray:
    """Sign of each value of a Series of rewards, class int64[rows]: 0 below -zero, 1 between, 2 above; -100 if missing.

    >>> import polars as pl
    >>> reward_classes(pl.Series([-1.0, 0.0, 0.004, 0.5, None])).tolist()
    [0, 1, 1, 2, -100]
    """
    values = reward.cast(float).to_numpy()
    classes = ZERO + (values > zero).astype(np.int64) - (values < -zero)
    return np.where(np.isnan(values), UNKNOWN, classes)


def last_turns(turns: Turns, count: int) -> np.ndarray:
    """int64[rows, count]: rows of the last `count` turns of each row's agent in its episode of `Turns`; -1: none.

    >>> last_turns(Turns({"episode": [0, 0, 0, 1], "turn": [0, 1, 2, 0], "agent": ["a"] * 4}), 2).tolist()
    [[-1, 0], [0, 1], [1, 2], [-1, 3]]
    """
    ordered = turns.segments("episode", "agent")
    order = np.arange(len(turns)) if ordered.order is None else ordered.order
    place = np.arange(len(turns)) - np.repeat(ordered.starts, ordered.lengths)
    back = np.arange(count)[::-1]
    windows = np.empty((len(turns), count), np.int64)
    source = np.arange(len(turns))[:, None] - back
    windows[order] = np.where(place[:, None] >= back, order[np.maximum(source, 0)], -1) if len(turns) else windows
    return windows
