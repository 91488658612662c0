"""Inverse soft Q-learning: what it reads and refuses, online states, and going on from a state."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from palaestra.agents import TabularPolicy, Team
from palaestra.agents.joint import JointPolicy
from palaestra.agents.scripted import random_legal
from palaestra.envs.worlds import Gems
from palaestra.envs.worlds.exact.joint_soft import gem_expert
from palaestra.errors import InputError, LearnerError
from palaestra.learning.inverse_soft_q import InverseSoftQ
from palaestra.learning.stages import Context
from palaestra.learning.stages.recovered_reward import recovered_reward
from palaestra.play.rollout import rollout

AGENTS = Gems().agents


@pytest.fixture
def file(tmp_path):
    experts = Team(dict.fromkeys(AGENTS, JointPolicy(gem_expert(Gems()), AGENTS)))
    path = tmp_path / "expert.parquet"
    rollout(Gems, experts, groups=20, seed=0).frame.drop("reward").write_parquet(path)
    return path


def team():
    return Team({agent: TabularPolicy(3, name=agent) for agent in AGENTS})


def made(file, **options):
    return InverseSoftQ(team(), expert=str(file), steps=20, **options)


def played(learner, seed=0):
    return rollout(Gems, Team(dict(learner.seats)), groups=4, seed=seed)


def test_policies_are_those_of_the_critics(file):
    learner = made(file)
    learner.update(played(learner))
    turns = played(learner, 1).frame
    row = turns.row(0, named=True)
    place = [each.tobytes() for each in learner.known].index(np.array([row["state"]] * 2, np.uint64).tobytes())
    chance = learner.last[0][place, row["action_ids"][0]]
    assert np.exp(row["logprobs"][0]) == pytest.approx(chance, rel=1e-4)


def test_it_goes_on_from_its_state(file):
    one, other = made(file, online=0.5), made(file, online=0.5)
    turns = played(one)
    one.update(turns)
    other.restore(one.state())
    for each in (one, other):
        each.update(turns)
    for first, second in zip(one.critics.q, other.critics.q, strict=True):
        np.testing.assert_array_equal(first, second)


def test_own_states_count_online(file):
    learner, offline = made(file, online=0.5), made(file)
    turns = played(learner)
    for each in (learner, offline):
        each.update(turns)
    assert learner.critics.states >= offline.critics.states
    assert not np.allclose(learner.critics.q[0][: offline.critics.states], offline.critics.q[0])


def test_unknown_states_have_no_reward(file):
    learner = made(file)
    told = Context(np.random.default_rng(0), 1, None, None, None, learner=learner)
    turns = played(learner)
    assert recovered_reward()(turns, told)["recovered"].null_count() == len(turns.frame)
    learner.update(turns)
    strange = turns.with_column(state=turns["state"] + 1)
    assert recovered_reward()(turns, told)["recovered"].null_count() < len(turns.frame)
    assert recovered_reward()(strange, told)["recovered"].null_count() == len(turns.frame)


@pytest.mark.parametrize("options", [{"critic": "jiont"}, {"gamma": 2.0}, {"online": 1.0}, {"alpha": 0.0}])
def test_what_is_out_of_range_is_named(file, options):
    with pytest.raises(InputError, match="inverse_soft_q"):
        made(file, **options)


def test_files_and_teams_that_do_not_fit_are_named(file, tmp_path):
    with pytest.raises(InputError, match="no file"):
        made(tmp_path / "none.parquet")
    pl.read_parquet(file, glob=False).drop("action_ids").write_parquet(tmp_path / "less.parquet")
    with pytest.raises(InputError, match="action_ids"):
        made(tmp_path / "less.parquet")
    shared = TabularPolicy(3, name="shared")
    with pytest.raises(InputError, match="a tabular policy each"):
        InverseSoftQ(Team(dict.fromkeys(AGENTS, shared)), expert=str(file))


def test_turns_without_ids_and_partial_views_are_refused(file):
    learner = made(file)
    scripted = rollout(Gems, Team({each: random_legal(name=each) for each in AGENTS}), groups=2, seed=0)
    with pytest.raises(LearnerError, match="no action_ids"):
        learner.numbered(scripted.frame)
    blind = played(learner).frame.with_columns(
        state=pl.when(pl.col("agent").cast(pl.String) == AGENTS[0]).then(0).otherwise(pl.col("state")).cast(pl.UInt64)
    )
    with pytest.raises(LearnerError, match="not the whole state"):
        learner.steps_of(blind)


def test_a_step_leads_to_the_next_of_its_episode_and_the_last_to_nothing(file):
    learner = made(file)
    turns = played(learner).frame
    _, steps, kept = learner.numbered(turns, new=True)
    per_turn = turns.unique(["episode", "group", "turn"]).sort("group", "episode", "turn")
    last = (
        per_turn["turn"].to_numpy()
        == per_turn.select(pl.col("turn").max().over("group", "episode")).to_series().to_numpy()
    )
    assert kept.tolist() == list(range(len(per_turn)))
    assert steps.over.tolist() == last.tolist()
    assert steps.there[:-1][~last[:-1]].tolist() == steps.here[1:][~last[:-1]].tolist()
    assert not steps.there[last].any()
    _, cut, kept = learner.numbered(turns.with_columns(truncated=pl.lit(True)))
    assert kept.tolist() == np.flatnonzero(~last).tolist(), "nothing is known of what follows a cut"
    assert not cut.over.any()


def test_each_agent_may_do_what_was_listed_for_it(file):
    learner = made(file)
    turns = played(learner).frame
    listed = {AGENTS[0]: [True, True, False], AGENTS[1]: [False, True, True]}
    turns = turns.with_columns(legal=pl.Series([listed[each] for each in turns["agent"].cast(pl.String)]))
    _, steps, _ = learner.numbered(turns, new=True)
    for place, agent in enumerate(AGENTS):
        assert learner.critics.legal[place][steps.here].tolist() == [listed[agent]] * len(steps.here)
