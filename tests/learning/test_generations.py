"""Populations that inherit: who survives, what heirs get, and that a resume goes on bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from palaestra import Turns
from palaestra.agents import OrderedPolicy, TabularPolicy, Team
from palaestra.errors import InputError, LearnerError
from palaestra.learning.generations import Generations, inherited, select


def made(**options):
    team = Team({f"a{k}": OrderedPolicy(1, 5, start=[k, k / 4], name=f"m{k}") for k in range(4)})
    return team, Generations(team, **options)


def table(fitness, names=("m0", "m1", "m2", "m3")):
    return Turns({"policy": list(names), "advantage": fitness})


def weights(team):
    return [float(policy.state_dict()["0.weight"]) for policy in team.policies.values()]


def test_survivors_stay_and_heirs_are_copies_without_mutation():
    team, learner = made(mutation=0.0)
    told = learner.update(table([0.0, 3.0, 1.0, 2.0]), rng=np.random.default_rng(0))
    found = weights(team)
    assert (found[1], found[3]) == (1.0, 3.0)
    assert set(found) == {1.0, 3.0}
    for name, at in (("m0", 0), ("m2", 2)):
        assert found[at] == told[name]["parent"]
        assert told[name]["survived"] == 0
    assert learner.updates == 1


def test_fitness_is_the_mean_credit_and_missing_credit_does_not_count():
    _, learner = made()
    found = learner.forward_backward(table([1.0, None, 5.0, 2.0], ["m0", "m0", "m0", "m3"]))
    assert found["m0"]["fitness"] == 3.0
    assert found["m0"]["rows"] == 2
    assert (found["m1"]["rows"], found["m1"]["fitness"]) == (0, None)


def test_who_was_not_scored_is_behind_all_others_also_where_credit_is_below_0():
    _, learner = made()
    told = learner.update(table([-1.0, -2.0, -3.0], ["m0", "m1", "m2"]), rng=np.random.default_rng(0))
    assert [each["survived"] for each in told.values()] == [1, 1, 0, 0]


def test_fresh_heirs_have_a_start_not_what_a_survivor_is():
    team, learner = made(inherit="fresh", mutation=0.0)
    for policy in team.policies.values():
        with torch.no_grad():
            policy.state_dict()["0.weight"].fill_(9.0)
    learner.update(table([0.0, 3.0, 1.0, 2.0]), rng=np.random.default_rng(0))
    found = weights(team)
    assert found[1] == found[3] == 9.0
    assert {found[0], found[2]} <= {0.0, 1.0, 2.0, 3.0}


def test_a_resume_goes_on_as_it_was():
    one, first = made()
    first.update(table([0.0, 3.0, 1.0, 2.0]), rng=np.random.default_rng(0))
    two, second = made()
    two.load_state_dict(one.state_dict())
    second.restore(first.state())
    for learner in (first, second):
        learner.update(table([5.0, 3.0, 1.0, 2.0]), rng=np.random.default_rng(1))
    assert weights(one) == weights(two)
    assert first.updates == second.updates == 2


def test_heirs_differ_from_their_parents_by_the_mutation():
    state = {"w": torch.zeros(1000), "n": torch.tensor([3])}
    ((parent, heir),) = inherited([state], 1, 0.2, np.random.default_rng(0))
    assert parent == 0
    assert float(heir["w"].std()) == pytest.approx(0.2, rel=0.1)
    assert heir["n"].tolist() == [3]
    assert not state["w"].any()


def test_one_always_survives():
    assert select([1.0, 2.0, 3.0], 0.1).tolist() == [False, False, True]


def test_what_does_not_fit_is_named():
    team = Team(a=OrderedPolicy(1, 5, name="a"), b=TabularPolicy(5, name="b"))
    with pytest.raises(InputError, match="two policies of one form"):
        Generations(team)
    for options in ({"survivors": 0.0}, {"mutation": -1.0}, {"inherit": "cpoy"}):
        with pytest.raises(InputError, match=next(iter(options))):
            made(**options)
    _, learner = made()
    with pytest.raises(InputError, match=r"'advantage' has credit per token.*per_turn\(\)"):
        learner.update(table([[0.0], [1.0, 2.0], [1.0], [2.0]]))
    with pytest.raises(LearnerError, match="not finite"):
        learner.update(table([0.0, float("nan"), 1.0, 2.0]))
