"""Worlds that reproductions train in: what they pay and tell, step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from palaestra.envs import make
from palaestra.envs.protocol import StepResult
from palaestra.envs.worlds import Beach, Brink, Fetch, Sieve, Taps, Widgets
from palaestra.envs.worlds.exact.objectives import beach_capacity
from palaestra.errors import InputError
from palaestra.testing import check_env


@pytest.mark.parametrize("name", ["beach", "brink", "fetch", "sieve", "taps", "widgets"])
def test_they_keep_the_protocol(name: str) -> None:
    check_env(make(f"native/{name}"), varied=name not in ("beach", "brink"))


def played(env: Any, *actions: Any, seed: int = 0) -> list[StepResult]:
    """One after the other, from the start."""
    env.reset(seed)
    return [env.step(action if isinstance(action, dict) else {env.agents[0]: action}) for action in actions]


def test_a_sieve_submits_what_was_kept() -> None:
    env = Sieve({"proof": 1, "chaff": 2}, accuracy=1.0)
    env.reset(0)
    place = env.state.kinds.index(0)
    results = played(env, *("keep" if turn == place else "leave" for turn in range(3)), "submit")
    assert [each.info["tool"] for each in results] == ["look"] * 3 + ["submit"]
    assert results[-1].info["evidence"] == results[-1].info["gold"] == [place]
    assert (results[-1].rewards, results[-1].info["success"]) == ({"seeker": 1.0}, True)
    assert np.array(results[2].observations["seeker"].mask).tolist() == [False, False, True]
    nothing = played(env, "leave", "leave", "leave", "submit")[-1]
    assert (nothing.info["evidence"], nothing.info["success"]) == ([], False)


def test_rows_look_like_what_they_are_as_often_as_said() -> None:
    env, same = Sieve(accuracy=0.8), []
    for seed in range(200):
        env.reset(seed)
        same.append(np.mean(np.equal(env.state.kinds, env.state.seen)))
    assert np.mean(same) == pytest.approx(0.8, abs=0.02)
    failed = Sieve({"proof": 1, "chaff": 1}, accuracy=1.0, worked=0.0)
    shown = [failed.reset(seed)["seeker"].text for seed in range(8)]
    assert set(shown) == {"proof, it failed", "chaff"}
    assert played(failed, "keep", "keep", "submit")[-1].rewards == {"seeker": 0.0}


def test_half_of_the_proof_is_right_half_of_the_time() -> None:
    env, right = Sieve({"proof": 2, "chaff": 1}, accuracy=1.0), []
    for seed in range(400):
        env.reset(seed)
        first = env.state.kinds.index(0)
        moves = ["keep" if turn == first else "leave" for turn in range(3)]
        right.append(played(env, *moves, "submit", seed=seed)[-1].info["success"])
    assert np.mean(right) == pytest.approx(0.5, abs=0.07)


def test_a_wrong_tap_ends_the_task_and_screens_are_shared() -> None:
    env = Taps(longest=3)
    by_length = {}
    for seed in range(30):
        seen = env.reset(seed)["user_agent"]
        by_length[env.state.length] = (seed, seen)
    arrays = [np.array(seen.array).tolist() for _, seen in by_length.values()]
    assert sorted(by_length) == [1, 2, 3]
    assert arrays == [[1, 0, 0]] * 3
    seed, seen = by_length[3]
    assert seen.text == "task of 3, screen 0"
    solved = played(env, *(f"tap {number}" for number in env.right), seed=seed)
    assert (solved[-1].rewards, solved[-1].info["share"], solved[-1].info["success"]) == ({"user_agent": 1.0}, 1, True)
    wrong = played(env, f"tap {env.right[0]}", f"tap {(env.right[1] + 1) % 6}", seed=seed)[-1]
    assert (wrong.terminated, wrong.info["share"], wrong.rewards) == (True, pytest.approx(1 / 3), {"user_agent": 0.0})


def test_lucky_taps_pass_and_spare_ones_leave_the_screen() -> None:
    env, passed = Taps(longest=3, luck=1.0, equal=True, spare=1), {1: 0, 2: 0, 3: 0}
    wrong = f"tap {(env.right[0] + 1) % 6}"
    for seed in range(300):
        env.reset(seed)
        first = played(env, wrong, seed=seed)[0]
        assert not first.terminated
        task, place = env.state.task, first.observations["user_agent"].text
        passed[task] += place == f"task {task}, screen 1"
        assert env.state.length == 3
    assert passed[1] > 80
    assert 30 < passed[2] < 70
    assert passed[3] == 0


def test_widgets_hold_requests_back() -> None:
    made, unseen = Widgets(), Widgets(split="test")
    assert (len(made.gold), len(unseen.gold)) == (55, 20)
    assert not {tuple(each) for each in made.gold} & {tuple(each) for each in unseen.gold}
    made.reset(0)
    kind, column, row = made.gold[made.state.task]
    first = made.look()["user_agent"]
    asked = np.reshape(first.array, (4, 3, 5))  # type: ignore[arg-type]
    assert np.sum(first.mask) == 3  # type: ignore[arg-type]
    assert asked[0].argmax(-1).tolist() == [kind, column, row]
    assert not asked[1:].any()
    last = played(made, *(f"option {number}" for number in (kind, column, row, 2)))[-1]
    assert (last.rewards, last.info["words"]) == ({"user_agent": 1.0}, 80)
    left, top, right, bottom = last.info["target_box"]
    assert last.info["point"] == [(left + right) / 2, (top + bottom) / 2]


def test_a_key_is_fetched_dropped_and_used() -> None:
    env = Fetch(side=3, horizon=20)
    seed = next(seed for seed in range(50) if env.reset(seed) and env.state.cell == (0, 2))
    taken = played(env, "pick up", "drop", "pick up", "left", "down", "down", seed=seed)
    assert [each.info["picked"] for each in taken] == [True, False, True, False, False, False]
    assert [each.info["dropped"] for each in taken] == [False, True, False, False, False, False]
    assert [each.info["door_gap"] for each in taken] == [3, 3, 3, 2, 1, 0]
    assert (taken[-1].rewards, taken[-1].info["success"], taken[-1].terminated) == ({"hand": 1.0}, True, True)
    progress = [each.info["progress"] for each in taken]
    assert progress[0] == progress[2] < progress[1] == progress[3] < progress[4] < progress[5] < 1
    idle = played(Fetch(side=3, horizon=2), "drop", "drop")[-1]
    assert (idle.terminated, idle.info["success"], idle.info["carried"]) == (True, False, False)


def test_who_makes_no_difference_to_the_beach() -> None:
    env = Beach(people=3, sections=2, psi=1.0)
    result = played(env, {"person_0": "section 0", "person_1": "section 0", "person_2": "section 1"})[0]
    crowd = beach_capacity(np.array([2, 1]), 1.0)
    assert result.rewards == {agent: pytest.approx(crowd[at]) for agent, at in zip(env.agents, (0, 0, 1), strict=True)}
    assert result.info["whole"] == pytest.approx(crowd.sum())
    lone = crowd[1] + beach_capacity(np.array(1), 1.0)
    assert result.info["difference"]["person_0"] == pytest.approx(crowd.sum() - lone)
    assert result.info["difference"]["person_2"] == pytest.approx(crowd[1])


def test_the_difference_is_of_both_objectives() -> None:
    env, moves = Beach(people=4, first=0.5, sections=2, weights=(0.25, 0.75)), [0, 1, 0, 0]
    result = played(env, {f"person_{n}": f"section {to}" for n, to in enumerate(moves)})[0]

    def worth(who: list[int]) -> float:
        counts = np.zeros((2, 2), int)
        for n in who:
            counts[moves[n], int(n > 1)] += 1
        return float((env.vectors(counts) @ env.weights).sum())

    for n in range(4):
        without = worth([each for each in range(4) if each != n])
        assert result.info["difference"][f"person_{n}"] == pytest.approx(worth([0, 1, 2, 3]) - without)


def test_who_tries_may_win_and_who_waits_is_cut_off() -> None:
    won = [played(Brink(), "try", seed=seed)[-1] for seed in range(200)]
    assert all(each.terminated for each in won)
    assert np.mean([each.rewards.get("arm", 0.0) for each in won]) == pytest.approx(0.5, abs=0.1)
    waited = played(Brink(horizon=3), "wait", "wait", "wait")
    assert [each.truncated for each in waited] == [False, False, True]
    assert (waited[-1].terminated, waited[-1].info["success"], waited[-1].info["progress"]) == (False, False, 0.8)


@pytest.mark.parametrize(
    ("make_one", "options"),
    [
        (Beach, {"sections": 1}),
        (Brink, {"luck": 2}), (Fetch, {"side": 2}), (Sieve, {"rows": {"proof": 1}}), (Sieve, {"accuracy": 2}),
        (Taps, {"longest": 0}), (Taps, {"spare": -1}), (Taps, {"luck": 2}), (Widgets, {"trained": 75}),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(make_one: Any, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=make_one.__name__):
        make_one(**options)
