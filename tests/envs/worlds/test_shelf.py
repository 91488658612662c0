from __future__ import annotations

import functools

import numpy as np
import pytest

from palaestra.agents.policy import Request
from palaestra.envs.worlds import Shelf
from palaestra.envs.worlds.shelf import WORDS, operate, worker
from palaestra.errors import InputError
from palaestra.testing.env import check_env

ALPHABET = "abcde"


@pytest.mark.parametrize(
    ("operation", "after"), [("reverse", "e a b c"), ("sort", "a b c e"), ("shift", "d c b a"), ("rotate", "b a e c")]
)
def test_operations(operation: str, after: str) -> None:
    assert " ".join(operate(operation, ("c", "b", "a", "e"), ALPHABET)) == after


def played(env: Shelf, seed: int, *, coordinator: str = "right", skill: str | None = None) -> tuple[bool, dict]:
    """Whether the result is right and who was paid, with scripted seats."""
    seen, total, step = env.reset(seed), {}, 0
    while seen:
        ((agent, observation),) = seen.items()
        request = Request(observation, agent, np.random.default_rng([7, seed, step]))
        action = worker(request, skill=skill, alphabet=ALPHABET)
        if agent == "coordinator" and coordinator == "right":
            action = f"w{next(place for place, words in enumerate(WORDS.values()) if observation.text in words)}"
        result = env.step({agent: action})
        seen, step = result.observations, step + 1
        total |= result.rewards
    return result.info["success"], total


def test_the_right_calls_are_right_and_paid_to_those_who_took_part() -> None:
    for seed in range(40):
        success, rewards = played(Shelf(), seed)
        assert success
        assert rewards["coordinator"] == 1.0
        assert 2 <= len(rewards) <= 3


def test_calls_at_random_are_right_about_once_in_sixteen() -> None:
    share = np.mean([played(Shelf(), seed, coordinator="any")[0] for seed in range(800)])
    assert 1 / 16 < share < 0.2  # more than one in sixteen: other calls can lead to the same letters


def test_one_agent_that_can_do_all_is_right_and_one_skill_is_not_enough() -> None:
    assert all(played(Shelf(solo=True), seed)[0] for seed in range(40))
    assert np.mean([played(Shelf(solo=True), seed, skill="sort")[0] for seed in range(400)]) < 0.2


def test_workers_do_not_see_the_request_and_the_coordinator_does_not_see_the_letters() -> None:
    env = Shelf()
    seen = env.reset(3)
    assert seen["coordinator"].text in sum(WORDS.values(), ())
    (worker_sees,) = env.step({"coordinator": "w1"}).observations.values()
    assert set(worker_sees.text.split()) <= set(ALPHABET)


def test_it_keeps_the_protocol_and_names_what_is_wrong() -> None:
    check_env(functools.partial(Shelf), varied=True)
    for options in ({"steps": 0}, {"letters": 1}, {"alphabet": 27}):
        with pytest.raises(InputError, match=next(iter(options))):
            Shelf(**options)
