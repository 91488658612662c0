from __future__ import annotations

import io
import pickle
import time

import numpy as np
import polars as pl
import pytest
import torch

from palaestra.agents import MLPPolicy, TabularPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.envs import make
from palaestra.errors import InputError, PalaestraError, SchemaError
from palaestra.play import shards
from palaestra.play.executors import Local
from palaestra.play.plan import Plan, cut
from palaestra.play.shards import Player, PlayJob, Published, ShardResult, concatenated, digest, pack, unpack

KUHN = make("openspiel/kuhn_poker")


def players() -> Team:
    return Team(player_0=TabularPolicy(2, name="one"), player_1=TabularPolicy(2, name="two"))


@pytest.mark.parametrize("count", [1, 2, 5, 16, 40])
def test_the_parts_of_a_plan_are_the_plan(count: int) -> None:
    plan = Plan(range(3, 25), group_size=[1 + g % 3 for g in range(22)], env_seeds=list(range(22)))
    parts = cut(plan, count)
    assert len(parts) == min(count, 22)
    assert [group for part in parts for group in part.numbers] == list(plan.numbers)
    assert [part.size_of(g) for part in parts for g in part.numbers] == list(plan.group_size)  # type: ignore[arg-type]
    lengths = {len(part.numbers) for part in parts}
    assert max(lengths) - min(lengths) <= 1


def test_weights_travel_as_bytes() -> None:
    state = {
        "half": torch.randn(3, 2).to(torch.bfloat16), "whole": {"a": torch.arange(4), "none": torch.empty(0, 3)},
        "array": np.eye(2), "plain": [1, None, "two"],
    }  # fmt: skip
    again = unpack(pickle.loads(pickle.dumps(pack(state), protocol=5)))
    assert torch.equal(again["half"], state["half"])
    assert again["half"].dtype is torch.bfloat16
    assert torch.equal(again["whole"]["a"], state["whole"]["a"])  # type: ignore[index]
    assert again["whole"]["none"].shape == (0, 3)
    np.testing.assert_array_equal(again["array"], np.eye(2))
    assert again["plain"] == [1, None, "two"]


def test_the_content_is_the_version() -> None:
    policy = MLPPolicy(4, 2, seed=1)
    first = digest(pack(policy.state_dict()))
    assert digest(pack(policy.frozen_copy().state_dict())) == first
    with torch.no_grad():
        policy.parameters()[1].data[0] += 1e-7  # .data: torch itself would not notice
    assert digest(pack(policy.state_dict())) != first


def published(value: object) -> Published:
    return Published(digest(value), value)


def test_a_player_makes_the_team_once_and_copies_weights_when_they_differ() -> None:
    fetched: list[object] = []

    def fetch(place: object) -> object:
        fetched.append(place)
        return place

    team, player = Team.made(players), Player(fetch)
    policy = team.policies["one"]
    maker, env = published(pickle.dumps(team.maker)), published(pickle.dumps(KUHN))

    def play() -> Turns:
        states = {name: published(pack(each.state_dict())) for name, each in team.learnable.items()}
        answer = player.play(PlayJob(env, maker, states), [Plan(6, 2)])
        answer.raise_()
        return Turns(concatenated([answer]))

    assert play().frame.drop("duration").equals(Local().play(KUHN, team, Plan(6, 2)).frame.drop("duration"))
    assert len(fetched) == 4  # env, team, two policies
    play()
    assert len(fetched) == 4
    rows = play().filter(play()["policy"].cast(str) == "one").frame
    policy.score(rows)  # type: ignore[attr-defined]  # from now on these states have rows, in this order
    with torch.no_grad():
        policy.parameters()[0].copy_(torch.randn(policy.parameters()[0].shape))  # type: ignore[attr-defined]
    assert play().frame.drop("duration").equals(Local().play(KUHN, team, Plan(6, 2)).frame.drop("duration"))
    assert len(fetched) == 5  # "two" is what it was


@pytest.mark.parametrize(
    ("name", "enough", "played"), [("ENOUGH", 0.0, 1), ("ENOUGH", 60.0, 3), ("LARGEST", 1, 1), ("LARGEST", 2**30, 3)]
)
def test_shards_are_played_in_a_row_until_it_is_enough(
    name: str, enough: float, played: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "ENOUGH", 60.0)
    monkeypatch.setattr(shards, name, enough)
    team = Team.made(players)
    parts = cut(Plan(6, 2, seed=3), 3)
    job = PlayJob(published(pickle.dumps(KUHN)), published(pickle.dumps(team.maker)))
    answer = Player(lambda place: place).play(job, parts)
    alone = [Local().play(KUHN, team, part) for part in parts[:played]]
    assert answer.shards == played
    assert concatenated([answer]).drop("duration").equals(Turns.concat(alone).frame.drop("duration"))


def answer_of(frame: pl.DataFrame) -> ShardResult:
    stream = io.BytesIO()
    frame.write_ipc_stream(stream)
    return ShardResult(stream.getvalue())


def test_answers_are_put_together_whatever_their_columns_are() -> None:
    types = {"agent": pl.Categorical, "said": pl.String, "ids": pl.List(pl.Int32)}
    first = pl.DataFrame({"agent": ["x", "y"], "said": ["long " * 9, None], "ids": [[1, 2], []]}, schema=types)
    other = pl.DataFrame({"agent": ["y", None, "z"], "said": ["s", "t", "u"], "ids": [None, [3], [4]]}, schema=types)
    more = other.with_columns(fact=pl.Series([1.0, None, 2.0]))  # what only some of them tell
    nothing = first.with_columns(said=pl.Series([None, None], dtype=pl.Null))
    for frames in ([first, other], [other, first], [first, more], [nothing, other], [first], []):
        found = concatenated(map(answer_of, frames))
        assert found.equals(Turns.concat(frames).frame)
        assert found.schema == Turns.concat(frames).frame.schema
        assert set(found.n_chunks("all")) <= {1}
    with pytest.raises(SchemaError):
        concatenated(map(answer_of, [first, first.with_columns(said=pl.Series([[1], [2]]))]))


def test_what_goes_wrong_in_a_worker_is_told() -> None:
    player = Player(lambda place: place)
    broken = PlayJob(published(b"no pickle"), published(pickle.dumps(players)))
    answer, limit = player.play(broken, [Plan(1)]), time.process_time()
    assert (answer.table, answer.shards, 0 <= answer.seconds < limit) == (b"", 1, True)
    with pytest.raises(InputError, match=r"a worker cannot make the env: .*same packages"):
        answer.raise_()
    with pytest.raises(PalaestraError, match="a worker failed: ZeroDivisionError: by zero"):
        ShardResult(b"", ("ZeroDivisionError", "by zero")).raise_()
    with pytest.raises(InputError, match="a number"):
        ShardResult(b"", ("InputError", "a number")).raise_()
