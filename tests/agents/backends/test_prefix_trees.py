"""Rows that begin with the same tokens: packed as trees, they have the values and gradients that they have apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agents.backends.test_forward import GROUPED, make

from palaestra.agents import LMPolicy
from palaestra.agents.backends import forward, llama, modules, prefix_trees, sampling
from palaestra.agents.backends.interleaved import evaluate_interleaved, trees_of
from palaestra.agents.backends.llama import Llama
from palaestra.agents.backends.modules import Generic, Once
from palaestra.agents.backends.prefix_trees import ancestors, bins, grow, pack, unshared
from palaestra.agents.backends.sampling import evaluate

Row = tuple[np.ndarray, np.ndarray]


@st.composite
def branches(draw: Callable[[Any], Any]) -> list[Row]:
    """Prompts and actions that branch off each other: each continues some of the tokens of one before it."""
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    rows: list[Row] = []
    for _ in range(draw(st.integers(2, 8))):
        new = rng.integers(0, 40, rng.integers(2, 9))
        if rows and rng.random() < 0.85:
            before = np.concatenate(rows[rng.integers(len(rows))])
            new = np.concatenate([before[: rng.integers(len(before) + 1)], new])[:30]
        cut = rng.integers(1, len(new))
        rows.append((new[:cut], new[cut:]))
    return rows


@given(branches(), st.sampled_from([1, 8, 10**6]), st.sampled_from([1, 12, 10**4]))
@settings(max_examples=60)
def test_every_token_attends_to_its_row_and_nothing_else(rows: list[Row], width: int, limit: int) -> None:
    sequences = [np.concatenate(row) for row in rows]
    trees = grow(sequences, width, limit)
    assert sorted(int(row) for tree in trees for row in tree.rows) == list(range(len(rows)))
    assert all(tree.tokens <= limit for tree in trees if len(tree.rows) > 1)
    forest = pack(sequences, trees, bins(trees))
    for tree in trees:
        prefixes = {tuple(sequences[row][: n + 1]) for row in tree.rows for n in range(len(sequences[row]))}
        assert tree.tokens == len(prefixes)
    assert forest.tokens == sum(tree.tokens for tree in trees)
    arrays = [torch.from_numpy(each) for each in (forest.first, forest.end, forest.positions)]
    seen, packed = ancestors(*arrays).numpy(), forest.ids.shape[1]
    for sequence, places in zip(sequences, forest.places, strict=True):
        mine = places[: len(sequence)]
        assert forest.ids.ravel()[mine].tolist() == sequence.tolist()
        assert forest.positions.ravel()[mine].tolist() == list(range(len(sequence)))
        for position, place in enumerate(mine):
            assert place // packed == mine[0] // packed
            assert (
                np.flatnonzero(seen[place // packed, place % packed]).tolist()
                == (mine[: position + 1] % packed).tolist()
            )
    assert seen.any(2).all()  # padding attends to something


def test_worked_example() -> None:
    sequences = [np.array(ids) for ids in ([1, 2, 3, 4, 5], [1, 2, 7], [1, 2, 3, 8, 9], [6])]
    trees = grow(sequences, 10**6)
    assert [tree.rows.tolist() for tree in trees] == [[0, 2, 1], [3]]
    assert trees[0].common.tolist() == [0, 3, 2]
    forest = pack(sequences, trees, bins(trees))
    assert forest.ids.tolist() == [[1, 2, 3, 4, 5, 8, 9, 7], [6, 0, 0, 0, 0, 0, 0, 0]]
    assert forest.positions[0].tolist() == [0, 1, 2, 3, 4, 3, 4, 2]
    assert forest.places[2].tolist() == [0, 1, 2, 5, 6]


def slopes(model: Any, way: forward.Forward, rows: list[Row], **options: Any) -> tuple[Any, torch.Tensor]:
    """Scores, and the gradient of a weighted sum of all that learning reads of them."""
    model.zero_grad()
    prompts, actions = map(list, zip(*rows, strict=True))
    scored = evaluate(way, prompts, actions, temperature=0.7, **options)
    source = torch.Generator().manual_seed(0)
    weights = torch.randn(scored.logprobs.shape, generator=source)
    length = scored.mask.sum(1)
    ratio = (scored.logprobs.sum(1) / length / 10).exp()  # of a sequence
    units = scored.units
    assert units is not None
    loss = (scored.logprobs * weights).sum() + (scored.entropies * weights).sum() + ratio.square().sum()
    loss = loss + (scored.logits.softmax(-1)[..., 0] * scored.mask * weights).sum()
    loss = loss + (units.mean(-1) * scored.mask * weights).sum()
    loss.backward()
    gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    return scored, gradient


MODELS = {kind: make(kind) for kind in ("qwen3", "gpt2", "grouped")}
WAYS = [("qwen3", Llama), ("grouped", Llama), ("gpt2", Generic), ("qwen3", Generic)]


def apart(one: torch.Tensor, other: torch.Tensor) -> float:
    return float(((one - other).norm() / other.norm()).detach())


@pytest.mark.parametrize(("kind", "way"), WAYS)
def test_values_and_gradients_are_those_of_rows_apart(kind: str, way: type, monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS[kind]
    one = way(model)
    monkeypatch.setattr(prefix_trees, "PER_WIDTH", 10**6)  # a model of this size would rather read again
    trees = []

    @given(branches(), st.booleans())
    @settings(max_examples=15)
    def check(rows: list[Row], chunked: bool) -> None:
        with pytest.MonkeyPatch.context() as patched:
            if chunked:
                patched.setattr("palaestra.agents.backends.head.CHUNK", 80)
            shared, first = slopes(model, one, rows)
            with unshared():
                alone, second = slopes(model, one, rows)
        assert alone.read is None
        trees.append(shared.read is not None)
        torch.testing.assert_close(shared.logprobs, alone.logprobs, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(shared.entropies, alone.entropies, rtol=1e-5, atol=1e-5)
        assert apart(first, second) < 2e-6

    check()
    assert sum(trees) > len(trees) / 4


FAN = [(np.arange(1, 20), np.array([20 + each, each, 7])) for each in range(5)]
"""Five branches of one history."""


@pytest.mark.parametrize("way", [Llama, Generic, lambda model: Llama(model, checkpoints=True),
                                 lambda model: Generic(model, checkpoints=True)])  # fmt: skip
def test_a_tree_is_read_once(way: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model, rows = MODELS["qwen3"], [*FAN[1:], (FAN[0][0][:4], np.array([9, 9]))]
    one = way(model)
    with unshared():
        _, expected = slopes(model, one, rows)
    monkeypatch.setattr(prefix_trees, "PER_WIDTH", 10**6)
    scored, found = slopes(model, one, rows)
    assert scored.read == 19 + 4 * 2 + 1
    assert apart(found, expected) < 2e-6


@pytest.mark.parametrize("way", [Llama, Generic])
@pytest.mark.parametrize("fault", ["siblings are seen", "ancestors are cut", "positions go on", "all rows are seen"])
def test_a_wrong_mask_or_position_would_be_noticed(way: type, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, rows = MODELS["qwen3"], [*FAN, (FAN[0][0][:4], np.array([9, 9]))]
    one = way(model)
    assert one.shares
    with unshared():
        alone, expected = slopes(model, one, rows)
    monkeypatch.setattr(prefix_trees, "PER_WIDTH", 10**6)
    own = prefix_trees.ancestors
    place: Any = prefix_trees.plant

    def seen(first: torch.Tensor, end: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        right = own(first, end, positions)
        if fault == "siblings are seen":
            return torch.ones_like(right).tril()
        return right & (positions[:, None] > 0) | torch.eye(right.shape[1], dtype=torch.bool)

    def plant(*args: Any) -> Any:
        forest = place(*args)
        if fault == "positions go on":
            return forest._replace(positions=np.arange(forest.ids.size).reshape(forest.ids.shape))
        return forest._replace(first=np.zeros_like(forest.first), end=np.full_like(forest.end, 99))

    if fault in ("siblings are seen", "ancestors are cut"):
        monkeypatch.setattr(prefix_trees, "ancestors", seen)
    else:
        monkeypatch.setattr(sampling, "plant", plant)
    scored, found = slopes(model, one, rows)
    assert scored.read is not None
    assert apart(scored.logprobs, alone.logprobs) > 1e-3
    assert apart(found, expected) > 1e-3


def test_context_between_answers_is_part_of_the_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Llama(MODELS["qwen3"])
    said, shown = np.array([11, 12, 13, 14]), np.array([21, 22, 23])
    talks = (
        [np.array([1, 2])] * 4,
        [said, said, np.array([11, 12, 15]), said[:1]],
        [shown, shown[:1], shown, shown[:0]],
        [np.array([2, 2, 2]), np.array([1]), np.array([1, 2, 2]), shown[:0]],
    )
    with torch.no_grad():
        with unshared():
            expected = evaluate_interleaved(one, *talks, temperature=1.0, top_p=0.9)
        monkeypatch.setattr(prefix_trees, "PER_WIDTH", 10**6)
        found = evaluate_interleaved(one, *talks, temperature=1.0, top_p=0.9)
    assert found.read is not None
    torch.testing.assert_close(found.logprobs, expected.logprobs)
    torch.testing.assert_close(found.entropies, expected.entropies)


NEO = transformers.GPTNeoConfig(vocab_size=40, hidden_size=32, num_layers=2, num_heads=4, window_size=8,
                                attention_types=[[["global", "local"], 1]])  # fmt: skip
MAMBA = transformers.MambaConfig(vocab_size=40, hidden_size=32, num_hidden_layers=2, state_size=4)


def test_models_that_cannot_read_trees_read_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_trees, "PER_WIDTH", 10**6)
    for kind in ("llama", "gpt2", "granite", "cohere", "qwen2", "qwen3+body"):
        assert Generic(make(kind)).shares, kind
    assert not any(Generic(make(kind)).shares for kind in ("window", "gemma2"))
    assert not Once(make("llama")).shares
    for config in (NEO, MAMBA, transformers.BloomConfig(vocab_size=40, hidden_size=32, n_layer=2, n_head=4)):
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
        assert not Generic(model).shares, config
    window = Generic(make("window"))
    assert evaluate(window, *map(list, zip(*FAN, strict=True)), temperature=1.0).read is None


def test_a_model_that_ignores_the_mask_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    model = transformers.AutoModelForCausalLM.from_config(transformers.LlamaConfig(**GROUPED)).eval()
    own = model.forward
    monkeypatch.setattr(model, "forward", lambda attention_mask=None, **rest: own(**rest))
    one = Generic(model)
    one.accepted |= {"position_ids", "past_key_values", "logits_to_keep"}
    assert one.plain
    assert not one.shares


def test_trees_only_where_they_pay_and_never_above_the_limit() -> None:
    rng = np.random.default_rng(0)
    history = rng.integers(0, 99, 500)
    fan = [np.concatenate([history, rng.integers(0, 99, 30)]) for _ in range(8)]
    assert [len(tree.rows) for tree in grow(fan, 256)] == [8]
    assert [len(tree.rows) for tree in grow(fan, 256, 600)] == [3, 3, 2]
    system = [np.concatenate([history[:20], rng.integers(0, 99, 500)]) for _ in range(8)]
    assert len(grow(system, 256)) == 8  # the mask would cost more than the 20 tokens
    assert len(grow([history] * 200, 256, 1000)) > 1  # not too many rows for the scores of one piece
    assert prefix_trees.plant(system, 256, 10**12) is None


def test_two_rows_may_share_a_tree_and_one_cannot() -> None:
    forward = LMPolicy.tiny(hidden=16, layers=1, heads=2).forward
    rows = pl.DataFrame({"prompt_ids": [[1, 2, 3, 4, 5, 6, 7, 8]] * 2, "action_ids": [[3, 4, 5], [3, 4, 6]]})
    trees = trees_of(forward, rows, 100)
    assert trees is not None
    assert [tree.tokens for tree in trees] == [10]
    assert trees_of(forward, rows[:1], 100) is None


def test_sequences_of_one_call_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mask is made for so many sequences as have the scores of one of the largest trees."""
    monkeypatch.setattr(prefix_trees, "PER_WIDTH", 10**6)
    monkeypatch.setattr(modules, "MOST", 30)
    monkeypatch.setattr(llama, "BLOCK", 30)
    all_ = [np.concatenate(row) + start for start in (0, 1, 2) for row in FAN]
    rows = [(ids[: 9 + number % 5], ids[9 + number % 5 :]) for number, ids in enumerate(all_)]
    own = prefix_trees.ancestors
    seen: list[int] = []

    def watched(*arrays: torch.Tensor) -> torch.Tensor:
        seen.append(len(arrays[0]))
        return own(*arrays)

    monkeypatch.setattr(prefix_trees, "ancestors", watched)
    for way in (Llama, Generic):
        one = way(MODELS["qwen3"])
        with unshared():
            _, expected = slopes(MODELS["qwen3"], one, rows)
        assert one.shares
        seen.clear()
        scored, found = slopes(MODELS["qwen3"], one, rows)
        assert scored.read == 3 * (19 + 5 * 2)
        assert seen == [1, 1, 1]
        assert apart(found, expected) < 2e-6
