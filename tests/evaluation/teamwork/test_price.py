"""What systems cost and bring, on the tasks that all of them met."""

from __future__ import annotations

import json

import polars as pl
import pytest

from palaestra.errors import InputError, MissingColumnError
from palaestra.evaluation.teamwork import (
    best_of_n,
    best_settings,
    cheapest,
    cost_at_score,
    cost_over_levels,
    economy,
    play_cost,
    score_at_cost,
    workflow_cost,
)


def trials(**systems: list[tuple[float, bool]]) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {"system": system, "task": str(task), "cost": cost, "success": success}
            for system, rows in systems.items()
            for task, (cost, success) in enumerate(rows)
        ]
    )


def test_worked_numbers() -> None:
    half = [(10.0, True), (10.0, False)] * 20
    most = [(30.0, True), (30.0, True), (30.0, True), (30.0, False)] * 10
    wasteful = [(40.0, True), (40.0, False)] * 20
    found = {row["system"]: row for row in economy(trials(one=half, team=most, waste=wasteful)).to_dicts()}
    assert [found[s]["cost_of_pass"] for s in ("one", "team", "waste")] == [20.0, 40.0, 80.0]
    assert [found[s]["frontier"] for s in ("one", "team", "waste")] == [True, True, False]
    assert found["waste"]["score_at_cost"] == 0.75, "somebody is better for as much"
    assert found["waste"]["cost_at_score"] == 10.0, "and as good for less"
    assert found["waste"]["on_frontier"] == 0.0
    assert found["one"]["on_frontier"] == 1.0
    assert found["one"]["value_low"] < 0.5 < found["one"]["value_high"]
    assert found["one"]["pass_low"] < 20 < found["one"]["pass_high"]
    assert found["one"]["cost_low"] == found["one"]["cost_high"] == 10.0, "all trials cost the same"


def test_who_never_succeeds_has_no_price_of_a_success() -> None:
    row = economy(trials(never=[(5.0, False)] * 4, once=[(5.0, True)] + [(5.0, False)] * 3)).to_dicts()[0]
    assert (row["cost_of_pass"], row["pass_low"], row["pass_high"]) == (None, None, None)
    assert not row["frontier"]
    assert row["value"] == 0.0


def test_who_is_as_dear_but_worse_or_as_good_but_dearer_is_beaten() -> None:
    found = economy(trials(one=[(1.0, True)] * 2, worse=[(1.0, False)] * 2, dearer=[(2.0, True)] * 2), resamples=20)
    assert found["on_frontier"].to_list() == [1.0, 0.0, 0.0]


def test_what_is_free_costs_nothing_in_the_resamples_that_succeed() -> None:
    row = economy(trials(free=[(0.0, True), (0.0, False)]), resamples=100).row(0, named=True)
    assert (row["cost_of_pass"], row["pass_low"], row["pass_high"]) == (0.0, 0.0, None)


def test_only_tasks_that_all_met_count_and_unknown_costs_are_not_free() -> None:
    table = trials(a=[(1.0, True), (9.0, False)], b=[(2.0, True)])
    found = economy(table)
    assert found["value"].to_list() == [1.0, 1.0]
    assert found["cost"].to_list() == [1.0, 2.0]
    with pytest.raises(InputError, match="no task in common with a known cost"):
        economy(table.with_columns(task=pl.col("system") + pl.col("task")))
    unknown = table.with_columns(cost=pl.when(pl.col("task") == "1").then(None).otherwise("cost"))
    assert economy(unknown)["cost"].to_list() == [1.0, 2.0]
    with pytest.raises(MissingColumnError, match="no column 'dollars'"):
        economy(table, cost="dollars")


def test_a_workflow_by_hand() -> None:
    found = workflow_cost(100, [10, 20], [5, 7], input_price=2.0, output_price=3.0, cached=0.5)
    assert found == (110 * 2 + 5 * 3 + 125 * 2 + 7 * 3, 110 * 2 + 5 * 3 + 20 * 2 + 0.5 * 115 * 2 + 7 * 3)
    for prompts in ([], [1, 2]):
        with pytest.raises(InputError, match="give one for each node"):
            workflow_cost(100, prompts, [1])


def test_best_of_n_with_a_verifier_that_takes_all_or_none_is_as_one_try() -> None:
    for share in (0.0, 1.0):
        assert best_of_n(0.3, 4, tpr=share, fpr=share) == pytest.approx(0.3)
    assert best_of_n(0.3, 1, tpr=0.9, fpr=0.2) == pytest.approx(0.3), "of one try the verifier says nothing"
    assert (best_of_n(0.0, 3, fpr=0.5), best_of_n(1.0, 3, tpr=0.5)) == (0.0, 1.0)
    assert best_of_n(0.25, 2, tpr=0.5, fpr=0.25) == pytest.approx(0.296875)
    with pytest.raises(InputError, match="n=0"):
        best_of_n(0.3, 0)


def test_a_score_that_is_unknown_reaches_nothing() -> None:
    points = pl.DataFrame({"cost": [1.0, 2.0], "score": [float("nan"), 0.9]})
    assert (score_at_cost(points, 3), cost_at_score(points, 0.5)) == (0.9, 2.0)


def test_a_trial_of_unknown_cost_is_left_out() -> None:
    known = trials(one=[(1.0, True), (2.0, False)], other=[(2.0, True), (1.0, True)])
    spoilt = pl.concat([known, trials(one=[(float("nan"), True)]).with_columns(task=pl.lit("9"))])
    assert economy(spoilt).drop("dropped").equals(economy(known).drop("dropped"))
    assert economy(spoilt)["dropped"].to_list() == [1, 1]


def test_one_task_in_common_says_nothing_of_others_and_those_left_out_are_counted() -> None:
    table = trials(a=[(1.0, True), (1.0, False)], b=[(1.0, False)])
    row = economy(table, resamples=20).row(0, named=True)
    assert (row["value"], row["tasks"], row["dropped"]) == (1.0, 1, 1)
    ends = [f"{name}_{end}" for name in ("cost", "value", "pass") for end in ("low", "high")]
    assert {row[name] for name in [*ends, "on_frontier"]} == {None}


def test_a_setting_of_unknown_cost_is_as_successful_as_its_trials() -> None:
    rows = [("small", 1.0, 3), ("large", None, 2), ("tiny", 1.0, 1)]
    table = pl.DataFrame(
        [
            {"task": f"{at}", "model": model, "cost": cost, "success": at < solved}
            for model, cost, solved in rows
            for at in range(4)
        ]
    )
    assert best_settings(table, ["model"], by="success").row(0) == ("model", "small", 4 / 3, 0.75)
    unplayed = table.with_columns(success=pl.when(pl.col("model") != "large").then("success"))
    assert best_settings(unplayed, ["model"], by="success")["setting"].to_list() == ["small"]
    best = table.with_columns(success=pl.col("success") | (pl.col("model") == "large"))
    assert best_settings(best, ["model"], by="success").row(0) == ("model", "large", float("inf"), 1.0)


def test_settings_are_chosen_one_factor_at_a_time() -> None:
    rows = [("small", 1, 1.0, 6), ("small", 1, 1.0, 6), ("large", 1, 4.0, 8), ("small", 4, 4.0, 9)]
    table = pl.DataFrame(
        [
            {"task": f"{at}", "model": model, "tries": tries, "cost": cost, "success": at < solved}
            for model, tries, cost, solved in rows
            for at in range(10)
        ]
    )
    assert best_settings(table, ["model", "tries"])["setting"].to_list() == ["small", "1"]
    assert best_settings(table, ["model", "tries"], by="success")["setting"].to_list() == ["large", "4"]
    with pytest.raises(InputError, match="by="):
        best_settings(table, ["model"], by="luck")
    equally = table.filter(pl.col("model").is_in(["small"]), pl.col("task") != "x").sort("tries", descending=True)
    each = equally.unique(["tries", "task"], maintain_order=True)  # four tries as often as one, and first
    assert best_settings(each.with_columns(model=pl.lit("m")), ["model", "tries"])["success"].to_list()[0] == 0.9


def test_levels_and_kinds_are_told_apart() -> None:
    rows = [
        ("one", "easy", 1.0, True),
        ("two", "easy", 2.0, True),
        ("one", "hard", 9.0, False),
        ("two", "hard", 2.0, True),
    ]
    frame = pl.DataFrame(rows, schema=["system", "kind", "cost", "success"], orient="row").with_columns(task="kind")
    assert cheapest(frame, "kind").rows() == [("easy", "one", 1.0), ("hard", "two", 2.0)]
    assert cost_over_levels(frame, "kind").rows() == [("two", 2.0, 2), ("one", float("inf"), 2)]


def test_an_unknown_cost_of_a_level_is_not_infinite_and_a_system_of_few_levels_is_not_first() -> None:
    rows = [
        ("one", 1, 1.0, True), ("one", 2, None, True), ("two", 1, 2.0, True), ("two", 2, 2.0, True),
        ("three", 1, 1.5, True), ("two", None, 5.0, True), ("one", 3, None, True),
    ]  # fmt: skip
    frame = pl.DataFrame(rows, schema=["system", "kind", "cost", "success"], orient="row").with_columns(
        task=pl.lit("t")
    )
    assert cost_over_levels(frame, "kind").rows() == [("two", 3.0, 3), ("one", 1.0, 1), ("three", 1.5, 1)]
    assert cheapest(frame, "kind").rows() == [(None, "two", 5.0), (1, "one", 1.0), (2, "two", 2.0), (3, None, None)]


def test_a_cache_holds_what_its_own_model_read_or_wrote():
    sizes = [200] * 4, [200] * 4
    assert workflow_cost(1000, *sizes, models=["a"] * 4) == workflow_cost(1000, *sizes)
    team, mixed = workflow_cost(1000, *sizes, models="abab")
    assert mixed == pytest.approx(2000 + 2400 + (200 + 140 + 400 + 800) + (200 + 180 + 400 + 800))
    assert workflow_cost(1000, *sizes, models="abcd")[1] > team
    with pytest.raises(InputError, match="3 models"):
        workflow_cost(1000, *sizes, models="abc")


def test_the_price_of_play_is_that_of_the_cost_model() -> None:
    said = " ".join("o" * 4)
    base = {"group": 0, "episode": 0, "policy": "m", "action": said}
    talk, chats, teams, words = [], [], [], []
    for turn in range(3):  # one agent, whose prompt grows; and roles that read the question and all that was said
        talk.append({"role": "user", "content": " ".join(["s"] * 10 * (turn == 0) + ["p"] * 3)})
        chats.append(base | {"turn": turn, "agent": "solver", "observation": "", "messages": json.dumps(talk)})
        talk.append({"role": "assistant", "content": said})
        heard = f" | {said}" * (turn > 0)
        teams.append(
            base | {"turn": turn, "agent": f"{turn}", "observation": " ".join([f"{turn}"] * 13 + ["o"] * 4 * turn)}
        )
        words.append(base | {"turn": turn, "agent": "solver", "observation": f"s s s{heard} | role"})
    # a mark before each message counts as a word: 14 are new, then 4 and 4; 14 + 5 and 23 + 5 are in the cache
    (row,) = play_cost(pl.DataFrame(chats)).to_dicts()
    assert (row["calls"], row["cost"]) == (3, pytest.approx(14 + 4 + 4 + 0.1 * (19 + 28) + 4 * 12))
    tokens = pl.DataFrame(chats).with_columns(tokens_in=pl.Series([28, 46, 64]), tokens_out=5)  # twice the words
    assert play_cost(tokens)["cost"].item() == pytest.approx(2 * 22 + 0.1 * 2 * 47 + 4 * 15)
    assert play_cost(pl.DataFrame(chats), cached=1.0, output=0.0)["cost"].item() == 14 + 23 + 32
    assert play_cost(pl.DataFrame(teams))["cost"].to_list() == [workflow_cost(10, [3] * 3, [4] * 3)[0]]
    # without messages: "s s s | role" is new, then "| | role"; before it stand 5 + 4 and 12 + 4 words
    alone = play_cost(pl.DataFrame(words))["cost"].item()
    assert alone == pytest.approx(5 + 3 + 3 + 0.1 * (9 + 16) + 4 * 12)


def test_of_two_models_none_has_the_other_ones_cache() -> None:
    talk = json.dumps([{"role": "user", "content": "a b c"}])
    row = {"group": 0, "episode": 0, "agent": "x", "observation": "", "action": "", "messages": talk}
    one, two = (pl.DataFrame([row | {"turn": at, "policy": f"{at * apart}"} for at in range(2)]) for apart in (0, 1))
    assert play_cost(one)["cost"].item() == pytest.approx(4.4)
    assert play_cost(two)["cost"].item() == 8.0
    with pytest.raises(MissingColumnError, match="observation"):
        play_cost(one.drop("observation"))
