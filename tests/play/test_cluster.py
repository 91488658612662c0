"""What the executor `ray` does without Ray; what it does with it is in tests/scale."""

from __future__ import annotations

import io

import polars as pl
import pytest

from palaestra.play.cluster import _opened, _sealed
from palaestra.play.shards import ShardResult, concatenated


def table(rows: int) -> bytes:
    frame = pl.DataFrame(
        {"turn": range(rows), "text": ["é" * n for n in range(rows)], "ids": [[n] for n in range(rows)]}
    )
    stream = io.BytesIO()
    frame.write_ipc_stream(stream)
    return stream.getvalue()


@pytest.mark.parametrize("rows", [0, 1, 7])
def test_an_answer_is_what_it_was_with_all_that_stands_behind_its_table(rows: int) -> None:
    sent = ShardResult(table(rows), None, ("slow", "odd"), 1.5, 3)
    found = _opened(_sealed(sent))
    assert found[1:] == sent[1:]
    assert concatenated([found]).equals(concatenated([sent]))
    assert concatenated([found]).height == rows


def test_an_error_comes_without_a_table() -> None:
    found = _opened(_sealed(ShardResult(b"", ("InputError", "a number"), (), 0.5)))
    assert found[1:] == (("InputError", "a number"), (), 0.5, 1, 0)
