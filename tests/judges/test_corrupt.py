"""Every corrupted copy of a success fails by the env's own check, and is what its kind says."""

from __future__ import annotations

import functools

import numpy as np
import polars as pl
import pytest

import palaestra as pa
from palaestra.algebra.turns import Turns
from palaestra.envs.worlds import Lock
from palaestra.errors import InputError
from palaestra.judges import corrupt, replayed
from palaestra.judges.corrupt import KINDS, Kind, _changed


def script(request: object) -> str:
    """Opens the lock."""
    env = Lock(steps=6)
    return env.choices[env.right[0][int(request.observation.text.split()[-1])]]  # type: ignore[attr-defined]


TEXT = Turns({
    "group": [0, 1], "episode": [0, 0], "turn": [0, 0], "agent": ["a", "a"], "task": ["x", "y"], "seed": [0, 0],
    "action": ["it is 7", "we get 12 here"], "reward": [1.0, 1.0], "success": [True, True],
})  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_words_of_an_answer_are_changed_as_the_kind_says(kind: Kind) -> None:
    for seed in range(8):
        made = corrupt(TEXT, [kind], seed=seed, attempts=20).frame
        assert made["corrupted"].to_list() == [kind] * 2
        for own, text, origin in made.select("task", "action", "origin").rows():
            old = TEXT["action"][origin].split()
            new = text.split()
            assert TEXT["task"][origin] == own
            assert new != old
            if kind == "truncate":
                assert new == old[: len(new)]
            elif kind == "extend":
                assert new[: len(old)] == old
                assert set(new[len(old) :]) <= {"we", "get", "12", "here", "it", "is", "7"}
            elif kind == "mutate":
                assert len(new) == len(old)
                assert sum(a != b for a, b in zip(old, new)) == 1
            else:
                assert len(new) >= len(old)
        assert made["reward"].null_count() == 2
        assert not made["success"].any()


def test_what_the_check_accepts_as_right_is_not_taken() -> None:
    assert not len(corrupt(TEXT, ["extend"], fails=lambda row, actions: False))
    made = corrupt(TEXT, fails=lambda row, actions: row["task"] == "y", attempts=10)
    assert made["task"].to_list() == ["y"]


def test_a_share_of_the_episodes_and_the_same_ones_for_the_same_seed() -> None:
    many = Turns(pl.concat([TEXT.frame.with_columns(group=pl.lit(n, pl.Int32)) for n in range(50)]).unique(["group"]))
    made = corrupt(many, ["extend"], rate=0.3, seed=4)
    assert 5 <= len(made) <= 25
    assert made.frame.equals(corrupt(many, ["extend"], rate=0.3, seed=4).frame)
    assert made["episode"].n_unique() == len(made)
    assert made["episode"].to_numpy().min() > 0


def test_every_corrupted_copy_of_a_scripted_success_is_judged_failed_by_the_env() -> None:
    env = functools.partial(Lock, steps=6)
    played = pa.rollout(env, pa.Team(dict.fromkeys(env().agents, pa.ScriptedPolicy(script))), groups=6, group_size=2)
    assert played["success"].all()
    made = corrupt(played, seed=3, fails=replayed(env), attempts=5)
    assert len(set(made["corrupted"])) >= 2
    for _, episode in made.frame.group_by("episode"):
        made_env = env()
        seen, success = made_env.reset(int(episode["seed"][0])), False
        for action in episode.sort("turn")["action"]:
            if not seen:
                break
            result = made_env.step({next(iter(seen)): action})
            seen, success = result.observations, bool(result.info.get("success"))
        assert seen or not success


def test_bad_options_are_refused() -> None:
    with pytest.raises(InputError, match="did you mean 'truncate'"):
        corrupt(TEXT, ["truncat"])  # type: ignore[list-item]
    with pytest.raises(InputError, match="rate=2"):
        corrupt(TEXT, rate=2)
    two = TEXT.with_column(group=pl.Series([0, 0]), agent=pl.Series(["a", "b"]))
    with pytest.raises(InputError, match="several agents"):
        corrupt(two)


def test_every_piece_of_another_answer_from_where_it_begins_is_as_likely() -> None:
    rng = np.random.default_rng(0)
    drawn = [_changed("extend", [["x"], ["a", "b", "c"]], 0, [0, 1], rng)[1:] for _ in range(1200)]
    for begin, pieces in {"a": ["a", "ab", "abc"], "b": ["b", "bc"], "c": ["c"]}.items():
        found = ["".join(each) for each in drawn if each[0] == begin]
        assert set(found) == set(pieces)
        assert [found.count(each) / len(found) for each in pieces] == pytest.approx(
            [1 / len(pieces)] * len(pieces), abs=0.1
        )


def test_a_copy_differs_a_splice_stays_in_place_and_what_is_not_over_fails():
    same = Turns({"episode": [0, 0], "turn": [0, 1], "action": ["x", "x"]})
    assert len(corrupt(same, ("mutate", "splice"), attempts=9)) == 0
    keys = {"episode": [0] * 4 + [1] * 4, "turn": [*range(4)] * 2}
    two = Turns(keys | {"action": [f"{name}{at}" for name in "ab" for at in range(4)]})
    for seed in range(10):
        for (_, origin), copy in corrupt(two, ("splice",), seed=seed).frame.group_by("episode", "origin"):
            own = "ab"[origin // 4]
            said = copy.sort("turn")["action"].to_list()
            assert all(text == f"{own}{at}" for at, text in enumerate(said) if text[0] == own), said
    env = functools.partial(Lock, steps=2, numbers=2)
    made = env()
    (agent,) = made.reset(0)
    first, second = (str(made.choices[number]) for number in made.right[0][:2])
    fails = replayed(env)
    assert [fails({"agent": agent, "seed": 0}, way) for way in ([first], [first, second])] == [True, False]
