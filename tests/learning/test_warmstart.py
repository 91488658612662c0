"""Warm start: what is learned is what was played, by whoever sits in the seat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from palaestra.agents import LMPolicy, MLPPolicy, Request, ScriptedPolicy, TabularPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import Action, Observation, StepResult
from palaestra.errors import InputError, LearnerError
from palaestra.learning import demonstrations, supervised_warm_start
from palaestra.learning.warmstart import _batches
from palaestra.play.rollout import rollout

WORDS = ("rock", "paper", "scissors")


class Throw:
    """Two agents see a number each and throw at once."""

    agents = ("left", "right")
    task = "throw"

    def reset(self, seed: int) -> Mapping[str, Observation]:
        numbers = np.random.default_rng(seed).integers(3, size=2)
        self.broken = seed % 5 == 0
        return {
            agent: Observation(f"{agent} sees {n}", choices=WORDS, array=np.eye(3, dtype=np.float32)[n])
            for agent, n in zip(self.agents, numbers)
        }

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        if self.broken:
            raise RuntimeError("broken")
        return StepResult({}, terminated=True, info={"valid": {"left": actions["left"] != "stone"}})


def teacher(request: Request) -> str:
    """left says what it sees; right the next one; now and then left is wrong, which the env calls invalid."""
    number = int(request.observation.text[-1])
    if request.agent == "left" and request.rng.random() < 0.1:
        return "stone"
    return WORDS[(number + (request.agent == "right")) % 3]


@pytest.fixture(scope="module")
def played() -> Turns:
    script = ScriptedPolicy(teacher)
    return rollout(Throw, Team(left=script, right=script), groups=100, seed=1, timeout=None)


def chosen(policy: Any, observation: Observation) -> np.ndarray:
    return policy.choice_probabilities([observation])[0][0]  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", ["lm", "mlp", "tabular"])
def test_each_kind_of_policy_learns_its_own_seat(played: Turns, kind: str) -> None:
    def make(name: str) -> Any:
        if kind == "lm":
            corpus = [*played["observation"].to_list(), *WORDS]
            return LMPolicy.tiny(corpus, name=name, hidden=32, layers=1, heads=2, max_new_tokens=8)
        return MLPPolicy(3, 3, name=name) if kind == "mlp" else TabularPolicy(3, name=name, capacity=8)

    team = Team(left=make("l"), right=make("r"))
    examples = demonstrations(played, team, choices=WORDS)
    metrics = supervised_warm_start(team, examples, steps=60, batch=16, lr=0.1 if kind == "tabular" else 0.02)
    for name, agent, shift in (("l", "left", 0), ("r", "right", 1)):
        assert metrics[name]["loss_after"] < 0.3 * metrics[name]["loss_before"]
        for number in range(3):
            observation = Observation(f"{agent} sees {number}", WORDS, array=np.eye(3, dtype=np.float32)[number])
            assert chosen(team[agent], observation).argmax() == (number + shift) % 3


def test_invalid_actions_and_failed_episodes_are_not_examples(played: Turns) -> None:
    assert (played["action"] == "stone").any()
    assert played["error"].is_not_null().any()
    table = TabularPolicy(3, capacity=8)
    rows = demonstrations(played, Team(left=table, right=table), choices=WORDS)["tabular"]
    assert set(rows["action"]) == set(WORDS)
    assert rows["error"].null_count() == rows.height
    assert rows["action_ids"].list.first().to_list() == [WORDS.index(a) for a in rows["action"]]
    assert set(rows["agent"].cast(pl.String)) == {"left", "right"}  # a shared policy learns both seats


def test_text_is_encoded_as_the_policy_will_say_it(played: Turns) -> None:
    policy = LMPolicy.tiny(["left sees 0 rock paper"], hidden=16, layers=1, heads=2)
    rows = demonstrations(played, Team(left=policy))["lm"]
    row = rows.row(5, named=True)
    prompt, action = policy.encode(row["observation"], row["action"])
    assert row["prompt_ids"] == prompt.tolist()
    assert row["action_ids"] == action.tolist()
    assert row["action_ids"][-1] == policy.tokenizer.eos_token_id


def test_frozen_policies_are_not_taught(played: Turns) -> None:
    frozen = TabularPolicy(3, name="frozen").frozen_copy()
    team = Team(left=TabularPolicy(3, name="pupil"), right=frozen)
    examples = demonstrations(played, team, choices=WORDS)
    assert set(examples) == {"pupil"}
    supervised_warm_start(team, examples, steps=3)
    assert torch.equal(frozen.module.get_parameter("logits"), torch.zeros(4096, 3))


def test_the_same_seed_gives_the_same_parameters(played: Turns) -> None:
    results = []
    for seed in (0, 0, 1):
        team = Team(left=MLPPolicy(3, 3))
        supervised_warm_start(team, demonstrations(played, team, choices=WORDS), steps=5, batch=8, seed=seed)
        results.append(torch.cat([p.detach().flatten() for p in team.trainable[0].parameters()]))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


def test_batches_cover_every_row_once_per_pass() -> None:
    rows = pl.DataFrame({"action_ids": [[0]] * 100})
    stream = _batches(rows, 32, np.random.default_rng(0))
    first, second = ([next(stream) for _ in range(4)] for _ in range(2))
    for batches in (first, second):
        assert sorted(np.concatenate(batches).tolist()) == list(range(100))
    assert not np.array_equal(first[0], second[0])


def test_unusable_examples_are_named(played: Turns) -> None:
    team = Team(left=TabularPolicy(3, name="pupil", capacity=8))
    with pytest.raises(InputError, match="choices="):
        demonstrations(played, team)
    with pytest.raises(InputError, match="'rock' is not among choices; did you mean 'rocks'"):
        demonstrations(played.filter(pl.col("action") == "rock"), team, choices=("rocks", "paper", "scissors"))
    rows = demonstrations(played, team, choices=WORDS)["pupil"]
    with pytest.raises(InputError, match="'pupils' is no trainable policy of the team; did you mean 'pupil'"):
        supervised_warm_start(team, {"pupils": rows}, steps=1)
    with pytest.raises(InputError, match="no examples for policy 'pupil'"):
        supervised_warm_start(team, {"pupil": rows.head(0)}, steps=1)
    with pytest.raises(InputError, match="no agent that played has a trainable policy"):
        supervised_warm_start(team, demonstrations(played.filter(pl.col("agent") == "right"), team), steps=1)
    with pytest.raises(LearnerError, match=r"warm start of 'pupil', step \d: .*nan"):
        supervised_warm_start(team, {"pupil": rows}, steps=3, lr=float("nan"))
