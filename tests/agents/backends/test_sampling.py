from __future__ import annotations

import numpy as np
import pytest
import torch

from palaestra.agents.backends.head import Head
from palaestra.agents.backends.sampling import chunks, distinct, sample


class Fixed:
    """A model whose logits depend on the last token only; counts the rows that it is asked about."""

    device, head, joins = torch.device("cpu"), Head(None), False

    def __init__(self, table: np.ndarray) -> None:
        self.table = torch.tensor(table, dtype=torch.float32)
        self.rows: list[int] = []

    def read(self, prompts, rows, room):
        self.width = len(rows)
        self.rows.append(len(rows))
        return self.table[[int(prompts[i][-1]) for i in rows]][:, None], self

    def extend(self, state, ids):
        assert len(ids) == self.width, "rows that were dropped are still fed, or the other way round"
        self.rows.append(len(ids))
        return self.table[ids[:, 0]][:, None]

    def keep(self, rows):
        self.width = len(rows)


def draw(model, prompts, uniforms, **options):
    settings = {"ends": np.array([0]), "temperature": 1.0, "batch_size": 10_000} | options
    return sample(model, [np.array([p], np.int32) for p in prompts], np.asarray(uniforms, np.float64), **settings)


def test_evenly_spread_uniforms_give_exactly_the_probabilities() -> None:
    p = np.array([0.125, 0.5, 0.0, 0.25, 0.125])
    with np.errstate(divide="ignore"):
        model = Fixed(np.log(np.maximum(np.tile(p, (5, 1)), 1e-30)))
    uniforms = (np.arange(8000) + 0.5)[:, None] / 8000
    ids, logprobs, entropies = draw(model, [1] * 8000, uniforms)
    assert np.bincount(ids[:, 0], minlength=5).tolist() == [1000, 4000, 0, 2000, 1000]
    np.testing.assert_allclose(np.exp(logprobs[:, 0]), p[ids[:, 0]], rtol=1e-6)
    np.testing.assert_allclose(entropies, -(p[p > 0] * np.log(p[p > 0])).sum(), rtol=1e-6)


def test_the_ends_of_the_unit_interval_never_hit_an_impossible_token() -> None:
    model = Fixed(np.array([[-200.0, 0.0, 0.0, -200.0]] * 4))
    ids, _, _ = draw(model, [1, 1], [[0.0], [np.nextafter(1, 0)]])
    assert ids[:, 0].tolist() == [1, 2]


def test_temperature_is_part_of_the_distribution_that_is_reported() -> None:
    logits = np.array([0.0, 1.0, 2.0])
    _, logprobs, entropies = draw(Fixed(np.tile(logits, (3, 1))), [1], [[0.999]], temperature=0.5)
    p = np.exp(logits / 0.5) / np.exp(logits / 0.5).sum()
    np.testing.assert_allclose(logprobs[0, 0], np.log(p[2]), rtol=1e-6)
    np.testing.assert_allclose(entropies[0, 0], -(p * np.log(p)).sum(), rtol=1e-6)


def test_finished_rows_leave_the_batch_and_change_nothing_for_the_others() -> None:
    rng = np.random.default_rng(0)
    table, uniforms = rng.normal(size=(6, 6)), rng.random((40, 12))
    prompts = rng.integers(1, 6, 40)
    model = Fixed(table)
    ids, logprobs, entropies = draw(model, prompts, uniforms)
    assert model.rows[0] == 40
    assert model.rows[-1] < 20, "finished rows were computed to the end"
    for row in range(40):
        alone, logp, entropy = draw(Fixed(table), prompts[row : row + 1], uniforms[row : row + 1])
        n = int(np.argmax(alone[0] == 0)) + 1 if (alone[0] == 0).any() else 12
        assert ids[row, :n].tolist() == alone[0, :n].tolist()
        np.testing.assert_allclose(logprobs[row, :n], logp[0, :n], rtol=1e-6)
        np.testing.assert_allclose(entropies[row, :n], entropy[0, :n], rtol=1e-6)


def test_sampling_stops_when_all_have_ended() -> None:
    model = Fixed(np.array([[50.0, 0.0]] * 2))
    draw(model, [1, 1, 1], np.full((3, 100), 0.5))
    assert model.rows == [3]


@pytest.mark.parametrize("size", [1, 3, 7])
def test_chunks_are_sorted_by_length_and_lose_nothing(size: int) -> None:
    lengths = [5, 1, 4, 4, 2, 9, 1]
    parts = chunks([np.zeros(n) for n in lengths], size)
    assert max(map(len, parts)) == size
    order = np.concatenate(parts)
    assert sorted(order.tolist()) == list(range(7))
    assert [lengths[i] for i in order] == sorted(lengths)


def test_equal_prompts_are_read_once() -> None:
    prompts = [np.array(p, np.int32) for p in ([1, 2], [3], [1, 2], [4, 5, 6], [3])]
    unique, rows = distinct(prompts)
    assert [p.tolist() for p in unique] == [[3], [1, 2], [4, 5, 6]]
    assert [unique[i].tolist() for i in rows] == [p.tolist() for p in prompts]


class Joining(Fixed):
    """The same, and rows may join."""

    joins = True

    def read(self, prompts, rows, room):
        self.rows.append(len(rows))
        return self.table[[int(prompts[i][-1]) for i in rows]][:, None], Joined(self, len(rows))

    def extend(self, state, ids):
        assert len(ids) == state.width
        self.rows.append(-len(ids))
        return self.table[ids[:, 0]][:, None]


class Joined:
    joins = True

    def __init__(self, model, width):
        self.model, self.width = model, width

    def keep(self, rows):
        self.width = len(rows)

    def join(self, other):
        self.width += other.width


@pytest.mark.parametrize("size", [1, 4, 8])
def test_rows_that_wait_take_the_places_of_those_that_ended(size: int) -> None:
    rng = np.random.default_rng(0)
    table, uniforms = rng.normal(size=(6, 6)), rng.random((60, 12))
    prompts = rng.integers(1, 6, 60)
    expected = draw(Fixed(table), prompts, uniforms)
    model = Joining(table)
    found = draw(model, prompts, uniforms, batch_size=size)
    lengths = [next((n + 1 for n, token in enumerate(row) if token == 0), 12) for row in expected[0]]
    for one, other in zip(found, expected, strict=True):
        for row, length in enumerate(lengths):
            np.testing.assert_allclose(one[row, :length], other[row, :length], rtol=1e-6)
    extended = [-rows for rows in model.rows if rows < 0]
    assert max(extended, default=1) <= size
    needed = sum(length - 1 for length in lengths) / size
    assert len(extended) <= 1.5 * needed + 12, "the batch is not kept full"


def test_an_answer_that_is_cut_off_leaves_at_once_although_others_go_on() -> None:
    """What a row would draw beyond its last token must not overwrite it."""
    table = np.full((5, 5), -50.0)
    table[4, 0] = table[1, 2] = table[2, 3] = table[3, 1] = 50.0  # 4 ends at once, the others never
    ids, _, _ = draw(Joining(table), [4] * 4 + [1] * 9, np.full((13, 4), 0.5), batch_size=5)
    assert ids[:4, 0].tolist() == [0] * 4
    assert ids[4:].tolist() == [[2, 3, 1, 2]] * 9
