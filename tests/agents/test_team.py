from __future__ import annotations

import subprocess
import sys

import pytest
import torch

import palaestra.agents as agents
from palaestra.agents import Learnable, MLPPolicy, Policy, TabularPolicy, Team, random_legal
from palaestra.errors import InputError


def test_seats_and_policies() -> None:
    shared, control = TabularPolicy(2, name="learner"), random_legal()
    team = Team({"player 0": shared, "player 1": control}, third=shared)
    assert dict(team) == {"player 0": shared, "player 1": control, "third": shared}
    assert team.policies == {"learner": shared, "random": control}
    assert team.for_agent("third") is shared
    assert team.trainable == [shared]
    assert repr(team) == "Team(player 0=learner, player 1=random, third=learner)"


def test_errors_name_the_fix() -> None:
    with pytest.raises(InputError, match=r"'b' brings a second policy named 'random': give it its own name="):
        Team(a=random_legal(), b=random_legal())
    with pytest.raises(InputError, match=r"no policy for agent 'solvr'; did you mean 'solver'\?"):
        Team(solver=random_legal()).for_agent("solvr")
    with pytest.raises(InputError, match="no agents"):
        Team()


def test_state_of_the_team() -> None:
    one, two = (
        Team(a=MLPPolicy(2, 2, name="x", seed=s), b=TabularPolicy(2, name="y"), c=random_legal()) for s in (1, 2)
    )
    state = one.state_dict()
    assert state.keys() == {"x", "y"}
    two.load_state_dict(state)
    assert all(torch.equal(a, b) for a, b in zip(one["a"].parameters(), two["a"].parameters(), strict=True))
    with pytest.raises(InputError, match=r"policy 'y' is in the team, not in the state"):
        two.load_state_dict({"x": state["x"]})
    with pytest.raises(InputError, match=r"policy 'z' is in the state, not in the team"):
        two.load_state_dict(state | {"z": {}})


def test_a_frozen_copy_keeps_who_shares_and_does_not_learn() -> None:
    shared, control = MLPPolicy(2, 2), random_legal()
    team = Team(a=shared, b=shared, c=control)
    frozen = team.frozen_copy()
    assert frozen["a"] is frozen["b"]
    assert frozen["c"] is control
    before = frozen["a"].parameters() + list(frozen["a"].state_dict().values())
    with torch.no_grad():
        shared.parameters()[0].add_(1.0)
    assert not torch.equal(frozen["a"].state_dict()["0.weight"], shared.state_dict()["0.weight"])
    assert before
    assert frozen.trainable == []
    assert frozen.learnable.keys() == {"mlp"}


def test_protocols() -> None:
    assert isinstance(TabularPolicy(2), Learnable)
    assert isinstance(random_legal(), Policy)
    assert not isinstance(random_legal(), Learnable)


def test_the_package_imports_without_torch_and_says_what_to_install() -> None:
    code = """
import sys
sys.modules["torch"] = None
import palaestra.agents as agents
from palaestra.errors import MissingExtraError
agents.Team(a=agents.random_legal())
for name in ("LMPolicy", "TabularPolicy", "MLPPolicy"):
    try:
        getattr(agents, name)
    except MissingExtraError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["torch is not installed: pip install 'palaestra[train]'"] * 3
    assert set(agents.__all__) <= {*dir(agents), *agents._LAZY}
    with pytest.raises(AttributeError, match="no attribute 'LLMPolicy'"):
        _ = agents.LLMPolicy
