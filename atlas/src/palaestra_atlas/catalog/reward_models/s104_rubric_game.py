"""[104] The adversarial rubric (arXiv 2508.21476): planted flaws teach a judge what it misses, labels what it imagines.

Flaws are marks 0 to 10; mark 11 is in 30 % of the good answers and means nothing. The judge begins with rules for 0, 1,
2 and 11. Players are rules, not language models. Left out: the other path, debate and a reward model from its pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.envs.worlds.stories import told
from palaestra.judges.rubric_game import Planted, RubricGame
from palaestra.learning.stages.rubric_game import rubric_game
from palaestra_atlas.catalog.reward_models.made import stage_context
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

START = (0, 1, 2, 11)
ARMS: dict[str, Any] = {
    name: {
        "env": {"make": "native/stories"}, "reward": 'col("verdict")', "train": {"iterations": 60},
        "stages": [f"rubric_game(rules={list(START)}, {options})"],
    }
    for name, options in {"game": "rounds=1", "start": "rounds=0"}.items()
}  # fmt: skip


def accuracy(seed: int, checked: int, rounds: int = 5) -> float:
    """On 400 new answers, after so many rounds."""
    rng = np.random.default_rng(seed)
    data = [(frozenset(marks), all(mark > 10 for mark in marks)) for marks in told(600, 11, rng)]
    game = RubricGame(Planted(), data[:200], START, checked=checked, most=12)
    game.run(rounds, rng)
    game.labelled = data[200:]
    return float(game.accuracy(rng) or 0.0)


def played(seed: int, rounds: int, checked: int, most: int = 12) -> RubricGame:
    """A game after so many rounds."""
    rng = np.random.default_rng(seed)
    data = [(frozenset(marks), all(mark > 10 for mark in marks)) for marks in told(200, 11, rng)]
    game = RubricGame(Planted(), data, START, checked=checked, most=most)
    game.run(rounds, rng)
    return game


@exact
def missed_flaws_become_rules() -> None:
    """Adversarial play alone finds every flaw in the end, and never drops the rule that condemns good answers."""
    game = played(104, 12, 0)
    assert set(game.judge) == {*range(11), 11}, game.judge


@exact
def writer_learns() -> None:
    """The writer avoids what was caught and plants what is missed, so the judge soon knows all flaws."""
    game = played(104, 2, 0)
    assert set(game.hide) <= set(game.judge), game.hide
    assert game.hide, game.history
    rounds = [next((at for at in range(1, 13) if len(played(seed, at, 0).judge) == 12), 13) for seed in range(8)]
    assert np.mean(rounds) < 5.5, rounds


@exact
def reflection_drops() -> None:
    """Labelled answers drop the rule that condemns good ones; with a cap, rules that are not needed make room."""
    game = played(104, 12, 4)
    assert 11 not in game.judge, game.judge
    small = played(104, 12, 4, most=5)
    assert len(small.judge) <= 5, small.judge


@exact
def paid_by_verdicts() -> None:
    """The stage pays 1 for an answer in which no rule finds a flaw, and 0 else."""
    stage = rubric_game(rules=[0, 1, 11], rounds=0)
    turns = Turns({"marks": [[], [0, 5], [5], [11]], "good": [True, False, False, True]})
    assert stage(turns, stage_context())["verdict"].to_list() == [1.0, 0.0, 1.0, 0.0]


@reproduction(
    104,
    claim="Adversarial play finds the flaws that a rubric misses, and cannot drop a rule that condemns good answers, "
    "for it has none; labels and reflection can. A policy paid by such verdicts tells better stories.",
    baseline="the rubric of the start; adversarial play without labels",
    criterion="accuracy on new answers of 20 games a seed: start + .1 < adversarial, adversarial + .05 < with "
    "reflection, which is > .97; the policy is good .1 more often than with the first rubric, last ten iterations",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Games, then training by their verdicts."""
    games = [20 * seed + number for seed in seeds for number in range(20)]
    measured = {
        "start": float(np.mean([accuracy(seed, 0, rounds=0) for seed in games])),
        "adversarial": float(np.mean([accuracy(seed, 0) for seed in games])),
        "reflected": float(np.mean([accuracy(seed, 4) for seed in games])),
    }
    arms = train_arms("world", ARMS, seeds, lambda learned: {"good": float(np.mean(learned.curve()[-10:]))})
    gain, _ = arms.gain("game", "start", "good")
    holds = (
        measured["start"] + 0.1 < measured["adversarial"]
        and measured["adversarial"] + 0.05 < measured["reflected"]
        and measured["reflected"] > 0.97
        and gain >= 0.1
    )
    return Outcome(measured | {f"{name}_policy": arms.mean(name, "good") for name in ARMS}, bool(holds))
