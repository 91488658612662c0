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
    least = {"buffer": 2, "pairs": 1, "hidden": 1, "epochs": 1, "margin": 0.0}
    assert heron("success", **least).margin == 0  # type: ignore[arg-type]
    for name, value in least.items():
        with pytest.raises(InputError, match=f"{name}="):
            heron("success", **least | {name: value - 1})  # type: ignore[arg-type]


def test_an_episode_without_a_factor_is_missing_at_its_end_only() -> None:
    keys = {"group": [0] * 4, "episode": [0, 0, 1, 1], "turn": [0, 1, 0, 1], "agent": ["a"] * 4}
    paid = heron("success")(Turns({**keys, "success": [1.0, 1.0, None, None]}), context())["heron"].to_numpy()
    np.testing.assert_array_equal(paid, [0, 0, 0, np.nan])
