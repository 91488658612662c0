"""What a run remembers: counts over iterations, surprise that fades, one scale; vectors of texts."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import stage_play
from stage_play import context, trained

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, SchemaError
from palaestra.learning.stages.novelty import counts, embed, hashed_words, rnd, running_scale
from palaestra.rewards import goal_projection, projected_similarity


def test_counts_go_on_over_the_iterations_of_a_run() -> None:
    learned, tables = trained("codes", {"train": {"iterations": 3, "groups": 2}})
    assert all(0 <= told["seconds"] < 60 for line in learned.lines for told in line["stages"].values())
    met: dict[int, int] = {}
    for table in tables:
        assert table["count_before"].to_list() == [met.get(depth, 0) for depth in table["depth"]]
        for depth in table["depth"]:
            met[depth] = met.get(depth, 0) + 1
    first = tables[1].filter(pl.col("turn") == 0)  # the order of the table is that of the count
    n = first["count_before"][0] + 1
    at_once = (first["depth"] == first["depth"][0]).sum()  # episodes that meet it in the same turn share the bonus
    assert first["reward"][0] == pytest.approx(np.mean((n + np.arange(at_once)) ** -0.5))


def frames(x: np.ndarray) -> Turns:
    return Turns({"features": pl.Series(x.tolist(), dtype=pl.List(pl.Float64))})


def test_what_was_seen_often_surprises_less_than_what_is_new() -> None:
    rng = np.random.default_rng(0)
    known, new = rng.normal(size=(64, 4)), rng.normal(size=(16, 4)) + 4
    stage = rnd(epochs=20, lr=3e-3)
    first = stage(frames(known), context())["novelty"].mean()
    for iteration in range(2, 12):
        stage(frames(known), context(iteration))
    both = stage(frames(np.concatenate([known, new])), context(12))["novelty"].to_numpy()
    assert both[:64].mean() < 0.5 * first
    assert both[64:].mean() > 2 * both[:64].mean()


def test_a_network_goes_on_after_a_stop() -> None:
    rng = np.random.default_rng(1)
    tables = [frames(rng.normal(size=(8, 3))) for _ in range(4)]
    whole = rnd()
    found = [whole(table, context(n))["novelty"].to_list() for n, table in enumerate(tables, 1)]
    stopped, again = rnd(), rnd()
    for n in (1, 2):
        stopped(tables[n - 1], context(n))
    again.load_state_dict(stopped.state_dict())
    assert [again(tables[n - 1], context(n))["novelty"].to_list() for n in (3, 4)] == found[2:]


@pytest.mark.parametrize("width", [1, 3])
def test_features_are_standardised_by_all_that_was_seen(width: int) -> None:
    rng = np.random.default_rng(2)
    seen = rng.normal(3.0, 2.0, size=(30, width))
    stage = rnd()
    for number, rows in enumerate(np.split(seen, [4, 15]), 1):
        stage(frames(rows), context(number))
    n, mean, squares = stage.state_dict()["moments"]
    np.testing.assert_allclose(n, 30)
    np.testing.assert_allclose(mean, seen.mean(axis=0))
    np.testing.assert_allclose(squares / n, seen.var(axis=0))


def test_what_never_varies_is_centred_and_what_is_far_is_cut() -> None:
    stage = rnd()
    assert stage._standardised(np.array([[2.0, 0.0], [2.0, 4.0]])).tolist() == [[0, -1], [0, 1]]
    assert stage._standardised(np.array([[2.0, 100.0]] * 2))[0].tolist() == [0, pytest.approx(49 / 2403**0.5)]
    assert rnd()._standardised(np.append(np.zeros(99), 1.0)[:, None]).max() == 5  # of 0.99 / 0.0995


def test_features_that_are_missing_or_odd() -> None:
    turns = Turns({"features": pl.Series([[1.0, 2.0], None, [0.0, 1.0]])})
    assert rnd()(turns, context())["novelty"].is_null().to_list() == [False, True, False]
    with pytest.raises(SchemaError, match=r"lists of \[1, 2\] numbers"):
        rnd()(Turns({"features": pl.Series([[1.0], [1.0, 2.0]])}), context())
    with pytest.raises(InputError, match="lr=0"):
        rnd(lr=0)


def test_one_scale_for_all_that_was_seen() -> None:
    stage, one, two = running_scale("bonus"), Turns({"bonus": [1.0, 3.0]}), Turns({"bonus": [5.0, None]})
    assert stage(one, context())["scale"].to_list() == [1, 1]
    again = running_scale("bonus")
    again.load_state_dict(stage.state_dict())
    assert again(two, context(2))["scale"].to_list() == pytest.approx([np.std([1, 3, 5])] * 2)
    assert running_scale("2 * col('bonus')").needs == {"bonus"}


def test_texts_are_vectors_and_the_goal_stands_beside_them() -> None:
    turns = Turns({"observation": ["mug warm table", None, "mug cold fridge"]})
    made = embed(texts={"goal": "mug cold fridge", "baseline": "mug"})(turns, context())
    rows = made["embedding"].to_list()
    assert rows[1] is None
    assert rows[2] == made["embedding.goal"].to_list()[0]
    assert np.linalg.norm(rows[0]) == pytest.approx(1)
    score = goal_projection("embedding", "embedding.goal", "embedding.baseline", alpha=1.0).evaluate(made)
    states, goal, baseline = (hashed_words([text]) for text in ("mug warm table", "mug cold fridge", "mug"))
    assert score[0] == pytest.approx(projected_similarity(states, goal[0], baseline[0], alpha=1.0)[0])
    assert score[2] == pytest.approx(1)


def test_a_model_of_ones_own_is_asked_once_for_each_text() -> None:
    stage, here = embed(model="stage_play:lengths", texts={"goal": "xx"}), context()
    turns = Turns({"observation": ["a", "xx", "a"]})
    stage(turns, here)
    stage(turns, context(2))
    assert stage_play.ASKED == [["a", "xx"]]
    assert here.spent.calls == 2
    with pytest.raises(InputError, match=r"made \(1,\) of 1 texts"):
        embed(model=lambda texts: [1.0])(Turns({"observation": ["a"]}), context())


def test_hashes_are_the_same_in_every_process() -> None:
    assert np.flatnonzero(hashed_words(["the cat"], 16)[0]).tolist() == EXPECTED
    assert counts("depth").needs == {"depth"}


EXPECTED = [9, 15]
