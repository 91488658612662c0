"""[101] Binary decision biases (arXiv 2501.16356; the batteries are a reconstruction): bias is not dependence.

Coins that are fair, biased, or remember their last side, and what each test says of 2000 of them. Left out: the models
of the paper; the same tests run on any agent's actions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from palaestra.evaluation import sequence_tests
from palaestra_atlas.reproductions import Outcome, reproduction

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
