"""What holds of every kind: it learns, says null where it cannot say, is a folder, resumes bit for bit, errs well."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from tests.learning.reward_models.making import feature_pairs, labelled, lists, text_pairs

from palaestra.errors import InputError, MissingColumnError
from palaestra.judges import SCORERS, Scorer
from palaestra.learning.reward_models import (
    REWARD_MODELS,
    Against,
    HeadReward,
    Labels,
    LinearReward,
    MixtureReward,
    PairwiseTokenReward,
    Preferences,
    ReferenceReward,
    SequenceReward,
    VectorReward,
    hedge,
    unit,
)
from palaestra.learning.reward_models.features import joined, scale_of
from palaestra.learning.reward_models.fitting import _Pairs
from palaestra.learning.reward_models.network import WASTE, by_length


def referenced(count: int, seed: int = 0) -> Preferences:
    """The chosen row is near its reference."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 3))
    near, far = x + 0.3 * rng.normal(size=x.shape), rng.normal(size=x.shape)
    return Preferences(lists(near), lists(far), reference=lists(x))


def conditioned(count: int, seed: int = 0) -> Preferences:
    """Two groups that want the opposite; the condition says which."""
    rng = np.random.default_rng(seed)
    group = np.where(rng.random(count) < 0.5, 1.0, -1.0)
    a, b = rng.normal(size=(2, count, 2))
    swap = (group * (a - b)[:, 0] < 0)[:, None]
    return Preferences(lists(np.where(swap, b, a)), lists(np.where(swap, a, b)), condition=lists(group[:, None]))


def vectors(count: int, seed: int = 0) -> Labels:
    x = np.random.default_rng(seed).normal(size=(count, 3))
    value = np.stack([x[:, 0], x[:, 1] - x[:, 0]], 1)
    value[0, 1] = np.nan
    return Labels(lists(x), value)


CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "linear": (lambda: LinearReward(), lambda: feature_pairs(200, [4.0, 0.0]), {}),
    "head": (lambda: HeadReward(hidden=8), lambda: feature_pairs(200, [4.0, 0.0]), {"epochs": 10, "lr": 0.02}),
    "reference": (lambda: ReferenceReward(hidden=16), lambda: referenced(200), {"epochs": 10, "lr": 0.01}),
    "mixture": (lambda: MixtureReward(heads=2), lambda: conditioned(300), {"epochs": 20, "lr": 0.05}),
    "vector": (lambda: VectorReward(heads=2), lambda: vectors(200), {"epochs": 20, "lr": 0.05}),
    "sequence": (lambda: SequenceReward(), lambda: text_pairs(48), {"epochs": 2, "lr": 3e-3, "batch": 8}),
    "pairwise": (lambda: PairwiseTokenReward(), lambda: text_pairs(48), {"epochs": 3, "lr": 3e-3, "batch": 8}),
    "implicit": (lambda: REWARD_MODELS.build("implicit(beta=1.0)"), lambda: text_pairs(32),
                 {"epochs": 2, "lr": 1e-3, "batch": 8}),
}  # fmt: skip


@pytest.fixture(scope="module")
def fitted() -> dict[str, Any]:
    """Each kind once, on a few rows."""
    made = {}
    for kind, (make, data, options) in CASES.items():
        made[kind] = make()
        made[kind].fit(data(), **options)
    return made


def scored(model: Any, data: Any) -> pl.Series:
    rows = data.chosen if isinstance(data, Preferences) else data.rows
    found: pl.Series = model.score(rows, reference=data.reference, condition=data.condition)
    return found


def test_all_kinds_are_tried() -> None:
    assert set(CASES) == set(REWARD_MODELS) - {"online_linear"}  # which has tests of its own
    assert {"reward_model", "implicit_reward"} <= set(SCORERS)


@pytest.mark.parametrize("kind", [kind for kind in CASES if kind != "vector"])
def test_it_learns_who_is_better(fitted: dict[str, Any], kind: str) -> None:
    assert isinstance(fitted[kind], Scorer)
    pairs = CASES[kind][1]()
    assert fitted[kind].agrees(pairs).mean() > 0.85
    turned = Preferences(pairs.rejected, pairs.chosen, reference=pairs.reference, condition=pairs.condition)
    assert fitted[kind].agrees(turned).mean() < 0.2


@pytest.mark.parametrize("kind", CASES)
def test_what_was_saved_scores_the_same(fitted: dict[str, Any], kind: str, tmp_path: Path) -> None:
    fitted[kind].save(tmp_path / "model")
    loaded = SCORERS.build(f"reward_model({str(tmp_path / 'model')!r})")
    assert loaded.name == fitted[kind].name
    data = CASES[kind][1]()
    before, after = scored(fitted[kind], data), scored(loaded, data)
    assert before.dtype == after.dtype
    np.testing.assert_allclose(before.to_numpy(), after.to_numpy(), rtol=1e-4)  # other attention, same weights


@pytest.mark.parametrize("kind", CASES)
def test_a_row_that_cannot_be_read_is_null(fitted: dict[str, Any], kind: str) -> None:
    data = CASES[kind][1]().take(np.arange(3))
    name = "response" if "response" in (data.chosen if isinstance(data, Preferences) else data.rows) else "features"
    rows = data.chosen if isinstance(data, Preferences) else data.rows
    holed = rows.with_columns(pl.when(pl.int_range(pl.len()) != 1).then(pl.col(name)))
    found = fitted[kind].score(holed, reference=data.reference, condition=data.condition)
    assert found.is_null().to_list() == [False, True, False]
    if kind != "vector":  # who the others are does not matter
        alone = fitted[kind].score(rows, reference=data.reference, condition=data.condition)
        np.testing.assert_allclose(found.drop_nulls().to_numpy(), alone.to_numpy()[[0, 2]], atol=1e-5)
    with pytest.raises(MissingColumnError, match=name):
        fitted[kind].score(rows.drop(name), reference=data.reference, condition=data.condition)
    with pytest.raises(InputError, match="condition has 1 rows for 3"):
        fitted[kind].score(rows, reference=data.reference, condition=lists(np.ones((1, 1))))


@pytest.mark.parametrize("kind", [kind for kind in CASES if kind != "linear"])
def test_a_fit_that_was_stopped_goes_on_bit_for_bit(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, data, options = CASES[kind]
    part = data().take(np.arange(24))
    options = options | {"epochs": 2, "batch": 8}
    whole, stopped = make(), make()
    whole.fit(part, seed=3, **options)

    def stop(phase: str, done: int, total: int, note: str = "", lines: Any = ()) -> None:
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped.fit(part, seed=3, checkpoints=tmp_path, every=2, progress=stop, **options)
    again, steps = make(), []
    again.fit(part, seed=3, checkpoints=tmp_path, every=2, progress=lambda *said, **_: steps.append(said[1]), **options)
    assert steps == [5, 6]
    for name, value in whole.ready().state_dict().items():
        assert torch.equal(value, again.ready().state_dict()[name]), name
    with pytest.raises(InputError, match="other data"):
        make().fit(part.take(np.arange(16)), seed=3, checkpoints=tmp_path, **options)


# -- batches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_batches_by_length_waste_little_and_miss_nobody(seed: int) -> None:
    lengths = np.random.default_rng(seed).lognormal(4, 1, 500).astype(int) + 1
    parts = list(by_length(lengths, 32))
    assert sorted(np.concatenate(parts).tolist()) == list(range(500))
    for part in parts:
        assert len(part) <= 32
        assert 1 - lengths[part].sum() / (len(part) * lengths[part].max()) <= WASTE + 1e-12
    assert len(parts) < 60


def test_a_condition_stands_beside_the_row_or_is_multiplied_with_it() -> None:
    x, condition = np.array([[1.0, 2.0], [0.0, 5.0]]), np.array([[3.0, 4.0], [1.0, -1.0]])
    assert joined(x, condition, "concat").tolist() == [[1, 2, 3, 4], [0, 5, 1, -1]]
    assert joined(x, condition, "outer").tolist() == [[3, 4, 6, 8], [0, 0, 5, -5]]
    assert joined(x, None, "outer") is x


def test_a_feature_that_hardly_moves_beside_its_size_is_not_divided_by_its_spread() -> None:
    x = np.array([[1.0, 5.0, 999.9995, 999.99], [3.0, 5.0, 1000.0005, 1000.01], [np.nan, 0.0, 0.0, 0.0]])
    mean, spread = scale_of(x)
    assert mean == pytest.approx([2, 5, 1000, 1000])
    assert spread == pytest.approx([1, 1, 1, 0.01])
    with pytest.raises(InputError, match="no row has all its features"):
        scale_of(x[2:])


def test_a_scorer_against_its_reference(fitted: dict[str, Any]) -> None:
    """The chance to be better; what both sides share cancels, and one that is missing is null."""
    pairs = CASES["linear"][1]().take(np.arange(5))
    lead = (fitted["linear"].score(pairs.chosen) - fitted["linear"].score(pairs.rejected)).to_numpy()
    against = Against(fitted["linear"])
    found = against.score(pairs.chosen, reference=pairs.rejected)
    assert found.to_list() == pytest.approx((1 / (1 + np.exp(-lead))).tolist())
    holed = pairs.rejected.with_columns(pl.when(pl.int_range(pl.len()) > 0).then("features"))
    assert against.score(pairs.chosen, reference=holed).is_null().to_list() == [True] + [False] * 4
    with pytest.raises(InputError, match="a row for each of 5"):
        against.score(pairs.chosen)


def test_distilling_follows_the_teacher_where_labels_are_wrong() -> None:
    x = np.random.default_rng(0).normal(size=(240, 3))
    teacher, key = x @ [2.0, 1.0, 0.0], np.repeat(np.arange(40), 6)
    wrong = (x[:, 2].reshape(40, 6).argmax(1)[:, None] == np.arange(6)).ravel().astype(float)
    data = Labels(lists(x), np.stack([wrong, teacher], 1), key=key)
    found = {}
    for alpha in (0.0, 1.0):
        model = HeadReward(layers=1)
        model.fit(data, loss="distill", alpha=alpha, epochs=20, lr=0.05, batch=10)
        found[alpha] = np.corrcoef(model.score(lists(x)).to_numpy(), teacher)[0, 1]
    assert found[1.0] > 0.95
    assert found[0.0] < 0.5
    with pytest.raises(InputError, match="the label and the teacher's score"):
        HeadReward().fit(Labels(lists(x), teacher, key=key), loss="distill")


def test_padding_is_counted(fitted: dict[str, Any]) -> None:
    model = fitted["sequence"]
    model.score(text_pairs(200).chosen)
    assert 0 <= model.padding <= WASTE
    metrics = SequenceReward().fit(text_pairs(64), batch=16)
    assert 0 <= metrics["padding"] <= WASTE


def test_cells_of_a_step_are_the_tokens_of_both_sides_with_their_padding() -> None:
    """Three pairs; of both sides of the first and the last, 1 + 3 and 4 + 6 tokens, half of all cells are padding."""
    step = _Pairs.__new__(_Pairs)
    step.count, step.inputs = 3, SimpleNamespace(lengths=np.arange(1, 7))  # type: ignore[assignment]
    step.model = SimpleNamespace(padding=0.5)  # type: ignore[assignment]
    assert step.cells(np.array([0, 2])).tolist() == [14, 28]


# -- labels -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["regression", "binary", "ranknet", "listnet", "ce"])
@pytest.mark.parametrize("text", [False, True])
def test_labels_and_groups_of_them_teach_as_well(loss: str, text: bool) -> None:
    pairs = text_pairs(32) if text else feature_pairs(100, [4.0, 0.0])
    model = SequenceReward() if text else HeadReward(layers=1)
    model.fit(labelled(pairs), loss=loss, epochs=3 if text else 5, lr=5e-3 if text else 0.05, batch=8)
    assert model.agrees(pairs).mean() > 0.8


def test_linear_labels_are_the_textbooks() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(3.0, 2.0, size=(400, 2))
    plain = LinearReward(ridge=0.0)
    plain.fit(Labels(lists(x), x @ [1.5, -2.0] + 0.7))
    assert plain.weights == pytest.approx([1.5, -2.0])
    assert plain.bias == pytest.approx(0.7)
    assert plain.score(lists(x)).to_numpy() == pytest.approx(x @ [1.5, -2.0] + 0.7)
    chance = 1 / (1 + np.exp(-(x @ [1.0, -1.0] + 0.5)))
    logistic = LinearReward(ridge=1e-9)
    logistic.fit(Labels(lists(x), chance), loss="binary")  # soft labels: the truth is the optimum
    assert logistic.weights == pytest.approx([1.0, -1.0], abs=1e-5)
    assert logistic.bias == pytest.approx(0.5, abs=1e-4)
    hard, odds = lists(np.repeat([[1.0], [-1.0]], 4, axis=0)), LinearReward(ridge=1e-9)
    odds.fit(Labels(hard, np.array([1.0, 1, 1, 0, 0, 0, 0, 1])), loss="binary")
    assert odds.weights == pytest.approx([np.log(3)], abs=1e-5)  # three of four
    said = np.arange(400) < 360
    for ridge in (1e-3, 1.0):  # the mean chance is the labels' share only where the bias is not shrunk
        shrunk = LinearReward(ridge=ridge)
        shrunk.fit(Labels(lists(x), said.astype(float)), loss="binary")
        assert (1 / (1 + np.exp(-shrunk.score(lists(x)).to_numpy()))).mean() == pytest.approx(0.9)
    for wrong in (-0.1, 1.1):
        with pytest.raises(InputError, match=r"labels in \[0, 1\]"):
            odds.fit(Labels(hard, np.array([1.0, 1, 1, 0, 0, 0, 0, wrong])), loss="binary")


# -- what each says of itself -----------------------------------------------------------------------------------------


def test_vector_reads_directions_of_norm_one(fitted: dict[str, Any]) -> None:
    data = vectors(200)
    both = fitted["vector"].score(data.rows)
    assert both.dtype == pl.Array(pl.Float64, 2)
    np.testing.assert_allclose(both.to_numpy()[1:], data.value[1:], atol=0.3)
    double = lists(np.tile([6.0, 8.0], (200, 1)), "weights")
    along = fitted["vector"].score(data.rows, condition=double).to_numpy()
    np.testing.assert_allclose(along, both.to_numpy() @ [0.6, 0.8], atol=1e-9)
    with pytest.raises(InputError, match="zeros"):
        unit(np.zeros((1, 2)))
    with pytest.raises(InputError, match="shape"):
        VectorReward(heads=3).fit(data)
    with pytest.raises(InputError, match="labels only"):
        VectorReward().fit(feature_pairs(8, [1.0]))


def test_mixture_finds_both_tastes_and_routes_a_user(fitted: dict[str, Any]) -> None:
    model, pairs = fitted["mixture"], conditioned(200, seed=1)
    heads = model.score(pairs.chosen).to_numpy()
    assert heads.shape == (200, 2)
    group = pairs.condition["features"].list.get(0).to_numpy() > 0
    routed = model.route(pairs.take(np.arange(200)), group)
    weights = dict(zip(routed["by"].to_list(), routed["weights"].to_list(), strict=True))
    assert weights[True] != weights[False]
    assert sum(weights[True]) == pytest.approx(1.0)
    assert model.route(pairs, group, eta=0.0)["weights"].to_list() == [[0.5, 0.5]] * 2
    unseen = pairs.rejected.with_columns(features=pl.when(pl.Series(group)).then("features"))
    some = model.route(Preferences(pairs.chosen, unseen), group)["weights"].to_list()
    assert some == [[0.5, 0.5], pytest.approx(weights[True])], "of pairs with a missing side nothing is known"
    given = pl.DataFrame({"weights": [weights[bool(each)] for each in group]})
    sure = model.score(pairs.chosen, reference=pairs.rejected, condition=given).to_numpy()
    assert (sure > 0.5).mean() > 0.95
    part = model.score(pairs.chosen, reference=unseen, condition=given)
    assert part.is_null().to_list() == (~group).tolist()
    assert hedge(np.array([[2.0, -2.0]]), eta=0.0) == pytest.approx([0.5, 0.5])


def test_the_pairwise_judge_in_both_orders(fitted: dict[str, Any]) -> None:
    model, pairs = fitted["pairwise"], text_pairs(20, seed=2)
    first, second = model.orders(pairs.chosen, pairs.rejected)
    together = model.score(pairs.chosen, reference=pairs.rejected)
    np.testing.assert_allclose(together.to_numpy(), (first.to_numpy() + 1 - second.to_numpy()) / 2)
    swapped = model.score(pairs.rejected, reference=pairs.chosen)
    np.testing.assert_allclose((together + swapped).to_numpy(), 1.0, atol=1e-5)
    assert (first + second - 1).abs().mean() < 0.2


def test_the_implicit_reward_is_zero_before_it_learns_and_its_loss_is_dpos(fitted: dict[str, Any]) -> None:
    from palaestra.learning.reward_models.losses import bradley_terry_loss
    from palaestra.learning.terms import MicroBatch, dpo

    model, pairs = fitted["implicit"], text_pairs(6, seed=4)
    rows = pl.concat([pairs.chosen, pairs.rejected])
    inputs = model.encode(rows, None, None)
    frame = pl.DataFrame({"prompt_ids": [a for a, _ in inputs.data], "action_ids": [b for _, b in inputs.data]})
    with torch.no_grad():
        now, start = model.policy.score(frame), model.before.score(frame)
        found = torch.tensor(model.score(rows).to_numpy()).float()
    columns = {"pair": [*range(6)] * 2, "chosen": [True] * 6 + [False] * 6}
    piece = MicroBatch.of(now.logprobs, mask=now.mask, reference=start.logprobs, columns=columns)
    assert float(bradley_terry_loss(found[:6], found[6:])) == pytest.approx(float(dpo(1.0)(piece)), abs=1e-4)
    before = type(model)(model.before)
    assert before.score(rows).to_list() == pytest.approx([0.0] * 12, abs=1e-6)


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("head(layers=0)", "layers=0"),
        ("head(activation='silou')", "silu"),
        ("sequence(template='{answer}')", "answer"),
        ("vector(heads=1)", "head"),
        ("implicit(beta=0)", "beta"),
        ("mixture(heads=0)", "heads=0"),
        ("hed()", "did you mean 'head'"),
    ],
)
def test_options_that_cannot_be(call: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        REWARD_MODELS.build(call)


def test_what_does_not_go_together_is_said(tmp_path: Path) -> None:
    pairs = feature_pairs(8, [1.0])
    with pytest.raises(InputError, match="learned nothing"):
        HeadReward().score(pairs.chosen)
    with pytest.raises(InputError, match="listnet"):
        HeadReward().fit(labelled(pairs), loss="listnett")
    with pytest.raises(InputError, match="reference is needed"):
        ReferenceReward().fit(pairs)
    for field, what in (("reference", "a reference"), ("criterion", "a condition")):
        with pytest.raises(InputError, match=rf"its template has {{{field}}}: {what} is needed"):
            SequenceReward(template=f"{{response}} {{{field}}}").fit(text_pairs(8))
    with pytest.raises(InputError, match=r"\[0, 1\]"):
        HeadReward().fit(Labels(pairs.chosen, np.arange(8.0)), loss="binary")
    with pytest.raises(InputError, match="no margin"):
        MixtureReward().fit(Preferences(pairs.chosen, pairs.rejected, margin=np.ones(8)))
    model = HeadReward()
    model.fit(pairs)
    with pytest.raises(InputError, match="numbers, it was fitted to 1"):
        model.score(lists(np.ones((2, 3))))
    with pytest.raises(InputError, match="one length"):
        model.score(pl.DataFrame({"features": [[1.0], [1.0, 2.0]]}))
    (tmp_path / "palaestra.json").write_text(json.dumps({"kind": "lm", "options": {}}))
    with pytest.raises(InputError, match="'lm', no reward model"):
        SCORERS.build(f"reward_model({str(tmp_path)!r})")
    with pytest.raises(InputError, match="cannot load"):
        SCORERS.build(f"reward_model({str(tmp_path / 'nothing')!r})")


@pytest.mark.parametrize(
    ("loss", "options", "moves"), [("bt", {}, False), ("bt", {"centre": 0.1}, True), ("ranknet", {}, False),
                                   ("regression", {}, True)],
)  # fmt: skip
def test_the_offset_moves_only_where_the_loss_depends_on_it(loss: str, options: dict[str, Any], moves: bool) -> None:
    """Its gradient is rounding in losses of differences, which Adam would scale up to whole steps."""
    pairs, made = feature_pairs(40, [1.0, -1.0]), HeadReward(layers=1)
    data = pairs if loss == "bt" else labelled(pairs)
    made.prepare(data, 0)
    before = made.offset().detach().clone()
    made.fit(data, loss=loss, epochs=1, **options)
    assert bool((made.offset() != before).any()) is moves
    assert made.offset().requires_grad


def test_a_person_is_routed_by_a_file_of_pairs(tmp_path: Path) -> None:
    one, other = np.array([[1.0, 0.0]] * 9), np.array([[0.0, 0.0]] * 9)
    model = MixtureReward("x", heads=2)
    model.fit(Preferences(lists_of(one), lists_of(other)), epochs=1)
    assert model.module is not None
    model.module.mean.zero_()
    model.module.spread.fill_(1.0)
    model.module.rewards.weight.data = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])  # two opposite tastes
    model.save(tmp_path / "rm")
    pl.DataFrame({"chosen_x": one.tolist(), "rejected_x": other.tolist()}).write_parquet(tmp_path / "mine.parquet")
    mine = SCORERS.build(f'routed("{tmp_path}/rm", "{tmp_path}/mine.parquet", features="x")')
    found = mine.score(lists_of(np.array([[1.0, 0.0], [0.0, 0.0]])))
    assert found[0] > found[1]
    better = mine.score(lists_of(one[:1]), reference=lists_of(other[:1]))
    assert 0.5 < better[0] < 1
    pl.DataFrame({"x": one.tolist(), "y": [1.0] * 9}).write_parquet(tmp_path / "labels.parquet")
    with pytest.raises(InputError, match="chosen_x"):
        SCORERS.build(f'routed("{tmp_path}/rm", "{tmp_path}/labels.parquet", features="x")')


def lists_of(x: np.ndarray) -> pl.DataFrame:
    return pl.DataFrame({"x": pl.Series(x.tolist(), dtype=pl.List(pl.Float64))})
