"""Every node of the algebra against the slow obvious loop, on random tables."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.algebra.signals import (
    Signal,
    absolute,
    as_signal,
    centre,
    clip,
    col,
    count,
    cumulative,
    evaluate,
    exp,
    fill_missing,
    highest,
    is_in,
    is_missing,
    leave_one_out,
    log,
    lowest,
    mean,
    per_token,
    per_turn,
    quantile,
    rank,
    shift,
    sign,
    standardise,
    std,
    total,
    where,
)
from palaestra.algebra.turns import Ragged, Turns
from palaestra.credit import episode_return, return_to_go
from palaestra.errors import ExpressionError, MissingColumnError, RewardError

NAN = float("nan")
Row = dict[str, Any]

values = st.one_of(st.none(), st.integers(-4, 4).map(lambda v: v / 2))
rows = st.fixed_dictionaries(
    {
        "iteration": st.integers(0, 1),
        "group": st.integers(0, 2),
        "episode": st.integers(0, 2),
        "turn": st.integers(0, 3),
        "agent": st.sampled_from(["a", "b", None]),
        "reward": values,
        "other": values,
        "valid": st.sampled_from([True, False, None]),
    }
)
tables = st.lists(rows, max_size=24)


def turns_of(table: list[Row]) -> Turns:
    schema = {
        "iteration": pl.Int32, "group": pl.Int32, "episode": pl.Int32, "turn": pl.Int32, "agent": pl.String,
        "reward": pl.Float64, "other": pl.Float64, "valid": pl.Boolean,
    }  # fmt: skip
    return Turns(pl.DataFrame(table, schema=schema))


def number(value: float | None) -> float:
    return NAN if value is None else float(value)


def column(table: list[Row], name: str = "reward") -> list[float]:
    return [number(row[name]) for row in table]


def value(signal: Signal, turns: Turns) -> np.ndarray:
    result = signal.evaluate(turns)
    assert isinstance(result, np.ndarray)
    assert len(result) == len(turns)
    return result


def same(found: np.ndarray, expected: list[float], tolerance: float = 1e-9) -> None:
    np.testing.assert_allclose(found.astype(float), np.array(expected, float), tolerance, tolerance, equal_nan=True)


# -- statistics -------------------------------------------------------------------------------------------------------

KEYS: dict[Any, Callable[[Row], Any]] = {
    (): lambda row: (),
    "group": lambda row: row["group"],
    "agent": lambda row: row["agent"],
    ("group", "agent"): lambda row: (row["group"], row["agent"]),
    "episode": lambda row: (row["group"], row["episode"]),
    ("agent", "episode"): lambda row: (row["group"], row["episode"], row["agent"]),
    "valid": lambda row: row["valid"],
    "row": id,
    col("other") > 0.0: lambda row: None if row["other"] is None else row["other"] > 0,
    ("group", col("other") * 2.0): lambda row: (row["group"], row["other"]),
    col("group"): lambda row: row["group"],
}
keys = st.sampled_from(range(len(KEYS))).map(lambda i: list(KEYS)[i])
units = st.sampled_from(["row", "episode", "unique"])
masks = st.sampled_from([None, "valid", col("other") >= 0.0])
singletons = st.sampled_from(["zero", "raw"])


def lookup(over: Any) -> Callable[[Row], Any]:
    return next(function for key, function in KEYS.items() if key is over)


def kept(row: Row, mask: Any) -> bool:
    if row["reward"] is None:
        return False
    if mask is None:
        return True
    return bool(row["valid"]) if isinstance(mask, str) else row["other"] is not None and row["other"] >= 0


def sampled(table: list[Row], over: Any, unit: str, mask: Any) -> tuple[list[list[float]], list[float]]:
    """For each row: the samples of its key, and the sample that it belongs to (NaN: none)."""
    key_of, by_key = lookup(over), defaultdict(lambda: defaultdict(list))
    parts = []
    for number_, row in enumerate(table):
        key = (row["iteration"], key_of(row))
        part = {"row": number_, "episode": (row["group"], row["episode"]), "unique": row["reward"]}[unit]
        parts.append((key, part))
        if kept(row, mask):
            by_key[key][part].append(row["reward"])
    samples = [[sum(v) / len(v) for v in by_key[key].values()] for key, _ in parts]
    own = [sum(v) / len(v) if (v := by_key[key].get(part)) else NAN for key, part in parts]
    return samples, own


def deviation(samples: list[float], ddof: int) -> float:
    if len(samples) <= ddof or max(samples) - min(samples) < 1e-9:
        return 0.0
    middle = sum(samples) / len(samples)
    return math.sqrt(sum((v - middle) ** 2 for v in samples) / (len(samples) - ddof))


def average(samples: list[float]) -> float:
    return sum(samples) / len(samples) if samples else NAN


@settings(max_examples=150, deadline=None)
@given(tables, keys, units, masks, st.sampled_from([0, 1]))
def test_reductions_are_the_loops(table: list[Row], over: Any, unit: Any, mask: Any, ddof: int) -> None:
    turns = turns_of(table)
    samples, _ = sampled(table, over, unit, mask)
    how: dict[str, Any] = {"over": over, "unit": unit, "where": mask}
    same(value(mean("reward", **how), turns), [average(s) for s in samples])
    same(value(total("reward", **how), turns), [sum(s) if s else NAN for s in samples])
    same(value(count("reward", **how), turns), [len(s) for s in samples])
    same(value(lowest("reward", **how), turns), [min(s, default=NAN) for s in samples])
    same(value(highest("reward", **how), turns), [max(s, default=NAN) for s in samples])
    same(value(std("reward", ddof=ddof, **how), turns), [deviation(s, ddof) for s in samples])
    for q in (0.0, 0.3, 0.5, 1.0):
        same(value(quantile("reward", q=q, **how), turns), [np.quantile(s, q) if s else NAN for s in samples])


@settings(max_examples=250, deadline=None)
@given(tables, keys, units, masks, st.sampled_from([0, 1]), st.sampled_from([0.0, 1e-6, 0.1]), singletons)
def test_standardise_is_the_loop(
    table: list[Row], over: Any, unit: Any, mask: Any, ddof: int, eps: float, singleton: Any
) -> None:
    samples, _ = sampled(table, over, unit, mask)
    expected = []
    for row, of_key in zip(table, samples, strict=True):
        x, spread = number(row["reward"]), deviation(of_key, ddof)
        if len(of_key) <= 1:
            expected.append(x / (1 + eps) if singleton == "raw" else 0.0 * x)
        else:
            expected.append((x - average(of_key)) / (spread + eps) if spread else 0.0 * x)
    signal = standardise("reward", over=over, unit=unit, where=mask, ddof=ddof, eps=eps, singleton=singleton)
    same(value(signal, turns_of(table)), expected)


@settings(max_examples=250, deadline=None)
@given(tables, keys, units, masks, singletons)
def test_centre_and_leave_one_out_are_the_loops(
    table: list[Row], over: Any, unit: Any, mask: Any, singleton: Any
) -> None:
    samples, own = sampled(table, over, unit, mask)
    centred, left = [], []
    for row, of_key, mine in zip(table, samples, own, strict=True):
        x = number(row["reward"])
        inside = kept(row, mask)
        alone = x if singleton == "raw" else 0.0 * x
        if not of_key or (len(of_key) == 1 and inside):
            centred.append(alone)
            left.append(alone)
            continue
        centred.append(x - average(of_key))
        others = (sum(of_key) - mine) / (len(of_key) - 1) if inside else average(of_key)
        left.append(x - others)
    how: dict[str, Any] = {"over": over, "unit": unit, "where": mask, "singleton": singleton}
    same(value(centre("reward", **how), turns_of(table)), centred)
    same(value(leave_one_out("reward", **how), turns_of(table)), left)


@settings(max_examples=100, deadline=None)
@given(tables, keys, masks, st.sampled_from(["average", "min", "max", "dense", "ordinal"]))
def test_rank_is_scipys(table: list[Row], over: Any, mask: Any, ties: Any) -> None:
    expected = np.full(len(table), NAN)
    by_key: dict[Any, list[int]] = defaultdict(list)
    for number_, row in enumerate(table):
        if kept(row, mask):
            by_key[row["iteration"], lookup(over)(row)].append(number_)
    for members in by_key.values():
        expected[members] = scipy.stats.rankdata([table[i]["reward"] for i in members], method=ties)
    same(value(rank("reward", over=over, where=mask, ties=ties), turns_of(table)), list(expected))


def test_the_anchors_of_the_conventions() -> None:
    turns = Turns({"group": [0] * 4, "reward": [1.0, 0, 0, 0]})
    assert value(standardise("reward", over="group", eps=0), turns).tolist() == [1.5, -0.5, -0.5, -0.5]
    found = value(standardise("reward", over="group", eps=0, ddof=0), turns)
    same(found, [math.sqrt(3)] + [-1 / math.sqrt(3)] * 3)
    same(value(leave_one_out("reward", over="group"), turns), [1, -1 / 3, -1 / 3, -1 / 3])


def test_a_lone_sample_is_zero_or_raw() -> None:
    turns = Turns({"group": [0, 1, 1, 1], "reward": [3.0, 1, None, None]})
    for statistic in (standardise, centre, leave_one_out):
        same(value(statistic("reward", over="group"), turns), [0, 0, NAN, NAN])
        same(value(statistic("reward", over="group", singleton="raw"), turns), [3, 1, NAN, NAN], 2e-6)
    found = value(standardise("reward", over="group", singleton="raw"), turns)
    assert found[0] == 3.0 / (1 + 1e-6), "as the trainers compute it: mean 0 and deviation 1"


def test_a_constant_key_is_exactly_zero_with_noise_too() -> None:
    noise = np.random.default_rng(0).uniform(-1e-8, 1e-8, 8)
    for level in (0.35, 0.4, 1e6, -3.0, 1e-3):
        turns = Turns({"group": [0] * 8, "reward": level + noise * max(1.0, level)})
        if level >= 0.1 or level < 0:
            for statistic in (standardise, centre, leave_one_out):
                assert not value(statistic("reward", over="group"), turns).any(), (statistic, level)
        assert not value(standardise("reward", over="group", eps=0), turns).any()
    residue = Turns({"group": [0] * 4, "reward": [0.1 + 0.2 - 0.3, 0, 0, 0]})
    assert not value(standardise("reward", over="group", eps=0), residue).any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [3, 7, 8, 64])
def test_leave_one_out_of_nearly_constant_rewards_stays_small(dtype: type, n: int) -> None:
    """Rewards 0.35 and one 0.4: dividing by a deviation that is rounding residue once gave advantages of thousands."""
    rewards = np.full(n, 0.35, dtype)
    equal = Turns({"group": [0] * n, "reward": rewards.astype(float)})
    assert not value(leave_one_out("reward", over="group"), equal).any()
    assert not value(standardise("reward", over="group", eps=0), equal).any()
    rewards[0] = 0.4
    turns = Turns({"group": [0] * n, "reward": rewards.astype(float)})
    same(value(leave_one_out("reward", over="group"), turns), [0.05] + [-0.05 / (n - 1)] * (n - 1), 1e-6)
    assert np.abs(value(standardise("reward", over="group"), turns)).max() < math.sqrt(n)


def test_unit_episode_counts_an_episode_once() -> None:
    turns = Turns({"group": [0] * 5, "episode": [0, 1, 1, 1, 1], "reward": [1.0, 0, 0, 0, 0]})
    assert value(mean("reward", over="group", unit="episode"), turns)[0] == 0.5
    assert value(mean("reward", over="group"), turns)[0] == 0.2


def test_centre_by_episodes_keeps_what_differs_inside_an_episode() -> None:
    turns = Turns({"group": [0] * 4, "episode": [0, 0, 1, 1], "reward": [0.0, 2.0, 2.0, 0.0]})
    assert value(centre("reward", over="group", unit="episode"), turns).tolist() == [-1, 1, 1, -1]
    assert value(standardise("reward", over="group", unit="episode"), turns).tolist() == [0, 0, 0, 0]


def test_unique_values_are_distinct_as_float32() -> None:
    turns = Turns({"group": [0] * 3, "reward": [0.1 + 0.2, 0.3, 1.0]})
    same(value(mean("reward", over="group", unit="unique"), turns), [0.65] * 3)
    assert value(count("reward", over="group", unit="unique"), turns)[0] == 2
    zeros = Turns({"group": [0] * 3, "reward": [0.0, -0.0, 1.0]})
    assert value(count("reward", over="group", unit="unique"), zeros)[0] == 2
    for rewards, kinds in (
        ([1e-7, 2e-7, 1e-7], 2),
        ([1e6, 1e-3, 1e-3 + 5e-7], 2),  # beside a million less than 1e-6 is rounding
        ([1e6, 1e-3, 1e-3 + 2e-6], 3),
        ([float(number) for number in range(1500)], 1500),
    ):
        turns = Turns({"group": [0] * len(rewards), "reward": rewards})
        assert value(count("reward", over="group", unit="unique"), turns)[0] == kinds


def test_the_inner_statistic_is_finished_before_the_outer_one() -> None:
    """The example of the design: a nested polars window gives 1.33 and 0.67 instead of 1.67 and 1.33."""
    turns = Turns(
        {"group": [0] * 6, "episode": [0, 0, 0, 1, 1, 1], "agent": list("abbaba"), "reward": [0.0, 0, 1, 0, 0, 2]}
    )
    found = value(mean(episode_return(), over=("group", "agent")), turns)
    by_agent = dict(zip(turns["agent"].to_list(), found.round(2), strict=True))
    assert by_agent == {"a": 1.67, "b": 1.33}


def test_iterations_and_runs_are_never_mixed() -> None:
    turns = Turns({"run": ["x", "x", "y"], "iteration": [0, 1, 0], "group": [0] * 3, "reward": [1.0, 2, 4]})
    for over in ((), "group"):
        assert value(mean("reward", over=over), turns).tolist() == [1, 2, 4]


# -- per token --------------------------------------------------------------------------------------------------------

lists = st.lists(st.lists(values, max_size=4), max_size=8)


def ragged(signal: Signal, turns: Turns) -> Ragged:
    result = signal.evaluate(turns)
    assert isinstance(result, Ragged)
    return result


def token_turns(tokens: list[list[float | None]]) -> Turns:
    n = len(tokens)
    return Turns(
        pl.DataFrame(
            {
                "group": [i % 2 for i in range(n)],
                "episode": [i % 3 for i in range(n)],
                "turn": [i // 3 for i in range(n)],
                "agent": ["a"] * n,
                "reward": [float(i) for i in range(n)],
                "tokens": tokens,
                "valid": [i % 3 != 1 for i in range(n)],
            },
            schema_overrides={"tokens": pl.List(pl.Float64), "agent": pl.String, "reward": pl.Float64},
            strict=False,
        )
    )


@settings(max_examples=100, deadline=None)
@given(lists)
def test_per_token_values_are_the_loops(tokens: list[list[float | None]]) -> None:
    turns = token_turns(tokens)
    flat = [number(v) for values_ in tokens for v in values_]
    row_of = [row for row, values_ in enumerate(tokens) for _ in values_]

    doubled = ragged(2 * col("tokens") + "reward", turns)
    assert doubled.lengths.tolist() == [len(v) for v in tokens]
    same(doubled.values, [2 * v + row for v, row in zip(flat, row_of, strict=True)])

    same(ragged(per_token("reward", like="tokens"), turns).values, [float(row) for row in row_of])

    scored = [[number(v) for v in values_ if v is not None] for values_ in tokens]
    same(value(per_turn("tokens"), turns), [average(v) for v in scored])
    same(value(per_turn("tokens", method="total"), turns), [sum(v) if v else NAN for v in scored])
    same(value(per_turn("tokens", method="highest"), turns), [max(v, default=NAN) for v in scored])
    same(value(per_turn("tokens", method="lowest"), turns), [min(v, default=NAN) for v in scored])

    by_group = [[v for values_ in scored[group::2] for v in values_] for group in (0, 1)]
    same(ragged(mean("tokens", over="group"), turns).values, [average(by_group[row % 2]) for row in row_of])
    masked = [[v for i in range(g, len(tokens), 2) if i % 3 != 1 for v in scored[i]] for g in (0, 1)]
    found = ragged(mean("tokens", over="group", where="valid"), turns)
    same(found.values, [average(masked[row % 2]) for row in row_of])
    expected = [
        v - average(by_group[row % 2]) if len(by_group[row % 2]) > 1 else 0 * v
        for v, row in zip(flat, row_of, strict=True)
    ]
    same(ragged(centre("tokens", over="group"), turns).values, expected)


@settings(max_examples=60, deadline=None)
@given(lists, st.sampled_from(["row", "episode", "unique"]))
def test_statistics_of_tokens_count_as_they_say(tokens: list[list[float | None]], unit: Any) -> None:
    samples: dict[int, dict[Any, list[float]]] = {0: defaultdict(list), 1: defaultdict(list)}
    for row, values_ in enumerate(tokens):
        for place, v in enumerate(values_):
            if v is not None:
                samples[row % 2][{"row": (row, place), "episode": row % 3, "unique": v}[unit]].append(v)
    means = {group: [sum(v) / len(v) for v in parts.values()] for group, parts in samples.items()}
    rows_ = [row for row, values_ in enumerate(tokens) for _ in values_]
    how: dict[str, Any] = {"over": "group", "unit": unit}
    turns = token_turns(tokens)
    same(ragged(mean("tokens", **how), turns).values, [average(means[row % 2]) for row in rows_])
    same(ragged(count("tokens", **how), turns).values, [len(means[row % 2]) for row in rows_])
    same(ragged(std("tokens", **how), turns).values, [deviation(means[row % 2], 1) for row in rows_])
    flat = [number(v) for values_ in tokens for v in values_]
    expected = []
    for x, row in zip(flat, rows_, strict=True):
        spread = deviation(means[row % 2], 1)
        expected.append((x - average(means[row % 2])) / (spread + 1e-6) if spread else 0.0 * x)
    same(ragged(standardise("tokens", **how), turns).values, expected)


@settings(max_examples=100, deadline=None)
@given(lists, st.booleans(), st.booleans(), st.randoms())
def test_running_sums_over_tokens_go_on_through_the_episode(
    tokens: list[list[float | None]], reverse: bool, exclusive: bool, random: Any
) -> None:
    turns = token_turns(tokens)
    order = list(range(len(tokens)))
    random.shuffle(order)
    mixed = Turns(turns.frame[order])
    found = ragged(cumulative("tokens", gamma=0.5, reverse=reverse, exclusive=exclusive), mixed)
    by_row = dict(zip(order, np.split(found.values, np.cumsum(found.lengths)[:-1]), strict=True)) if order else {}
    for group in (0, 1):
        for episode in (0, 1, 2):
            members = [i for i in range(len(tokens)) if i % 2 == group and i % 3 == episode]
            stream = [number(v) for i in members for v in tokens[i]]
            mine = [v for i in members for v in by_row[i]]
            same(np.array(mine), running(stream, 0.5, reverse, exclusive))


def test_lists_of_differing_lengths_are_named() -> None:
    turns = Turns({"x": [[1.0, 2.0], [3.0]], "y": [[1.0, 2.0], [3.0, 4.0]]})
    with pytest.raises(ExpressionError, match=r"col\('x'\) \+ col\('y'\).*row 1: 1 and 2 tokens"):
        (col("x") + "y").evaluate(turns)
    with pytest.raises(ExpressionError, match="where= has one value per token"):
        mean("x", over=(), where="y").evaluate(turns)
    with pytest.raises(ExpressionError, match="already has one value per turn"):
        per_turn(per_turn("x")).evaluate(turns)
    with pytest.raises(ExpressionError, match="needs a per-turn value"):
        per_token("x", like="y").evaluate(turns)
    with pytest.raises(ExpressionError, match="a key needs one per turn"):
        mean(1.0, over=(col("x") * 1.0,)).evaluate(turns)


# -- along an episode -------------------------------------------------------------------------------------------------


def running(stream: list[float], gamma: float, reverse: bool, exclusive: bool) -> list[float]:
    order = range(len(stream) - 1, -1, -1) if reverse else range(len(stream))
    result, carry, scored = [NAN] * len(stream), 0.0, False
    for count_, i in enumerate(order):
        before, known = gamma * carry, scored or count_ == 0
        carry = before + (0.0 if math.isnan(stream[i]) else stream[i])
        scored = scored or not math.isnan(stream[i])
        if exclusive:
            result[i] = before if known else NAN
        else:
            result[i] = carry if scored else NAN
    return result


STREAMS: dict[Any, Callable[[Row], Any]] = {
    ("episode", "agent"): lambda row: (row["group"], row["episode"], row["agent"]),
    "episode": lambda row: (row["group"], row["episode"]),
    (): lambda row: (),
}


def streams(table: list[Row], over: Any) -> list[list[list[int]]]:
    """Row numbers of each turn of each stream, in the order of play: rows that share a turn are one moment."""
    by_key: dict[Any, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for number_, row in sorted(enumerate(table), key=lambda pair: pair[1]["turn"]):
        by_key[row["iteration"], STREAMS[over](row)][row["turn"]].append(number_)
    return [list(turns.values()) for turns in by_key.values()]


def known(values: list[float]) -> list[float]:
    return [each for each in values if not math.isnan(each)]


@settings(max_examples=200, deadline=None)
@given(tables, st.sampled_from(list(STREAMS)), st.sampled_from([0.0, 0.5, 1.0]), st.booleans(), st.booleans())
def test_running_sums_are_the_loops(table: list[Row], over: Any, gamma: float, reverse: bool, exclusive: bool) -> None:
    expected = [NAN] * len(table)
    for members in streams(table, over):
        earned = [known([number(table[i]["reward"]) for i in rows]) for rows in members]
        sums = running([sum(each) if each else NAN for each in earned], gamma, reverse, exclusive)
        for rows, each in zip(members, sums, strict=True):
            for i in rows:
                expected[i] = each
    signal = cumulative("reward", gamma=gamma, reverse=reverse, exclusive=exclusive, over=over)
    same(value(signal, turns_of(table)), expected)


@settings(max_examples=200, deadline=None)
@given(tables, st.sampled_from(list(STREAMS)), st.integers(-3, 3), st.sampled_from([None, 7.0]))
def test_shifts_are_the_loops(table: list[Row], over: Any, n: int, fill: float | None) -> None:
    expected = [NAN] * len(table)
    for members in streams(table, over):
        for place, rows in enumerate(members):
            inside = 0 <= place - n < len(members)
            then = known([number(table[i]["reward"]) for i in members[place - n]]) if inside else []
            for i in rows:
                expected[i] = (sum(then) / len(then) if then else NAN) if inside else number(fill)
    same(value(shift("reward", n=n, over=over, fill=fill), turns_of(table)), expected)


@settings(max_examples=100, deadline=None)
@given(tables, st.sampled_from(list(STREAMS)), st.booleans(), st.booleans())
def test_what_is_passed_over_might_as_well_not_be_there(
    table: list[Row], over: Any, reverse: bool, exclusive: bool
) -> None:
    kept = [row for row in table if row["valid"]]
    options: Any = {"gamma": 0.5, "reverse": reverse, "exclusive": exclusive, "over": over}
    for node, among in (
        (cumulative("reward", **options), cumulative("reward", **options, where="valid")),
        (shift("reward", n=-1, over=over, fill=7), shift("reward", n=-1, over=over, fill=7, where="valid")),
        (shift("reward", n=2, over=over), shift("reward", n=2, over=over, where="valid")),
    ):
        alone, expected = iter(value(node, turns_of(kept))), [NAN] * len(table)
        for at, row in enumerate(table):
            expected[at] = next(alone) if row["valid"] else NAN
        same(value(among, turns_of(table)), expected)


def test_tokens_are_passed_over_within_a_row_and_over_its_end() -> None:
    lists = {"tokens": [[1.0, 9.0, 2.0], [9.0], [4.0]], "skip": [[False, True, False], [True], [False]]}
    turns = Turns({"episode": [0] * 3, "turn": range(3), "agent": ["a"] * 3, **lists})
    found = ragged(cumulative("tokens", gamma=0.5, reverse=True, where=~col("skip")), turns)
    same(found.values, [3.0, NAN, 4.0, NAN, 4.0])
    same(ragged(shift("tokens", n=-1, where=~col("skip")), turns).values, [2.0, NAN, 4.0, NAN, NAN])
    rows = turns.with_column(said=[True, False, True])  # a mask of turns holds for all of their tokens
    same(ragged(cumulative("tokens", where="said"), rows).values, [1.0, 10.0, 12.0, NAN, 16.0])
    with pytest.raises(ExpressionError, match="where= has one value per token"):
        cumulative("turn", where=col("skip")).evaluate(turns)


def test_what_nothing_was_scored_for_is_not_zero() -> None:
    turns = Turns(
        {
            "group": [0] * 4,
            "episode": [0, 0, 1, 1],
            "turn": [0, 1, 0, 1],
            "agent": ["a"] * 4,
            "reward": [None, None, 1.0, None],
        }
    )
    same(value(return_to_go(gamma=0.5), turns), [NAN, NAN, 1.0, NAN])
    same(value(total("reward", over="episode"), turns), [NAN, NAN, 1, 1])
    assert value(count("reward", over="group"), turns)[0] == 1
    assert value(mean(return_to_go(gamma=0.5), over="group"), turns)[0] == 1, "an unscored episode is no sample of 0"
    same(value(fill_missing("reward", 0.0), turns), [0, 0, 1, 0])


def test_a_table_without_turn_is_in_the_order_of_its_rows() -> None:
    turns = Turns({"episode": [0, 1, 0], "agent": ["a"] * 3, "reward": [1.0, 5, 2]})
    assert value(return_to_go(), turns).tolist() == [3, 5, 2]


# -- row by row -------------------------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(tables)
def test_arithmetic_and_missing_values(table: list[Row]) -> None:
    turns, x, y = turns_of(table), col("reward"), col("other")
    a, b = column(table), column(table, "other")
    both = list(zip(a, b, strict=True))
    same(value(x + y, turns), [p + q for p, q in both])
    same(value(1 - x * 2 + y / 4, turns), [1 - p * 2 + q / 4 for p, q in both])
    same(value(-(absolute(x) ** 2), turns), [-(abs(p) ** 2) for p in a])
    same(value(2**x, turns), [2**p for p in a])
    same(value(sign(x), turns), [p if math.isnan(p) else (p > 0) - (p < 0) for p in a])
    same(value(exp(x) / exp(x), turns), [p * 0 + 1 for p in a])
    same(value(log(absolute(x) + 1), turns), [math.log(abs(p) + 1) for p in a])
    same(value(clip(x, low=-1, high=1), turns), [p if math.isnan(p) else min(max(p, -1), 1) for p in a])
    same(value(clip(x, high=0.5), turns), [p if math.isnan(p) else min(p, 0.5) for p in a])
    same(value(is_missing(x), turns), [math.isnan(p) for p in a])
    same(value(fill_missing(x, y), turns), [q if math.isnan(p) else p for p, q in both])
    expected = [NAN if math.isnan(p) else (q if p > 0 else -1.0) for p, q in both]
    same(value(where(x > 0, y, -1.0), turns), expected)
    same(value(where(x > 0, y), turns), [q if p > 0 else NAN for p, q in both])


TRUTH = [True, False, None]


def kleene(op: str, a: bool | None, b: bool | None) -> bool | None:
    decides = op == "or"
    if a is decides or b is decides:
        return decides
    return None if a is None or b is None else not decides


def test_logic_and_comparisons_of_missing_values_are_missing() -> None:
    pairs = [(a, b) for a in TRUTH for b in TRUTH]
    frame = {"a": [a for a, _ in pairs], "b": [b for _, b in pairs]}
    turns = Turns(frame)
    same(value(col("a") & "b", turns), [number(kleene("and", a, b)) for a, b in pairs])
    same(value(col("a") | "b", turns), [number(kleene("or", a, b)) for a, b in pairs])
    same(value(~col("a"), turns), [number(None if a is None else not a) for a, _ in pairs])
    numbers = Turns({"x": [None, 1.0, 2.0]})
    for signal, expected in [
        (col("x") > 1, [NAN, 0, 1]),
        (col("x") >= 1, [NAN, 1, 1]),
        (col("x") < 2, [NAN, 1, 0]),
        (col("x") <= 1, [NAN, 1, 0]),
        (col("x") == 2, [NAN, 0, 1]),
        (col("x") != 2, [NAN, 1, 0]),
    ]:
        same(value(signal, numbers), expected)
    whole = value(col("x") > 1, Turns({"x": [1.0, 2.0]}))
    assert whole.dtype == bool, "a comparison without missing values is a mask"


@pytest.mark.parametrize("bad", [NAN, math.inf, -math.inf])
def test_a_reward_that_is_not_finite_is_named_with_its_rows(bad: float) -> None:
    turns = Turns({"episode": [0, 1, 2], "agent": ["a"] * 3, "reward": [1.0, bad, bad]})
    with pytest.raises(RewardError, match=r"col\('reward'\) is not finite in 2 rows, first \[1, 2\]"):
        return_to_go().evaluate(turns)
    tokens = Turns({"logprobs": [[0.0], [0.0, bad, bad], [bad]]})
    with pytest.raises(RewardError, match=r"2 rows, first \[1, 2\]"):
        per_turn("logprobs").evaluate(tokens)


def test_division_by_zero_and_the_like_are_named_with_their_rows() -> None:
    turns = Turns({"reward": [1.0, 0.0, None], "logprobs": [[1.0], [0.0, 0.0], [1.0]]})
    with pytest.raises(ExpressionError, match=r"1.0 / col\('reward'\) divides by zero in row 1; guard it"):
        (1 / col("reward")).evaluate(turns)
    with pytest.raises(ExpressionError, match="divides by zero in row 1"):
        (1 / col("logprobs")).evaluate(turns)
    with pytest.raises(ExpressionError, match="is not finite in row 1"):
        log("reward").evaluate(turns)
    with pytest.raises(ExpressionError, match="is not finite in row 0"):
        ((-1 * col("reward")) ** 0.5).evaluate(turns)
    same(value(where(col("reward") == 0, 0.0, 1 / (col("reward") + 1)), turns), [0.5, 0, NAN])


# -- leaves, keys, errors ---------------------------------------------------------------------------------------------


def test_a_missing_column_names_signal_column_and_remedy() -> None:
    with pytest.raises(MissingColumnError, match=r"return_to_go\(gamma=0.9\): column 'reward' is missing .*rollout"):
        return_to_go(gamma=0.9).evaluate(Turns({"episode": [0], "agent": ["a"]}))
    with pytest.raises(MissingColumnError, match=r"return_to_go\(\): key 'agent': column 'agent'.*name the role"):
        return_to_go().evaluate(Turns({"reward": [0.0], "episode": [0]}))
    with pytest.raises(MissingColumnError, match=r"column 'qualty' is missing; did you mean 'quality'\?"):
        col("qualty").evaluate(Turns({"quality": [0.0]}))
    with pytest.raises(MissingColumnError, match="'quality'"):
        as_signal(pl.col("quality") + 1).evaluate(Turns({"reward": [0.0]}))
    with pytest.raises(MissingColumnError, match="'episode'"):
        mean("reward", over=(), unit="episode").evaluate(Turns({"reward": [0.0]}))


def test_needs_names_leaves_keys_and_masks() -> None:
    signal = mean(as_signal(pl.col("x") * pl.col("y")), over=("group", col("z") > 0), where="valid", unit="episode")
    assert signal.needs() == {"x", "y", "z", "group", "valid", "episode"}
    assert mean("reward", over=("row", col("state"))).needs() == {"reward", "state"}


def test_text_columns_need_a_comparison() -> None:
    turns = Turns({"agent": ["a", "b"], "action": ["x", "y"]})
    with pytest.raises(ExpressionError, match=r"col\('agent'\) holds Categorical, .*is_in\('agent', 'a'\)"):
        col("agent").evaluate(turns)
    assert value(is_in("agent", "b"), turns).tolist() == [False, True]
    assert value(is_in("action", ("x", "z")), turns).tolist() == [True, False]
    missing = Turns({"agent": ["a", None]})
    same(value(is_in("agent", "a"), missing), [1, NAN])
    assert value(mean(1.0, over=(), where=is_in("agent", ["a"])), missing).tolist() == [1, 1]
    assert is_in("agent", "b").needs() == {"agent"}
    with pytest.raises(MissingColumnError, match=r"is_in.*'agnt'"):
        is_in("agnt", "b").evaluate(turns)
    with pytest.raises(ExpressionError, match="give the name of a column and texts"):
        is_in("agent", (1, 2))  # type: ignore[arg-type]
    assert value(as_signal(pl.col("agent") == "b"), turns).tolist() == [False, True]


def test_keys_may_be_written_in_any_way() -> None:
    turns = Turns({"group": [0, 0, 1], "episode": [0, 0, 0], "agent": ["a", "b", "a"], "reward": [1.0, 2, 4]})
    for over in (("group", "agent"), ["group", "agent"], (col("group"), "agent"), [col("group"), col("agent")]):
        signal = mean("reward", over=over)
        assert signal.text == mean("reward", over=("group", "agent")).text
        assert value(signal, turns).tolist() == [1, 2, 4]
    assert value(mean("reward", over=col("episode")), turns).tolist() == [1.5, 1.5, 4], "an episode of its group"
    solo = mean("reward", over=pl.col("agent") == "a")
    assert value(solo, turns).tolist() == [2.5, 2, 2.5]


def test_options_are_checked_when_the_signal_is_built() -> None:
    for build, message in {
        lambda: mean("reward", over=(), unit="turn"): "unit='turn' is not one of",  # type: ignore[arg-type]
        lambda: centre("reward", over=(), singleton="raww"): r"singleton='raww'.*did you mean 'raw'",  # type: ignore[arg-type]
        lambda: rank("reward", over=(), ties="first"): "ties='first'",  # type: ignore[arg-type]
        lambda: per_turn("logprobs", method="sum"): "method='sum'",  # type: ignore[arg-type]
        lambda: quantile("reward", q=1.5, over=()): "outside",
        lambda: clip("reward", high=math.inf): "clip: high=inf is not finite",
        lambda: as_signal(NAN): "value=nan is not finite",
        lambda: col(3): "name of a column is text",  # type: ignore[arg-type]
        lambda: standardise("reward", over=(), eps=-1.0): r"eps=-1\.0 must be a number of at least 0",
        lambda: std("reward", over=(), ddof=-1): "ddof=-1 must be a number of at least 0",
        lambda: as_signal([1, 2]): "is not a signal",
        lambda: as_signal(10**400): "too large",
        lambda: bool(col("reward") > 0): "no truth value",
        lambda: col("a") if col("a") > 0 else 1: "no truth value",
    }.items():
        with pytest.raises(ExpressionError, match=message):
            build()
    with pytest.raises(TypeError):
        shift("reward", n=1.5)  # type: ignore[arg-type]


def test_numpy_numbers_are_plain_numbers_in_the_text() -> None:
    signal = np.float64(0.5) * clip("reward", low=np.float32(-1), high=np.int64(1)) + np.int64(2)
    assert isinstance(signal, Signal)
    assert "np." not in str(signal)
    assert str(standardise("reward", over="group", ddof=np.int64(0), eps=np.float64(0.5))).endswith(
        "ddof=0, eps=0.5, singleton='zero')"
    )
    assert str(as_signal(np.True_)) == "True"


def test_common_parts_are_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from palaestra.algebra import kernels

    computed: list[str] = []
    compute = kernels.Evaluation._compute
    monkeypatch.setattr(
        kernels.Evaluation, "_compute", lambda self, node: (computed.append(node.text), compute(self, node))[1]
    )
    turns = Turns({"group": [0, 0], "episode": [0, 1], "reward": [1.0, 2.0]})
    evaluate(turns, standardise(episode_return(), over="group"), episode_return() + episode_return())
    assert len(computed) == len(set(computed)) == 4


def test_a_sum_of_too_many_terms_is_an_error_not_a_crash() -> None:
    signal = col("reward")
    for _ in range(2000):
        signal = signal + 1
    with pytest.raises(ExpressionError, match="nested too deeply"):
        signal.evaluate(Turns({"reward": [1.0]}))


def test_an_empty_table_gives_no_values() -> None:
    turns = turns_of([])
    for signal in (
        standardise("reward", over="group", unit="episode"),
        quantile("reward", q=0.5, over=()),
        rank("reward", over="group"),
        return_to_go(),
        shift("reward"),
        leave_one_out("reward", over="group", unit="unique"),
        where(col("valid"), 1.0, 0.0),
        lowest("reward", over="episode"),
    ):
        assert len(value(signal, turns)) == 0
