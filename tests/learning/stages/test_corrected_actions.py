"""Reflux: actions that were corrected are what the policy clones, and what it would say of them is said anew."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from palaestra.algebra.signals import is_in
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.judges import Verifier
from palaestra.learning.stages.corrected_actions import corrected_actions
from palaestra.learning.stages.stage import Context
from palaestra.play.executors import Local
from palaestra.runs.inline import learn

WORLD = "palaestra.envs.worlds.answers"
TRUTH = f'corrected_actions("{WORLD}:corrector(keeps=1.0, flags=1.0, corrects=1.0)", "{WORLD}:Arbiter(1.0)")'
LM = {
    "policies": {"answerer": {"kind": "tiny", "options": {"layers": 1, "hidden": 16}}},
    "learn": {"terms": "clone(column='settled')", "epochs": 1},
    "train": {"iterations": 1, "groups": 4, "group_size": 4},
}


def numberless(rows: pl.DataFrame) -> pl.DataFrame:
    return pl.DataFrame({"verdict": [False] * len(rows), "corrected_action": ["answer 0"] * len(rows)})


def probabilities(learned: Any) -> np.ndarray:
    return np.asarray(np.exp(learned.play(groups=8)["logprobs"].list.first().to_numpy()))


def without_number() -> Any:
    return numberless


def test_a_policy_clones_what_was_put_in_for_what_it_did() -> None:
    seen: list[Turns] = []
    changes = {
        "stages": [TRUTH],
        "learn": {"terms": "clone(column='settled')", "epochs": 30},
        "train": {"iterations": 2, "groups": 32},
    }
    learned = learn("answers", changes, on_turns=lambda iteration, turns: seen.append(turns))
    first, told = seen[0].frame, learned.lines[0]["stages"]["corrected_actions"]
    right = first.filter(pl.col("task") == first["task"][0], pl.col("success"))["action"].unique()
    assert right.to_list() == first.filter(pl.col("task") == first["task"][0])["final_action"].unique().to_list()
    replaced = first["played"] != first["final_action"]
    assert told["replaced"] == pytest.approx(replaced.mean()) == pytest.approx((~first["success"]).mean())
    assert first["settled"].all()
    assert (first["action"] == first["final_action"]).all()
    numbers = first["action"].str.extract(r"(\d+)$").cast(pl.Int64)
    assert first["action_ids"].list.first().cast(pl.Int64).to_list() == numbers.to_list()
    assert np.allclose(first["logprobs"].list.first(), -np.log(8))  # of an action that it would have drawn like any
    assert learned.curve()[0] < 0.25
    assert learned.curve()[1] > 0.9


def test_what_was_overruled_is_not_settled_and_what_is_not_settled_is_not_cloned() -> None:
    stages = [
        f'corrected_actions("{WORLD}:corrector(keeps=0.0, flags=1.0, corrects=0.0, spoils=0.0)", "verifier(\'1.0\')")'
    ]
    learned = learn("answers", {"stages": stages, "learn": {"terms": "clone(column='settled')"}} | SHORT)
    told = learned.lines[0]["stages"]["corrected_actions"]
    assert (told["replaced"], told["overruled"], told["settled"]) == (0, 1, 0)
    assert float(np.ptp(probabilities(learned))) == pytest.approx(0)  # as it was made


def test_a_language_model_reads_what_was_put_in_as_its_own_tokens() -> None:
    seen: list[Turns] = []
    learn("answers", {"stages": [TRUTH], **LM}, on_turns=lambda iteration, turns: seen.append(turns))
    frame = seen[0].frame
    assert (frame["action"] != frame["played"]).any()
    assert (frame["action_ids"].list.len() == frame["logprobs"].list.len()).all()
    assert frame.group_by("action").agg(pl.col("action_ids").list.len().n_unique())["action_ids"].max() == 1


def test_a_policy_that_chooses_needs_the_number_of_what_is_put_in() -> None:
    with pytest.raises(InputError, match="has no number"):
        learn("answers", {"stages": [f'corrected_actions("{__name__}:without_number")'], **SHORT}, trust=True)
    with pytest.raises(InputError, match="domain judge 'no_such'"):
        learn("answers", {"stages": ['corrected_actions("no_such")'], **SHORT})


SHORT: dict[str, Any] = {"train": {"iterations": 1, "groups": 4}}


def test_a_domain_judge_is_given_what_was_overruled() -> None:
    class Learns:
        def __init__(self) -> None:
            self.given: list[str] = []

        def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
            return pl.DataFrame({"verdict": [False] * len(rows), "corrected_action": ["other"] * len(rows)})

        def fit(self, rows: pl.DataFrame) -> None:
            self.given += rows["action"].to_list()

    domain = Learns()
    keys = {"episode": [0, 1], "turn": [0, 0], "agent": ["a"] * 2, "policy": ["a"] * 2, "observation": ["?"] * 2}
    turns = Turns({**keys, "action": ["kept", "put"], "logprobs": [[-1.0]] * 2, "action_ids": [[0], [1]]})
    team = SimpleNamespace(policies={"a": SimpleNamespace(name="a")})
    context = Context(np.random.default_rng(0), 1, None, team, Local())  # type: ignore[arg-type]
    found = corrected_actions(domain, Verifier(is_in("action", "kept")))(turns, context)
    assert domain.given == ["kept"]
    assert found["action"].to_list() == ["kept", "other"]
