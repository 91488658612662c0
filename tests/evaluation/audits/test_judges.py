"""Audits of judges: each sees its fault where it is, stays calm where it is not, and takes missing for missing."""

import math

import numpy as np
import polars as pl
import pytest
from scipy import stats

from palaestra.errors import InputError, MissingColumnError
from palaestra.evaluation.audits.judges import (
    accuracy,
    agreement,
    audit_judge,
    error_correlation,
    injection,
    kind_of,
    nuisance_slope,
    order_calibration,
    overoptimisation,
    parse_failures,
    position_bias,
    position_bias_test,
    reward_spread,
    tie_rules,
)
from palaestra.evaluation.audits.judges.reward import _welch


def pairwise(n=300, *, skill=1.5, bias=0.0, seed=0) -> pl.DataFrame:
    """A judge who sees the quality difference with noise, plus `bias` for the first place; both orders of each pair."""
    rng = np.random.default_rng(seed)
    gap = rng.normal(size=n)
    frames = []
    for order in (0, 1):
        logit = skill * gap + (bias if order == 0 else -bias)
        p = 1 / (1 + np.exp(-logit))
        frames.append(
            pl.DataFrame({"item": np.arange(n), "order": order, "value": p, "truth": (gap > 0).astype(float)})
        )
    return pl.concat(frames).with_columns(judge=pl.lit("j"), ok=pl.lit(True))


def panel(n=2000, *, members=5, right=0.7, shared=0.0, seed=0) -> pl.DataFrame:
    """Members who are right with p `right`; a share of the items has one draw for all."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 2, n).astype(float)
    own, common = rng.random((members, n)) < right, rng.random(n) < right
    said = np.where(np.where(rng.random(n) < shared, common, own), truth, 1 - truth)
    rows = {"item": np.tile(np.arange(n), members), "judge": np.repeat([f"m{i}" for i in range(members)], n)}
    return pl.DataFrame({**rows, "value": said.ravel(), "truth": np.tile(truth, members)})


# -- position ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "second", "p"), [(202, 271, 0.0017), (189, 284, 1.5e-5), (240, 233, 0.78)])
def test_published_counts_of_first_and_second(first, second, p):
    assert position_bias_test(first, second) == pytest.approx(p, rel=0.05)


def test_a_place_that_pays_is_seen_and_a_fair_judge_is_trusted():
    fair, biased = pairwise(), pairwise(bias=1.5)
    found = position_bias(fair)
    assert (found.verdict, found.numbers["first"], found.fix) == ("pass", 0.5, "")
    found = position_bias(biased)
    assert found.verdict == "fail"
    assert found.numbers["low"] > 0.6
    assert found.numbers["flipped_first"] > 0 == found.numbers["flipped_second"]
    assert "both orders" in found.fix
    calibrated, crooked = order_calibration(fair), order_calibration(biased)
    assert (calibrated.verdict, calibrated.fix) == ("pass", "")
    assert calibrated.numbers["consistent"] == 1
    assert crooked.verdict == "fail"
    assert "both orders" in crooked.fix
    assert crooked.numbers["excess"] > 0.1


def test_the_same_verdicts_in_terms_of_the_first_one_shown():
    biased = pairwise(bias=1.5)
    swapped = biased.with_columns(value=pl.when(pl.col("order") == 1).then(1 - pl.col("value")).otherwise("value"))
    for run in (position_bias, order_calibration):
        assert run(swapped, says="first").numbers == pytest.approx(run(biased).numbers)


def test_one_order_alone_cannot_acquit():
    found = position_bias(pairwise(2000).filter(pl.col("order") == 0))
    assert found.verdict == "cannot tell"
    assert "one order only" in found.sentence
    assert order_calibration(pairwise().filter(pl.col("order") == 0)).verdict == "cannot tell"


def test_values_that_are_no_preferences_are_refused():
    with pytest.raises(InputError, match=r"lie in \[0, 1\]"):
        position_bias(pairwise().with_columns(value=pl.col("value") * 10))


# -- members ----------------------------------------------------------------------------------------------------------


def test_errors_of_their_own_and_shared_errors():
    alone, shared = error_correlation(panel(shared=0.0)), error_correlation(panel(shared=0.8))
    assert alone.verdict == "pass"
    assert alone.numbers["effective"] == pytest.approx(5, rel=0.1)
    assert shared.verdict == "fail"
    assert shared.numbers["correlation"] == pytest.approx(0.8, abs=0.03)
    assert shared.numbers["effective"] == pytest.approx(5 / (1 + 4 * 0.8), rel=0.05)
    assert shared.numbers["effective_low"] < shared.numbers["effective"] < shared.numbers["effective_high"]


def test_samples_of_one_judge_are_members_too():
    table = panel(members=2, shared=1.0).rename({"judge": "sample"})
    assert error_correlation(table).numbers["correlation"] == pytest.approx(1)
    assert error_correlation(panel(members=1)).verdict == "cannot tell"


def test_errors_need_a_truth():
    with pytest.raises(MissingColumnError, match="'truth'"):
        error_correlation(panel().drop("truth"))


def test_accuracy_beside_always_saying_the_same():
    good = accuracy(panel(right=0.8))
    assert good.verdict == "pass"
    assert good.numbers["low"] < 0.8 < good.numbers["high"]
    assert not good.fix
    lazy = panel(members=1).with_columns(truth=(pl.col("item") % 10 != 0).cast(pl.Float64), value=pl.lit(1.0))
    assert accuracy(lazy).numbers["base"] == 0.9 == accuracy(lazy).numbers["accuracy"]
    assert "rubric" in accuracy(lazy).fix
    assert accuracy(lazy).verdict == "fail"
    graded = pl.DataFrame({"item": [0, 1, 2], "value": [2.0, 1.0, None], "truth": [2, 0, 1]})
    assert accuracy(graded).numbers["accuracy"] == 0.5
    assert accuracy(graded).numbers["missing"] == 1


def test_agreement_is_not_truth():
    crowd = panel(right=0.7, shared=1.0)
    assert agreement(crowd).numbers["alpha"] == pytest.approx(1)
    assert agreement(crowd).verdict == "pass"
    assert agreement(panel(right=0.5)).verdict == "fail"


# -- failures ---------------------------------------------------------------------------------------------------------


def test_failures_are_counted_and_a_number_in_their_place_is_found_out():
    table = panel(500, members=1).with_columns(ok=pl.col("item") % 5 != 0)
    honest = table.with_columns(value=pl.when(pl.col("ok")).then("value"))
    found = parse_failures(honest)
    assert found.numbers["rate"] == pytest.approx(0.2)
    assert (found.verdict, found.numbers["invented"]) == ("fail", 0)
    invented = parse_failures(table)
    assert invented.numbers["invented"] == 100
    assert "carry a number" in invented.sentence
    assert parse_failures(panel(500, members=1)).verdict == "pass"
    # and no other audit takes such a number for a verdict
    assert accuracy(table).numbers == pytest.approx(accuracy(honest).numbers)


# -- nuisance ---------------------------------------------------------------------------------------------------------


def texts(n=300, *, slope=0.0, confounded=0.0, seed=0) -> pl.DataFrame:
    """Two answers of the same content each; better contents are longer by `confounded`."""
    rng = np.random.default_rng(seed)
    content = np.repeat(np.arange(n), 2)
    quality = rng.normal(size=n)[content]
    length = rng.normal(size=2 * n) + confounded * quality
    score = quality + slope * length + 0.5 * rng.normal(size=2 * n)
    return pl.DataFrame({"content": content, "length": length, "score": score})


def test_length_is_seen_at_the_same_content_and_only_there():
    clean = nuisance_slope(texts(1000, confounded=2.0))
    assert clean.verdict == "pass"
    assert clean.numbers["unmatched"] > 0.5
    biased = nuisance_slope(texts(slope=0.5))
    assert biased.verdict == "fail"
    assert biased.numbers["raw"] == pytest.approx(0.5, abs=0.06)
    assert biased.numbers["auc"] > 0.7
    assert "length" in biased.fix


def test_the_interval_of_a_slope_holds_it():
    held = 0
    for seed in range(200):
        found = nuisance_slope(texts(40, slope=0.3, seed=seed)).numbers
        scale = found["slope"] / found["raw"]
        held += found["low"] <= 0.3 * scale <= found["high"]
    assert held >= 182


def test_a_slope_needs_groups_that_differ():
    flat = texts(50).with_columns(length=pl.lit(3.0))
    assert nuisance_slope(flat).verdict == "cannot tell"
    assert ["slope" in nuisance_slope(texts(n)).numbers for n in (2, 3)] == [False, True]
    with pytest.raises(MissingColumnError, match="'words'"):
        nuisance_slope(texts(50), nuisance="words")


def test_the_chance_that_the_longer_one_wins_counts_ties_half():
    """Of five pairs of different length two rise and three are even; the sixth is of one length."""
    group = {"length": [0.0, 1.0, 2.0, 2.0], "score": [0.0, 0.0, 1.0, 0.0]}
    rows = pl.DataFrame({"content": np.repeat([0, 1, 2], 4)} | {name: each * 3 for name, each in group.items()})
    found = nuisance_slope(rows).numbers
    assert found["auc"] == pytest.approx(0.7)
    assert (found["groups"], found["rows"]) == (3, 12)
    assert found["raw"] == pytest.approx(0.75 / 2.75)


# -- as a reward ------------------------------------------------------------------------------------------------------


def curve(hack: bool, *, steps=50, rows=8, seed=0) -> pl.DataFrame:
    """The reward rises all the way; the truth does, too, or turns half-way."""
    rng = np.random.default_rng(seed)
    step = np.repeat(np.arange(steps), rows)
    x = step / steps
    truth = np.where(x < 0.5, x, 1 - x) * 2 if hack else x
    noise = rng.normal(size=(2, len(x))) * 0.1
    return pl.DataFrame(
        {"step": step, "reward": x + noise[0], "truth": truth + noise[1], "group": np.tile(np.arange(rows) // 4, steps)}
    )


def test_model_reward_and_truth_part():
    found = overoptimisation(curve(True))
    assert found.verdict == "fail"
    assert found.numbers["peak"] == 20
    assert 0 < found.numbers["low"] < found.numbers["lost"] < found.numbers["high"]
    assert "stop at step 20" in found.fix
    louder = overoptimisation(curve(True).with_columns(pl.col("reward") * 10))
    assert louder.numbers["gained"] == pytest.approx(found.numbers["gained"]), "a share of the reward's own range"
    few, many = np.array([1.0, 2.0, 4.0]), np.array([0.0, 5.0, 1.0, 2.0, 9.0])
    expected = stats.ttest_ind(few, many, equal_var=False).confidence_interval(0.9)
    assert _welch(few, many, 0.9) == pytest.approx((expected.low, expected.high))
    assert overoptimisation(curve(False)).verdict == "pass"


def test_a_flat_truth_is_no_alarm():
    fails = 0
    for seed in range(100):
        noise = curve(False, steps=20, rows=4, seed=seed).with_columns(truth=pl.col("truth") - pl.col("step") / 20)
        fails += overoptimisation(noise, seed=seed).verdict == "fail"
    assert fails <= 5


def test_a_curve_without_truth_says_so():
    with pytest.raises(MissingColumnError, match="'truth'"):
        overoptimisation(curve(True).drop("truth"))
    short = overoptimisation(curve(True, steps=3, rows=1))
    assert short.verdict == "cannot tell"
    assert "beside the model reward" in short.fix


def test_groups_of_one_reward_teach_nothing():
    live = reward_spread(curve(True))
    assert live.verdict == "pass"
    assert live.numbers["dead"] == 0
    dead = reward_spread(curve(True).with_columns(reward=pl.lit(1.0)))
    assert dead.verdict == "fail"
    assert dead.numbers["dead"] == 1
    saturating = curve(True).with_columns(reward=pl.col("reward") * (pl.col("step") < 25))
    assert reward_spread(saturating).numbers["dead"] == pytest.approx(0.5)
    assert reward_spread(saturating).numbers["last"] == 0 < reward_spread(saturating).numbers["first"]


def test_ties_that_decide():
    rows = pl.DataFrame({"group": np.repeat(np.arange(40), 2), "correct": [True, False] * 40})
    coarse = tie_rules(rows.with_columns(score=pl.lit(9)))
    assert coarse.verdict == "fail"
    assert (coarse.numbers["strict"], coarse.numbers["with_ties"]) == (0, 1)
    fine = tie_rules(rows.with_columns(score=pl.int_range(pl.len())))
    assert fine.numbers["tied"] == 0
    assert fine.verdict == "pass"


def test_an_instruction_in_the_text_that_moves_verdicts():
    clean = panel(200, members=1).with_columns(injected=pl.lit(False), value=pl.lit(0.2))
    bent = clean.with_columns(
        injected=pl.lit(True), value=pl.when(pl.col("item") % 4 == 0).then(1.0).otherwise("value")
    )
    found = injection(pl.concat([clean, bent]))
    assert found.verdict == "fail"
    assert found.numbers["moved"] == 0.25
    assert found.numbers["lift"] == pytest.approx(0.2)
    silent = bent.with_columns(value=pl.when(pl.col("item") % 4 != 0).then("value"))
    found = injection(pl.concat([clean, silent]))
    assert (found.numbers["moved"], found.numbers["unread"], found.numbers["twins"]) == (0, 50, 150)
    assert injection(clean).verdict == "cannot tell"


# -- all of them ------------------------------------------------------------------------------------------------------


def test_the_audits_that_a_table_has_columns_for():
    found = {f.audit: f for f in audit_judge(pairwise(bias=1.5))}
    assert set(found) == {"parsing", "ties", "position", "order", "drift", "accuracy"}
    assert {f.audit for f in audit_judge(panel())} == {"parsing", "ties", "drift", "accuracy", "agreement", "errors"}
    assert {f.audit for f in audit_judge(curve(True))} == {"overoptimisation", "spread"}
    assert [f.verdict for f in audit_judge(curve(True).drop("truth"))] == ["cannot tell", "pass"]
    scores = texts().with_columns(group="content", correct=pl.int_range(pl.len()) % 2 == 0)
    assert {f.audit for f in audit_judge(scores)} == {"ties", "spread", "nuisance length"}
    asked = audit_judge(panel(), nuisances=("style",))
    assert asked[-1].verdict == "cannot tell"
    assert "'style'" in asked[-1].sentence


def test_what_is_no_table_of_a_scorer():
    assert kind_of(panel()) == "verdicts"
    with pytest.raises(InputError, match="scores have group, score, correct"):
        kind_of(pl.DataFrame({"a": [1]}))
    with pytest.raises(InputError, match="empty"):
        audit_judge(panel().clear())


def test_findings_are_json_with_their_fix():
    told = position_bias(pairwise(bias=1.5)).to_dict()
    assert told["fix"]
    assert all(value is None or math.isfinite(value) for value in told["numbers"].values())


def test_the_commonest_truth_is_counted_over_the_verdicts_that_are_judged():
    rows = {"item": [0] * 5 + [1] * 5, "criterion": list("abcde") * 2, "truth": [1.0, 1, 1, 1, 0] * 2}
    table = pl.DataFrame({**rows, "value": [1.0, 1, 1, 0, 1] * 2})
    found = accuracy(table)
    assert (found.numbers["accuracy"], found.numbers["base"]) == (pytest.approx(0.6), pytest.approx(0.8))
    assert found.verdict == "fail"
    blind = accuracy(table.with_columns(truth=pl.when(pl.col("truth") == 1).then(1.0)))
    assert blind.numbers["base"] == 1.0


def test_one_verdict_and_one_truth_cannot_tell():
    one = pl.DataFrame({"item": [0], "value": [1.0], "truth": [1.0]})
    assert accuracy(one).verdict == accuracy(one.with_columns(value=0.0)).verdict == "cannot tell"
    same = pl.DataFrame({"item": range(50), "value": [1.0] * 50, "truth": [1.0] * 50})
    assert accuracy(same).verdict == "cannot tell"


def test_a_truth_that_is_named_and_not_there_is_said():
    rows = panel(50, members=2)
    findings = {f.audit: f for f in audit_judge(rows, truth="truht")}
    assert {f.verdict for name, f in findings.items() if name in ("accuracy", "errors")} == {"cannot tell"}
    assert "did you mean 'truth'" in findings["accuracy"].sentence
    assert not {"accuracy", "errors"} & {f.audit for f in audit_judge(rows.drop("truth"))}


def test_a_verdict_of_which_nobody_says_that_it_was_injected_stays():
    rows = panel(50, members=2).with_columns(injected=pl.when(pl.col("item") < 10).then(True))
    found = next(f for f in audit_judge(rows) if f.audit == "parsing")
    assert found.numbers["verdicts"] == 80


def test_pairs_of_which_nothing_could_be_read_were_not_judged():
    rows = pairwise(20).with_columns(value=pl.lit(None, pl.Float64))
    found = {f.audit: f.sentence for f in audit_judge(rows)}
    assert found["order"] == "no pair was judged in both orders"


def test_the_halves_of_a_curve_do_not_depend_on_the_order_of_its_rows():
    rng = np.random.default_rng(0)
    noise = pl.DataFrame(
        {"step": np.repeat(np.arange(12), 4), "reward": rng.normal(size=48), "truth": rng.normal(size=48)}
    )
    for seed in range(3):
        turned = noise.sample(fraction=1.0, shuffle=True, seed=seed)
        assert overoptimisation(turned).numbers == pytest.approx(overoptimisation(noise).numbers, nan_ok=True)


def test_a_truth_that_never_moves_and_a_part_without_rows_cannot_tell():
    farmed = pl.DataFrame({"step": range(40), "reward": np.linspace(0, 0.9, 40), "truth": [0.0] * 40})
    found = overoptimisation(farmed)
    assert (found.verdict, "the truth is 0 at every step" in found.sentence) == ("cannot tell", True)
    thin = pl.DataFrame({"step": [0] + [1] * 30 + [2], "reward": [0.0] * 32, "truth": [9.0] + [0.0] * 30 + [1.0]})
    assert overoptimisation(thin, windows=3).verdict == "cannot tell"
    with pytest.raises(InputError, match="column 'step' holds String"):
        overoptimisation(farmed.with_columns(pl.col("step").cast(pl.String)))


def test_a_number_that_is_infinite_is_named():
    with pytest.raises(InputError, match="'value' is infinite in row 1"):
        accuracy(pl.DataFrame({"item": [0, 1], "value": [1.0, float("inf")], "truth": [1.0, 0.0]}))


def test_two_items_do_not_tell_how_members_hang_together():
    rows = {"item": [0, 1] * 2, "judge": ["a", "a", "b", "b"], "value": [1.0, 0.0, 0.0, 1.0], "truth": [1.0] * 4}
    assert error_correlation(pl.DataFrame(rows)).verdict == "cannot tell"
    assert agreement(pl.DataFrame(rows)).verdict == "cannot tell"


def test_a_judge_who_always_takes_the_first_is_right_as_often_as_a_coin():
    rows = {"item": [*range(12)] * 2, "order": [0] * 12 + [1] * 12, "judge": "j", "ok": True}
    table = pl.DataFrame({**rows, "value": [1.0] * 12 + [0.0] * 12, "truth": 1.0})
    found = accuracy(table)
    assert (found.numbers["accuracy"], found.numbers["base"]) == (0.5, 0.5)
    assert found.verdict == "fail"
