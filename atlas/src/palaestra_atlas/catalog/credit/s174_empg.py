"""[174] EMPG (arXiv 2509.09265): confident turns count more, and turns that lead to confident ones earn a bonus.

The premise is exact: for a softmax over logits the mean squared gradient of log π is 1 - Σπ², so confident steps move a
policy little, and the weight exp(-k·H) makes up for it. A gain is hardly seen: on the key-door corridor the entropy
of a table says little about being wrong, and it is learned no sooner than with GRPO; not much sooner either by a
policy that was taught half of the way, and is sure there. Left out: language models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from palaestra.agents.policy import Request
from palaestra.algebra.turns import Turns
from palaestra.credit import empg, grpo
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

POLICIES = {(0.9, 0.1): 0.18, (0.5, 0.5): 0.5, (0.7, 0.2, 0.1): 0.46}
"""Policies, and the mean squared gradient worked out by hand."""
SETTING = {
    "env": {"options": {"cells": 5, "horizon": 12}},
    "learn": {"lr": 0.2},
    "train": {"iterations": 25, "groups": 1, "group_size": 16},
}


def four(advantage: float, unit: float = 1.0) -> np.ndarray:
    """Credit of four turns of one episode with this advantage and entropies .1, .5, 1, .4, in some unit."""
    keys = {"group": [0] * 4, "episode": [0] * 4, "turn": range(4), "agent": ["walker"] * 4}
    entropies = {"entropies": [[unit * each] for each in (0.1, 0.5, 1.0, 0.4)]}
    return np.asarray(empg("reward").evaluate(Turns(keys | entropies | {"reward": [advantage] * 4})))


@exact
def worked() -> None:
    """The card's four turns, for an advantage of 1 and of -1."""
    np.testing.assert_allclose(four(1.0), [0.4885, -0.0654, -0.4316, 0.0084], atol=5e-5)
    negative = np.array([-1.4035, -0.9042, -0.4682, -1.0516])
    np.testing.assert_allclose(four(-1.0), negative - negative.mean(), atol=1e-4)


@exact
def mean_one() -> None:
    """The weights, half the difference of credit for 1 and -1 but for a constant: 1.4676, .9410, .5399, 1.0516."""
    weights = (four(1.0) - four(-1.0)) / 2
    np.testing.assert_allclose(weights + 1, [1.4676, 0.9410, 0.5399, 1.0516], atol=5e-5)


@exact
def any_unit() -> None:
    """Entropies in a unit ten times smaller give the same credit; equal ones weigh every turn alike."""
    np.testing.assert_allclose(four(1.0, unit=10.0), four(1.0), atol=1e-6)
    keys = {"group": [0] * 2, "episode": [0, 1], "turn": [0] * 2, "agent": ["walker"] * 2, "reward": [1.0, 0.0]}
    even = empg(entropy="entropy").evaluate(Turns(keys | {"entropy": [0.7, 0.7]}))
    np.testing.assert_allclose(np.asarray(even), [0.7071, -0.7071], atol=5e-5)


@exact
def two_groups() -> None:
    """Two groups of unlike size, two agents, rows in any order, an episode without a score: turn by turn."""
    rows = [  # group, episode, agent, turn, entropies of the tokens, score of the episode
        (0, 0, "a", 0, [0.2, 0.4], 1.0), (0, 0, "b", 1, [0.9], 1.0), (0, 0, "a", 2, [0.1, 0.1, 0.7], 1.0),
        (0, 1, "a", 0, [0.5], 0.0), (0, 1, "b", 1, [0.05, 0.15], 0.0), (0, 2, "a", 0, [0.6, 0.2], 0.5),
        (1, 0, "a", 0, [0.8], 2.0), (1, 0, "a", 1, [0.3], 2.0), (1, 1, "a", 0, [0.4, 0.6], 0.0),
        (1, 2, "a", 0, [9.0], None),
    ]  # fmt: skip
    group, episode, agent, turn, entropies, score = (list(each) for each in zip(*rows, strict=True))
    h = np.array([np.mean(each) for each in entropies[:-1]])
    h = (h - h.min()) / (h.max() - h.min())
    scores = {0: np.array([1.0, 0.0, 0.5]), 1: np.array([2.0, 0.0])}
    a = [(s - scores[g].mean()) / scores[g].std(ddof=1) for g, s in zip(group[:-1], score[:-1], strict=True)]
    follower = [2, None, None, None, None, None, 7, None, None]  # of the same agent in the episode
    sure = [0.0 if number is None else np.exp(-2 * h[number]) for number in follower]
    expected = np.array(a) * np.exp(-0.5 * h) / np.exp(-0.5 * h).mean() + 0.3 * np.array(sure)
    expected = np.append(expected - expected.mean(), np.nan)
    order = np.random.default_rng(0).permutation(len(rows))
    keys = {"group": group, "episode": episode, "agent": agent, "turn": turn, "entropies": entropies, "score": score}
    turns = Turns({name: [values[place] for place in order] for name, values in keys.items()})
    found = np.asarray(empg(grpo("score"), k=0.5, k_next=2.0, bonus=0.3).evaluate(turns))
    np.testing.assert_allclose(found, expected[order], atol=1e-5)


@exact
def small_gradients() -> None:
    """The mean squared gradient of log π is 1 - Σπ², small for confident policies."""
    for policy, by_hand in POLICIES.items():
        found = squared_gradient(policy)
        np.testing.assert_allclose([found, found], [1 - np.square(policy).sum(), by_hand], atol=1e-12)


def half_way() -> Callable[[Request], str]:
    """Script: who knows the way to the key, all but one step in twenty, and from there on moves at random."""

    def play(request: Request) -> str:
        choices = request.observation.choices
        assert choices is not None
        lost = "the key" in request.observation.text or request.rng.random() > 0.95
        return choices[int(request.rng.integers(len(choices)))] if lost else choices[0]

    return play


def share_of(turns: Turns) -> float:
    """Over iterations with credit: |credit| of turns with less than the median entropy, over that of all others too."""
    own = turns.frame.select("iteration", pl.col("entropies").list.mean().alias("h"), pl.col("advantage").abs())
    rank = pl.col("h").rank("ordinal", seed=0).over("iteration") / pl.len().over("iteration")
    half = own.with_columns(sure=rank <= 0.5).filter(pl.col("advantage").sum().over("iteration") > 0)
    shares = half.group_by("iteration").agg(pl.col("advantage").filter("sure").sum() / pl.col("advantage").sum())
    return float(shares["advantage"].mean())  # type: ignore[arg-type]


def squared_gradient(policy: Sequence[float]) -> float:
    """E‖∇ log π(a)‖² over a ~ π, from the gradients 1{a} - π themselves."""
    p = np.array(policy)
    return float((p * np.square(np.eye(len(p)) - p).sum(axis=1)).sum())


@reproduction(
    174,
    claim="The mean squared gradient of a softmax policy is 1 - Σπ², small where it is confident; EMPG's weight "
    "undoes that with mean 1. No gain is seen: the entropy of a table says little about errors.",
    baseline="GRPO, same seeds and learning rate; learning curves on the corridor are reported, not judged",
    criterion="on the same turns, those of both trainings, the share of the absolute credit on the less uncertain half "
    "is higher by 0.02 with EMPG's credit than with GRPO's",
    seeds=(0, 1, 2, 3),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Trained as by `palaestra train corridor credit="empg()"`."""
    shares: dict[str, list[float]] = {"empg": [], "grpo": []}

    def watch(arm: str, iteration: int, turns: Turns) -> None:
        both = {"empg": turns.with_column(advantage=empg()), "grpo": turns.with_column(advantage=grpo())}
        if all((each["advantage"] != 0).any() for each in both.values()):
            for name, each in both.items():
                shares[name].append(share_of(each))

    arms = train_arms(
        "corridor",
        {name: SETTING | {"credit": f"{name}()"} for name in shares},
        seeds,
        lambda learned: {"curve": np.mean(learned.curve()), "end": np.mean(learned.curve()[-5:])},
        on_turns=watch,
    )
    measured = {f"confident_share_{name}": float(np.mean(each)) for name, each in shares.items()}
    higher = measured["confident_share_empg"] >= measured["confident_share_grpo"] + 0.02
    return Outcome(measured | arms.measured(), higher)
