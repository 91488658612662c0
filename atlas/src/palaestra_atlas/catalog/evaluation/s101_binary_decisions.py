"""[101] Binary decision biases (arXiv 2501.16356; the batteries are a reconstruction): bias is not dependence.

Coins that are fair, biased, or remember their last side, and what each test says of 2000 of them. Left out: the models
of the paper; the same tests run on any agent's actions.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from palaestra.evaluation import sequence_tests
from palaestra.evaluation.analyses import analyze
from palaestra.evaluation.sequences import share_differences
from palaestra_atlas.reproductions import Outcome, exact, reproduction
from palaestra_atlas.verification.measures import Left, Measure

SERIES, LENGTH = 2000, 500


def series(rng: np.random.Generator, share: float, change: float | None, number: int = SERIES) -> pl.DataFrame:
    """Independent coins with this share of ones; or, given `change`, coins that turn over with that chance."""
    luck = rng.random((number, LENGTH))
    x = luck < share if change is None else np.cumsum(luck < change, axis=1) % 2
    system, turn = (axis.ravel() for axis in np.indices(x.shape))
    return pl.DataFrame({"system": system, "episode": 0, "turn": turn, "action": x.ravel().astype(np.int8)})


def share_of(held: pl.Series) -> float:
    """Share of true; null counts as neither."""
    return float(held.drop_nulls().to_numpy().mean())


def coins(x: np.ndarray, system: str = "s") -> pl.DataFrame:
    """Episodes of choices, int[episodes, turns]."""
    episode, turn = (axis.ravel() for axis in np.indices(x.shape))
    return pl.DataFrame({"system": system, "episode": episode, "turn": turn, "action": x.ravel().astype(np.int8)})


def turning(rng: np.random.Generator, change: float, length: int = 2000) -> np.ndarray:
    """A coin that turns over with this chance."""
    return np.cumsum(rng.random((1, length)) < change, axis=1) % 2


def tested(table: pl.DataFrame) -> dict[str, float]:
    """What `palaestra analyze sequences` says of one system."""
    with tempfile.TemporaryDirectory() as folder:
        table.write_csv(Path(folder) / "choices.csv")
        return analyze("sequences", Path(folder) / "choices.csv").row(0, named=True)


@exact
def memory_of_a_coin() -> None:
    """10101010 has a z of 2.29; a coin that turns over with .6 is found by both tests, an independent one is not."""
    assert abs(tested(coins(np.array([[1, 0] * 4])))["runs_z"] - 2.2913) < 1e-3
    rng = np.random.default_rng(0)
    found = tested(coins(turning(rng, 0.6)))
    assert found["runs_z"] > 5, found["runs_z"]
    assert found["markov_p"] < 1e-6
    assert abs(found["alternation"] - 0.6) < 0.03


@exact
def bias_is_no_memory() -> None:
    """An independent coin of .38 is biased and remembers nothing; its interval leaves one half out."""
    found = tested(coins((np.random.default_rng(1).random((1, 8000)) < 0.38).astype(int)))
    assert abs(found["runs_z"]) < 2.5, found["runs_z"]
    assert found["markov_p"] > 0.01
    assert found["uniform_p"] < 1e-6
    assert found["high"] < 0.5


@exact
def change_after_three() -> None:
    """A source that turns over after every third equal choice does so at L = 3 and never before."""
    found = tested(coins(np.tile([0, 0, 0, 1, 1, 1], 50)[None]))
    assert (found["reversal_1"], found["reversal_2"], found["reversal_3"]) == (0, 0, 1), found


@exact
def episodes_apart() -> None:
    """Steps are counted inside an episode alone: three of four choices have nine."""
    assert tested(coins(np.array([[0, 0, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]])))["pairs"] == 9


@exact
def versions_of_a_model() -> None:
    """Ten equal versions seldom differ after the correction, and a version at .985 is told from one at .4."""
    rng, false = np.random.default_rng(0), 0
    for _ in range(40):
        table = pl.concat([coins((rng.random((1, 200)) < 0.5).astype(int), f"v{n}") for n in range(10)])
        false += bool((share_differences(table)["corrected"] < 0.05).any())
    assert false <= 5, false
    table = pl.concat(
        [coins((rng.random((1, 200)) < share).astype(int), name) for name, share in (("a", 0.985), ("b", 0.4))]
    )
    with tempfile.TemporaryDirectory() as folder:
        table.write_csv(Path(folder) / "choices.csv")
        assert analyze("shares", Path(folder) / "choices.csv")["corrected"].item() < 1e-6


def made(seed: int, folder: Path) -> None:
    """Twenty sources that turn over with .6 and as many biased coins of .38, 500 choices; `shuffled.csv` mixes each."""
    rng = np.random.default_rng(seed)
    tables = [coins(turning(rng, 0.6, 500), f"turning {n}") for n in range(20)]
    tables += [coins((rng.random((1, 500)) < 0.38).astype(int), f"biased {n}") for n in range(20)]
    pl.concat(tables).write_csv(folder / "choices.csv")
    mixed = [each.with_columns(pl.col("action").shuffle(seed=1000 * seed + n)) for n, each in enumerate(tables)]
    pl.concat(mixed).write_csv(folder / "shuffled.csv")


def told_apart() -> Measure:
    """Share of sources that the runs test judges rightly at 5 %: one that turns over remembers, a coin does not."""

    def measured(left: Left) -> list[float]:
        rows = json.loads(left.stdout)
        return [float(np.mean([(row["runs_p"] < 0.05) == row["system"].startswith("turning") for row in rows]))]

    return measured


@reproduction(
    101,
    claim="Runs and Markov tests find memory in binary decisions, not in a biased coin; an exact test finds bias.",
    baseline="Independent coins, fair and at .38.",
    criterion="Type I error of the runs and Markov tests between .035 and .065 for both coins; power above .5 when the "
    "side changes with .55 and above .98 with .6 (500 decisions); the bias of .38 is found in over .99; alternation's "
    "interval covers 93-97 %, the share's at least 94 %; a run of 10101010 has z = 2.29.",
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Each kind of coin through all tests at once."""
    rng = np.random.default_rng(seeds[0])
    kinds = {"fair": (0.5, None), "biased": (0.38, None), "turning_55": (0.5, 0.55), "turning_60": (0.5, 0.6)}
    measured: dict[str, float] = {}
    for name, (share, change) in kinds.items():
        found = sequence_tests(series(rng, share, change))
        for test in ("uniform", "runs", "markov"):
            measured[f"{name}_{test}"] = share_of(found[f"{test}_p"] <= 0.05)
        truth = 2 * share * (1 - share) if change is None else change
        held = (found["alternation_low"] <= truth) & (found["alternation_high"] >= truth)
        measured[f"{name}_alternation_coverage"] = share_of(held)
        if change is None:
            held = (found["low"] <= share) & (found["high"] >= share)
            measured[f"{name}_share_coverage"] = share_of(held)
    alternating = pl.DataFrame({"system": 0, "episode": 0, "turn": range(8), "action": [1, 0] * 4})
    measured["z_of_10101010"] = sequence_tests(alternating)["runs_z"].item()
    null = [measured[f"{coin}_{test}"] for coin in ("fair", "biased") for test in ("runs", "markov")]
    holds = (
        all(0.035 <= x <= 0.065 for x in null)
        and all(measured[f"turning_55_{test}"] > 0.5 for test in ("runs", "markov"))
        and all(measured[f"turning_60_{test}"] > 0.98 for test in ("runs", "markov"))
        and measured["biased_uniform"] > 0.99
        and all(0.93 <= measured[f"{coin}_alternation_coverage"] <= 0.97 for coin in kinds)
        and all(measured[f"{coin}_share_coverage"] >= 0.94 for coin in ("fair", "biased"))
        and abs(measured["z_of_10101010"] - 2.2913) < 1e-3
    )
    return Outcome(measured, holds)
