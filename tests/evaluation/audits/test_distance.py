"""STARC, EPIC and DARD on random decision processes: what they must ignore, and what they must not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.algebra.signals import col
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.evaluation.audits import (
    audit,
    canonical_on_table,
    canonicalise,
    dard,
    epic,
    optimal_policy,
    regret,
    starc,
    table_starc,
)
from palaestra.evaluation.audits.distance import METHODS, policy_values
from palaestra.rewards import shape

GAMMA = 0.9


def world(seed: int = 0, states: int = 4, actions: int = 2) -> tuple[np.ndarray, ...]:
    """T, R, a potential, and a redistribution over s' that no policy notices."""
    rng = np.random.default_rng(seed)
    T = rng.dirichlet(np.ones(states), (states, actions))
    R, phi, Z = rng.normal(size=T.shape), rng.normal(size=states), rng.normal(size=T.shape)
    return T, R, phi, Z - (T * Z).sum(2, keepdims=True)


def test_worked_numbers_of_the_card() -> None:
    T, R, phi, Z = world()
    shaped, moved = 3 * R + GAMMA * phi - phi[:, None, None], R + 2 * Z
    for method in ("val", "minimal", "minimal_potential", "val_potential"):
        assert starc(R, shaped, T, GAMMA, method=method) == pytest.approx(0, abs=1e-7)
        assert starc(R, -R, T, GAMMA, method=method) == pytest.approx(1)
    assert starc(R, moved, T, GAMMA) == pytest.approx(0, abs=1e-7)
    assert starc(R, moved, T, GAMMA, method="minimal") == pytest.approx(0, abs=1e-7)
    assert starc(R, moved, T, GAMMA, method="val_potential") == pytest.approx(0.475, abs=5e-4)
    assert starc(R, moved, T, GAMMA, method="minimal_potential") == pytest.approx(0.52, abs=5e-3)
    assert starc(R, moved, T, GAMMA, method="dard") == pytest.approx(0.51, abs=5e-3)
    assert epic(R, moved, T, GAMMA) == pytest.approx(0.51, abs=5e-3)
    assert regret(R, moved, T, GAMMA) == 0  # the counter-example: EPIC sees half the way to the opposite
    assert epic(R, shaped, T, GAMMA) == pytest.approx(0, abs=1e-7)
    assert dard(R, shaped, T, GAMMA) == pytest.approx(0, abs=1e-7)
    assert epic(R, -R, T, GAMMA) == dard(R, -R, T, GAMMA) == pytest.approx(1)


def test_what_is_certain_is_a_distribution_too() -> None:
    """Stay or change in two states, staying in the first pays 1: V = 3/4 and 1/4 of drawn actions at γ = 1/2."""
    T = np.array([np.eye(2), np.eye(2)[::-1]]).swapaxes(0, 1)  # [states, actions, states]
    R = np.array([[1.0, 0.0], [0.0, 0.0]])
    assert canonicalise(R, T, 0.5)[:, :, 0] == pytest.approx(np.array([[0.625, -0.625], [-0.125, 0.125]]))
    with pytest.raises(InputError, match="distribution over states"):
        canonicalise(R, np.array([1.5, -0.5]) * np.ones((2, 2, 1)), 0.5)


def test_other_norms_by_hand() -> None:
    """One state, γ = 0, three actions: forms are R less its mean, (2, -1, -1) and (-1, 2, -1).

    In L1 each has size 4: difference (3, -3, 0) / 4, half of its norm 3/4. In the largest entry, size 2: 3/4 as well.
    By the Euclidean norm, size √6: √18 / √6 / 2.
    """
    T = np.ones((1, 3, 1))
    one, other = np.array([[3.0, 0, 0]]), np.array([[0.0, 3, 0]])
    found = [starc(one, other, T, 0.0, norm=norm) for norm in (1, np.inf, 2)]
    assert found == pytest.approx([0.75, 0.75, np.sqrt(3) / 2])


def test_the_best_policy_waits_for_what_comes_later_whatever_the_unit() -> None:
    """Stay in the first state and earn 1, or leave it and earn 1.6 in the second: γ = 9/10. By 1e-5 it counts too."""
    T = np.array([np.eye(2), np.eye(2)[::-1]]).swapaxes(0, 1)
    R = np.array([[1.0, 0.0], [1.6, 0.0]])
    for size in (1e-12, 1.0):
        np.testing.assert_array_equal(optimal_policy(size * R, T, GAMMA), [[0, 1], [1, 0]])
    close = np.array([[1.0, 1e-5 - 8.0], [1.9, 0.0]])  # to stay is worth 10, to leave -8 + 1e-5 + 0.9 · 19 = 9.1
    np.testing.assert_array_equal(optimal_policy(close, T, GAMMA)[0], [1, 0])
    close[0, 1] += 0.9 + 1e-5
    np.testing.assert_array_equal(optimal_policy(close, T, GAMMA)[0], [0, 1])


def test_the_least_representative_is_what_a_solver_finds() -> None:
    T, R, _, _ = world(3, states=3)
    states, actions = T.shape[:2]
    free = [np.eye(states)[k] for k in range(states)]  # potentials
    moves = [(GAMMA * phi[None, None, :] - phi[:, None, None] + np.zeros(T.shape)).ravel() for phi in free]
    for s in range(states):
        for a in range(actions):
            for k in range(1, states):  # redistributions over s' of mean 0
                move = np.zeros(T.shape)
                move[s, a, 0], move[s, a, k] = 1 / T[s, a, 0], -1 / T[s, a, k]
                moves.append(move.ravel())
    design = np.array(moves).T
    least = R.ravel() - design @ np.linalg.lstsq(design, R.ravel(), rcond=None)[0]
    np.testing.assert_allclose(canonicalise(R, T, GAMMA, "minimal").ravel(), least, atol=1e-8)


@pytest.mark.parametrize("size", [1e-12, 1e12])
def test_the_unit_of_a_reward_does_not_matter(size: float) -> None:
    T, R, phi, _ = world()
    assert starc(R, size * R, T, GAMMA) == pytest.approx(0, abs=1e-7)
    assert starc(size * R, -size * R, T, GAMMA) == pytest.approx(1)
    for distance in (epic, dard):
        assert distance(size * R, size * R, T, GAMMA) == pytest.approx(0, abs=1e-6)
    assert regret(size * R, -size * R, T, GAMMA) == pytest.approx(1)
    assert starc(R, size * (0 * R + GAMMA * phi - phi[:, None, None]), T, GAMMA) == pytest.approx(
        0.5
    )  # shaping alone is zero


@given(st.integers(0, 10_000), st.sampled_from([m for m in METHODS if m != "none"]), st.floats(0.0, 0.99))
@settings(max_examples=60, deadline=None)
def test_every_method_is_linear_and_ignores_shaping(seed: int, method: str, gamma: float) -> None:
    T, R, phi, Z = world(seed, states=5, actions=3)
    shaped = R + gamma * phi - phi[:, None, None]
    canon = canonicalise(R, T, gamma, method)
    np.testing.assert_allclose(canonicalise(shaped, T, gamma, method), canon, atol=1e-7)
    np.testing.assert_allclose(
        canonicalise(R + 2 * Z, T, gamma, method), canon + 2 * canonicalise(Z, T, gamma, method), atol=1e-7
    )
    if method in ("val", "minimal"):
        np.testing.assert_allclose(canonicalise(Z, T, gamma, method), 0, atol=1e-7)


@given(st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_starc_is_a_pseudometric_between_0_and_1(seed: int) -> None:
    rng = np.random.default_rng(seed)
    T = world(seed)[0]
    a, b, c = rng.normal(size=(3, *T.shape))
    ab, bc, ac = (starc(x, y, T, GAMMA) for x, y in ((a, b), (b, c), (a, c)))
    assert 0 <= ab <= 1
    assert ab == pytest.approx(starc(b, a, T, GAMMA))
    assert ac <= ab + bc + 1e-12


def test_canonical_reward_keeps_the_order_of_policies() -> None:
    T, R, *_ = world(3)
    canon = canonicalise(R, T, GAMMA)
    rng = np.random.default_rng(0)
    policies = rng.dirichlet(np.ones(2), (20, 4))
    before, after = ([policy_values(r, T, GAMMA, p).mean() for p in policies] for r in (R, canon))
    assert np.corrcoef(before, after)[0, 1] == pytest.approx(1)
    assert (optimal_policy(R, T, GAMMA) == optimal_policy(canon, T, GAMMA)).all()
    assert regret(R, -R, T, GAMMA) == pytest.approx(1)


def ring(cut: bool, seed: int = 0, episodes: int = 200) -> Turns:
    """Random play in a deterministic process of six states; state 5 is the end. cut: some are cut off."""
    rng = np.random.default_rng(seed)
    rows = []
    for episode in range(episodes):
        state, turn = 0, 0
        while state != 5:
            action = int(rng.integers(2))
            after = (state + 1) if action else max(state - 1, 0)
            over = cut and turn == 6
            rows.append((episode, turn, "a", state, str(action), float(after == 5), state**2 / 9, over))
            if over:
                break
            state, turn = after, turn + 1
    names = ("episode", "turn", "agent", "state", "action", "reward", "phi", "truncated")
    return Turns(dict(zip(names, zip(*rows, strict=True), strict=True)))


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("size", [0.3, 1.0, 3.0, 10.0])
def test_on_a_table_shaping_changes_nothing_however_large(size: float, cut: bool) -> None:
    turns = ring(cut)
    signals = [col("reward"), 3.0 * col("reward") + size * shape("phi", gamma=0.9), -col("reward"), col("phi")]
    reward, shaped, opposite, other = (np.asarray(each.evaluate(turns), float) for each in signals)
    assert table_starc(turns, np.stack([reward, shaped]), gamma=0.9) == pytest.approx(0, abs=1e-9)
    assert table_starc(turns, np.stack([reward, opposite]), gamma=0.9) == pytest.approx(1)
    assert 0.1 < table_starc(turns, np.stack([reward, other]), gamma=0.9) < 1
    wrong = np.asarray((col("reward") + size * shape("phi", gamma=1.0)).evaluate(turns), float)
    assert table_starc(turns, np.stack([reward, wrong]), gamma=0.9) > 0.01


def test_of_several_rewards_each_distance_says_to_which_it_is() -> None:
    others = [-col("reward"), 2.0 * col("reward")]
    found = audit(ring(False), col("reward"), only=("distance",), against=others, gamma=0.9)
    assert [f.sentence.partition(": ")[0] for f in found] == [str(other) for other in others]
    assert [f.numbers["starc"] for f in found] == pytest.approx([1, 0], abs=1e-9)
    alone = audit(ring(False), col("reward"), only=("distance",), against=others[:1], gamma=0.9)
    assert alone[0].sentence.startswith("STARC distance")


def test_a_table_of_several_agents_in_any_order_by_hand() -> None:
    """Two agents pass through one process; γ = 1/2. Of "a" the second turn was cut off and is left out.

    State 0: (0, x) to 1 pays 1 and 3, (0, y) to the end pays 5: mean 3, to 1 in 2 of 3. State 1: to the end, pays 2.
    V(1) = 2, V(0) = 3 + 1/2 · 2/3 · 2 = 11/3. Forms: (0, x): 2 + 1 - 11/3 = -2/3, (0, y): 5 - 11/3 = 4/3, (1, x): 0.
    """
    rows = [
        (0, 0, "a", 0, "x", 1.0, False),
        (0, 1, "a", 1, "x", 9.0, True),
        (0, 0, "b", 0, "x", 3.0, False),
        (0, 1, "b", 1, "x", 2.0, False),
        (1, 0, "a", 0, "y", 5.0, False),
    ]
    names = ("episode", "turn", "agent", "state", "action", "reward", "truncated")
    turns = Turns(dict(zip(names, zip(*(rows[k] for k in (3, 1, 4, 0, 2)), strict=True), strict=True)))
    forms, shares = canonical_on_table(turns, turns["reward"].to_numpy()[None], gamma=0.5)
    found = sorted(zip(forms[0].tolist(), shares.tolist(), strict=True))
    assert found == [pytest.approx(each) for each in [(-2 / 3, 0.5), (0, 0.25), (4 / 3, 0.25)]]
    # a reward for action y alone: V(0) = 1/3, forms -1/3 and 2/3 at state 0, so the same direction: distance 0
    other = (turns["action"] == "y").cast(float).to_numpy()
    assert table_starc(turns, np.stack([turns["reward"].to_numpy(), other]), gamma=0.5) == pytest.approx(0, abs=1e-9)
    # pays 1 in the last turn of state 1 and in (0, y): V(1) = 1, V(0) = 2/3; forms -1/6 (half of the turns), 1/3, 0;
    # and 1 for what (0, x) of agent b paid: V(0) = 1/3, forms 1/6, -1/3, 0: the opposite
    end = ((turns["state"] == 1) | (turns["action"] == "y")).cast(float).to_numpy()
    of_b = ((turns["reward"] == 3) & (turns["state"] == 0)).cast(float).to_numpy()
    assert table_starc(turns, np.stack([end, of_b]), gamma=0.5) == pytest.approx(1)
    nothing = np.zeros(5)
    assert table_starc(turns, np.stack([end, nothing]), gamma=0.5) == pytest.approx(0.5)
    without = Turns(turns.frame.drop("action"))  # then the successor stands for the action: none after y
    assert sorted(canonical_on_table(without, end[None], gamma=0.5)[1].tolist()) == pytest.approx([0.25, 0.25, 0.5])


def test_a_share_of_turns_weighs_its_pair() -> None:
    """Three pairs of one state that end at once, played 3, 2 and 1 times: pays 1, 0, 0 and 0, 1, 0.

    V is 1/2 and 1/3; forms (1/2, -1/2, -1/2) and (-1/3, 2/3, -1/3). Weighted by 3, 2, 1 of 6: inner product
    (-1/2 - 2/3 + 1/6) / 6 = -1/6, squares 1/4 and (1/3 + 8/9 + 1/9) / 6 = 2/9, so the cosine is -1/√2.
    """
    action = ["x"] * 3 + ["y"] * 2 + ["z"]
    keys = {"episode": range(6), "turn": [0] * 6, "agent": ["a"] * 6, "state": [0] * 6, "action": action}
    paid = np.array([[float(each == name) for each in action] for name in "xy"])
    assert table_starc(Turns(keys), paid) == pytest.approx(np.sqrt((1 + np.sqrt(0.5)) / 2))


def test_what_leads_to_the_unknown_is_unknown_however_far() -> None:
    """State 0 to 1 to 2, after which the episode was cut off: of the other episode alone the ends are known."""
    rows = [(0, 0, 0), (0, 1, 1), (0, 2, 2), (1, 0, 3), (1, 1, 4)]
    turns = Turns(dict(zip(("episode", "turn", "state"), zip(*rows, strict=True), strict=True)))
    turns = turns.with_column(agent=["a"] * 5, truncated=[False, False, True, False, False])
    forms, shares = canonical_on_table(turns, np.arange(5.0)[None])
    assert forms.tolist() == [[0, 0]]
    assert shares.tolist() == [0.5, 0.5]


def test_a_table_knows_no_more_than_it_shows() -> None:
    loop = {"episode": [0, 0], "turn": [0, 1], "agent": ["a", "a"], "state": [1, 1], "truncated": [False, True]}
    pays = np.array([[1.0, 0.0], [0.0, 1.0]])
    with pytest.raises(InputError, match=r"with gamma=1.0 there are states that never lead to an end"):
        table_starc(Turns(loop), pays)
    with pytest.raises(InputError, match="no turn is followed by another"):
        table_starc(Turns(loop | {"state": [1, 2]}), pays, gamma=0.9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gamma": 1.0}, "gamma=1.0 must be in"),
        ({"T": np.ones((2, 2, 2))}, "distribution over states"),
        ({"T": np.ones((2, 2))}, "give probabilities"),
        ({"R": np.ones((3, 2))}, "R has shape"),
        ({"R": np.full((2, 2, 2), np.nan)}, "must be finite"),
        ({"method": "vla"}, "method 'vla' is unknown"),
    ],
)
def test_what_is_wrong_is_named(change: dict, message: str) -> None:
    options = {"R": np.ones((2, 2, 2)), "T": np.full((2, 2, 2), 0.5), "gamma": 0.9, "method": "val"} | change
    with pytest.raises(InputError, match=message):
        canonicalise(**options)
