"""Fair judges are left in peace, and what is wrong with the others is said the louder the worse it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import polars as pl
import pytest
from tests.evaluation.audits.judges.simulated import compared, rated, scored

from palaestra.errors import InputError
from palaestra.evaluation.audits.judges import audit_judge, drift, order_calibration, position_bias, sycophancy

FAIR: dict[str, Callable[[int], pl.DataFrame]] = {
    "sixty pairs": compared,
    "thirty pairs": lambda seed: compared(seed, pairs=30),
    "noisy": lambda seed: compared(seed, noise=2.0),
    "ratings": rated,
    "ratings without a truth": lambda seed: rated(seed, truth=False),
    "five levels": lambda seed: rated(seed, levels=5, prompts=15),
    "scores": scored,
    "scores of five levels": lambda seed: scored(seed, levels=5, groups=30),
}
SEVERITY = ("pass", "cannot tell", "warn", "fail")


@pytest.mark.parametrize("kind", FAIR)
def test_no_check_suspects_more_than_one_fair_judge_in_twenty(kind: str) -> None:
    found = Counter(
        finding.audit
        for seed in range(100)
        for finding in audit_judge(FAIR[kind](seed))
        if finding.verdict in SEVERITY[2:]
    )
    assert not {audit: number for audit, number in found.items() if number > 5}


def test_all_tests_together_suspect_one_fair_judge_in_a_hundred() -> None:
    """Holm: of 400 fair judges with five tests each, at .01 in all; 9 or more have a chance of 2 %."""
    tests = ("position", "order", "drift", "sycophancy", "nuisance length")
    suspects = 0
    for seed in range(400):
        verdicts = [f.verdict for f in audit_judge(rated(1000 + seed)) if f.audit in tests]
        suspects += bool({"warn", "fail"} & set(verdicts))
    assert suspects <= 8


def severities(run: Callable[[float], str], grid: tuple[float, ...]) -> list[int]:
    return [SEVERITY.index(run(each)) for each in grid]


@pytest.mark.parametrize("check", [position_bias, order_calibration])
def test_the_more_a_place_decides_the_worse(check: Callable[..., object]) -> None:
    grid = (0.0, 0.1, 0.2, 0.35, 0.5, 0.8, 1.0)
    found = severities(lambda share: check(compared(1, pairs=300, noise=0.3, always=share)).verdict, grid)  # type: ignore[attr-defined]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (0, 3)


def test_a_judge_that_always_takes_the_first_fails_in_every_check_of_places() -> None:
    table = compared(0, pairs=40, always=1.0)
    found = {f.audit: f.verdict for f in audit_judge(table)}
    assert (found["position"], found["order"]) == ("fail", "fail")
    one_order = position_bias(table.filter(pl.col("order") == 0))
    assert (one_order.verdict, "may stand first" in one_order.sentence) == ("warn", True)


@pytest.mark.parametrize(
    ("check", "name", "grid"), [(drift, "drift", (0.0, 1.0, 2.0, 4.0)), (sycophancy, "claim", (0.0, 0.7, 1.5, 3.0))]
)
def test_the_more_ratings_follow_time_or_a_claim_the_worse(
    check: Callable[..., object], name: str, grid: tuple[float, ...]
) -> None:
    found = severities(lambda size: check(rated(0, prompts=60, **{name: size})).verdict, grid)  # type: ignore[attr-defined,arg-type]
    assert found == sorted(found)
    assert found[0] < 2 < found[-1] == 3


def test_drift_needs_no_system_to_be_better_and_no_task_to_be_harder() -> None:
    """Two systems, one behind the other in the file, of which the second is better: no drift."""
    both = pl.concat(
        rated(3, prompts=40).with_columns(
            system=pl.lit(name), item=pl.col("item") + 1000 * n, value=pl.col("value") + 2 * n
        )
        for n, name in enumerate(("old", "new"))
    )
    assert drift(both).verdict not in ("warn", "fail")
    assert drift(both.drop("system")).verdict == "fail"


def test_drift_by_a_column_of_times_and_no_more_than_a_warning_without_a_truth() -> None:
    table = rated(0, prompts=60, drift=4.0).with_columns(time=pl.col("item"))
    shuffled = table.sample(fraction=1.0, shuffle=True, seed=1)
    assert drift(shuffled.drop("time")).verdict not in ("warn", "fail")
    assert drift(shuffled).verdict == "fail"
    moments = shuffled.with_columns(time=pl.from_epoch(pl.col("item") * 60))
    assert drift(moments).numbers == pytest.approx(drift(shuffled).numbers)
    blind = drift(table.drop("truth"))
    assert (blind.verdict, "or the answers changed" in blind.sentence) == ("warn", True)
    assert drift(table.with_columns(value=1.0)).verdict == "cannot tell"


def test_times_may_be_texts_of_a_csv() -> None:
    table = rated(0, drift=3.0)
    days = pl.datetime(2026, 1, 1) + pl.duration(days=pl.col("item"), hours=5)
    timed = table.with_columns(time=days)
    known = drift(timed).numbers
    assert drift(timed.with_columns(pl.col("time").dt.to_string("%Y-%m-%dT%H:%M:%S"))).numbers == pytest.approx(known)
    assert drift(timed.with_columns(pl.col("time").dt.to_string("%Y-%m-%d %H:%M:%SZ"))).numbers == pytest.approx(known)
    with pytest.raises(InputError, match="ISO 8601"):
        drift(table.with_columns(time=pl.lit("noon")))


def test_agreement_with_a_claim_is_measured_at_the_same_truth() -> None:
    """A claim that is mostly right goes with high ratings, and that alone is no fault."""
    rng = np.random.default_rng(0)
    table = rated(0, prompts=80).with_columns(
        claim=pl.when(pl.Series(rng.random(640) < 0.9)).then(pl.col("truth") == 1).otherwise(pl.col("truth") == 0)
    )
    assert np.corrcoef(table["claim"].cast(pl.Float64), table["value"])[0, 1] > 0.5
    assert sycophancy(table).verdict in ("pass", "cannot tell")
    alone = table.drop("truth", "prompt")
    assert sycophancy(alone).verdict == "cannot tell"
    assert "give the truth" in sycophancy(alone).fix


def test_verdicts_on_one_prompt_are_one_piece_of_evidence_on_length() -> None:
    """Two criteria and two truths of thirty prompts: the interval counts thirty."""
    (found,) = [f for f in audit_judge(rated(0)) if f.audit == "nuisance length"]
    assert (found.numbers["groups"], found.numbers["rows"]) == (30, 240)


def test_length_without_a_truth_is_no_more_than_a_warning_and_of_comparisons_it_is_a_difference() -> None:
    table = rated(0, prompts=60, length=1.0)
    assert [f.verdict for f in audit_judge(table) if f.audit == "nuisance length"] == ["fail"]
    (blind,) = [f for f in audit_judge(table.drop("truth")) if f.audit == "nuisance length"]
    assert (blind.verdict, "may be better" in blind.sentence) == ("warn", True)
    size = np.random.default_rng(0).integers(1, 40, (2, 200))
    texts = [[n * "x" for n in side] for side in size.tolist()]
    pairs = pl.DataFrame({
        "item": np.arange(200), "prompt": np.arange(200) // 4, "response": texts[0], "reference": texts[1],
        "order": 0, "value": (size[0] > size[1]).astype(float), "length": size[0],
    })  # fmt: skip
    (found,) = [f for f in audit_judge(pairs) if f.audit == "nuisance length"]
    assert found.verdict == "warn"
    assert found.numbers["unmatched"] == pytest.approx(np.corrcoef(size[0] - size[1], size[0] > size[1])[0, 1])
