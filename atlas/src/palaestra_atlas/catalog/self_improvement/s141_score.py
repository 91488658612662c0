"""[141] SCoRe (arXiv 2409.12917): first the second attempt learns while the first is held, then both, paid for repair.

Items of training can be learned by heart in the first look. Whoever is right the first time has nothing to learn from a
second look but to repeat itself, which on new items is wrong. Left out: language models, mathematics and code; the
hyper-parameters of the paper, which are from memory of its appendix.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.credit import self_correction
from palaestra.envs.worlds import SecondLook
from palaestra.runs.inline import learn
from palaestra_atlas.reproductions import exact

ATTEMPTS = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
"""Both attempts of four episodes, the four cases of a correction."""


def made(iterations: int = 80, groups: int = 128) -> dict[str, Any]:
    """The recipe: two-turn RL, and over it the two phases of SCoRe, each half of the iterations."""
    return {
        "name": "score",
        "env": {"make": "native/second_look"},
        "policies": {"student": {"kind": "mlp", "options": {"hidden": []}}},
        "team": {"student": "student"},
        "credit": "self_correction(alpha=0)",
        "learn": {"lr": 0.05, "terms": "surrogate(), kl(.01)"},
        "phases": [
            {
                "name": "pin",
                "until": iterations // 2,
                "stages": "weights(\"1.0 * (col('look') < 1)\")",
                "credit": "self_correction(alpha=0, first=False)",
                "learn": {"terms": "surrogate(), pinned(1.0)"},
            },
            {"name": "improve", "credit": "self_correction(alpha=10)"},
        ],
        "train": {
            "iterations": iterations, "groups": groups, "group_size": 1, "evaluate_every": iterations,
            "checkpoint_every": iterations, "save_turns": "all",
        },
        "evaluation": {"tasks": 1000, "trials": 1, "look_tasks": 20, "look_trials": 1},
    }  # fmt: skip


def recipe(seed: int, folder: Path) -> None:
    """Writes `score.yaml`."""
    (folder / "score.yaml").write_text(json.dumps(made()))


def attempts() -> Turns:
    """The four cases as a table."""
    return Turns(
        {
            "iteration": [1] * 8, "group": [0, 0, 1, 1, 2, 2, 3, 3], "episode": [0, 0, 1, 1, 2, 2, 3, 3],
            "turn": [0, 1] * 4, "look": [0, 1] * 4, "right": ATTEMPTS.ravel(),
        }
    )  # fmt: skip


def paid(**options: Any) -> np.ndarray:
    """Credit of both attempts, float64[episodes, 2]."""
    return np.asarray(self_correction(**options).evaluate(attempts()), float).reshape(4, 2)


@exact
def the_second_attempt_is_paid_for_the_change() -> None:
    """With α = 10, (0, 1), (1, 0), (1, 1) and (0, 0) pay the second attempt 11, -10, 1 and 0, less their mean."""
    second = np.array([11.0, -10.0, 1.0, 0.0])
    np.testing.assert_allclose(paid()[:, 1], second - second.mean(), atol=1e-12)


@exact
def the_first_attempt_is_paid_its_own_reward() -> None:
    """A first attempt that fails on purpose earns less than one that is right, whatever comes after it."""
    np.testing.assert_allclose(paid()[:, 0], ATTEMPTS[:, 0] - 0.5, atol=1e-12)


@exact
def in_the_first_phase_the_second_attempt_alone_is_paid() -> None:
    """Its own reward less the mean; first attempts have no credit at all."""
    found = paid(alpha=0.0, first=False)
    assert np.isnan(found[:, 0]).all()
    np.testing.assert_allclose(found[:, 1], ATTEMPTS[:, 1] - 0.5, atol=1e-12)


@exact
def the_first_attempt_is_held_in_the_first_phase() -> None:
    """Both attempts have weights in common, so the first one moves as well; the pin holds it near its start."""
    found = learn(made(iterations=16, groups=64), seed=3)
    assert [line["phase"] for line in found.lines] == ["pin"] * 8 + ["improve"] * 8
    held = found.curve("policies.student.pinned_kl")
    assert held[0] == 0.0
    assert 0 < held[7] < 0.01, held
    assert np.isnan(held[8])


@exact
def the_second_look_shows_the_first_answer() -> None:
    """The answer and a fresh sign are in view, the item is not."""
    env = SecondLook(items=5, classes=6)
    env.reset(0)
    for answer in (2, 4):
        env.reset(answer)
        seen = env.step({"student": answer}).observations["student"].array
        assert seen is not None
        assert not seen[:5].any()
        np.testing.assert_array_equal(np.flatnonzero(seen[5:11]), [answer])
        assert seen[11:17].sum() == seen[17] == 1


@exact
def known_items_have_one_answer_and_new_ones_any() -> None:
    """What can be memorised in training is of no use on the held-out split."""
    labels: dict[str, set[int]] = {}
    for seed in range(60):
        env = SecondLook(items=3)
        env.reset(seed)
        labels.setdefault(env.task, set()).add(env.state.label)
    assert sorted(labels) == ["item 0", "item 1", "item 2"]
    assert all(len(each) == 1 for each in labels.values())
    new = SecondLook(items=3, split="test")
    assert not new.reset(0)["student"].array[:3].any()  # type: ignore[index]
