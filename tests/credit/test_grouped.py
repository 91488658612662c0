"""The worked numbers of the cards, and each method against the loop that its paper's code runs."""

from __future__ import annotations

import warnings
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import values

from palaestra.algebra.signals import fill_missing
from palaestra.algebra.turns import Turns
from palaestra.credit import (
    centre,
    count,
    dr_grpo,
    dr_mas,
    episode_return,
    gigpo,
    grpo,
    leave_one_out,
    mars,
    reinforce,
    reinforce_plus_plus,
    return_to_go,
    rloo,
    standardise,
    whiten,
)
from palaestra.errors import ExpressionError, RewardError
from palaestra.testing.signal import sample_turns


def close(found: Any, expected: Any, tolerance: float = 5e-5) -> None:
    np.testing.assert_allclose(found, expected, 0, tolerance, equal_nan=True)


def random_turns(seed: int, **how: Any) -> Turns:
    return sample_turns(np.random.default_rng(seed), **how)


seeds = st.integers(0, 10_000)


# -- the anchors of the conventions -----------------------------------------------------------------------------------

FOUR = Turns({"group": [0] * 4, "episode": [0, 1, 2, 3], "agent": ["a"] * 4, "reward": [1.0, 0.0, 0.0, 0.0]})


def test_one_reward_of_four_under_each_convention() -> None:
    close(values(grpo(eps=0), FOUR), [1.5, -0.5, -0.5, -0.5])
    close(values(grpo(ddof=0, eps=0), FOUR), [1.7320, -0.5773, -0.5773, -0.5773], 1e-4)
    close(values(rloo(), FOUR), [1, -1 / 3, -1 / 3, -1 / 3], 1e-12)
    close(values(dr_grpo(), FOUR), [0.75, -0.25, -0.25, -0.25], 1e-12)
    close(values(reinforce(), FOUR), [0.75, -0.25, -0.25, -0.25], 1e-12)


def test_a_lone_episode() -> None:
    one = Turns({"group": [0], "episode": [0], "agent": ["a"], "state": [0], "reward": [0.7]})
    for signal in (grpo(), dr_grpo(), rloo(), reinforce(), reinforce_plus_plus(), mars(), gigpo(singleton="zero")):
        assert values(signal, one).tolist() == [0], signal
    close(values(dr_mas(), one), [0.7], 1e-6)
    close(values(gigpo(), one), [0.7], 1e-6)
    close(values(gigpo(scale=False), one), [0.7], 1e-12)
    assert values(dr_mas(singleton="zero"), one).tolist() == [0]


# -- [18] Dr. MAS -----------------------------------------------------------------------------------------------------

TEAM = Turns(
    {
        "group": [0] * 8,
        "episode": [0, 0, 1, 1, 1, 1, 2, 2],
        "turn": [0, 1, 0, 1, 2, 3, 0, 1],
        "agent": ["solver", "verifier"] * 4,
        "reward": [1, 1, 0, 0, -0.1, 0, 0, 0],
    }
)


def test_dr_mas_worked_numbers() -> None:
    close(values(grpo("reward"), TEAM), [1.1544] * 2 + [-0.5986] * 4 + [-0.5558] * 2)
    found = values(dr_mas("reward"), TEAM)
    close(found[0::2], [1.4938, -0.4337, -0.6264, -0.4337])
    close(found[1::2], [1.5, -0.5, -0.5, -0.5])


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_dr_mas_is_the_loop(seed: int) -> None:
    turns = random_turns(seed, groups=(1, 2, 5), agents=("a", "b", "c"))
    by_key: dict[Any, list[float]] = defaultdict(list)
    rows = turns.frame.select("group", "agent", "reward").rows()
    for group, agent, score in rows:
        by_key[group, agent].append(score)
    expected = []
    for group, agent, score in rows:
        scores = by_key[group, agent]
        mean, std = (0.0, 1.0) if len(scores) == 1 else (np.mean(scores), np.std(scores, ddof=1))
        expected.append(0.0 if std == 0 else (score - mean) / (std + 1e-6))
    close(values(dr_mas("reward"), turns), expected, 1e-9)


# -- [28] MARS --------------------------------------------------------------------------------------------------------


def test_mars_worked_numbers() -> None:
    lone = Turns({"agent": ["a"] * 4, "reward": [1.0, 1, 1, -1]})
    close(values(centre("reward", over="agent"), lone), [0.5, 0.5, 0.5, -1.5], 1e-12)
    close(values(centre("reward", over="agent", unit="unique"), lone), [1, 1, 1, -1], 1e-12)
    steps = Turns({"episode": [0] * 3, "turn": [0, 1, 2], "agent": ["a"] * 3, "reward": [0.2, -0.1, 1.0]})
    close(values(return_to_go(), steps), [1.1, 0.9, 1.0], 1e-12)


def loop_whiten(x: np.ndarray) -> np.ndarray:
    return (x - x.mean()) / np.sqrt(x.var(ddof=1) + 1e-8)


def test_mars_takes_a_penalty_of_invalid_turns() -> None:
    keys = {"group": [0] * 4, "episode": range(4), "turn": [0] * 4, "agent": ["a"] * 4, "reward": [1.0, 1, -2, -2]}
    turns = Turns(keys | {"valid": [True, True, True, False]})
    less = turns.with_column(reward=np.array([1.0, 1, -2, -2.5]))
    np.testing.assert_allclose(mars(penalty=0.5).evaluate(turns), mars().evaluate(less))


def loop_mars(rows: list[tuple[Any, ...]], rewards: str, whiten_rewards: bool, limit: float | None) -> np.ndarray:
    seats = np.array([row[3] for row in rows])
    r = np.array([row[4] for row in rows], float)
    for seat in set(seats):
        mine = r[seats == seat]
        centred, std = mine - mine.mean(), mine.std(ddof=1)
        if rewards != "mean":
            centred = centred / (std + 1e-6) if std > 1e-6 else 0 * centred
        r[seats == seat] = np.clip(centred, -1, 3) if rewards == "asym_clip" else centred
    if whiten_rewards:
        r = loop_whiten(r)
    to_go, running = np.zeros(len(rows)), defaultdict(float)
    for i in sorted(range(len(rows)), key=lambda i: -rows[i][2]):
        running[rows[i][:2], seats[i]] += r[i]
        to_go[i] = running[rows[i][:2], seats[i]]
    for seat in set(seats):
        mine = to_go[seats == seat]
        to_go[seats == seat] = mine - np.unique(mine.astype(np.float32)).mean()
    whitened = loop_whiten(to_go)
    return whitened if limit is None else np.clip(whitened, -limit, limit)


@pytest.mark.parametrize("rewards", ["mean", "mean_std", "asym_clip"])
@pytest.mark.parametrize(("whiten_rewards", "limit"), [(False, None), (True, 0.8)])
def test_mars_is_the_loop_in_the_order_of_its_code(rewards: Any, whiten_rewards: bool, limit: float | None) -> None:
    for seed in range(8):
        turns = random_turns(seed, groups=(2, 3, 4), simultaneous=seed % 2 == 0)
        rows = turns.frame.select("group", "episode", "turn", "agent", "reward").rows()
        signal = mars(rewards=rewards, whiten_rewards=whiten_rewards, limit=limit)
        close(values(signal, turns), loop_mars(rows, rewards, whiten_rewards, limit), 1e-5)


def test_mars_leaves_each_seat_no_bias_and_counts_equal_sums_once() -> None:
    """0.1 + 0.2 in either order is one value, so the mean of the distinct values does not hang on rounding."""
    turns = Turns(
        {
            "episode": np.repeat(np.arange(4), 3),
            "turn": [0, 1, 2] * 4,
            "agent": ["a"] * 12,
            "reward": [0.1, 0.2, 0.3, 0.3, 0.2, 0.1, 0.2, 0.3, 0.1, 0, 0, 0],
        }
    )
    close(values(mars(), turns)[[0, 3]], values(mars(), turns)[6], 1e-9)
    with pytest.raises(ExpressionError, match="mars: rewards='mea'; did you mean 'mean'"):
        mars(rewards="mea")  # type: ignore[arg-type]


# -- [62] GiGPO -------------------------------------------------------------------------------------------------------

ANCHORS = Turns(
    {
        "group": [0] * 12,
        "episode": np.repeat([0, 1, 2, 3], 3),
        "turn": [0, 1, 2] * 4,
        "agent": ["walker"] * 12,
        "state": np.array([0, 1, 2, 0, 1, 1, 0, 3, 2, 0, 3, 3], np.uint64),
        "reward": [0.0, 0, 10, 0, 0, 0] * 2,
    }
)


def test_gigpo_worked_numbers() -> None:
    steps = return_to_go(gamma=0.95)
    close(
        values(standardise("reward", over="episode"), ANCHORS)[:3],
        values(standardise("reward", over="episode"), ANCHORS)[6:9],
    )
    episode = values(gigpo(weight=0.0), ANCHORS)
    close(episode, np.tile(np.repeat([0.8660, -0.8660], 3), 2))
    mean_only = values(centre(steps, over=("group", "state")), ANCHORS)
    close(mean_only, [4.5125, 6.3333, 0, -4.5125, -3.1667, -3.1667] * 2)
    scaled = values(gigpo(), ANCHORS) - episode
    close(scaled, [0.8660, 1.1547, 0, -0.8660, -0.5774, -0.5774] * 2)
    close(values(gigpo(scale=False), ANCHORS), np.tile(np.repeat([5.0, -5.0], 3), 2) + mean_only)
    close(values(gigpo(weight=0.5), ANCHORS), episode + 0.5 * scaled, 1e-9)


def loop_gigpo(turns: Turns, gamma: float, scale: bool, weight: float) -> np.ndarray:
    """Dictionaries of lists per key and a scan per row, as verl-agent builds its step groups."""
    rows = turns.frame.select("group", "episode", "turn", "agent", "state", "reward").rows()
    score: dict[Any, float] = defaultdict(float)
    for group, episode, _, _, _, reward in rows:
        score[group, episode] += reward
    by_group: dict[Any, list[float]] = defaultdict(list)
    for (group, _), each in score.items():
        by_group[group].append(each)
    to_go = []
    for group, episode, turn, agent, _, _ in rows:
        later = sorted((r[2], r[5]) for r in rows if r[:2] == (group, episode) and r[3] == agent and r[2] >= turn)
        to_go.append(sum(gamma**k * reward for k, (_, reward) in enumerate(later)))
    by_state: dict[Any, list[float]] = defaultdict(list)
    for row, each in zip(rows, to_go, strict=True):
        by_state[row[0], row[4]].append(each)

    def relative(x: float, samples: list[float], alone: float) -> float:
        if len(samples) == 1:
            return alone
        std = np.std(samples, ddof=1)
        if std < 1e-7:
            return 0.0
        return float((x - np.mean(samples)) / (std + 1e-6 if scale else 1.0))

    return np.array(
        [
            relative(score[row[:2]], by_group[row[0]], score[row[:2]] / (1 + 1e-6 * scale))
            + weight * relative(each, by_state[row[0], row[4]], 0.0)
            for row, each in zip(rows, to_go, strict=True)
        ]
    )


@settings(max_examples=20, deadline=None)
@given(seeds, st.booleans(), st.booleans())
def test_gigpo_is_the_loop(seed: int, scale: bool, simultaneous: bool) -> None:
    turns = random_turns(seed, groups=(1, 3, 4), simultaneous=simultaneous)
    close(values(gigpo(gamma=0.9, weight=0.7, scale=scale), turns), loop_gigpo(turns, 0.9, scale, 0.7), 1e-8)


# -- the others -------------------------------------------------------------------------------------------------------


def loop_episode_scores(turns: Turns) -> tuple[list[Any], dict[Any, float]]:
    """Key of each row's episode, and its score: the mean over its rows of the row's agent's return."""
    rows = turns.frame.select("iteration", "group", "episode", "agent", "reward").rows()
    returns: dict[Any, float] = defaultdict(float)
    for row in rows:
        returns[row[:4]] += row[4]
    of_episode: dict[Any, list[float]] = defaultdict(list)
    for row in rows:
        of_episode[row[:3]].append(returns[row[:4]])
    return [row[:3] for row in rows], {key: float(np.mean(values)) for key, values in of_episode.items()}


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_grpo_dr_grpo_and_rloo_are_the_loops(seed: int) -> None:
    turns = random_turns(seed, groups=(1, 2, 6))
    episodes, score = loop_episode_scores(turns)
    by_group: dict[Any, list[float]] = defaultdict(list)
    for key, each in score.items():
        by_group[key[:2]].append(each)
    expected: dict[str, list[float]] = {"grpo": [], "dr_grpo": [], "rloo": []}
    for key in episodes:
        scores, mine = by_group[key[:2]], score[key]
        alone, n, middle = len(scores) == 1, len(scores), np.mean(scores)
        std = 0.0 if alone else np.std(scores, ddof=1)
        expected["grpo"].append(0.0 if std < 1e-7 else (mine - middle) / (std + 1e-6))
        expected["dr_grpo"].append(mine - middle)
        expected["rloo"].append(0.0 if alone else mine - (sum(scores) - mine) / (n - 1))
    close(values(grpo(), turns), expected["grpo"], 1e-9)
    close(values(dr_grpo(), turns), expected["dr_grpo"], 1e-9)
    close(values(rloo(), turns), expected["rloo"], 1e-9)


@settings(max_examples=25, deadline=None)
@given(seeds)
def test_advantages_of_a_group_sum_to_zero(seed: int) -> None:
    turns = random_turns(seed, groups=(1, 2, 6))
    first = turns.frame.with_row_index("row").group_by("group", "episode", maintain_order=True).first()
    for signal in (grpo(), dr_grpo(), rloo()):
        per_episode = values(signal, turns)[first["row"].to_numpy()]
        close(np.bincount(first["group"].to_numpy(), per_episode), 0, 1e-9)
    for agent_wise in (dr_mas(singleton="zero"), reinforce(over=("group", "agent"))):
        close(np.bincount(turns.codes("group", "agent").ids, values(agent_wise, turns)), 0, 1e-9)


def test_reinforce_plus_plus_whitens_the_returns_of_the_batch() -> None:
    turns = random_turns(3, groups=(2, 3))
    returns = values(return_to_go(gamma=0.9), turns)
    close(values(reinforce_plus_plus(gamma=0.9), turns), loop_whiten(returns), 1e-9)
    groups = turns["group"].to_numpy()
    centred = returns - np.array([returns[groups == group].mean() for group in groups])
    close(values(reinforce_plus_plus(gamma=0.9, baseline="group"), turns), loop_whiten(centred), 1e-9)
    close(values(whiten("reward"), turns), loop_whiten(turns["reward"].to_numpy()), 1e-9)


def test_the_blend_of_two_estimators_is_a_sum() -> None:
    """What users ask TRL for: λ·A₁ + (1 - λ)·A₂."""
    turns = random_turns(5, groups=(2, 4))
    for weight in (0.0, 0.3, 1.0):
        blend = weight * grpo() + (1 - weight) * dr_mas()
        close(values(blend, turns), weight * values(grpo(), turns) + (1 - weight) * values(dr_mas(), turns), 1e-12)


def test_unscored_episodes_leave_the_statistic_and_stay_missing() -> None:
    turns = Turns(
        {
            "group": [0] * 4,
            "episode": [0, 1, 2, 3],
            "agent": ["a"] * 4,
            "reward": [1.0, 0.0, None, 0.0],
            "state": [0] * 4,
        }
    )
    scored = Turns(turns.frame.filter(turns["reward"].is_not_null()))
    for signal in (grpo(), rloo(), dr_grpo(), dr_mas(), gigpo(), reinforce(), reinforce_plus_plus(), mars()):
        found = values(signal, turns)
        assert np.isnan(found).tolist() == [False, False, True, False], signal
        close(np.delete(found, 2), values(signal, scored), 1e-12)
    zero = values(grpo(fill_missing("reward", 0.0)), turns)
    assert zero[2] == zero[1], "zero has to be asked for"


def test_a_leave_one_out_baseline_never_sees_the_own_reward() -> None:
    turns = random_turns(7, groups=(5,), agents=("a",), longest=1)
    before = values(rloo(), turns)
    changed = turns.with_column(reward=turns["reward"].to_numpy() + np.array([100.0, 0, 0, 0, 0]))
    after = values(rloo(), changed)
    close(after[0] - before[0], 100, 1e-9)
    close(after[1:] - before[1:], -25, 1e-9)
    close(values(leave_one_out("reward", over="group"), turns), before, 1e-12)


def test_mars_takes_values_that_differ_by_rounding_for_one() -> None:
    """Distinct values decide the baseline: 0.1 + 0.2 and 0.3, or 1e-17 and 0, must not count twice."""
    keys = {"group": [0] * 4, "episode": [0, 1, 2, 3], "agent": ["a"] * 4}
    midpoint = 1 + 2.0**-24  # between two float32: rounding decides to which side it falls
    for exact, rounded in (
        ([0.3, 0.3, 0.7, -0.4], [0.1 + 0.2, 0.3, 0.7, -0.4]),
        ([0.0, 0.0, 1.0, -2.0], [1e-17, -1e-17, 1.0, -2.0]),
        ([midpoint, midpoint, 0.5, -3.0], [np.nextafter(midpoint, 2), np.nextafter(midpoint, 0), 0.5, -3.0]),
    ):
        for scale in (1.0, 1e-9, 1e9):
            one, other = (Turns(keys | {"reward": scale * np.array(each)}) for each in (exact, rounded))
            np.testing.assert_allclose(values(mars(), one), values(mars(), other), rtol=1e-9, atol=1e-12)
            number = count("reward", over=(), unit="unique")
            assert values(number, other)[0] == values(number, one)[0] == 3


def test_mars_whitens_rewards_only_if_asked() -> None:
    """Whitening twice is whitening once but for its 1e-8, which rewards of 1e-5 feel in the last step only."""
    keys = {"group": [0] * 5, "episode": [0, 0, 1, 2, 3], "turn": [0, 1, 0, 0, 0], "agent": ["a"] * 5}
    reward = 1e-5 * np.array([1.0, 0.0, 0.0, 0.0, 3.0])
    turns = Turns(keys | {"reward": reward})
    centred = reward - reward.mean()
    returns = np.array([centred[0] + centred[1], *centred[1:]])
    left = returns - np.mean(sorted({round(each, 12) for each in returns}))
    expected = (left - left.mean()) / np.sqrt(left.var(ddof=1) + 1e-8)
    np.testing.assert_allclose(values(mars(), turns), expected, rtol=1e-6)
    assert np.abs(expected).max() < 0.3
    assert np.abs(values(mars(whiten_rewards=True), turns)).max() > 1


@pytest.mark.parametrize("size", [1e160, 1e300])
def test_large_rewards_keep_their_credit(size: float) -> None:
    keys = {"group": [0] * 4, "episode": range(4), "agent": ["a"] * 4, "state": [0] * 4}
    large, small = (Turns(keys | {"reward": [each, 0.0, 0.0, each]}) for each in (size, 1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for signal in (grpo(eps=0), dr_mas(eps=0), gigpo()):
            np.testing.assert_allclose(values(signal, large), values(signal, small), rtol=1e-5)
        for signal in (rloo(), dr_grpo()):
            np.testing.assert_allclose(values(signal, large) / size, values(signal, small))
        for signal in (mars(), reinforce_plus_plus()):  # the trainers' whitening squares the deviation
            with pytest.raises(ExpressionError, match="is not finite in 4 rows"):
                signal.evaluate(large)


def test_a_sum_that_overflows_is_an_error() -> None:
    keys = {"group": [0] * 2, "episode": [0, 0], "turn": [0, 1], "agent": ["a"] * 2}
    turns = Turns(keys | {"reward": [1e308, 1e308]})
    for signal in (grpo(), episode_return(), return_to_go()):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(RewardError, match="overflows; divide the rewards by a constant"):
                signal.evaluate(turns)
