"""State that a new phase's learner takes over from the one before: beside tables, between kinds, of its own kind."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from tests.learning import test_gradient_sharing as sharing
from tests.learning import test_meta_gradient as meta
from tests.learning import test_value_decomposition as values

from palaestra.agents import MLPPolicy, QTablePolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.learning import PolicyGradient
from palaestra.learning.generations import Generations
from palaestra.learning.gradient_sharing import GradientSharing
from palaestra.learning.learning_rates import decay
from palaestra.learning.meta_gradient import MetaGradient
from palaestra.learning.phases import carry_over
from palaestra.learning.q_learning import QLearner
from palaestra.learning.stages.stage import Context
from palaestra.learning.stages.success_replay import new_reference
from palaestra.learning.value_decomposition import ValueDecomposition

HOW: dict[str, Any] = {"terms": "surrogate(), kl(.1)", "lr": 1e-2, "schedule": "linear", "updates": 30, "warmup": 5}


def pair() -> tuple[Team, Turns]:
    """A team of a table and a network, and two episodes of it."""
    table = {
        "run": ["0"] * 4, "iteration": [0] * 4, "group": [0] * 4, "episode": [0, 0, 1, 1], "turn": [0] * 4,
        "agent": ["one", "two"] * 2, "policy": ["q", "net"] * 2, "reward": [1.0, 1.0, 0.0, 0.0],
        "state": pl.Series([1, 2, 1, 2], dtype=pl.UInt64), "action_ids": [[0], [0], [1], [1]],
        "logprobs": [[-0.7]] * 4, "features": [[1.0, 0.0]] * 4, "advantage": [1.0, 1.0, -1.0, -1.0],
    }  # fmt: skip
    return Team(one=QTablePolicy(2, name="q"), two=MLPPolicy(2, 2, name="net")), Turns(table)


def steps(learner: PolicyGradient | None) -> float:
    """Steps in the moments of the network's optimiser."""
    assert learner is not None
    return float(learner.optimisers["net"].state[learner.policies["net"].parameters()[0]]["step"])


def rate(learner: PolicyGradient | None) -> float:
    assert learner is not None
    return float(learner.optimisers["net"].param_groups[0]["lr"])


@pytest.mark.parametrize("resumed", [False, True])
def test_a_network_beside_tables_that_was_frozen_goes_on(resumed: bool) -> None:
    team, turns = pair()
    first, frozen, last = QLearner(team, **HOW), QLearner(team, **HOW, freeze=["net"]), QLearner(team, **HOW)
    for _ in range(10):
        first.update(turns)
    carry_over(first, frozen)
    weights = copy.deepcopy(team["two"].state_dict())
    for _ in range(10):
        assert frozen.update(turns).keys() == {"q"}
    assert all(torch.equal(a, b) for a, b in zip(weights.values(), team["two"].state_dict().values(), strict=True))
    if resumed:
        state, frozen = copy.deepcopy(frozen.state()), QLearner(team, **HOW, freeze=["net"])
        frozen.restore(state)
    else:
        assert frozen.references["net"] is first.references["net"]
    carry_over(frozen, last)
    last.update(turns)
    assert (last.updates, steps(last.rest)) == (21, 11)
    assert rate(last.rest) == pytest.approx(HOW["lr"] * decay("linear", 20, 30, 5))


def test_learners_of_other_kinds_share_updates_and_moments() -> None:
    team, turns = pair()
    gradients, table, again = PolicyGradient(team, **HOW), QLearner(team, **HOW), PolicyGradient(team, **HOW)
    for _ in range(10):
        gradients.update(turns)
    carry_over(gradients, table)
    table.update(turns)
    assert table.rest is not None
    assert (table.updates, table.rest.updates, steps(table.rest)) == (11, 11, 11)
    assert rate(table.rest) == pytest.approx(HOW["lr"] * decay("linear", 10, 30, 5))
    assert table.rest.references["net"] is gradients.references["net"]
    carry_over(table, again)
    again.update(turns)
    assert (again.updates, steps(again)) == (12, 12)
    two = Team(a=MLPPolicy(2, 2, name="a"), b=MLPPolicy(2, 2, name="b"))
    evolved, before = Generations(two), PolicyGradient(two)
    before.updates = 5
    carry_over(before, evolved)
    assert evolved.updates == 5


def test_a_team_that_was_split_is_not_split_again() -> None:
    policy, first, turns = sharing.played(after=2, every=2, batches=2, least=1)
    for _ in range(2):
        first.update(turns)
    team = Team(dict.fromkeys(sharing.SEATS, policy))
    second = GradientSharing(team, after=2, every=2, batches=2, least=1)
    carry_over(first, second)
    for _ in range(3):
        said = second.update(turns)["players"]
    assert (said["sets"], second.done) == (2, 1)


def test_an_anchor_holds_to_the_start_of_the_run(tmp_path: Any) -> None:
    people = meta.scripted_team("code", {}, meta.Referential, "people")
    meta.rollout(meta.Referential, people, groups=4, seed=3).frame.write_parquet(tmp_path / "corpus.parquet")
    team, turns = meta.played(meta.player(), groups=16)
    first = MetaGradient(team, corpus=str(tmp_path / "corpus.parquet"), lr=0.1)
    first.update(turns)
    second = MetaGradient(team, corpus=str(tmp_path / "corpus.parquet"))
    carry_over(first, second)
    assert first.anchor is not None
    assert second.anchor is not None
    assert second.anchor.references["player"] is first.anchor.references["player"]


@pytest.mark.parametrize(("mixer", "goes_on"), [("monotonic", True), ("sum", False)])
def test_replay_mixer_and_moments_of_values_go_on(mixer: str, goes_on: bool) -> None:
    first = values.learned("monotonic", updates=2)
    team = Team(one=first.networks["a"], two=first.networks["b"])
    second = ValueDecomposition(team, mixer=mixer, rate=1e-3)  # type: ignore[arg-type]
    carry_over(first, second)
    assert second.updates == 2
    assert bool(second.playing) == goes_on
    if goes_on:
        assert second.replay is first.replay
        assert second.optimiser.param_groups[0]["lr"] == 1e-3
        assert next(iter(second.optimiser.state.values()))["step"] == 50


@pytest.mark.parametrize("kind", [PolicyGradient, QLearner])
def test_references_are_renewed_beside_tables_too(kind: Any) -> None:
    team, turns = pair()
    learner = kind(team, **HOW)
    learner.update(turns)

    def call(learner: Any) -> None:
        new_reference(1)(turns, Context(np.random.default_rng(0), 1, None, team, None, learner))  # type: ignore[arg-type]

    call(learner)
    now, then = team["two"].state_dict(), learner.references["net"].state_dict()
    assert all(torch.equal(now[key], then[key]) for key in now)
    with pytest.raises(InputError, match=r"new_reference: no term of learn\.terms has a reference"):
        call(kind(team))


def test_what_is_frozen_needs_no_room_for_an_optimiser(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Any, *, reference: bool) -> None:
        raise InputError("no room")

    monkeypatch.setattr(MLPPolicy, "check_memory", full, raising=False)
    team, turns = pair()
    assert QLearner(team, freeze=["net"]).update(turns).keys() == {"q"}
    with pytest.raises(InputError, match="no room"):
        QLearner(team)
    with pytest.raises(InputError, match="every policy is in freeze"):
        PolicyGradient(Team(two=team["two"]), freeze=["net"])
