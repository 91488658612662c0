"""`BanditPolicy`: a seat whose choice is an arm: routes, teams, experts, prices. It learns from counts, not gradients.

Which arm is next follows from an index over a small table (n, Σr, Σr², Σcost for each arm; A⁻¹ and b for linear ones);
the learner `bandit` writes what came of it into the table, whenever it comes. Every index gives the probability with
which each arm is taken, so that log-probabilities are exact and rows can be weighed again later. [122] arXiv
1904.07272, [120] arXiv 2602.00966 for LinUCB. Left out: bandits over a continuum, games of two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import scipy
import torch

from palaestra.agents.allocation import allocate
from palaestra.agents.discrete import DiscretePolicy
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError, PolicyError, nearest

if TYPE_CHECKING:
    import polars as pl

Clock = Literal["plays", "updates"]
COUNTING = ("ucb1", "epsilon", "ratio_ucb")
"""Indices that count plays, so that arms can be discovered."""
Index = Literal["ucb1", "thompson", "epsilon", "exp3", "linucb", "ratio_ucb", "contest"]
GRID = 256
"""Points at which Thompson's probabilities are summed."""


def new_arm_probability(theta: float, known: int) -> float:
    """Probability θ / (θ + known) of a new arm when `known` arms have been taken, however often ([129]).

    >>> [new_arm_probability(1.0, known) for known in (0, 1, 3)]
    [1.0, 0.5, 0.25]
    """
    return theta / (theta + known)


class BanditPolicy(DiscretePolicy):
    """Trainable bandit policy, one arm per choice, by `index` (UCB1, Thompson, ε-greedy, EXP3, LinUCB …).

    Equal indices are equally likely, and an arm that was never taken comes first.

    index, of an arm with mean reward r and n of all t plays:
        ucb1        r + √(2 ln t / n), of rewards between 0 and 1 (`width` times that for others)
        thompson    the probability that its Beta(1 + Σr, 1 + n - Σr) gives the largest draw, rewards between 0 and 1
        epsilon     the best mean, but with probability `width` (default .1) any
        exp3        p ∝ (1 - γ) e^{η Σ r/p} + γ, with η and γ `rate`; for rewards that an adversary sets
        linucb      θᵀx + width · √(xᵀ A⁻¹ x), ridge 1, x the features of the arm in the observation's array: one row of
                    numbers for each arm (shared=True, one θ), or one row for all (a θ for each arm); longer x are
                    scaled to length 1
        ratio_ucb   ucb1 of the reward over the mean cost less as much, for a budget (bandits with knapsacks)
        contest     p ∝ max(r / max(deviation of the reward, .01), 0), but with probability `rate` any: who earns, and
                    steadily, gets the work; where nobody earns all are equal ([23], arXiv 2508.00554)

    actions: arms. features: length of x, for linucb. discount: what an update leaves of what was known before, for
    arms that change. theta: arms are discovered one by one: with `new_arm_probability(theta, known)` the next one that
    was never taken, else the best of those that were ([129], arXiv 2512.23631; not linucb, exp3, thompson). clock: what
    t counts, "plays" or "updates".

    Raises:
        InputError: an option is out of range.
    """

    KIND = "bandit"
    SETTINGS = (
        "actions",
        "name",
        "index",
        "width",
        "rate",
        "features",
        "shared",
        "discount",
        "theta",
        "clock",
        "archive",
    )

    def __init__(
        self,
        actions: int,
        *,
        name: str = "bandit",
        index: Index = "ucb1",
        width: float | None = None,
        rate: float = 0.05,
        features: int = 0,
        shared: bool = True,
        discount: float = 1.0,
        theta: float | None = None,
        clock: Clock = "plays",
        archive: Sequence[int] | None = None,
    ) -> None:
        super().__init__(torch.nn.Module(), actions=actions, name=name)
        if index not in get_args(Index):
            raise InputError(f"BanditPolicy: index={index!r}{nearest(str(index), get_args(Index))}")
        if index == "linucb" and features < 1:
            raise InputError(f"BanditPolicy: features={features}: linucb needs the number of features of an arm")
        if not 0 < rate <= 1 or not 0 < discount <= 1 or (width is not None and not width >= 0):
            raise InputError(f"BanditPolicy: rate={rate} and discount={discount} in (0, 1], width={width} at least 0")
        if clock not in get_args(Clock):
            raise InputError(f"BanditPolicy: clock={clock!r}{nearest(str(clock), get_args(Clock))}")
        if theta is not None and (not theta > 0 or index not in COUNTING):
            raise InputError(f"BanditPolicy: theta={theta} must be above 0, and index one of {', '.join(COUNTING)}")
        if archive is not None and (index == "linucb" or any(not 0 <= arm < actions for arm in archive)):
            raise InputError(
                f"BanditPolicy: archive={list(archive)} must be arms from 0 to {actions - 1}, without linucb"
            )
        self.index, self.rate, self.features = index, rate, features
        self.theta, self.clock = theta, clock
        self.width = width if width is not None else 0.1 if index == "epsilon" else 1.0
        self.shared, self.discount = shared, discount
        self._hold("updates", torch.zeros(1, dtype=torch.float64))
        self._hold("count", torch.zeros(actions, dtype=torch.float64))
        for statistic in ("reward", "square", "cost", "gain"):
            self._hold(statistic, torch.zeros(actions, dtype=torch.float64))
        self.archive = None if archive is None else list(archive)
        if archive is not None:
            joined = torch.zeros(actions, dtype=torch.bool)
            joined[list(archive)] = True
            self._hold("joined", joined)
        if index == "linucb":
            models = 1 if shared else actions
            self._hold("precision", torch.eye(features, dtype=torch.float64).repeat(models, 1, 1))
            self._hold("inverse", torch.eye(features, dtype=torch.float64).repeat(models, 1, 1))
            self._hold("target", torch.zeros(models, features, dtype=torch.float64))

    def _hold(self, name: str, value: torch.Tensor) -> None:
        self.module.register_buffer(name, value)

    def _get(self, name: str) -> np.ndarray:
        return self.module.get_buffer(name).numpy()

    # -- choosing -----------------------------------------------------------------------------------------------------

    def _distribution(self, observations: Sequence[Observation]) -> tuple[np.ndarray, np.ndarray]:
        every = np.ones(self.actions, bool)
        legal = np.array([every if o.mask is None else o.mask for o in observations], bool)
        if self.index == "linucb":
            chances = _argmax(np.where(legal, self.scores(self._contexts(observations)), -np.inf))
        else:
            chances = self._of_masks(legal)
        with np.errstate(divide="ignore"):
            return np.asarray(chances, float), np.where(chances > 0, np.log(chances), 0.0)

    def _of_masks(self, legal: np.ndarray) -> np.ndarray:
        """`chances` for masks bool[n, arms]."""
        if legal.all():
            return np.broadcast_to(self.chances(), legal.shape)
        distinct, of = np.unique(legal, axis=0, return_inverse=True)
        return np.array([self.chances(row) for row in distinct])[of]

    def chances(self, legal: np.ndarray | None = None) -> np.ndarray:
        """Probability of each arm to be taken next, float64[arms]; for an index without context."""
        legal = np.ones(self.actions, bool) if legal is None else legal
        if self.archive is not None:
            legal = legal & self._get("joined")
            if not legal.any():
                raise PolicyError(f"policy {self.name!r}: no arm of its archive of {len(self.joined())} is legal")
        count = self._get("count")
        if self.index == "exp3":
            gain = np.where(legal, self._get("gain"), -np.inf)
            weights = np.exp(self.rate * (gain - gain.max()))
            return np.asarray((1 - self.rate) * weights / weights.sum() + self.rate * legal / legal.sum())
        fresh, known = legal & (count == 0), legal & (count > 0)
        if fresh.any() and self.theta is None and self.index != "thompson":
            return np.asarray(fresh / fresh.sum())
        if fresh.any() and self.theta is not None:
            new = new_arm_probability(self.theta, int((count > 0).sum())) if known.any() else 1.0
            found = (1 - new) * self._best(known) if known.any() else np.zeros(len(legal))
            found[fresh.argmax()] += new
            return np.asarray(found)
        return self._best(legal)

    def _best(self, legal: np.ndarray) -> np.ndarray:
        """Among arms that were taken, or drawn from what is believed of them."""
        count = self._get("count")
        mean = self._get("reward") / np.maximum(count, 1e-12)
        if self.index == "thompson":
            return _thompson(self._get("reward"), count, legal)
        if self.index == "epsilon":
            greedy = _argmax(np.where(legal, mean, -np.inf)[None])[0]
            return np.asarray((1 - self.width) * greedy + self.width * legal / legal.sum())
        if self.index == "contest":
            deviation = np.sqrt(np.maximum(self._get("square") / np.maximum(count, 1e-12) - mean**2, 0.0))
            equal = legal / legal.sum()
            weights = allocate(np.where(legal, mean / np.maximum(deviation, 0.01), 0.0))
            return np.asarray((1 - self.rate) * (weights if weights.any() else equal) + self.rate * equal)
        bonus = self.width * np.sqrt(2 * np.log(max(self._time(), 1.0)) / np.maximum(count, 1e-12))
        index = mean + bonus
        if self.index == "ratio_ucb":
            cost = self._get("cost") / np.maximum(count, 1e-12)
            index = index / np.maximum(cost - bonus, 1e-3 * np.maximum(cost, 1e-12))
        return np.asarray(_argmax(np.where(legal, index, -np.inf)[None])[0])

    def _time(self) -> float:
        return float(self._get("updates")[0] if self.clock == "updates" else self._get("count").sum())

    def scores(self, contexts: np.ndarray) -> np.ndarray:
        """LinUCB's index of each arm, float64[n, arms], of contexts float64[n, arms, features]."""
        inverse, target = self._get("inverse"), self._get("target")
        if self.shared:
            turned = contexts @ inverse[0]
            spread = np.einsum("nai,nai->na", turned, contexts)
            return np.asarray(turned @ target[0] + self.width * np.sqrt(np.maximum(spread, 0)))
        by_arm = contexts.transpose(1, 0, 2)
        turned = by_arm @ inverse
        mean = np.einsum("ani,ai->na", turned, target)  # θᵀx = bᵀA⁻¹x
        spread = np.einsum("ani,ani->na", turned, by_arm)
        return np.asarray(mean + self.width * np.sqrt(np.maximum(spread, 0)))

    def _contexts(self, observations: Sequence[Observation]) -> np.ndarray:
        arrays = [o.array for o in observations]
        if any(array is None for array in arrays):
            raise PolicyError(f"policy {self.name!r}: linucb needs an array in every observation; this env shows none")
        return self.contexts(np.stack([np.asarray(array, float).ravel() for array in arrays]))

    def contexts(self, flat: np.ndarray) -> np.ndarray:
        """Contexts float64[n, arms, features] from observed arrays, each scaled to length 1 if it is longer.

        Raises:
            PolicyError: they have another length, or all arms would have one θ and one x, which tells none apart.
        """
        if flat.shape[1] == self.actions * self.features:
            rows = flat.reshape(len(flat), self.actions, self.features)
        elif flat.shape[1] == self.features:
            if self.shared:
                raise PolicyError(
                    f"policy {self.name!r}: the env shows one row of {self.features} numbers for all {self.actions} "
                    "arms, which needs shared: false, a θ for each arm"
                )
            rows = flat[:, None]
        else:
            raise PolicyError(
                f"policy {self.name!r}: the env shows {flat.shape[1]} numbers; linucb with features={self.features} "
                f"wants as many, or {self.actions} arms times as many"
            )
        scaled = rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1.0)
        return np.broadcast_to(scaled, (len(flat), self.actions, self.features))

    # -- learning -----------------------------------------------------------------------------------------------------

    def update(
        self,
        arms: np.ndarray,
        rewards: np.ndarray,
        *,
        costs: np.ndarray | None = None,
        propensities: np.ndarray | None = None,
        contexts: np.ndarray | None = None,
        weights: np.ndarray | None = None,
    ) -> None:
        """Update the statistics of arms by plays: arms int64[n], rewards float64[n]; contexts as observed arrays.

        weights: as how many plays each counts, with the mean of their rewards; default 1 (not for linucb).

        Plays of one update are worth the same, whatever their order; what was known before is worth discount^n.
        """
        arms, rewards = np.asarray(arms, np.int64), np.asarray(rewards, float)
        kept = self.discount ** len(arms)
        costs = np.zeros(len(arms)) if costs is None else np.asarray(costs, float)
        taken = np.ones(len(arms)) if propensities is None else np.maximum(np.asarray(propensities, float), 1e-12)
        times = np.ones(len(arms)) if weights is None else np.asarray(weights, float)
        self._get("updates")[:] += 1
        for name, values in (("count", times), ("reward", times * rewards), ("square", times * rewards**2),
                             ("cost", times * costs), ("gain", times * rewards / taken)):  # fmt: skip
            self._get(name)[:] = kept * self._get(name) + np.bincount(arms, values, self.actions)
        if self.index == "linucb":
            if contexts is None:
                raise PolicyError(f"policy {self.name!r}: linucb learns from contexts; keep the column 'features'")
            chosen = self.contexts(np.asarray(contexts, float))[np.arange(len(arms)), arms]
            self._learn(np.zeros(len(arms), np.int64) if self.shared else arms, chosen, rewards, kept)

    def _learn(self, models: np.ndarray, x: np.ndarray, rewards: np.ndarray, kept: float) -> None:
        """A and b of each model; A⁻¹ by Woodbury's identity (Sherman-Morrison for one play), or anew if less."""
        precision, inverse, target = self._get("precision"), self._get("inverse"), self._get("target")
        eye = np.eye(self.features)
        if kept < 1:
            precision[:] = eye + kept * (precision - eye)
            target *= kept
        for model in np.unique(models):
            own = models == model
            rows = x[own]
            precision[model] += rows.T @ rows
            target[model] += rewards[own] @ rows
            if kept == 1 and len(rows) <= self.features // 2:
                turned = rows @ inverse[model]
                core = np.eye(len(rows)) + turned @ rows.T
                inverse[model] -= turned.T @ np.linalg.solve(core, turned)
            elif kept == 1:
                inverse[model] = np.linalg.inv(precision[model])
        if kept < 1:
            inverse[:] = np.linalg.inv(precision)

    def join(self, arm: int) -> None:
        """Add an arm to the archive.

        Raises:
            InputError: the policy was made without an archive.
        """
        if self.archive is None:
            raise InputError(f"policy {self.name!r}: all arms may be taken; give it an archive that others can join")
        self._get("joined")[arm] = True

    def joined(self) -> list[int]:
        """Arms that may be taken: those of the archive, or all."""
        return list(range(self.actions)) if self.archive is None else np.flatnonzero(self._get("joined")).tolist()

    def best(self, k: int) -> list[int]:
        """The k arms with the highest mean reward, for a final team; one that was never taken counts as 0."""
        mean = self._get("reward") / np.maximum(self._get("count"), 1e-12)
        return [int(arm) for arm in np.argsort(-mean, kind="stable")[:k]]

    def table(self) -> pl.DataFrame:
        """A row for each arm: plays, mean and variance of the reward, mean cost; null where it was never taken."""
        import polars as pl

        count = self._get("count")
        known = np.where(count > 0, count, np.nan)
        mean = self._get("reward") / known
        frame = pl.DataFrame(
            {"arm": np.arange(self.actions), "plays": count, "reward": mean,
             "variance": self._get("square") / known - mean**2, "cost": self._get("cost") / known}
        )  # fmt: skip
        return frame.with_columns(pl.col("reward", "variance", "cost").fill_nan(None))

    # -- what the protocol of policies asks besides -------------------------------------------------------------------

    def logits(self, observations: Sequence[Observation]) -> torch.Tensor:
        """Logarithms of the probabilities, [observations, arms]."""
        return torch.from_numpy(np.log(np.maximum(self._distribution(observations)[0], 1e-12)))

    def logits_of_rows(self, rows: pl.DataFrame) -> torch.Tensor:
        """Logarithms of the probabilities for rows of a table, [rows, arms], by the arms that are legal in each."""
        legal = self._legal_of_rows(rows)
        if self.index != "linucb":
            return torch.from_numpy(np.log(np.maximum(self._of_masks(legal), 1e-12)))
        scores = self.scores(self.contexts(np.array(rows["features"].to_list(), float)))
        return torch.from_numpy(np.log(np.maximum(_argmax(np.where(legal, scores, -np.inf)), 1e-12)))

    def state_dict(self) -> dict[str, Any]:
        """A copy of the statistics, which later updates do not change."""
        return {name: value.clone() for name, value in super().state_dict().items()}


def _argmax(index: np.ndarray) -> np.ndarray:
    """float64[n, arms]: 1 at the largest of each row; equal ones share it."""
    best = index >= index.max(axis=1, keepdims=True) - 1e-12
    return np.asarray(best / best.sum(axis=1, keepdims=True))


def _thompson(reward: np.ndarray, count: np.ndarray, legal: np.ndarray) -> np.ndarray:
    """P(arm draws the largest) = ∫ f_a Π_{b≠a} F_b, summed over a grid of each arm's own quantiles."""
    won = np.clip(reward, 0, count)
    a, b = 1 + won[legal], 1 + (count - won)[legal]
    levels = (np.arange(GRID) + 0.5) / GRID
    points = scipy.stats.beta.ppf(levels[:, None], a, b)
    below = scipy.stats.beta.cdf(points[:, :, None], a, b)
    below[:, np.arange(len(a)), np.arange(len(a))] = 1.0
    found = np.zeros(len(legal))
    found[legal] = below.prod(axis=2).mean(axis=0)
    return np.asarray(found / found.sum())
