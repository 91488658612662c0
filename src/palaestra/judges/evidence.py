"""Linear judge of decisions by partial evidence, fitted to recorded decisions whose evidence is masked at random."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from palaestra.errors import InputError, nearest, need_columns
from palaestra.rewards.judged.linear import fit_differences


@dataclass(frozen=True)
class EvidenceJudge:
    """Linear judge of decisions by state features: `lead` gives each feature's preference for one of two decisions.

    Decision d scores Σ_k revealed_k · weights[d, k] · s_k, s being the features of the state.

    Attributes:
        decisions: Names of the decisions.
        weights: float64[decisions, features].
    """

    decisions: tuple[str, ...]
    weights: np.ndarray

    def lead(self, features: np.ndarray, decision: pl.Series, alternative: pl.Series) -> np.ndarray:
        """Gain in score of the decision over its alternative by each feature alone, float64[rows, features].

        Args:
            features: float[rows, features].
            decision: Decision of each row.
            alternative: Decision of each row that it is compared with.

        Raises:
            InputError: a decision was not recorded, or there are not as many features as in the records.
        """
        if features.ndim != 2 or features.shape[1] != self.weights.shape[1]:
            raise InputError(f"evidence: features of shape {features.shape}, recorded were {self.weights.shape[1]}")
        chosen, other = (self.weights[self._places(each)] for each in (decision, alternative))
        return np.asarray((chosen - other) * features)

    def _places(self, names: pl.Series) -> np.ndarray:
        place = {name: number for number, name in enumerate(self.decisions)}
        unknown = [name for name in names.cast(pl.String).unique().to_list() if name not in place]
        if unknown:
            raise InputError(f"evidence: no recorded decision {unknown[0]!r}{nearest(str(unknown[0]), self.decisions)}")
        return np.array([place[name] for name in names.cast(pl.String)], np.int64)


def fit_evidence_judge(
    recorded: pl.DataFrame,
    *,
    features: str = "features",
    decision: str = "decision",
    alternative: str = "alternative",
    revealed: int | None = 4,
    draws: int = 8,
    ridge: float = 1e-3,
    seed: int = 0,
) -> EvidenceJudge:
    """Fits an `EvidenceJudge`, Bradley-Terry, to a table's decisions over alternatives, by random feature subsets.

    Each record is seen `draws` times, each time with `revealed` of its features drawn at random, so that the judge
    weighs a feature by what it says when most others are hidden. Minimises the mean of
    -log σ(Σ_k m_k (w[decision, k] - w[alternative, k]) s_k) + ridge/2 · |w|², m the 0/1 mask.

    Args:
        recorded: A row per decision: the columns `features` (lists of one length), `decision` and `alternative`.
        features: Column of the state's features.
        decision: Column of the decision that was made.
        alternative: Column of a decision that was not made.
        revealed: Number of features that are revealed; None: all of them.
        draws: Number of masks for each record.
        ridge: Weight of the ridge penalty.
        seed: Of the masks.

    Raises:
        InputError: there are no records, features differ in length or are missing, or a number is out of range.
        MissingColumnError: a column is missing.

    Source: Justifiable decisions [162], arXiv 2402.15826; the paper's judge is a network, and its scores have a bias.
    """
    need_columns("evidence", recorded.columns, [features, decision, alternative])
    if not len(recorded) or recorded[features].list.len().n_unique() != 1 or recorded[features].has_nulls():
        raise InputError(f"evidence: column {features!r} must hold lists of one length, in at least one row")
    s = np.array(recorded[features].to_list(), np.float64)
    count, width = s.shape
    if not 1 <= (width if revealed is None else revealed) <= width or draws < 1:
        raise InputError(f"evidence: revealed={revealed} from 1 to {width} features, draws={draws} at least 1")
    names = pl.concat([recorded[each].cast(pl.String).alias("name") for each in (decision, alternative)])
    decisions = tuple(names.unique().sort().to_list())
    judge = EvidenceJudge(decisions, np.zeros((len(decisions), width)))
    one, other = (np.tile(judge._places(recorded[each]), draws) for each in (decision, alternative))
    masked = np.tile(s, (draws, 1))
    if revealed is not None:
        order = np.random.default_rng(seed).random(masked.shape).argsort(axis=1).argsort(axis=1)
        masked *= order < revealed
    gap = np.zeros((count * draws, len(decisions), width))
    rows = np.arange(len(gap))
    gap[rows, one] += masked
    gap[rows, other] -= masked
    weights = fit_differences(gap.reshape(len(gap), -1), ridge=ridge)
    return EvidenceJudge(decisions, weights.reshape(len(decisions), width))
