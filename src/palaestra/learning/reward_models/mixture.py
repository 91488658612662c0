"""`mixture`: several tastes at once, and which one a person has: MiCRo [30] (2505.24846)."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn

from palaestra.errors import InputError
from palaestra.learning.reward_models.data import Preferences, matrix, series, together
from palaestra.learning.reward_models.features import scale_of
from palaestra.learning.reward_models.head import FeatureReward
from palaestra.learning.reward_models.losses import mixture_bt_loss
from palaestra.learning.reward_models.network import Inputs
from palaestra.learning.reward_models.reward_model import REWARD_MODELS, keep_options


def hedge(lead: np.ndarray, eta: float = 1.0) -> np.ndarray:
    """Weights of heads by the Hedge rule, w_k ∝ exp(-η Σ_i -log σ(Δ_ik)), from leads float64[pairs, heads].

    >>> hedge(np.array([[2.0, -2.0]])).round(3)
    array([0.881, 0.119])
    """
    credit = -eta * np.logaddexp(0.0, -lead).sum(0)
    weight = np.exp(credit - credit.max())
    return np.asarray(weight / weight.sum())


class Experts(nn.Module):
    """Network of K `heads`, linear rewards of x, and log π of a gate that reads the context: [rows, 2K]."""

    mean: Tensor
    spread: Tensor

    def __init__(self, inputs: int, context: int, heads: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("spread", torch.ones(inputs))
        self.rewards = nn.Linear(inputs, heads, bias=False)
        self.gate = nn.Linear(context, heads)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        """Rewards beside log-weights, [rows, 2K]."""
        return torch.cat([self.rewards((x - self.mean) / self.spread), self.gate(context).log_softmax(-1)], -1)


@REWARD_MODELS.register("mixture")
class MixtureReward(FeatureReward):
    """Mixture reward model: P(a over b) = Σ_k π_k·σ(r_k(a) - r_k(b)), linear heads r_k, π by a gate on the condition.

    A mixture of probabilities, so a likelihood; without a condition the gate is one set of weights. score: the heads,
    Array(K), without a condition; Σ π_k·r_k with one, whose `weights` (from `route`) stand in for the gate if it has
    them; P(row over reference) with a reference. entropy: keeps the gate soft; .5 in the authors' code with K = 10.
    """

    kind = "mixture"
    learns = (("mixture",), ())
    lr = 1e-2

    def __init__(
        self, features: str = "features", *, heads: int = 2, entropy: float = 0.0, name: str = "mixture"
    ) -> None:
        if heads < 1 or entropy < 0:
            raise InputError(f"mixture: heads={heads} must be at least 1 and entropy={entropy} not below 0")
        keep_options(self, locals())
        self.features, self.heads, self.entropy, self.name = features, heads, entropy, name
        self.outputs_of = 2 * heads

    def encode(self, rows: pl.DataFrame, reference: pl.DataFrame | None, condition: pl.DataFrame | None) -> Inputs:
        """Features and context of rows, two tensors."""
        x = matrix(rows, self.features, self.name)
        c = self._context(condition, len(x))
        ready = self.module
        if isinstance(ready, Experts) and (x.shape[1], c.shape[1]) != (len(ready.mean), ready.gate.in_features):
            raise InputError(
                f"{self.name}: rows have {x.shape[1]} features and {c.shape[1]} of context, it was fitted "
                f"to {len(ready.mean)} and {ready.gate.in_features}"
            )
        both = tuple(torch.from_numpy(np.nan_to_num(each)).float() for each in (x, c))
        return Inputs(both, ~(np.isnan(x).any(1) | np.isnan(c).any(1)))

    def forward(self, inputs: Inputs, index: np.ndarray) -> Tensor:
        """Rewards and log-weights of rows, [rows, 2K]."""
        at = torch.from_numpy(index)
        found: Tensor = self.ready()(*(each[at] for each in inputs.data))
        return found

    def prepare(self, data: Any, seed: int) -> None:
        """Make the heads and the gate, unless there are some."""
        if self.module is not None or not isinstance(data, Preferences):
            return
        rows, _, condition = data.both()
        x, c = matrix(rows, self.features, self.name), self._context(condition, len(rows))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.module = made = Experts(x.shape[1], c.shape[1], self.heads)
        for buffer, value in zip((made.mean, made.spread), scale_of(x), strict=True):
            buffer.copy_(torch.from_numpy(value))

    def pair_loss(self, chosen: Tensor, rejected: Tensor, **given: Any) -> Tensor:
        """Mixture loss of pairs; the gate reads the context, which both sides share."""
        for name in ("margin", "centre"):
            if name in given:
                raise InputError(f"{self.name}: a mixture has no {name}")
        k = self.heads
        return mixture_bt_loss(chosen[:, :k] - rejected[:, :k], chosen[:, k:], entropy=self.entropy, **given)

    def score(
        self, rows: pl.DataFrame, *, reference: pl.DataFrame | None = None, condition: pl.DataFrame | None = None
    ) -> pl.Series:
        """Scores: all heads, Σ π_k·r_k with a condition, or P(row over reference) with a reference."""
        together(rows, reference=reference, condition=condition)
        r, gate, known = self._heads(rows, condition)
        if condition is not None and "weights" in condition.columns:
            gate = matrix(condition, "weights", self.name)
            known = known & ~np.isnan(gate).any(1)
        if reference is not None:
            other, _, seen = self._heads(reference, condition)
            known = known & seen
            found = (gate / (1 + np.exp(other - r))).sum(1)
        else:
            found = r if condition is None else (gate * r).sum(1)
        return series(self.name, found[known], known)

    def agrees(self, pairs: Preferences) -> np.ndarray:
        """Agreement per pair: 1 where the chosen side is the likelier one, ½ where both are, else 0; NaN: unknown."""
        p = self.score(pairs.chosen, reference=pairs.rejected, condition=pairs.condition).to_numpy()
        return np.where(np.isnan(p), np.nan, (1 + np.sign(p - 0.5)) / 2)

    def route(self, pairs: Preferences, by: np.ndarray, *, eta: float = 1.0) -> pl.DataFrame:
        """Table `by`, `weights`: head weights of each user by `hedge`, from a few of their pairs; for a condition.

        Pairs with a missing feature are left out; whoever has no other gets equal weights.
        """
        (chosen, _, seen), (rejected, _, too) = (self._heads(side, None) for side in (pairs.chosen, pairs.rejected))
        lead, known = chosen - rejected, seen & too
        names, code = np.unique(np.asarray(by), return_inverse=True)
        found = [hedge(lead[known & (code == i)], eta).tolist() for i in range(len(names))]
        return pl.DataFrame({"by": names, "weights": pl.Series(found, dtype=pl.List(pl.Float64))})

    def shaped(self, state: dict[str, Tensor]) -> nn.Module:
        """New network of the shapes of these weights."""
        return Experts(len(state["mean"]), state["gate.weight"].shape[1], self.heads)

    def _heads(self, rows: pl.DataFrame, condition: pl.DataFrame | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rewards and gate, float64[rows, K], and which rows are known."""
        self.ready()
        gated = None if condition is None or "features" not in condition.columns else condition
        inputs = self.encode(rows, None, gated) if gated is not None else self._ungated(rows)
        with torch.no_grad():
            found = self.forward(inputs, np.arange(len(rows))).double().numpy()
        return found[:, : self.heads], np.exp(found[:, self.heads :]), inputs.known

    def _ungated(self, rows: pl.DataFrame) -> Inputs:
        x = matrix(rows, self.features, self.name)
        width = int(self.ready().gate.in_features)  # type: ignore[union-attr, arg-type]
        both = (torch.from_numpy(np.nan_to_num(x)).float(), torch.zeros(len(x), width))
        return Inputs(both, ~np.isnan(x).any(1))

    def _context(self, condition: pl.DataFrame | None, count: int) -> np.ndarray:
        return np.ones((count, 1)) if condition is None else matrix(condition, "features", f"{self.name} (condition)")


class Routed:
    """Scorer of a mixture for one person: Σ w_k·r_k, w by `hedge` from that person's pairs."""

    def __init__(self, model: MixtureReward, pairs: Preferences, *, eta: float = 1.0, name: str = "routed") -> None:
        found = model.route(pairs, np.zeros(len(pairs)), eta=eta)
        self.model, self.name, self.weights = model, name, np.array(found["weights"][0])

    def score(
        self, rows: pl.DataFrame, *, reference: pl.DataFrame | None = None, condition: pl.DataFrame | None = None
    ) -> pl.Series:
        """Scores Σ w_k·r_k, or with a reference P(row over reference). The condition is ignored."""
        given = pl.DataFrame({"weights": [self.weights.tolist()] * len(rows)}, {"weights": pl.List(pl.Float64)})
        return self.model.score(rows, reference=reference, condition=given)


def routed(path: str, pairs: str, *, features: str | None = None, eta: float = 1.0) -> Routed:
    """Make the scorer of a saved mixture model adapted to one person's file of pairs: `routed("rm", "mine.parquet")`.

    Raises:
        InputError: the folder holds another kind of model, or the file labels.
    """
    from palaestra.learning.reward_models.files import read
    from palaestra.learning.reward_models.reward_model import load

    model, data = load(path), read(pairs, features=features)
    if not isinstance(model, MixtureReward) or not isinstance(data, Preferences):
        raise InputError(f"routed: {path} must hold a mixture, and {pairs} pairs")
    return Routed(model, data, eta=eta)
