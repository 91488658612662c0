from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pytest

from palaestra.agents import ScriptedPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.envs import gymnasium, pettingzoo, to_pettingzoo
from palaestra.envs.facts import DTYPES, facts_of, read_facts
from palaestra.envs.protocol import Action, Observation, StepResult
from palaestra.envs.roles import SimulatedUser
from palaestra.errors import EnvError, InputError
from palaestra.play.rollout import rollout


def say(request: object) -> str:
    return "yes"


class Teller:
    """Two agents, three steps; says what it was given."""

    agents = ("a", "b")
    task = "tell"
    facts: ClassVar[Any] = {"delta": float, "note": str, "rows": list[int], "good": bool}

    def __init__(self, *infos: Mapping[str, Any]) -> None:
        self.infos = infos

    def reset(self, seed: int) -> Mapping[str, Observation]:
        self.position = 0
        return {"a": Observation("0"), "b": Observation("0")}

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        info = self.infos[self.position]
        self.position += 1
        seen = {"a": Observation(str(self.position))}
        over = self.position == len(self.infos)
        return StepResult({} if over else seen, {}, terminated=over, info=info)


def play(*infos: Mapping[str, Any], **options: Any) -> Turns:
    team = Team(a=ScriptedPolicy(say, name="x"), b=ScriptedPolicy(say, name="y"))
    return rollout(functools.partial(Teller, *infos), team, **{"groups": 1} | options)


TOLD: tuple[Mapping[str, Any], ...] = (
    {"delta": {"a": -3, "b": np.float32(0.5)}, "rows": np.array([1, 2]), "other": 1},
    {"delta": 2, "note": "half \ud83d", "good": np.bool_(True), "rows": []},
    {"delta": None},
)


def test_facts_are_typed_columns() -> None:
    turns = play(*TOLD)
    assert turns.frame.select("agent", "delta", "note", "rows", "good", "metadata").rows() == [
        ("a", -3.0, None, [1, 2], None, '{"other": 1}'),
        ("b", 0.5, None, [1, 2], None, '{"other": 1}'),
        ("a", 2.0, "half ?", [], True, None),
        ("a", None, None, None, None, None),
    ]
    assert [turns[name].dtype for name in Teller.facts] == [pl.Float64, pl.String, pl.List(pl.Int64), pl.Boolean]


@pytest.mark.parametrize("sink", [False, True])
@pytest.mark.parametrize("kind", DTYPES)
def test_the_columns_are_there_when_nothing_is_told(kind: Any, sink: bool, tmp_path: Path) -> None:
    class Silent(Teller):
        facts: ClassVar[Any] = {"said": kind}

        def reset(self, seed: int) -> Mapping[str, Observation]:
            raise OSError("no")

    team = Team(a=ScriptedPolicy(say, name="x"))
    turns = rollout(Silent, team, groups=3, sink=tmp_path / "t.parquet" if sink else None)
    assert turns["said"].to_list() == [None] * 3
    assert turns["said"].dtype == DTYPES[kind]
    assert turns["error"].null_count() == 0


def test_a_streamed_table_has_the_same_facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaestra.play.recording.CHUNK_ROWS", 3)
    streamed, held = play(*TOLD, groups=5, sink=tmp_path / "t.parquet"), play(*TOLD, groups=5)
    assert streamed.frame.drop("duration").equals(held.frame.drop("duration"))


@pytest.mark.parametrize(
    ("info", "message"),
    [
        ({"delta": "3"}, "env: EnvError: the fact 'delta' is '3', a str; float was declared"),
        ({"delta": True}, "env: EnvError: the fact 'delta' is True, a bool; float was declared"),
        ({"delta": np.nan}, "env: EnvError: the fact 'delta' is nan, which is not finite; an unknown number is None"),
        ({"rows": [1, "2"]}, "env: EnvError: the fact 'rows' is [1, '2'], a list of int, str; list[int] was declared"),
        ({"rows": [2**63]}, "env: EnvError: the fact 'rows' is [9223372036854775808], which does not fit into 64 bits"),
        ({"good": 1}, "env: EnvError: the fact 'good' is 1, a int; bool was declared"),
        ({"delta": {"c": 1.0}}, "env: EnvError: the fact 'delta' is told of 'c', but the env's agents are ('a', 'b')"),
        ({"cost": 1}, "env: EnvError: info['cost'] has the name of a column (price of the call); give it another name"),
    ],
)  # fmt: skip
def test_what_was_not_declared_so_ends_the_episode(info: Mapping[str, Any], message: str) -> None:
    turns = play(info)
    assert turns["error"].to_list() == [message] * 2
    assert turns["delta"].to_list() == [None] * 2


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"reward": float}, "Teller: the fact 'reward' has the name of a column of every table"),
        ({"delta": dict}, r"Teller: the fact 'delta' is a <class 'dict'>; a column can hold float, int"),
        ({"valid": bool}, "'valid' has the name of a column"),
        ({"two words": int}, "a fact cannot be called 'two words'"),
        (["delta"], r"Teller: facts is \['delta'\], expected a mapping"),
    ],
)
def test_declarations_are_checked(facts: Any, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Teller, "facts", facts)
    with pytest.raises(InputError, match=message):
        play({})


def test_facts_are_found_in_envs_classes_and_factories() -> None:
    made: list[int] = []

    class Late:
        def __init__(self, name: str = "x") -> None:
            made.append(1)
            self.facts = {name: int}

        def reset(self, seed: int) -> Any: ...

    assert facts_of(Teller) == facts_of(Teller()) == facts_of(functools.partial(Teller, {})) == Teller.facts
    assert facts_of(Late) == facts_of(Late()) == {"x": int}
    assert facts_of(functools.partial(Late, "y")) == {"y": int}


def test_only_what_was_told_is_read() -> None:
    assert read_facts({"other": 1}, {"n": int}, ["a"], ["a"]) == {"a": {}}
    with pytest.raises(EnvError, match="told of 'b'"):
        read_facts({"n": {"b": 1}}, {"n": int}, ["a"], ["a"])


def test_what_is_told_of_somebody_else_stands_on_its_latest_turn() -> None:
    turns = play({"delta": 1.0}, {"delta": {"b": 2.0}, "rows": [7]})
    assert turns.frame.select("agent", "turn", "delta", "rows").rows() == [
        ("a", 0, 1.0, None),
        ("b", 0, 2.0, None),
        ("a", 1, None, [7]),
    ]


def test_entries_of_a_librarys_info_become_columns_where_asked_for() -> None:
    gym = pytest.importorskip("gymnasium")

    class Odd(gym.Env):  # type: ignore[misc, name-defined]
        observation_space, action_space = gym.spaces.Discrete(2), gym.spaces.Discrete(2)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return 0, {"x": 9.0}

        def step(self, action: int) -> Any:
            return 1, 1.0, True, False, {"x": np.float32(0.5), "episode": {"r": 1}}

    team = Team(player=ScriptedPolicy(lambda request: 0, name="p"))
    turns = rollout(gymnasium(Odd, facts={"x": "float", "there": "list[int]"}), team, groups=2)
    assert turns.frame.select("x", "there", "metadata", "error").rows() == [(0.5, None, None, None)] * 2
    with pytest.raises(InputError, match="facts: 'x' is 'flaot'; did you mean 'float'"):
        gymnasium(Odd, facts={"x": "flaot"})


def test_infos_of_each_agent_become_columns_where_asked_for() -> None:
    pytest.importorskip("pettingzoo")
    env = pettingzoo(functools.partial(to_pettingzoo, SimulatedUser), facts={"delta": "float"}, illegal="random")
    turns = rollout(env, Team(helper=ScriptedPolicy(lambda request: 0, name="p")), groups=3)
    ours = rollout(SimulatedUser, Team(helper=ScriptedPolicy(lambda request: 0, name="p")), groups=3)
    assert turns["delta"].to_list() == ours["delta"].to_list()
