from __future__ import annotations

import numpy as np
import pytest

from palaestra.agents import ScriptedPolicy, Team
from palaestra.envs import make
from palaestra.envs.worlds.errands import EXPERTS, KINDS, Errands, planner
from palaestra.errors import InputError
from palaestra.foundation.archive import Archive
from palaestra.play.rollout import rollout


def play(when, groups=100, **options):
    env = make("native/errands", **options)
    team = {"manager": ScriptedPolicy(planner(when), name="m")}
    team["router"] = ScriptedPolicy(lambda request: KINDS.index(request.observation.text), name="r")
    return rollout(env, Team({name: team[name] for name in env().agents}), groups=groups, seed=0).frame


def test_plans_are_counted_and_paid_for():
    turns = play("after_each", price=0.05, drift=0.0)
    last = turns.sort("turn").group_by("group", maintain_order=True).last()
    expected = last["success"].cast(float) - 0.05 * (last["plans"] - 1)
    assert last["reward"].to_numpy() == pytest.approx(expected.to_numpy())
    assert last["plans"].min() == 5
    assert set(play("never")["plans"]) == {1}


def test_a_rule_in_the_world_is_the_managers_rule():
    for when in ("never", "on_failure", "after_each"):
        own = play(when, drift=0.6, experts=EXPERTS, groups=300)
        ruled = play(when, drift=0.6, experts=EXPERTS, groups=300, replan=when)
        assert set(ruled["agent"]) == {"router"}
        means = [each.unique(["group"])["success"].mean() for each in (own, ruled)]
        assert means[0] == pytest.approx(means[1], abs=0.12)


def test_what_cannot_be_played_is_named():
    for options in ({"replan": "nver"}, {"replan": "never"}, {"goals": 9}, {"experts": [[1.0]]}, {"drift": 2.0}):
        with pytest.raises(InputError, match="Errands"):
            make("native/errands", **options)()
    with pytest.raises(InputError, match="did you mean 'never'"):
        planner("nevr")


def test_experts_are_as_good_as_their_table():
    assert (np.array(EXPERTS).argmax(0) == np.arange(3)).all()


def test_tasks_that_come_again_are_remembered():
    env = Errands(tasks=1, memory=Archive(), experts=EXPERTS, fresh=1.0, drift=0.0, goals=1, budget=9)
    for expected in ("begun", "begun | 1 done in "):
        seen = env.reset(0)
        assert seen["manager"].text.startswith(expected)
        while seen:
            ((seat, observation),) = seen.items()
            choice = 0 if seat == "manager" else KINDS.index(observation.text.split(" | ")[0])
            seen = env.step({seat: choice}).observations
    assert len({entry.key for entry in env.memory.entries}) == len(env.memory.entries)
    with pytest.raises(InputError, match="tasks"):
        Errands(tasks=-1)


@pytest.mark.parametrize(
    ("replan", "fresh", "plans"),
    [("never", 0.0, 1), ("on_failure", 0.0, 3), ("on_failure", 1.0, 1), ("after_each", 0.0, 3), ("after_each", 1.0, 3)],
)
def test_the_worlds_rule_plans_anew_before_each_later_step_that_asks_for_it(replan, fresh, plans):
    env = Errands(goals=3, budget=3, fresh=fresh, drift=0.0, replan=replan, experts=[[1.0] * len(KINDS)], price=0.1)
    seen = env.reset(0)
    while seen:
        result = env.step(dict.fromkeys(seen, 0))
        seen = result.observations
    assert (result.info["plans"], result.info["success"]) == (plans, fresh == 1.0)
    assert result.rewards == {"router": pytest.approx(fresh - 0.1 * (plans - 1))}


OWN = np.eye(3).tolist()


def kinds(env, seed):
    """Sub-goals of an episode in which every step is right, with what the router reads."""
    seen, texts = env.reset(seed), []
    while seen:
        texts.append(seen["router"].text)
        seen = env.step({"router": KINDS.index(texts[-1].split(" | ")[0])}).observations
    return env.task, tuple(texts)


def test_a_task_that_comes_again_has_its_own_sub_goals():
    env = Errands(tasks=8, experts=OWN, fresh=1.0, drift=0.0, goals=7, replan="never")
    met = {kinds(env, seed) for seed in range(40)}
    assert len({task for task, _ in met}) == len(met) == 8
    assert len({texts for _, texts in met}) == 8


def test_an_expert_that_failed_is_not_remembered():
    env = Errands(memory=Archive(), experts=OWN, fresh=1.0, drift=0.0, goals=1, budget=2, replan="never")
    first = env.reset(0)["router"].text
    env.step({"router": (KINDS.index(first) + 1) % 3})
    assert not env.memory.entries


def test_a_reply_that_names_no_expert_ends_the_task():
    env = Errands(experts=OWN, replan="never")
    env.reset(0)
    result = env.step({"router": "nobody"})
    assert not result.observations
    assert result.info["success"] is False
