"""Counterfactual regret minimisation, vectorised over information sets; a variant is three functions (`Rule`).

CFR (Zinkevich et al. 2007), CFR+ (arXiv 1407.5042), discounted CFR (arXiv 1809.04040) and VAD-CFR (arXiv 2602.16928).
Updates alternate between the players. Exploitability at equal iterations is that of OpenSpiel's solvers.
Left out: sampling (MCCFR) and trees that do not fit into memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from palaestra.errors import InputError, nearest
from palaestra.evaluation.games.tree import Tree

Memo = dict[str, np.ndarray]
"""State of a rule between iterations, one entry per information set of the player."""


@dataclass(frozen=True)
class Rule:
    """Variant of CFR as three functions: how regrets add up, how they make a policy, and the weight in the average.

    All three get the iteration (from 0) and work on the information sets of one player at once.

    Attributes:
        accumulate: (t, regrets, instantaneous, memo) to the new regrets, float64[A, I].
        policy: (t, regrets, instantaneous, memo) to weights of the actions, float64[A, I]; only their shares matter.
        average: (t, instantaneous, memo) to the weight of the played policy in the average, a number or float64[I].
        start: the first iteration that is averaged.
    """

    accumulate: Callable[[int, np.ndarray, np.ndarray, Memo], np.ndarray]
    policy: Callable[[int, np.ndarray, np.ndarray, Memo], np.ndarray]
    average: Callable[[int, np.ndarray, Memo], float | np.ndarray]
    start: int = 0


@dataclass(eq=False)
class CFR:
    """Solver that runs counterfactual regret minimisation by `rule` on game `tree`; holds regrets and both policies.

    The policies are the current one and the average.

    Attributes:
        tree: the game.
        rule: the variant.
        iteration: how many have been done.
        regrets: float64[A, I].
        cumulated: weighted sum of own reach times policy, float64[A, I].
        current: the current policy, float64[A, I].
    """

    tree: Tree
    rule: Rule
    iteration: int = 0
    regrets: np.ndarray = field(init=False)
    cumulated: np.ndarray = field(init=False)
    current: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.current = self.tree.uniform()
        self.regrets, self.cumulated = np.zeros_like(self.current), np.zeros_like(self.current)
        self._plan = self.tree.plans(self.current)
        self._sets = [slice(own[0].sets.start, own[-1].sets.stop) if own else None for own in self.tree.levels]
        self._memo: list[Memo] = [{} for _ in self.tree.players]

    def step(self) -> None:
        """Do one iteration: update the regrets and policy of every player in turn."""
        tree, rule, t = self.tree, self.rule, self.iteration
        for player, own in enumerate(self._sets):
            if own is None:
                continue
            table, value = tree.values(self.current, self._plan, player)
            legal, memo = tree.legal[:, own], self._memo[player]
            instant = np.where(legal, table[:, own] - value[own], 0.0)
            self.regrets[:, own] = rule.accumulate(t, self.regrets[:, own], instant, memo)
            weight = rule.average(t, instant, memo)
            self.cumulated[:, own] += weight * self._plan[:-1].reshape(self.current.shape)[:, own]
            share = np.where(legal, rule.policy(t, self.regrets[:, own], instant, memo), 0.0)
            total = share.sum(axis=0)
            even = legal / legal.sum(axis=0)
            self.current[:, own] = np.where(total > 0, share / np.where(total > 0, total, 1.0), even)
            tree.plan(self.current, player, self._plan)
        self.iteration += 1

    def average(self) -> np.ndarray:
        """The average policy, float64[A, I]; uniform where it was never reached or nothing was averaged yet."""
        total = self.cumulated.sum(axis=0)
        even = self.tree.uniform()
        return np.asarray(np.where(total > 0, self.cumulated / np.where(total > 0, total, 1.0), even))

    def run(self, iterations: int) -> Iterator[CFR]:
        """Generator: does so many iterations, and yields this object after each."""
        for _ in range(iterations):
            self.step()
            yield self


def positive(t: int, regrets: np.ndarray, instant: np.ndarray, memo: Memo) -> np.ndarray:
    """Regret matching: weights max(R, 0) of actions from array `regrets` R; `t`, `instant` and `memo` are not used."""
    return np.asarray(np.maximum(regrets, 0.0))


def plain() -> Rule:
    """Makes the `Rule` of plain CFR: regrets add up, every iteration counts the same in the average."""
    return Rule(lambda t, regrets, instant, memo: regrets + instant, positive, lambda t, instant, memo: 1.0)


def plus() -> Rule:
    """Makes the `Rule` of CFR+: regrets below 0 become 0, iteration t (from 1) has weight t in the average."""
    return Rule(
        lambda t, regrets, instant, memo: np.maximum(regrets + instant, 0.0),
        positive,
        lambda t, instant, memo: t + 1.0,
    )


def discounted(alpha: float = 1.5, beta: float = 0.0, gamma: float = 2.0) -> Rule:
    """Makes the `Rule` of DCFR: regrets >= 0 times t^α / (t^α + 1), others with β; iteration t >= 1 has weight t^γ."""

    def accumulate(t: int, regrets: np.ndarray, instant: np.ndarray, memo: Memo) -> np.ndarray:
        total = regrets + instant
        return np.asarray(total * np.where(total >= 0, _discount(t, alpha), _discount(t, beta)))

    return Rule(accumulate, positive, lambda t, instant, memo: (t + 1.0) ** gamma)


def vad(
    *,
    decay: float = 0.1,
    boost: float = 1.1,
    floor: float = -20.0,
    optimism: float = 1.0,
    power: float = 1.5,
    start: int = 500,
) -> Rule:
    """Makes the `Rule` of VAD-CFR: volatility-adaptive discounts, asymmetric boost, decaying optimism, delayed average.

    Of each information set, with instantaneous regrets r and m = max|r|: volatility v = min(1, e/2), where e is the
    exponential average of m; α = max(.1, 1.5 - .5v), β = min(α, -.1 - .5v), D± = (t+1)^{α|β} / ((t+1)^{α|β} + 1);
    R ← max(floor, D± R + r·boost if r > 0). The policy adds a share o = optimism (1 + t/100)^{-1} (1 - .5v) of r before
    it is raised to `power`. Nothing is averaged before iteration `start`; then the weight is
    (t+1)^{min(4, 2 + 1.5v')} max(.1, (1 + m/2)^{.5}) / (1 + m^{1.5}), v' = min(1, m/2). e is kept per information set;
    the source's listing shares one among all of them (arXiv 2602.16928, appendix).
    """

    def discounts(t: int, regrets: np.ndarray, v: np.ndarray) -> np.ndarray:
        alpha = np.maximum(0.1, 1.5 - 0.5 * v)
        beta = np.minimum(alpha, -0.1 - 0.5 * v)
        return np.asarray(np.where(regrets >= 0, _discount(t, alpha), _discount(t, beta)) * regrets)

    def accumulate(t: int, regrets: np.ndarray, instant: np.ndarray, memo: Memo) -> np.ndarray:
        size = np.abs(instant).max(axis=0)
        memo["e"] = size if t == 0 else decay * size + (1 - decay) * memo["e"]
        memo["v"] = np.minimum(1.0, memo["e"] / 2)
        boosted = np.where(instant > 0, boost * instant, instant)
        return np.asarray(np.maximum(floor, discounts(t, regrets, memo["v"]) + boosted))

    def average(t: int, instant: np.ndarray, memo: Memo) -> float | np.ndarray:
        if t < start:
            return 0.0
        size = np.abs(instant).max(axis=0)
        exponent = np.minimum(4.0, 2 + 1.5 * np.minimum(1.0, size / 2))
        return np.asarray((t + 1.0) ** exponent / (1 + size**1.5) * np.maximum(0.1, np.sqrt(1 + size / 2)))

    def policy(t: int, regrets: np.ndarray, instant: np.ndarray, memo: Memo) -> np.ndarray:
        share = optimism / (1 + t / 100) * (1 - 0.5 * memo["v"])
        boosted = np.where(instant > 0, boost * instant, instant)
        return np.asarray(np.maximum(0.0, discounts(t, regrets, memo["v"]) + share * boosted) ** power)

    return Rule(accumulate, policy, average, start)


RULES: dict[str, Callable[..., Rule]] = {"plain": plain, "plus": plus, "discounted": discounted, "vad": vad}


def rule(name: str, **options: Any) -> Rule:
    """Makes the CFR `Rule` of a name, plain, plus, discounted or vad, with its options.

    Raises:
        InputError: there is none of this name.
    """
    if name not in RULES:
        raise InputError(f"cfr: there is no variant {name!r}{nearest(name, RULES)}")
    return RULES[name](**options)


def _discount(t: int, exponent: float | np.ndarray) -> Any:
    grown = (t + 1.0) ** exponent
    return grown / (grown + 1.0)
