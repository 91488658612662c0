from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
import torch

import palaestra.agents as agents
from palaestra.agents import ChatPolicy, Learnable, MLPPolicy, Policy, ScriptedPolicy, TabularPolicy, Team, random_legal
from palaestra.agents.team import load_policy
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


def test_save_and_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = MLPPolicy(3, 2, hidden=(4, 5), name="org/model", seed=3)
    table = TabularPolicy(2, name="..", capacity=8)
    table.logits_of_rows(pl.DataFrame({"state": [7, 2**64 - 1]}, schema={"state": pl.UInt64}))
    with torch.no_grad():
        table.parameters()[0][1, 0] = 2.5
    team = Team(a=shared, b=table, c=shared, d=random_legal(), e=ChatPolicy("m", api_key_env=None))
    chat = {"kind": "chat", "options": {"model": "m", "api_key_env": None}, "seed": 0}
    monkeypatch.setattr(
        "palaestra.runs.policies.remake_policy",
        lambda name, part, trust: ScriptedPolicy(lambda request: part, name=name),
    )
    folder = team.save(tmp_path / "team", others={"m": chat})
    assert sorted(path.name for path in folder.iterdir()) == ["%2E.", "org%2Fmodel", "team.json"]
    with pytest.raises(InputError, match=r"policy 'random' has no stored form; give it: policies={'random': "):
        Team.load(folder)
    mine = random_legal()
    loaded = Team.load(folder, policies={"random": mine})
    assert repr(loaded) == repr(team)
    assert loaded["a"] is loaded["c"]
    assert loaded["d"] is mine
    assert loaded["e"].function(None) == chat
    for name, state in team.state_dict().items():
        other = loaded.state_dict()[name]
        assert all(torch.equal(state[key], other[key]) for key in state)
    assert (loaded["a"].hidden, loaded["b"].capacity) == ((4, 5), 8)
    team.save(folder, others={"m": chat})  # again, in its place
    assert repr(Team.load(folder, policies={"random": mine})) == repr(team)


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        ({"agents": {"a": "x"}, "policies": {}}, "no policy 'x'"),
        ({"agents": ["a"]}, "does not say who fills which seat"),
        ({"agents": {"a": "x"}, "policies": {"x": {"folder": "../.."}}}, "no palaestra.json"),
        ({"agents": {"a": "x"}, "policies": {"x": {"kind": "os:system", "options": {}}}}, "names code"),
        ({"agents": {"a": "x"}, "policies": {"x": {"kind": "tabular"}}}, "looks at the env"),
    ],
)
def test_a_damaged_team_is_named(tmp_path: Path, stored: object, message: str) -> None:
    (tmp_path / "team.json").write_text(json.dumps(stored))
    with pytest.raises(InputError, match=message):
        Team.load(tmp_path)


def test_a_damaged_policy_is_named(tmp_path: Path) -> None:
    TabularPolicy(2).save(tmp_path)
    data = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(data[:-9])
    with pytest.raises(InputError, match=f"{tmp_path}: cannot be read: SafetensorError"):
        load_policy(tmp_path)
    (tmp_path / "palaestra.json").write_text('{"kind": "tabularr"}')
    with pytest.raises(InputError, match=r"kind 'tabularr'; did you mean 'tabular'"):
        load_policy(tmp_path)
