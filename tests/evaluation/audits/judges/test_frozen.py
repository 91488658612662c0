"""Every audit of judges on small tables in quarters, with ties and at thresholds, gives what it gave."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.frozen import Case, changed, kinds, write

from palaestra.evaluation.audits import judges as j
from palaestra.evaluation.audits.judges import common, members, nuisance, reward
from palaestra.evaluation.intervals import Estimate

FROZEN = Path(__file__).with_name("frozen.json")


@cache
def verdicts(kind: str) -> pl.DataFrame:
    """Twelve items by two judges in both orders, in quarters; a truth, groups of two, some that could not be read."""
    rng = np.random.default_rng(len(kind))
    table = pl.DataFrame(
        [
            {"item": item, "group": item // 2, "judge": judge, "order": order, "truth": float(item % 3 > 0)}
            for item in range(4 if "few" in kind else 12)
            for judge in "ab"
            for order in (0, 1)
        ]
    )
    value = np.clip((table["truth"] * 2 - 1).to_numpy() * 0.25 + rng.integers(0, 5, len(table)) / 4, 0, 1)
    table = table.with_columns(
        value=pl.Series(value), ok=pl.Series(rng.random(len(table)) < 0.9), injected=pl.col("order") == 1
    )
    if "holes" in kind:
        table = table.with_columns(
            value=pl.when(pl.col("ok")).then("value"), truth=pl.when(pl.col("item") != 5).then("truth")
        )
    if "graded" in kind:
        table = table.drop("order", "injected").with_columns(value=pl.col("value") * 4, truth=pl.col("truth") * 2)
    if "one" in kind:
        table = table.filter(pl.col("judge") == "a").drop("judge", "ok", "group")
    return table


KINDS = ("both", "holes", "few", "one", "graded", "graded, holes", "one, graded")


def of_verdicts() -> Iterator[tuple[str, Case]]:
    grid = (-0.5, -0.25, 0.0, 0.25, 0.5, math.nan)
    for low in grid:
        yield (
            f"verdict from {low}",
            lambda low=low: [
                [
                    common.tested(p, mean, low, high, least=0.25, alpha=0.01),
                    common.limited(Estimate(mean, low, high, 1, 1, 1, ""), good=0.0, bad=0.25),
                ]
                for high in grid
                for mean in grid
                for p in (0.009, 0.01, 0.011)
            ],
        )
    for kind in KINDS:
        yield f"all, {kind}", lambda k=kind: j.audit_judge(verdicts(k), seed=1)
        yield (
            f"members, {kind}",
            lambda k=kind: [
                j.accuracy(verdicts(k).drop("order", strict=False)),
                j.agreement(verdicts(k).with_columns(sample=pl.col("item") % 2), least=0.0, good=0.1),
                j.error_correlation(verdicts(k), least=0.5, level=0.5, resamples=50, seed=2),
                j.parse_failures(verdicts(k), good=0.1, bad=0.5),
            ],
        )
        if "graded" not in kind:
            yield (
                f"place, {kind}",
                lambda k=kind: [
                    f(verdicts(k), says=s, least=x)
                    for f in (j.position_bias, j.order_calibration)
                    for s, x in (("first", 0.1), ("row", 0.4))
                ],
            )
            yield (
                f"injection, {kind}",
                lambda k=kind: [
                    j.injection(verdicts(k).drop("order"), injected=i, least=x, good=0.2, bad=0.5)
                    for i, x in (("injected", 0.25), ("injected", 0.0), ("truth", 1e-9))
                ],
            )
    for pairs, flipped in ((32, 16), (9, 0), (10, 0), (10, 1), (12, 12), (16, 8)):
        rows = {"item": [*range(pairs)] * 2, "order": [0] * pairs + [1] * pairs, "judge": "a"}
        rows |= {"value": [1.0] * pairs + [0.0] * flipped + [1.0] * (pairs - flipped)}
        yield (
            f"place, {flipped} of {pairs}",
            lambda r=rows: [
                f(pl.DataFrame(r), least=x) for f in (j.position_bias, j.order_calibration) for x in (0.1, 0.25)
            ],
        )
    pairs = [1.0] * 6 + [0.0] * 6  # half of them are decided by the first place, half by the second
    even = pl.DataFrame({"item": [*range(12)] * 2, "order": [0] * 12 + [1] * 12, "value": pairs + pairs[::-1]})
    for kind in ("both", "few", "one, graded"):
        claimed = verdicts(kind).with_columns(claim=pl.Series(np.arange(len(verdicts(kind))) % 3 == 0))
        yield f"drift, {kind}", lambda t=claimed: [j.drift(t), j.drift(t, time="truth"), j.drift(t.drop("truth"))]
        yield f"claims, {kind}", lambda t=claimed: [j.sycophancy(t, level=0.5), j.sycophancy(t.drop("truth"))]
        yield f"apart, {kind}", lambda t=claimed: [j.discrimination(t), j.compare_judges(t, t[::-1])]
    yield "place of both kinds", lambda: [f(even) for f in (j.position_bias, j.order_calibration)]
    yield "place of counts", lambda: [j.position_bias_test(*n) for n in ((0, 0), (3, 0), (0, 7), (5, 9))]
    for bad in ((-1, 3), (3, -1)):
        yield f"place of {bad}", lambda b=bad: j.position_bias_test(*b)
    alike = panel([0, 1] * 8, [0, 1] * 8)
    yield (
        "members who are one",
        lambda: [
            [j.error_correlation(alike, least=x) for x in (1.0, 0.2)],
            [j.agreement(alike, good=g, least=x) for g, x in ((1.0, 0.4), (2.0, 1.0))],
        ],
    )
    opposed = panel([0, 1] * 8, [1, 0] * 8)
    yield "members who are opposed", lambda: [j.error_correlation(opposed), j.agreement(opposed)]
    half = panel([1] * 8 + [0] * 8, [1] * 6 + [0] * 8 + [1] * 2)  # errors correlate at .5; so they do in draw 95
    yield (
        "half alike",
        lambda: [j.error_correlation(half, resamples=n, seed=s, least=x) for n, s, x in ((1, 95, 0.2), (9, 0, 0.5))],
    )
    thirds = panel([0, 1, 2] * 4, [0, 1, 1] * 4)
    yield (
        "members of two and of three values",
        lambda: [j.agreement(t) for t in (thirds, panel([0, 1] * 6, [0, 1, 1] * 4))],
    )
    for items in (9, 10, 11):
        few = panel([1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1][:items], [1, 0, 1, 0, 1, 0, 1, 0, 1, 1, 0][:items])
        yield f"members on {items}", lambda t=few: [j.error_correlation(t), j.agreement(t)]
    yield (
        "wrong by little",
        lambda: members.errors_of(
            pl.DataFrame({"value": [0.0, 1e-9, 2e-9, 2.0, None], "truth": [0.0, 0.0, 0.0, 2.0, 2.0]}), "truth", ""
        ),
    )
    yield (
        "ends",
        lambda: [common.percentile_interval(np.array([0, 1, math.nan, 4, 9]), level) for level in (0.0, 0.5, 0.9)],
    )


def panel(a: list[int], b: list[int]) -> pl.DataFrame:
    """What two members say of items whose truth is 0."""
    rows = {"item": [*range(len(a))] * 2, "judge": ["a"] * len(a) + ["b"] * len(b), "truth": 0.0}
    return pl.DataFrame(rows | {"value": [float(x) for x in a + b]})


def curve(rows: int, steps: int, seed: int) -> pl.DataFrame:
    """So many rows a step, in groups of two, in quarters; the truth turns after two thirds, some groups are alike."""
    rng = np.random.default_rng(seed)
    step = np.repeat(np.arange(steps), rows)
    truth = np.where(step < steps * 2 / 3, step, steps * 4 / 3 - step) * 3 + rng.integers(-2, 3, len(step)) / 4
    pays = step * 0.5 + rng.integers(-1, 2, len(step)) * (step + 1) / 4
    group = np.arange(len(step)) % rows // 2
    return pl.DataFrame({"step": step, "reward": pays, "truth": truth, "group": group, "length": group + truth})


def turned(last: list[float], pays: tuple[float, ...] = (0, 1, 2)) -> pl.DataFrame:
    """Three steps of eight: the truth is 0, then 1, then as given; the reward is 20 in the first four rows."""
    first = [20.0] * 4 + [0.0] * 4
    return pl.DataFrame(
        {
            "step": np.repeat(np.arange(3), 8),
            "truth": [0.0] * 8 + [1.0] * 8 + last * (8 // len(last)),
            "reward": first + [float(pays[1])] * 8 + [float(pays[2])] * 8,
        }
    )


def of_rewards() -> Iterator[tuple[str, Case]]:
    for rows, steps, seed in ((6, 12, 0), (4, 10, 1), (2, 9, 2), (4, 4, 3), (4, 5, 4), (1, 8, 5)):
        own = curve(rows, steps, seed)
        at = f"{rows} rows in {steps} steps"
        yield (
            f"curve, {at}",
            lambda t=own: [
                *j.audit_judge(t, seed=3),
                *(
                    j.overoptimisation(t, windows=w, least=x, level=0.8, seed=w)
                    for w, x in ((2, 0.0), (3, 0.3), (9, 1.0))
                ),
            ],
        )
        yield (
            f"spread, {at}",
            lambda t=own: [j.reward_spread(t, over=o, good=0.1, bad=0.3) for o in (("step", "group"), ("step",))],
        )
        scored = own.with_columns(correct=(pl.col("truth") > pl.col("step") * 3).cast(pl.Int64), score="reward")
        yield (
            f"scores, {at}",
            lambda t=scored: [
                *j.audit_judge(t),
                *j.audit_judge(t, match=("step",), nuisances=("step", "length", "truth")),
                j.tie_rules(t, by=("step", "group"), good=0.3, bad=0.5),
                j.nuisance_slope(t, match=("step", "group"), least=0.5, level=0.5),
            ],
        )
    for n in (7, 8, 9):
        yield f"curve of {n}", lambda n=n: j.overoptimisation(curve(1, n, 0).with_columns(pl.col("step") % 2))
    for last in ([0.5], [0.0, 1.0], [0.5, 1.0], [1.0]):
        for seed in range(6):  # of seed 5 half of the truth is lost
            yield (
                f"turned to {last}, {seed}",
                lambda x=last, s=seed: [
                    j.overoptimisation(turned(x, (0, 1, r)), windows=3, least=least, seed=s)
                    for least in (0.5, 0.05)
                    for r in (0, 1, 2)
                ],
            )
    yield (
        "welch",
        lambda: [
            reward._welch(np.array(a, float), np.array(b, float), 0.9)
            for a, b in (([1, 2], [3, 5, 9]), ([1], [2, 3]), ([1, 2], [3]), ([1, 1], [2, 2]), ([1, 1], [2, 4]))
        ],
    )
    content = pl.DataFrame(
        {
            "content": [0, 0, 1, 1, 2, 2, 3, 3, 3, 4],
            "length": [0, 1, 2, 2, 5, 9, 1, 2, 4, 7],
            "score": [1, 2, 1, 5, 3, 3, 2, 1, 4, None],
        }
    )
    for groups in (2, 3, 4, 5):
        yield (
            f"nuisance, {groups} contents",
            lambda n=groups: [
                j.nuisance_slope(content.filter(pl.col("content") < n), level=level, least=x)
                for level, x in ((0.95, 0.1), (0.3, 0.2))
            ],
        )
    yield "nuisance, flat", lambda: j.nuisance_slope(content.with_columns(score=pl.lit(1.0)))
    yield (
        "nuisance, nothing",
        lambda: [common.centred(np.empty(0), np.empty(0, int)), nuisance._auc(*np.ones((2, 3)), np.arange(3))],
    )


CASES = dict((*of_verdicts(), *of_rewards()))


@pytest.mark.parametrize("kind", kinds(CASES))
def test_an_audit_of_judges_gives_what_it_gave(kind: str) -> None:
    assert not changed(FROZEN, CASES, kind)


if __name__ == "__main__":
    write(FROZEN, CASES)
