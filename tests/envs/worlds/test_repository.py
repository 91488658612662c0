"""Repository: a stage on a wrong one is wrong, and what the tests and the models tell of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from palaestra.envs.worlds import Repository


def played(said: tuple[int, int, int], **options: Any) -> list[dict[str, Any]]:
    """Facts of the three stages of an issue; `said` is by how much each answer is beside the right one."""
    env = Repository(**options)
    env.reset(1)
    gold = env.gold[env.state.issue]
    return [dict(env.step({"engineer": int(gold[at] + away) % 2}).info) for at, away in enumerate(said)]


def test_a_stage_on_a_wrong_one_is_wrong_whatever_is_said() -> None:
    told = played((0, 1, 0), noise=0.0, weak=0.0, rank_noise=0.0)
    assert [each["right"] for each in told] == [True, False, False]
    assert [each["process"] for each in told] == [1.0, 0.0, 0.0]
    assert (told[-1]["passes"], told[-1]["outcome"], told[-1]["success"]) == (False, 0.0, False)
    assert played((0, 1, 0), weak=1.0)[-1]["passes"], "weak tests let it pass"
    told = played((0, 0, 0), noise=0.0, weak=0.0, rank_noise=0.0)
    assert (told[-1]["passes"], told[-1]["outcome"], told[-1]["success"]) == (True, 1.0, True)
    assert played((1, 1, 1), trivial=64)[-1]["success"]


def test_each_model_has_its_own_noise() -> None:
    env = Repository(noise=0.5, rank_noise=2.0)
    process, outcome = [], []
    for seed in range(300):
        env.reset(seed)
        told = [env.step({"engineer": 0}).info for _ in range(3)]
        process += [each["process"] - each["right"] for each in told]
        outcome.append(told[-1]["outcome"] - told[-1]["right"])
    np.testing.assert_allclose([np.std(process), np.std(outcome)], [0.5, 2.0], rtol=0.15)
