from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from palaestra.agents import BanditPolicy, TabularPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.credit import grpo
from palaestra.envs.protocol import Observation, StepResult
from palaestra.errors import InputError, LearnerError, MissingColumnError
from palaestra.learning.bandit import BanditLearner
from palaestra.learning.trainer import Trainer
from palaestra.play.rollout import rollout


class Routes:
    """Three routes; the second is right most often. Whoever answers then says anything."""

    agents = ("router", "worker")
    task = "route"

    def reset(self, seed: int) -> dict[str, Observation]:
        self.rng = np.random.default_rng(seed)
        return {"router": Observation("where?", ("a", "b", "c"))}

    def step(self, actions: dict[str, Any]) -> StepResult:
        if "router" in actions:
            self.right = bool(self.rng.random() < (0.3, 0.9, 0.5)[actions["router"]])
            return StepResult({"worker": Observation("go", ("x", "y"))})
        return StepResult({}, {"router": float(self.right), "worker": float(actions["worker"] == 1)}, terminated=True)


def team():
    return Team(router=BanditPolicy(3, name="route"), worker=TabularPolicy(2, name="work"))


def test_arms_and_gradients_learn_side_by_side(tmp_path):
    players = team()
    learner = BanditLearner(players, lr=0.3)
    lines = Trainer(
        Routes,
        players,
        learner=learner,
        credit=grpo(),
        iterations=40,
        groups=4,
        group_size=2,
        directory=tmp_path,
        seed=1,
    ).run()
    table = players.policies["route"].table()
    assert table["plays"].sum() == 40 * 8
    assert table["plays"].arg_max() == 1
    assert lines[-1]["policies"]["work"]["rows"] == 8
    assert np.mean([line["policies"]["route"]["reward"] for line in lines[-10:]]) > 0.6
    assert players.policies["work"].choice_probabilities([Observation("go", ("x", "y"))])[0][0, 1] > 0.8


def test_a_run_that_was_stopped_goes_on_bit_for_bit(tmp_path):
    def train(folder, iterations, resume=False):
        players = team()
        Trainer(
            Routes, players, learner=BanditLearner(players, lr=0.3), credit=grpo(), iterations=iterations, groups=2,
            group_size=2, directory=folder, checkpoint_every=3, seed=2,
        ).run(resume=resume)  # fmt: skip
        return players.state_dict()

    whole = train(tmp_path / "whole", 9)
    train(tmp_path / "part", 6)
    again = train(tmp_path / "part", 9, resume=True)
    for name in whole:
        for key, value in whole[name].items():
            assert torch.equal(value, again[name][key]), (name, key)


def rows(**columns):
    base = {
        "policy": ["route"] * 3,
        "action_ids": [[0], [1], [1]],
        "logprobs": [[-1.0]] * 3,
        "reward": [1.0, 0.5, None],
    }
    return Turns(base | columns)


def test_what_has_no_feedback_yet_is_not_learned_from():
    players = Team(router=BanditPolicy(3, name="route"))
    learner = BanditLearner(players)
    said = learner.update(rows())
    assert said["route"]["rows"] == 2
    assert (said["route"]["reward"], said["route"]["best"]) == (0.75, 0.5)  # one of two was each arm's
    assert players.policies["route"].table()["plays"].to_list() == [1.0, 1.0, 0.0]
    assert learner.updates == 1


def test_feedback_may_be_another_column_and_has_to_be_a_number():
    players = Team(router=BanditPolicy(3, name="route", index="ratio_ucb"))
    learner = BanditLearner(players, reward="worth", cost="price")
    learner.update(rows(worth=[1.0, 1.0, 1.0], price=[2.0, 4.0, None]))
    assert players.policies["route"].table()["cost"].to_list() == [2.0, 2.0, None]
    with pytest.raises(LearnerError, match="'worth' is not finite"):
        learner.update(rows(worth=[1.0, float("nan"), 1.0], price=[0.0] * 3))
    with pytest.raises(MissingColumnError, match="price"):
        learner.update(rows(worth=[1.0] * 3))


def test_a_team_without_a_bandit_is_named():
    with pytest.raises(InputError, match=r"policies\.NAME\.kind: bandit"):
        BanditLearner(Team(a=TabularPolicy(2)))


def test_the_verbs_apart_are_the_update():
    def train(apart):
        players = team()
        learner = BanditLearner(players, lr=0.3)
        turns = rollout(Routes, players, groups=6, group_size=2, seed=3).with_column(advantage=grpo())
        if apart:
            said = learner.forward_backward(turns)
            assert said["route"]["rows"] == 12
            assert players.policies["route"].table()["plays"].sum() == 0
            learner.optim_step()
        else:
            learner.update(turns)
        assert learner.updates == 1
        return players.state_dict()

    one, other = train(True), train(False)
    for name in one:
        for key, value in one[name].items():
            assert torch.equal(value, other[name][key])
