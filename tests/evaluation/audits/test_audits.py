"""Audits of rewards: what can be farmed is found with the rows that prove it, what cannot is let pass."""

from __future__ import annotations

import json
from pathlib import Path

import networkx as nx
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.algebra.parse import parse
from palaestra.algebra.signals import as_signal, clip, col, cumulative, shift, where
from palaestra.algebra.turns import Turns
from palaestra.credit import phase, potential_difference
from palaestra.errors import ExpressionError, InputError, MissingColumnError
from palaestra.evaluation.audits import (
    audit,
    cheap,
    compare_rewards,
    component_farming,
    component_sum,
    cycle_gain,
    insert_copies,
    max_mean_cycle,
    order_audit,
    repeat_insertion,
    scale_sensitivity,
    telescopes,
    value_order_correlation,
)
from palaestra.evaluation.audits.components import component_columns
from palaestra.evaluation.audits.finding import per_turn
from palaestra.interface.cli import main
from palaestra.rewards import linear, shape

SCORES = [0.9, 0.6, 0.95, 0.9]


def walk(states: list[list[int]], **columns: list) -> Turns:
    """One agent's episodes as lists of states."""
    lengths = [len(s) for s in states]
    base = {
        "episode": np.repeat(np.arange(len(states)), lengths).tolist(),
        "turn": [t for n in lengths for t in range(n)],
        "agent": ["a"] * sum(lengths),
        "state": [s for each in states for s in each],
        "terminated": [True] * sum(lengths),
    }
    return Turns(base | columns)


def scored() -> Turns:
    return walk([[0, 1, 2, 3]], score=SCORES)


def delta_of(x: str) -> object:
    """r_k = x_k - x_(k+1), the last but one keeps x, the last is 0 (arXiv 2410.15115)."""
    rows, last = shift(1.0, n=-1, fill=0.0), shift(1.0, n=-2, fill=0.0)
    return where(rows == 0.0, 0.0, where(last == 0.0, col(x), col(x) - shift(col(x), n=-1)))


def test_copies_go_before_the_row() -> None:
    table = insert_copies(scored(), np.array([0, 2]), 2)
    assert table["score"].to_list() == [0.9] * 3 + SCORES[1:] + SCORES[:2] + [0.95] * 3 + [0.9]
    assert table["episode"].to_list() == [0] * 6 + [1] * 6
    assert table["turn"].to_list() == [*range(6)] * 2


def test_repeat_insertion_gives_the_numbers_of_the_card() -> None:
    paid = repeat_insertion(scored(), as_signal("score"))
    assert paid.verdict == "fail"
    assert paid.numbers["before"] == pytest.approx(3.35)
    assert paid.numbers["slope"] == pytest.approx(0.95)  # the row that pays most; the card repeats the first
    ten = insert_copies(scored(), np.array([0]), 10)
    assert per_turn(ten, as_signal("score")).sum() == pytest.approx(12.35)
    clipped = repeat_insertion(scored(), clip(col("score") - 0.8, high=0.0))
    delta = repeat_insertion(scored(), delta_of("score"))
    assert (clipped.verdict, delta.verdict) == ("pass", "pass")
    assert (clipped.numbers["before"], clipped.numbers["after"]) == pytest.approx((-0.2, -0.2))
    assert (delta.numbers["before"], delta.numbers["after"]) == pytest.approx((0.9, 0.9))


def test_what_ends_a_game_cannot_be_repeated() -> None:
    turns = walk([[0, 1, 2]], reward=[0.0, 0.0, 1.0])
    assert repeat_insertion(turns, as_signal("reward")).verdict == "pass"
    assert repeat_insertion(walk([[0]], reward=[1.0]), as_signal("reward")).verdict == "cannot tell"


def test_a_schedule_is_audited_at_the_iteration_of_the_rows() -> None:
    turns = walk([[0, 1, 0, 1, 0]], iteration=[50] * 5, score=[0.0, 1.0, 0.0, 1.0, 0.0])
    over, rising = phase(1, 0, at=22) * col("score"), linear(0, 1, steps=100) * col("score")
    assert repeat_insertion(turns, over).verdict == "pass"
    assert repeat_insertion(turns, rising).numbers["slope"] == pytest.approx(0.5)


def test_shaping_by_a_negative_potential_is_farmed_under_a_plain_sum_only() -> None:
    turns = random_walks().with_column(phi=-abs(random_walks()["phi"]))
    for cut_off in (False, True):
        turns = turns.with_column(truncated=[cut_off] * len(turns))
        shaped, paid = shape("phi", gamma=0.9), shape("phi", gamma=0.9) + 0.1
        assert {f.verdict for f in audit(turns, shaped, only=("repeats", "cycles"))} == {"fail"}
        assert {f.verdict for f in audit(turns, shaped, gamma=0.9, only=("repeats", "cycles"))} == {"pass"}
        assert {f.verdict for f in audit(turns, paid, gamma=0.9, only=("repeats", "cycles"))} == {"fail"}


def test_a_discounted_copy_has_to_pay_for_the_delay() -> None:
    """Each copy earns .1 and delays 1: .1 + γ·1 against 1, of the agent that waits alone."""
    keys = {"episode": [0] * 4, "turn": [0, 0, 1, 1], "agent": ["a", "b"] * 2}
    turns = Turns(keys | {"reward": [0.1, 0.0, 1.0, 5.0]})
    slopes = [repeat_insertion(turns, col("reward"), gamma=g).numbers["slope"] for g in (1.0, 0.95, 0.5)]
    values = [[0.1 * (1 - g ** (k + 1)) / (1 - g) + g ** (k + 1) for k in (5, 10)] for g in (0.95, 0.5)]
    assert slopes == pytest.approx([0.1] + [(ten - five) / 5 for five, ten in values])


@pytest.mark.parametrize("size", [1e-9, 1e300])
def test_no_size_of_a_reward_is_too_small_or_too_large(size: float) -> None:
    turns = walk([[0, 1, 0, 1, 0]], reward=[0.0, size, 0.0, size, 0.0])
    found = {f.audit: f for f in audit(turns, col("reward"), only=("telescoping", "repeats", "cycles"))}
    assert [f.verdict for f in found.values()] == ["warn", "fail", "fail"]
    assert found["cycles"].numbers["mean"] == pytest.approx(size / 2)


# -- cycles -----------------------------------------------------------------------------------------------------------


@given(st.integers(2, 7), st.integers(1, 20), st.integers(0, 10_000), st.booleans())
@settings(max_examples=150, deadline=None)
def test_max_mean_cycle_is_what_enumeration_finds(nodes: int, edges: int, seed: int, whole: bool) -> None:
    rng = np.random.default_rng(seed)
    pairs = np.unique(rng.integers(nodes, size=(edges, 2)), axis=0)
    weight = rng.integers(-3, 4, len(pairs)).astype(float) if whole else rng.normal(size=len(pairs))
    graph = nx.DiGraph()
    graph.add_weighted_edges_from((int(a), int(b), w) for (a, b), w in zip(pairs, weight, strict=True))
    means = [
        np.mean([graph[a][b]["weight"] for a, b in zip(c, [*c[1:], c[0]], strict=True)])
        for c in nx.simple_cycles(graph)
    ]
    value, cycle, proved = max_mean_cycle(pairs[:, 0], pairs[:, 1], weight, nodes)
    assert proved
    assert value == pytest.approx(max(means, default=-np.inf))
    if means:
        assert weight[cycle].mean() == pytest.approx(value)
        assert (pairs[cycle, 1] == np.roll(pairs[cycle, 0], -1)).all()  # it is a cycle, in order


def test_language_server_loop_of_the_card() -> None:
    """Break three diagnostics, fix three: +.8 a cycle of two steps as levels, nothing as a potential."""
    turns = walk(
        [[0, 1, 0, 1, 0]], reward=[-0.5 * 3 + 0.4, 0.5 * 3 + 0.4] * 2 + [0.0], phi=[-0.5 * 2, -0.5 * 5] * 2 + [-0.5 * 2]
    )
    levels = cycle_gain(turns, as_signal("reward"))
    assert levels.verdict == "fail"
    assert (levels.numbers["mean"], levels.numbers["gain_per_lap"]) == pytest.approx((0.4, 0.8))
    assert [row["turn"] for row in levels.rows] == [0, 1]
    potential = cycle_gain(turns, potential_difference("phi", terminal=0.0))
    assert potential.verdict == "pass"
    assert potential.numbers["mean"] == pytest.approx(0)


def test_a_loop_that_pays_nothing_ends_the_search_without_a_tolerance() -> None:
    found = cycle_gain(walk([[0, 1, 0, 1, 0]], reward=[0.0] * 5), as_signal("reward"), tolerance=0.0)
    assert found.verdict == "pass"
    assert (found.numbers["mean"], found.numbers["loops"]) == (0, 2)
    paid = walk([[0, 0, 0]], reward=[1.0] * 3)
    assert cycle_gain(paid, as_signal("reward"), tolerance=1.0, loops=1).verdict == "pass", "at the tolerance"
    assert cycle_gain(paid, as_signal("reward"), tolerance=0.5, loops=1).verdict == "fail"


def test_a_loop_that_was_seen_once_is_as_uncertain_as_other_steps_are() -> None:
    """It earns 1 a lap; rewards of a step that was taken six times deviate by .11, and two steps by .15."""
    turns = walk([[0, 1, 0], *[[5, 6]] * 6], reward=[0.5, 0.5, 0.0, *[0.1, 0.0, -0.1, 0.0] * 3])
    assert cycle_gain(turns, as_signal("reward")).verdict == "fail"
    wide = walk([[0, 1, 0], *[[5, 6]] * 6], reward=[0.5, 0.5, 0.0, *[0.4, 0.0, -0.4, 0.0] * 3])
    assert cycle_gain(wide, as_signal("reward")).verdict == "cannot tell"


def test_a_bonus_that_is_paid_once_is_no_loop() -> None:
    turns = walk([[0, 1, 2, 1, 2]], hit=[0.0, 1.0, 0.0, 0.0, 0.0])
    once = where(cumulative(col("hit"), exclusive=True) > 0.0, 0.0, col("hit"))
    found = cycle_gain(turns, once)
    assert found.numbers["mean"] > 0  # the first visit pays
    assert found.numbers["gain_per_lap"] == 0
    assert found.verdict == "pass"
    assert cycle_gain(walk([[0, 1, 2]], hit=[1.0] * 3), col("hit")).verdict == "cannot tell"


def test_agents_and_missing_states_are_kept_apart() -> None:
    turns = Turns({
        "episode": [0] * 4, "turn": [0, 1, 2, 3], "agent": ["a", "b", "a", "b"],
        "state": pl.Series([1, 1, 2, 1], dtype=pl.UInt64), "reward": [5.0, 1.0, 5.0, 0.0],
    })  # fmt: skip
    found = cycle_gain(turns, as_signal("reward"))
    assert found.numbers["mean"] == 1  # only b's state repeats
    assert (
        cycle_gain(turns.with_column(state=pl.Series([1, None, 2, None], dtype=pl.UInt64)), col("reward")).verdict
        == "cannot tell"
    )


def shop(seed: int = 0, episodes: int = 120) -> Turns:
    """`wait` stays in state 1 and pays .1, `fetch` and `back` pay for a key, `submit` ends."""
    rng, rows = np.random.default_rng(seed), []
    for episode in range(episodes):
        done = [*rng.choice(["wait", "fetch"], size=rng.integers(4, 14)), "submit"]
        moves = [move for each in done for move in (["fetch", "back"] if each == "fetch" else [each])]
        rows += [(episode, turn, 2 if move == "back" else 1, move) for turn, move in enumerate(moves)]
    episode, turn, state, action = zip(*rows, strict=True)
    return Turns(
        {"episode": episode, "turn": turn, "agent": ["a"] * len(rows), "state": state, "action": action}
        | {"wait": [float(a == "wait") for a in action], "key": [float(a in ("fetch", "back")) for a in action]}
        | {"noise": rng.normal(size=len(rows)), "label": [1.0] * len(rows)}
    )


FARMABLE = (
    "once('key') + 0.1 * col('wait')",
    "oni_reward('label', 'action', reward=0.0, beta=1)",
    "1 + 0.1 * col('noise')",
)
BOUNDED = ("once('key')", "oni_reward('label', 'action', reward=0.0)", "count_bonus('state')", "0.0 - col('wait')")


@pytest.mark.parametrize("episodes", [30, 120, 400])
@pytest.mark.parametrize("text", FARMABLE)
def test_behind_a_bonus_that_pays_once_the_search_goes_on(text: str, episodes: int) -> None:
    found = audit(shop(episodes=episodes), parse(text), only=("repeats", "cycles"))
    assert [f.verdict for f in found] == ["fail", "fail"]
    assert all(f.rows for f in found)


@pytest.mark.parametrize("text", BOUNDED)
def test_what_is_bounded_is_not_called_farmable(text: str) -> None:
    found = audit(shop(), parse(text), only=("repeats", "cycles"))
    assert [f.verdict for f in found] == ["pass", "pass"]


@pytest.mark.parametrize("seed", range(6))
def test_chance_is_not_called_farmable(seed: int) -> None:
    """Some row of every kind paid well by chance; copied, it would pay for ever."""
    found = audit(shop(seed), col("noise"), only=("repeats", "cycles"))
    assert "fail" not in [f.verdict for f in found]
    assert found[0].verdict == "cannot tell"
    assert "may be chance" in found[0].sentence


# -- telescoping ------------------------------------------------------------------------------------------------------


def random_walks(seed: int = 0) -> Turns:
    rng = np.random.default_rng(seed)
    states = [rng.integers(6, size=rng.integers(2, 9)).tolist() for _ in range(30)]
    phi = rng.normal(size=6)
    return walk(
        states,
        phi=[float(phi[s]) for each in states for s in each],
        reward=rng.normal(size=sum(map(len, states))).tolist(),
    )


@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_shaping_telescopes_and_its_leak_is_found(gamma: float) -> None:
    turns = random_walks()
    right = telescopes(turns, potential_difference("phi", gamma=gamma, terminal=0.0), gamma=gamma)
    kept = telescopes(turns, potential_difference("phi", gamma=gamma, terminal="phi"), gamma=gamma)
    noise = telescopes(turns, as_signal("reward"), gamma=gamma)
    assert right.verdict == "pass"
    assert right.numbers["with_boundary"] < 1e-6
    assert kept.verdict == "warn"
    assert "leaks at the end" in kept.sentence
    assert noise.verdict == "warn"
    assert noise.numbers["inside"] > 0.3


def test_without_a_loop_inside_nothing_is_said_of_the_end() -> None:
    """Any reward of steps inside is a difference of some potential, if no two ways lead to one state."""
    found = telescopes(walk([[0, 1], [2, 1]], reward=[0.0, 1.0, 0.0, 3.0]), as_signal("reward"))
    assert (found.verdict, found.numbers["loops"], found.numbers["loops_inside"]) == ("warn", 1, 0)
    assert found.numbers["inside"] < 1e-9
    assert "no potential explains" in found.sentence


def test_a_state_that_is_not_known_is_no_state() -> None:
    """Two unknown states are not one: as one, no potential would fit."""
    turns = walk([[0, 1, 0, 2, 3], [0, 4, 0]], reward=[1.0, -1.0, 5.0, 0.0, 0.0, 3.0, -3.0, 0.0])
    seen = [state if state not in (1, 4) else None for state in turns["state"]]
    turns = turns.with_column(state=pl.Series(seen, dtype=pl.UInt64))
    assert telescopes(turns, col("reward")).numbers["inside"] < 1e-9
    blind = turns.with_column(state=pl.Series([None] * 8, dtype=pl.UInt64))
    assert telescopes(blind, col("reward")).verdict == "cannot tell"


def test_naive_shaping_is_not_invariant_under_discount() -> None:
    """Φ' - Φ with γ < 1 pays for loitering (the semantic trap of arXiv 2512.23703)."""
    turns = random_walks()
    naive = potential_difference("phi", gamma=1.0, terminal=0.0)
    assert telescopes(turns, naive, gamma=1.0).verdict == "pass"
    assert telescopes(turns, naive, gamma=0.9).verdict == "warn"


def test_a_tree_of_play_cannot_tell() -> None:
    assert telescopes(walk([[0, 1, 2]], reward=[1.0, 2.0, 3.0]), as_signal("reward")).verdict == "cannot tell"


# -- components, order, distance --------------------------------------------------------------------------------------


def test_a_sum_depends_on_scales_and_signs_do_not() -> None:
    rng = np.random.default_rng(0)
    n = 200
    turns = walk([[0]] * n, r_success=(rng.random(n) < 0.5).astype(float).tolist(), r_energy=(-rng.random(n)).tolist())
    summed = scale_sensitivity(turns, col("r_success") + col("r_energy"))
    assert summed.verdict == "warn"
    assert summed.numbers["r_energy"] < 0.8
    ordered = where(col("r_success") > 0.0, 1.0, where(col("r_energy") > -0.5, 0.5, 0.0))
    assert scale_sensitivity(turns, 1.0 * (col("r_success") > 0.0)).verdict == "pass"
    parts = np.random.default_rng(0).permuted(np.tile([0.1, 0.2, 0.3, 0.4, 0.6, 0.7], (30, 1)), axis=1).ravel()
    rows = {"episode": np.repeat(np.arange(30), 6), "turn": np.tile(np.arange(6), 30), "r_one": parts}
    alike = scale_sensitivity(Turns(rows), col("r_one"))
    assert (alike.verdict, "all of one score" in alike.sentence) == ("cannot tell", True), (
        "sums that differ by rounding"
    )
    bonus = Turns(rows | {"r_one": parts + (np.arange(180) == 5)})
    assert scale_sensitivity(bonus, col("r_one")).numbers == pytest.approx({"r_one": 1, "top": 1})
    assert scale_sensitivity(turns, ordered).numbers["r_success"] == pytest.approx(1)
    assert scale_sensitivity(turns, as_signal("state")).verdict == "cannot tell"


def test_the_best_tenth_that_stays_is_a_share() -> None:
    """Of 20 episodes two are best: one by a 9 that scaling leaves on top, one by a sum that it does not."""
    one, other = [9.0, 2.0, 4.0] + [0.0] * 17, [9.0, 3.0, 0.0] + [0.0] * 17
    turns = walk([[0]] * 20, r_one=one, r_other=other)
    found = scale_sensitivity(turns, col("r_one") + col("r_other"))
    assert found.numbers["top"] == 0.5
    assert "50% of the best tenth stay" in found.sentence
    assert scale_sensitivity(turns, col("r_one") + 0.1 * col("r_one")).numbers["top"] == 1


def test_farming_is_a_share_that_rises_while_success_falls() -> None:
    iterations = np.repeat(np.arange(10), 20)
    n = len(iterations)
    turns = walk([[0]] * n).with_column(
        iteration=pl.Series(iterations),
        r_format=pl.Series(iterations / 10.0),
        r_right=pl.Series(np.where(iterations < 5, 1.0, 0.1)),
        success=pl.Series(iterations < 5),
    )
    found = component_farming(turns, col("r_format") + col("r_right"))
    assert found.verdict == "fail"
    assert found.numbers["after_r_format"] > 0.8
    assert found.rows
    better = component_farming(turns.with_column(success=pl.Series(iterations >= 5)), col("r_format") + col("r_right"))
    assert better.verdict == "pass"
    assert component_farming(turns.filter(pl.col("iteration") == 0), col("r_format")).verdict == "cannot tell"


def test_the_first_fifth_is_compared_with_the_last_their_ends_included() -> None:
    turns = walk([[0]] * 6).with_column(
        iteration=[0, 1, 2, 3, 4, 5], r_a=[0.0, 1.0, 9.0, 9.0, 3.0, 1.0], r_b=[1.0, 0.0, 9.0, 9.0, 1.0, 3.0]
    )
    numbers = component_farming(turns, col("r_a") + col("r_b")).numbers
    assert (numbers["before_r_a"], numbers["after_r_a"]) == (0.5, 0.5)  # of iterations 0 and 1, 4 and 5


def test_success_is_counted_by_episodes_and_not_by_their_length() -> None:
    turns = walk([[0]] * 4 + [[0], [0] * 9] * 2).with_column(iteration=[0] * 4 + [1] * 20)
    half = [True, True, False, False] + ([True] + [False] * 9) * 2
    parts = {"r_idle": [0.0] * 4 + [1.0] * 20, "r_right": [float(x) for x in half]}
    found = component_farming(turns.with_column(success=half, **parts), col("r_idle") + col("r_right"))
    assert (found.numbers["success_before"], found.numbers["success_after"]) == (0.5, 0.5)
    assert found.verdict == "warn"


def test_what_was_not_scored_has_no_place_in_the_order() -> None:
    turns = walk([[0, 1, 2, 3, 4]] * 2, score=[0.1, 0.2, None, 0.3, None] * 2)
    assert value_order_correlation(turns, col("score"))[0].tolist() == [1, 1]
    few = turns.with_column(score=[0.1, None, 0.2, None, None] * 2)
    assert (
        "it takes two episodes with three scored turns or more, here are 0" in order_audit(few, col("score")).sentence
    )
    tokens = walk([[0, 1, 2]], score=[[0.1], [0.1, 0.1], [0.3]])
    assert value_order_correlation(tokens, col("score"))[0].tolist() == [1]


def test_value_order_correlation_of_the_card() -> None:
    play = walk([[0, 1, 2, 3, 4]], progress=[0.3, 0.6, 0.4, 0.8, 1.0])
    voc, _ = value_order_correlation(play, col("progress"))
    assert voc == pytest.approx([0.9])
    with_start = walk([[0, 1, 2, 3, 4, 5]], progress=[0.0, 0.3, 0.6, 0.4, 0.8, 1.0])
    assert value_order_correlation(with_start, col("progress"))[0] == pytest.approx([0.9429], abs=5e-5)
    back = walk([[5, 4, 3, 2]], progress=[1.0, 0.8, 0.4, 0.1])
    assert value_order_correlation(back, col("progress"))[0] == pytest.approx([-1])
    many = walk([[0, 1, 2]] * 4, progress=[0.1, 0.2, 0.3] * 4, success=[True] * 12)
    assert order_audit(many, col("progress")).verdict == "pass"
    assert order_audit(many, -col("progress")).verdict == "warn"
    assert order_audit(play, col("progress")).verdict == "cannot tell"
    for success in ([None, None, True], [False, False, True]):  # told at the end alone
        late = many.with_column(success=success * 4)
        assert order_audit(late, -col("progress")).verdict == "warn"


def test_two_rewards_on_one_table() -> None:
    turns = random_walks(2)
    shaped = as_signal("reward") + potential_difference("phi", terminal=0.0)
    others = {"scaled": 3.0 * col("reward"), "shaped": shaped, "opposite": -col("reward"), "potential": col("phi")}
    found = {name: compare_rewards(turns, col("reward"), other).numbers["starc"] for name, other in others.items()}
    assert found["scaled"] == pytest.approx(0, abs=1e-6)
    assert found["shaped"] == pytest.approx(0, abs=1e-6)
    assert found["opposite"] == pytest.approx(1)
    assert found["potential"] > 0.2


@pytest.mark.parametrize("gamma", [0.9, 1.0])
@pytest.mark.parametrize("times", [0.3, 1.0, 3.0, 10.0])
def test_shaping_changes_no_distance(gamma: float, times: float) -> None:
    """A world of six states and two actions; on its own transitions exact EPIC, DARD and STARC are 0 as well."""
    rng = np.random.default_rng(0)
    after, pays, phi = rng.integers(6, size=(6, 2)), rng.normal(size=(6, 2)), rng.normal(size=6)
    states, paid = [], []
    for _ in range(200):
        seen = [int(rng.integers(6))]
        chosen = [int(rng.integers(2)) for _ in range(50)]
        for action in chosen[:-1]:
            seen.append(int(after[seen[-1], action]))
        states.append(seen)
        paid += [float(pays[s, a]) for s, a in zip(seen, chosen, strict=True)]
    turns = walk(states, reward=paid, phi=[float(phi[s]) for each in states for s in each])
    for cut in (False, True)[: 1 if gamma == 1 else 2]:  # without discount and end, values are not known
        table = turns.with_column(truncated=[cut] * len(turns))
        shaped = col("reward") + times * shape("phi", gamma=gamma)
        found = compare_rewards(table, col("reward"), shaped, gamma=gamma)
        assert found.numbers["starc"] == pytest.approx(0, abs=1e-6)
        other = compare_rewards(table, col("reward"), col("reward") + times * col("phi"), gamma=gamma)
        assert other.numbers["starc"] > 0.03


def test_an_outcome_is_no_leak() -> None:
    turns = random_walks()
    turns = turns.with_column(truncated=[False] * len(turns))
    last = shift(1.0, n=-1, fill=0.0) == 0.0
    rng = np.random.default_rng(1)
    won = turns.with_column(won=(rng.random(30) < 0.5)[turns["episode"].to_numpy()].astype(float))
    goal = where(last, col("won"), 0.0)
    for reward, gamma in ((goal, 1.0), (goal, 0.9), (shape("phi", gamma=0.9) + goal, 0.9), (shape("phi") + goal, 1.0)):
        found = telescopes(won, reward, gamma=gamma)
        assert found.verdict == "pass"
        assert "leak" not in found.sentence
        assert found.numbers["at_end"] > 0.4
    kept = telescopes(won, shape("phi", gamma=0.9, terminal="phi"), gamma=0.9)
    assert "leaks at the end" in kept.sentence


# -- all of them ------------------------------------------------------------------------------------------------------


def test_audit_runs_everything_and_says_what_lacks() -> None:
    findings = audit(scored(), as_signal("score"))
    assert [f.audit for f in findings if f.verdict == "fail"] == ["repeats"]
    assert cheap(scored(), as_signal("score"))[0].rows[0]["row"] == 2
    assert not cheap(scored(), delta_of("score"))
    bare = audit(Turns({"episode": [0, 0], "agent": ["a", "a"], "score": [1.0, 1.0]}), as_signal("score"))
    assert "state" in next(f for f in bare if f.audit == "cycles").sentence
    with pytest.raises(MissingColumnError, match="scor"):
        audit(scored(), as_signal("scor"))
    with pytest.raises(InputError, match=r"'cycle' is unknown; did you mean 'cycles'"):
        audit(scored(), as_signal("score"), only=("cycle",))


def test_a_reward_that_fails_on_made_up_play_leaves_the_other_audits() -> None:
    """Dividing by what a copy makes zero: the audit cannot tell, training goes on."""
    turns = walk([[0, 1, 2], [0, 1, 2]])
    reward = 1.0 / (cumulative(1.0) - 8.0)
    verdicts = {f.audit: f.verdict for f in audit(turns, reward)}
    assert verdicts["repeats"] == "cannot tell"
    assert verdicts["telescoping"] == "pass"
    assert cheap(turns, reward) == []
    with pytest.raises(ExpressionError, match="divides by zero"):
        audit(turns, 1.0 / (cumulative(1.0) - 2.0))


def test_a_distance_needs_two_rewards_that_differ_somewhere() -> None:
    one = audit(walk([[0]], reward=[1.0]), col("reward"), only=("scale",), against=col("reward"))
    assert [(f.audit, f.verdict) for f in one] == [("scale", "cannot tell"), ("distance", "cannot tell")]
    stateless = Turns(scored().frame.drop("state"))
    assert audit(stateless, col("score"), against=-col("score"))[-1].verdict == "cannot tell"
    with pytest.raises(MissingColumnError, match="scor"):
        audit(scored(), col("score"), against=col("scor"))


def test_a_reward_that_is_the_sum_of_its_components_is_taken_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    turns = walk([[0, 1]] * 4, r_right=[0.0, 1.0] * 4, r_loud=[0.5, 0.0] * 4, reward=[0.5, 1.0] * 4)
    assert str(component_sum(turns)) == "col('r_right') + col('r_loud')"
    assert str(component_sum(turns.with_column(reward=[1.0] * 8))) == "col('reward')"
    assert str(component_sum(scored())) == "col('reward')"
    path = turns.save(tmp_path / "turns.parquet")
    with pytest.raises(SystemExit):
        main(["audit", str(path), "--only", "scale"])
    assert "col('r_right') + col('r_loud') on 8 turns" in capsys.readouterr().out


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = scored().save(tmp_path / "turns.parquet")
    with pytest.raises(SystemExit) as farmed:
        main(["audit", str(path), "--reward", "col('score')"])
    said = capsys.readouterr().out
    assert farmed.value.code == 1
    assert "repeats: ten idle copies" in said
    assert "row 2: episode=0 turn=2" in said
    assert "still so after 200\n" in said  # one line each, however narrow the terminal
    late = scored().with_column(episode=[1_234_567] * 4).save(tmp_path / "late.parquet")
    with pytest.raises(SystemExit):
        main(["audit", str(late), "--reward", "score", "--only", "repeats"])
    assert "episode=1234567 turn=2" in capsys.readouterr().out
    with pytest.raises(SystemExit) as sound:
        main(
            [
                "audit",
                str(path),
                "--reward",
                "clip(col('score') - 0.95, high=0.0)",
                "--against",
                "score",
                "--against",
                "-score",
                "--json",
            ]
        )
    assert sound.value.code == 0
    findings = [(f["audit"], f["verdict"]) for f in json.loads(capsys.readouterr().out)]
    assert ("repeats", "pass") in findings
    assert [name for name, _ in findings].count("distance") == 2
    with pytest.raises(SystemExit) as wrong:
        main(["audit", str(path), "--only", "cycle"])
    assert wrong.value.code == 2


def test_components_are_numbers_or_flags() -> None:
    turns = walk([[0, 1]], r_share=[0.5, 1.0], r_flag=[True, False], r_word=["a", "b"], other=[1.0, 2.0])
    assert component_columns(turns) == ["r_share", "r_flag"]
    assert component_columns(turns, col("r_flag") + col("other")) == ["r_flag"]


# -- failure against success ----------------------------------------------------------------------------------------


def played(lengths: list[int], solved: list[bool], **columns: list) -> Turns:
    """Episodes of one task; the state counts turns, and the last one says what came of it."""
    success = np.repeat(solved, lengths).tolist()
    return walk([list(range(n)) for n in lengths], success=success, group=[0] * sum(lengths), **columns)


def findings_of(turns: Turns, text: str) -> dict[str, str]:
    return {finding.audit: finding.verdict for finding in audit(turns, parse(text))}


def test_a_bonus_for_giving_up_early_is_found() -> None:
    turns = played([2, 8, 9, 12], [False, True, True, False])
    text = "on_last(where('success', 1.0, 0.05 * (20 - col('turn'))))"
    finding = audit(turns, parse(text), only=("outcome",))[0]
    assert (finding.verdict, finding.numbers["best_failure"], finding.numbers["worst_success"]) == (
        "pass",
        pytest.approx(0.95),
        1.0,
    )
    more = audit(turns, parse(text.replace("1.0", "0.5")), only=("outcome",))[0]
    assert (more.verdict, more.numbers["best_failure"], more.numbers["median_success"]) == (
        "fail",
        pytest.approx(0.95),
        0.5,
    )
    assert more.rows[0]["episode"] == 0
    assert findings_of(turns, "on_last('success')")["outcome"] == "pass"


def test_a_payment_in_every_fifth_turn_is_without_end() -> None:
    turns = played([12, 12], [True, False])
    every_fifth = as_signal(pl.when(pl.col("turn") % 5 == 4).then(0.3).otherwise(0.0))
    for first in (0, 3):
        assert repeat_insertion(turns.filter(pl.col("turn") >= first), every_fifth).verdict == "fail"


def test_a_sum_with_a_bound_is_not_without_end() -> None:
    turns = played([6, 7, 8], [True, False, True], words=[1.0] * 21)
    bounded = parse("on_last(clip(total('words', over=('episode', 'agent')) / 60, high=1))")
    assert repeat_insertion(turns, bounded).verdict == "pass"
    assert repeat_insertion(turns, parse("on_last(total('words', over=('episode', 'agent')) / 60)")).verdict == "fail"


def test_shaping_is_not_warned_of() -> None:
    states = [[0, 1, 2, 3], [0, 2, 1, 2, 1, 4], [0, 3, 2, 1, 0]]
    phi = [(state * 7 % 5) / 5 for each in states for state in each]
    success = [True] * 4 + [False] * 6 + [True] * 5
    turns = walk(states, success=success, group=[0] * 15, truncated=[False] * 15, phi=phi)
    verdicts = findings_of(turns, "shape('phi')")
    assert "warn" not in verdicts.values()
    assert verdicts["outcome"] == verdicts["order"] == "cannot tell"
    assert findings_of(turns, "on_last('success') + shape('phi')")["outcome"] == "pass"


def test_in_a_game_with_a_winner_each_agent_counts_by_itself() -> None:
    won = [True, False, False, True]
    turns = Turns({"episode": [0, 0, 1, 1], "turn": [0, 1, 0, 1], "agent": ["a", "b"] * 2, "success": won})
    finding = audit(turns, parse("1.0 * col('success')"), only=("outcome",))[0]
    assert (finding.verdict, finding.numbers["successes"]) == ("pass", 2)
    worse = audit(turns, parse("-1.0 * col('success')"), only=("outcome",))[0]
    assert worse.verdict == "fail"
