"""Archives: what is near is found, older first among equals."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.errors import InputError
from palaestra.foundation.archive import Archive, Entry


def test_the_nearest_are_those_of_a_plain_loop():
    rng = np.random.default_rng(0)
    vectors, archive = rng.normal(size=(50, 4)), Archive()
    for at, vector in enumerate(vectors):
        archive.add(Entry(str(at), at, owner="ann" if at % 2 else "bob"), vector)
    query = rng.normal(size=4)
    cosine = [float(query @ v / np.linalg.norm(v) / np.linalg.norm(query)) for v in vectors]
    order = sorted(range(50), key=lambda at: -cosine[at])
    assert [entry.content for entry in archive.top(query, 5)] == order[:5]
    odd = [at for at in order if at % 2]
    assert [entry.content for entry in archive.top(query, 3, lambda entry: entry.owner == "ann")] == odd[:3]
    assert len(archive.top(query, 100)) == len(archive) == 50


def test_equal_ones_older_first_and_bad_vectors_are_named():
    archive = Archive()
    assert archive.top([1.0], 3) == []
    for at in range(3):
        archive.add(Entry(str(at), at), [1.0, 1])
    assert [entry.content for entry in archive.top([2.0, 2], 2)] == [0, 1]
    with pytest.raises(InputError, match=r"shape \(3,\), expected 2"):
        archive.add(Entry("x", 0), [1.0, 2, 3])
    with pytest.raises(InputError, match="finite"):
        archive.top([np.nan, 1], 1)
