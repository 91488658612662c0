from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from palaestra.agents import QTablePolicy, TabularPolicy, Team
from palaestra.agents.policy import Request
from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError, LearnerError
from palaestra.learning.q_learning import QLearner
from palaestra.runs.inline import learn


def turns(rewards, states=(10, 11, 12), actions=(0, 1, 0), **columns):
    number = len(rewards)
    data = {
        "run": ["0"] * number, "iteration": [0] * number, "group": [0] * number, "episode": [0] * number,
        "turn": list(range(number)), "agent": ["one"] * number, "policy": ["q"] * number, "reward": rewards,
        "state": pl.Series(states[:number], dtype=pl.UInt64), "action_ids": [[a] for a in actions[:number]],
    }  # fmt: skip
    return Turns({**data, **columns})


def values(learner, *states):
    table = learner.tables["q"]
    return table.values(table.places(states))


def learner(**options):
    return QLearner(Team(one=QTablePolicy(2, name="q")), **{"rate": 0.5, "gamma": 0.9} | options)


def test_targets_are_reward_and_the_best_of_what_was_seen_next():
    one = learner()
    one.update(turns([0.0, 0.0, 1.0]))
    assert values(one, 10, 11, 12).tolist() == [[0, 0], [0, 0], [0.5, 0]]
    one.update(turns([0.0, 0.0, 1.0]))
    assert values(one, 10, 11, 12) == pytest.approx(np.array([[0, 0], [0, 0.225], [0.75, 0]]))
    assert one.updates == 2


def test_what_is_illegal_next_is_not_hoped_for():
    one = learner()
    table = one.tables["q"]
    table.learn(table.places([11]), np.array([0]), np.array([8.0]), 1.0)
    one.update(turns([0.0, None], legal=[[True, True], [False, True]]))
    assert values(one, 10).tolist() == [[0, 0]], "state 11 is worth 8 by a move that may not be made"


def test_a_turn_without_reward_is_seen_but_not_learned_from():
    one = learner()
    table = one.tables["q"]
    table.learn(table.places([11]), np.array([1]), np.array([2.0]), 1.0)
    metrics = one.update(turns([0.0, None, 1.0]))
    assert values(one, 10, 11).tolist() == [[pytest.approx(0.9), 0], [0, 2]]
    assert metrics["q"]["rows"] == 2


@pytest.mark.parametrize("how", ["truncated", "continuing"])
def test_the_end_of_a_game_that_goes_on_is_left_out(how):
    one = learner(continuing=how == "continuing")
    columns = {"truncated": [False, False, True]} if how == "truncated" else {}
    assert one.update(turns([0.0, 0.0, 1.0], **columns))["q"]["rows"] == 2
    assert not values(one, 12).any()


def test_equal_pairs_count_as_one_after_the_other():
    one, many = QTablePolicy(2), QTablePolicy(2)
    for _ in range(3):
        one.learn(one.places([5]), np.array([1]), np.array([2.0]), 0.3)
    many.learn(many.places([5, 5, 5]), np.array([1, 1, 1]), np.array([1.0, 2.0, 3.0]), 0.3)
    assert many.values(np.array([0])) == pytest.approx(one.values(np.array([0])))
    assert one.values(np.array([0]))[0, 1] == pytest.approx(2 * (1 - 0.7**3))


def test_it_explores_less_and_says_with_which_probability():
    table = QTablePolicy(3, start=1.0, decay=0.5, least=0.1)
    seen = Observation("s", ("a", "b", "c"), mask=np.array([True, True, False]))
    table.learn(table.places([seen.key()]), np.array([1]), np.array([2.0]), 1.0)
    table.learn(table.places([seen.key()]), np.array([2]), np.array([9.0]), 1.0)
    for epsilon in (1.0, np.exp(-0.5), np.exp(-1.0)):
        assert table.choice_probabilities([seen])[0][0] == pytest.approx([epsilon / 2, 1 - epsilon / 2, 0])
        table.count()
    for _ in range(9):
        table.count()
    (decision,) = table.act([Request(seen, "one", np.random.default_rng(0))])
    assert decision.logprobs[0] == pytest.approx(np.log([0.05, 0.95][decision.action]))


def test_it_is_kept_and_read_again(tmp_path):
    table = QTablePolicy(2, start=3.0)
    table.learn(table.places([7, 2**63 + 5]), np.array([0, 1]), np.array([1.0, -1.0]), 0.5)
    table.count()
    table.save(tmp_path)
    again = QTablePolicy.load(tmp_path)
    assert again.values(again.places([7, 2**63 + 5])).tolist() == [[2, 3], [3, 1]]
    assert again.epsilon == table.epsilon < 1


def test_it_learns_a_sparse_task_and_values_are_discounted_returns():
    learned = learn(
        "corridor",
        {
            "policies": {"walker": {"kind": "q_table", "options": {"decay": 0.1, "least": 0.0}}},
            "learn": {"kind": "q_learning", "options": {"rate": 0.5, "gamma": 0.9}},
            "train": {"iterations": 80},
        },
        seed=0,
    )
    played = learned.play(groups=1, seed=3)
    assert played["success"].drop_nulls().all()
    table = learned.team.policies["walker"]
    best = table.values(table.places(played["state"].to_list())).max(axis=1)
    assert best == pytest.approx(0.9 ** np.arange(len(played))[::-1], abs=1e-3), "the fixed point on its way"


def test_what_cannot_be():
    with pytest.raises(InputError, match=r"policies.NAME.kind: q_table"):
        QLearner(Team(one=TabularPolicy(2)))
    for wrong in ({"rate": 0.0}, {"gamma": 1.5}):
        with pytest.raises(InputError, match="q_learning"):
            learner(**wrong)
    with pytest.raises(InputError, match="QTablePolicy"):
        QTablePolicy(2, least=2.0)
    one = learner(reward="worth")
    with pytest.raises(LearnerError, match="not finite"):
        one.update(turns([0.0, 0.0, 1.0], worth=[0.0, 1.0, float("inf")]))
    assert one.updates == 0


def test_values_are_drawn_with_the_deviation_of_their_estimates():
    from scipy.stats import norm

    policy = QTablePolicy(2, name="q", decay=0.0, least=0.0, noise=0.5, capacity=1)
    policy.module.get_buffer("updates").add_(1)
    policy.decay = 1e9
    seen = [Observation(text, choices=("a", "b")) for text in ("one", "two")]
    chance = policy.choice_probabilities(seen)[0]
    assert chance == pytest.approx(np.full((2, 2), 0.5)), "nothing is known of either"
    places = policy.places([each.key() for each in seen])
    policy.learn(places[[0, 0, 0, 0]], np.array([0, 0, 0, 1]), np.array([1.0, 0.0, 1.0, 0.0]), 0.5)
    left = 0.5**3
    mean = (1 - left) * 2 / 3
    spread = 0.5 * np.sqrt([left**2 + (1 - left) ** 2 / 3, 0.25 + 0.25])
    found = policy.choice_probabilities(seen)[0]
    assert found[0, 0] == pytest.approx(norm.cdf(mean / np.hypot(*spread)), abs=2e-3)
    assert found[1] == pytest.approx([0.5, 0.5])
    for _ in range(50):
        policy.learn(places[[0]], np.array([0]), np.array([1.0]), 0.5)
    assert 1 - policy._sureness[places[0], 0] == pytest.approx(0.5 / 1.5), "a constant rate is never sure"
    masked = [Observation("one", choices=("a", "b"), mask=(True, False))]
    assert policy.choice_probabilities(masked)[0].tolist() == [[1.0, 0.0]]


def test_sureness_is_saved_with_the_table(tmp_path):
    from palaestra.agents.team import load_policy

    policy = QTablePolicy(2, name="q", noise=0.5, capacity=1)
    places = policy.places([1, 2, 3])
    policy.learn(places, np.array([0, 1, 0]), np.ones(3), 0.5)
    policy.save(tmp_path / "q")
    again = load_policy(tmp_path / "q")
    assert again._sureness.tolist() == policy._sureness.tolist()
    with pytest.raises(InputError, match="noise"):
        QTablePolicy(2, noise=-1.0)
