"""HERON's network: what ranks first decides, whatever the units; it goes on from its episodes."""

from __future__ import annotations

import numpy as np
import pytest
from stage_play import context

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.learning.stages.hierarchy import heron


def episodes(scale: float = 1.0, number: int = 40) -> Turns:
    rng = np.random.default_rng(0)
    keys = {"group": [0] * number, "episode": range(number), "turn": [0] * number, "agent": ["a"] * number}
    success = rng.random(number) < 0.5
    return Turns({**keys, "success": success, "energy": scale * rng.normal(3, 1, number)})


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_what_ranks_first_decides_in_any_unit(scale: float) -> None:
    turns = episodes(scale)
    paid = heron("success", "energy", signs=(1, -1))(turns, context())["heron"].to_numpy()
    good = turns["success"].to_numpy()
    assert (paid[good][:, None] > paid[~good]).mean() > 0.98
    assert (paid.mean(), paid.std()) == pytest.approx((0, 1))


def test_it_resumes_from_its_episodes() -> None:
    stage = heron("success", "energy", signs=(1, -1))
    stage(episodes(), context())
    again = heron("success", "energy", signs=(1, -1))
    again.load_state_dict(stage.state_dict())
    np.testing.assert_array_equal(
        stage(episodes(), context(2))["heron"].to_numpy(), again(episodes(), context(2))["heron"].to_numpy()
    )


def test_nothing_decided_pays_nothing_and_signs_must_fit() -> None:
    turns = episodes().with_column(success=[True] * 40, energy=[1.0] * 40)
    assert heron("success", "energy")(turns, context())["heron"].to_list() == [0.0] * 40
    with pytest.raises(InputError, match="2 factors and 1 signs"):
        heron("success", "energy", signs=(1,))
