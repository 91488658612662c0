"""[104] The adversarial rubric (arXiv 2508.21476): planted flaws teach a judge what it misses, labels what it imagines.

Flaws are marks 0 to 10; mark 11 is in 30 % of the good answers and means nothing. The judge begins with rules for 0, 1,
2 and 11. In the other path four roles label answers, and pairs of labels fit a reward model: words of the answers are
flaws, merits, or an oddity that the opponent takes for a flaw. Players of both are rules with planted faults, and no
language models: what is shown is what each role is there for, and not how well a model plays it. Left out: creative
writing, and what the published policy learned from either reward.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents.policy import Request
from palaestra.agents.scripted import ScriptedPolicy
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds.stories import told
from palaestra.evaluation.scorers import pair_accuracy
from palaestra.judges.argued import Argued
from palaestra.judges.pairs import all_pairs
from palaestra.judges.rubric_game import Planted, RubricGame
from palaestra.judges.scorers import build
from palaestra.learning.reward_models.trained import fit_reward
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


FLAWS, MERITS = [f"flaw{i}" for i in range(6)], [f"merit{i}" for i in range(4)]
ODD, PLAIN = "odd", ["snow", "year", "friend", "home"]
FENCED = r"(={5} \d{20} ={5})\n(.*?)\n\1"


def answers(seed: int, tasks: int = 60) -> pl.DataFrame:
    """Eight answers to each task, half of them good: merits, no flaw. A third has a word that is odd and harmless."""
    rng = np.random.default_rng([104, seed])
    rows: list[dict[str, object]] = []
    for task in range(tasks):
        for number in range(8):
            good = number % 2 == 0
            words = [*rng.permutation(PLAIN)[:2], *rng.permutation(MERITS)[: 1 + int(rng.integers(2))]]
            words += [] if good else rng.permutation(FLAWS)[: 1 + int(rng.integers(2))].tolist()
            words += [ODD] * int(rng.random() < 1 / 3)
            text = " ".join(map(str, rng.permutation(words)))
            rows.append({"prompt": f"wish number {task}", "response": text, "good": good, "item": len(rows)})
    return pl.DataFrame(rows)


EXAMPLES = pl.DataFrame(
    {"prompt": ["wish number 1", "wish", "bill"], "response": ["merit0 merit1", "merit2 merit3", "sum"]}
)


def player(request: Request) -> str:
    """All four roles by rule.

    The opponent sees every flaw and takes what is odd for one. The advocate knows merits from the examples alone. The
    judge sees two flaws and one merit by itself and believes both lists: it wants a merit and no flaw. The reflector
    knows that what is odd is no flaw; of what is not odd it doubts every third verdict, without a reason.
    """
    text = request.observation.text
    parts = [set(found[1].replace(",", " ").split()) for found in re.findall(FENCED, text, re.DOTALL)]
    if "You are the" in text:
        answer, examples = parts[-1], set().union(*parts[1:-1])
        found = answer & {*MERITS} & examples if "advocate" in text else answer & {*FLAWS, ODD}
        return ", ".join(sorted(found)) or "none"
    if text.startswith("You judge"):
        answer, merits, flaws = parts[-3:]
        bad = sorted((answer & {*FLAWS[:2]}) | (flaws & {*FLAWS, ODD}))
        fine = (answer & {*MERITS[:1]}) | (merits & {*MERITS})
        return f"Flaws: {' '.join(bad)}\nVERDICT: {int(bool(fine) and not bad)}"
    answer, _, flaws, _ = parts[-4:]
    verdict = int(re.findall(r"The verdict is (\d)", text)[0])
    if flaws == {ODD} and not verdict:
        return "REASON: What is odd is no flaw.\nVERDICT: 1"
    return f"Who knows.\nVERDICT: {1 - verdict if len(''.join(sorted(answer))) % 3 == 0 else verdict}"


def silent(request: Request) -> str:
    """A role that has nothing to say: it lists nothing, and overturns nothing."""
    return "none"


def reviewed(seed: int, *without: str, examples: pl.DataFrame | None = EXAMPLES) -> pl.DataFrame:
    """Answers with what the four roles made of them; those `without` are silent."""
    roles = {
        role: ScriptedPolicy(silent if role in without else player, name=role)
        for role in ("advocate", "opponent", "judge", "reflector")
    }
    rows = answers(seed)
    return rows.hstack(Argued(policies=roles, examples=examples).review(rows))


def right_pairs(rows: pl.DataFrame) -> tuple[float, int]:
    """Share of the pairs of labels in which the better answer is chosen, and their number."""
    found = all_pairs("label", by="prompt", unit="item")(Turns(rows))
    right = rows["good"].gather(found["chosen"]) & ~rows["good"].gather(found["rejected"])
    return float(right.to_numpy().mean()), len(found)


def with_words(rows: pl.DataFrame) -> pl.DataFrame:
    """The answers with what a linear reward model reads: which words they have."""
    known = [*FLAWS, *MERITS, ODD, *PLAIN]
    read = [[float(word in text.split()) for word in known] for text in rows["response"]]
    return rows.with_columns(features=pl.Series(read))


def fitted(rows: pl.DataFrame, seed: int) -> float:
    """Share of the true pairs of new answers that are ordered rightly by a reward model of pairs of labels."""
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / "labels.parquet", Path(folder) / "model"
        with_words(rows).write_parquet(file)
        pairing = 'all_pairs("label", by="prompt", unit="item")'
        fit_reward(file, out, "linear", features="features", pairing=pairing, seed=seed)
        new = with_words(answers(seed + 1000))
        scored = new.with_columns(score=build(f'reward_model("{out}")').score(new), correct="good", group="prompt")
    return pair_accuracy(scored).mean


@exact
def lists_are_read() -> None:
    """The four roles label every answer and pair rightly, also where a judge without lists errs."""
    alone, whole = reviewed(1, "advocate", "opponent", "reflector"), reviewed(1)
    erred = (alone["label"] == 1) != alone["good"]
    assert 0.2 < erred.to_numpy().mean() < 0.6, alone
    assert all(((whole["label"] == 1) == whole["good"]).filter(erred)), whole
    assert right_pairs(whole) == (1.0, 60 * 16)


@exact
def examples_are_shown() -> None:
    """An advocate that knows merits by good examples alone names them; the most similar two of three are shown."""
    rows = answers(1).head(40)
    advocate = ScriptedPolicy(player, name="advocate")
    roles = {"advocate": advocate} | dict.fromkeys(("opponent", "judge", "reflector"), ScriptedPolicy(silent))
    merits = Argued(policies=roles, examples=EXAMPLES, shown=2).review(rows)["merits"]
    seen = [" ".join(word for word in sorted(text.split()) if word in MERITS) for text in rows["response"]]
    assert [each.replace(",", "") for each in merits] == seen


@exact
def reasons_overturn() -> None:
    """A verdict on what is odd is overturned with its reason; a doubt without a reason overturns nothing."""
    whole = reviewed(1)
    overturned = whole.filter("overturned")
    assert 0.1 < len(overturned) / len(whole) < 0.3, len(overturned)
    assert overturned["good"].all()
    assert overturned["reason"].unique().to_list() == ["What is odd is no flaw."]
    assert (whole.filter(~pl.col("overturned"))["label"] == whole.filter(~pl.col("overturned"))["verdict"]).all()


@exact
def labels_fit_a_reward_model() -> None:
    """Pairs of labels go from a file into a reward model that orders new answers better than one of the judge alone."""
    whole, alone = fitted(reviewed(1), 1), fitted(reviewed(1, "advocate", "opponent", "reflector"), 1)
    assert whole > 0.99, whole
    assert alone < whole - 0.05, alone


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
