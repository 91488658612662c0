"""[169] Sotopia-RL (arXiv 2508.03905): an outcome spread over utterances by what a judge says of each.

The arithmetic of every variant is what holds. A negative result stands beside it: with one decisive turn of six and a
mean over the batch as baseline, attributed rewards are learned no faster than the outcome for every turn, which is
already unbiased and here has little noise (the world `steps` by the recipe of that name; the judge knows which turn
decides). Left out: dialogues, and a language
model as the reward model: it is a regression on words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import Steps
from palaestra.learning.stages.stage import Context
from palaestra.learning.stages.utterances import utterance_reward
from palaestra.rewards import single_utterance
from palaestra.rewards.combine.attribute import attribute, sotopia_reward
from palaestra_atlas.reproductions import Outcome, exact, reached, reproduction, train_arms
from palaestra_atlas.verification.measures import Left, Measure

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

WEIGHTS, PROGRESS, SCORE = [3.0, 1.0, 0.0, -1.0], [2.0, 5.0, 5.0, 8.0], 8.0
WORKED: dict[str, list[float]] = {
    "importance": [8, 8 / 3, 0, -1],
    "normalised": [8, 8 / 3, 0, -8 / 3],
    "discount": [5.832, 6.48, 7.2, 8],
    "key": [8, 0, 0, 0],
    "uniform": [8, 8, 8, 8],
}
OPTIONS: dict[str, Any] = {"steps": 6, "actions": 4, "decisive": 1}
SCORED = 'total("reward", over="episode")'
WORLD: dict[str, Any] = {
    "env": {"options": OPTIONS},
    "credit": 'centre("reward", over="turn")',
    "train": {"iterations": 40, "group_size": 16},
}


def arms() -> dict[str, dict[str, Any]]:
    """The outcome for the turn that decides, and for every turn."""
    decides = f'where(col("turn") == {int(Steps(**OPTIONS).decides.argmax())}, 3.0, 0.0)'
    return {
        "attributed": {**WORLD, "reward": f"attribute({SCORED}, {decides})"},
        "uniform": {**WORLD, "reward": f'attribute({SCORED}, method="uniform")'},
    }


def worked_error() -> float:
    """Largest deviation from the card's rewards."""
    columns = {"weight": WEIGHTS, "progress": PROGRESS, "score": [SCORE] * 4}
    turns = Turns({"episode": [0] * 4, "agent": ["a"] * 4, "turn": range(4)} | columns)
    found = {method: attribute("score", "weight", method=method) for method in WORKED}  # type: ignore[arg-type]
    errors = [np.abs(np.asarray(found[method].evaluate(turns)) - right).max() for method, right in WORKED.items()]
    progress = attribute("score", "progress", method="progress", top=10)
    errors.append(np.abs(np.asarray(progress.evaluate(turns)) - [1.6, 2.4, 0, 2.4]).max())
    return float(max(errors))


@exact
def shares() -> None:
    """The card's rewards of every variant, the importance of a turn being the default."""
    assert worked_error() < 1e-9
    columns = {"weight": WEIGHTS, "score": [SCORE] * 4}
    turns = Turns({"episode": [0] * 4, "agent": ["a"] * 4, "turn": range(4)} | columns)
    np.testing.assert_allclose(np.asarray(attribute("score", "weight").evaluate(turns)), WORKED["importance"])  # type: ignore[call-overload]


def dimensions(scale: float = 1.0) -> np.ndarray:
    """Rewards of four utterances by their shares in goal and relationship, the latter's score being scaled."""
    keys = {"episode": [0] * 4, "agent": ["a"] * 4, "turn": range(4)}
    columns = {
        "goal": [6.0] * 4,
        "of_goal": [3.0, 2.0, 1.0, 0.0],
        "kind": [9.0 * scale] * 4,
        "of_kind": [0.0, 1.0, 3.0, 2.0],
    }
    return np.asarray(sotopia_reward(("goal", "of_goal"), ("kind", "of_kind")).evaluate(Turns(keys | columns)))


@exact
def several_dimensions() -> None:
    """Ten times the mean over dimensions of rewards in [0, 1]; ten times the scale of one changes nothing."""
    np.testing.assert_allclose(dimensions(), 5 * np.array([1, 1, 4 / 3, 2 / 3]))
    np.testing.assert_allclose(dimensions(10.0), dimensions())


@exact
def options_reach_every_dimension() -> None:
    """Method, largest weight and scope of the scaling hold for each dimension; what is harmful earns -1 before it."""
    keys = {"episode": [0, 0, 1, 1], "agent": ["a"] * 4, "turn": [0, 1, 0, 1]}
    turns = Turns(keys | {"goal": [6.0, 6.0, 2.0, 2.0], "of_goal": [1.0, -1.0, 1.0, 0.0]})
    for options, right in (
        ({"top": 1.0}, [10, 0, 10 * 3 / 7, 10 / 7]),  # 6, -1, 2, 0
        ({}, [10, 0, 50 / 9, 10 / 3]),  # 2, -1, 2/3, 0
        ({"method": "uniform"}, [10, 10, 0, 0]),
        ({"method": "discount"}, [60 / 7, 10, 0, 10 / 21]),  # 5.4, 6, 1.8, 2
        ({"scope": "episode"}, [10, 0, 10, 0]),
    ):
        found = np.asarray(sotopia_reward(("goal", "of_goal"), **options).evaluate(turns))  # type: ignore[arg-type]
        np.testing.assert_allclose(found, right, atol=1e-12)


SEEN = [f"the client asks for {thing}" for thing in ("tea", "coffee", "water", "wine")]
SAID = ["here it is, please", "take it yourself"]


def labelled(every: int) -> Turns:
    """Two replies to each of four requests; a polite one is worth 8, the other 2; every so many has no label."""
    rows = [(seen, said, 8.0 if "please" in said else 2.0) for seen in SEEN for said in SAID]
    keys = {"group": [0] * 8, "episode": [at // 4 for at in range(8)], "turn": [at % 4 for at in range(8)]}
    label = [None if at % every == 0 else worth for at, (*_, worth) in enumerate(rows)]
    texts = {"observation": [seen for seen, *_ in rows], "action": [said for _, said, _ in rows]}
    return Turns(keys | {"agent": ["clerk"] * 8} | texts | {"label": pl.Series(label, dtype=pl.Float64)})


@exact
def fitted() -> None:
    """Replies without a label are valued by what others like them were worth, closer than by the mean."""
    here = Context(np.random.default_rng(0), 1, None, None, None)  # type: ignore[arg-type]
    found = np.asarray(utterance_reward("label")(labelled(3), here)["utterance"].to_numpy(), float)
    worth = np.array([8.0, 2.0] * 4)
    missing = np.arange(8) % 3 == 0
    assert np.isfinite(found).all(), "a reply without a label has no reward"
    assert np.abs(found - worth)[missing].max() < 1.5, found


@exact
def fitted_to_pairs_and_over_tables() -> None:
    """The right word depends on what was heard; a table without labels is valued by earlier labelled ones."""
    stage, here = utterance_reward("label"), Context(np.random.default_rng(0), 1, None, None, None)  # type: ignore[arg-type]
    rows = [(seen, said) for seen in ("greet", "thank") for said in ("greet", "thank")]
    keys = {"group": [0] * 4, "episode": [0] * 4, "turn": range(4), "agent": ["clerk"] * 4}
    texts = {"observation": [seen for seen, _ in rows], "action": [said for _, said in rows]}
    worth = np.array([8.0 if seen == said else 2.0 for seen, said in rows])
    for label in (worth.tolist(), [None] * 4):
        column = pl.Series(label, dtype=pl.Float64)
        found = stage(Turns({**keys, **texts, "label": column}), here)["utterance"].to_numpy()
        assert np.abs(found - worth).max() < 1, found


@exact
def in_training() -> None:
    """By recipe: judged in two dimensions, the labels fitted, every utterance has a reward that follows its label."""
    from palaestra.runs.inline import learn

    tables: list[Turns] = []
    polite = {"kind": "script", "options": {"script": "palaestra.envs.worlds.talk:polite"}}
    changes = {
        "env": {"options": {"manners": True}}, "policies": {"manners": polite}, "train": {"iterations": 1},
        "stages": [
            'judge("goal", question="Did the clerk do what it was time for?", level="turn")',
            'judge("kind", question="Was that polite?", level="turn", policy="manners")', "utterance_reward()",
        ],
        "reward": 'sotopia_reward((mean(col("judge.goal"), over="episode"), "judge.goal"), '
        '(mean(col("judge.kind"), over="episode"), "judge.kind"), top=1)',
        "credit": 'single_utterance("utterance")',
    }  # fmt: skip
    learn("talk", changes, on_turns=lambda _, turns: tables.append(turns))
    found, label = (tables[0][name].to_numpy().astype(float) for name in ("utterance", "reward"))
    assert np.isfinite(found).all()
    assert np.corrcoef(found, label)[0, 1] > 0.7, np.corrcoef(found, label)


@exact
def one_by_one() -> None:
    """Two replies to the same thing are compared with each other, not with the rest of their dialogues."""
    keys = {"group": [0] * 4, "episode": [0, 0, 1, 1], "turn": [0, 1, 0, 1], "agent": ["a"] * 4, "state": [7, 8, 7, 8]}
    credit = np.asarray(single_utterance().evaluate(Turns(keys | {"reward": [1.0, 0.0, 0.0, 1.0]})))
    np.testing.assert_allclose(credit, np.array([1, -1, -1, 1]) / np.sqrt(2), rtol=1e-5)


def manners() -> Measure:
    """Mean over the held-out turns of the trained clerk of being right and of being kind, per seed."""

    def measured(left: Left) -> list[float]:
        found = []
        for seed in left.seeds():
            turns = pl.read_parquet(seed / "evaluation.parquet").filter(pl.col("system") == "after")
            found.append(
                float(turns.select((pl.col("fits").cast(float) + pl.col("kind").cast(float)) / 2).mean().item())
            )
        return found

    return measured


def needed(learned: TrainingResult) -> dict[str, float]:
    """Iterations to nine successes of ten."""
    return {"iterations": reached(learned.curve(), 0.9)}


@reproduction(
    169,
    claim="An outcome is spread over turns by importance, share, discount, key turn or progress, exactly.",
    baseline="the outcome for every turn",
    criterion="worked rewards of all variants to 1e-9; both arms learn within 40 iterations in every seed; no speed-up "
    "is claimed, iterations that both need are reported",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Arithmetic, then the two arms."""
    found = train_arms("steps", arms(), seeds, needed)
    measured = {"worked_error": worked_error()} | found.measured()
    learned = all((each["iterations"] < 40).all() for each in found.values.values())
    return Outcome(measured, measured["worked_error"] < 1e-9 and learned)
