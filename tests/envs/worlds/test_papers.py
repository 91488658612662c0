"""Labs and their papers."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from palaestra.envs.worlds.papers import Papers
from palaestra.errors import InputError
from palaestra.testing.env import check_env


@pytest.mark.parametrize("sharing", ["shared", "own", "none"])
def test_it_keeps_the_protocol_and_shows_what_it_should(sharing):
    check_env(functools.partial(Papers, papers=4, sharing=sharing))
    env = Papers(papers=6, sharing=sharing)
    env.reset(0)
    for _ in range(4):
        env.step(dict.fromkeys(env.agents, "build"))
    owners = {entry.owner for entry in env.visible("lab-2")}
    assert owners <= {"lab-2"} if sharing != "shared" else owners <= set(env.agents)
    assert bool(owners) == (sharing != "none")
    scores = [entry.score for entry in env.visible("lab-2")]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == {"shared": 5, "own": 4, "none": 0}[sharing]


def test_a_paper_is_an_edit_of_one_that_is_seen_and_pays_what_it_adds():
    env = Papers(papers=9, top=1)
    env.reset(2)
    first = env.step(dict.fromkeys(env.agents, "fresh"))
    best = dict(first.info["best"])
    (model,) = env.visible("lab-1")
    result = env.step(dict.fromkeys(env.agents, "build"))
    for lab in env.agents:
        changed = (np.array(result.info["bits"][lab]) > 0) != np.array(model.content)
        assert 1 <= changed.sum() <= 2
        assert result.rewards[lab] == pytest.approx(max(result.info["fitness"][lab] - best[lab], 0))
    assert 0 <= min(result.info["fitness"].values()) <= max(result.info["fitness"].values()) <= 1


def test_fitness_is_that_of_the_definition():
    env = Papers(bits=5, links=2)
    env.reset(0)
    bits = np.array([1, 0, 0, 1, 1])
    parts = [env.state.tables[at, bits[at] + 2 * bits[(at + 1) % 5] + 4 * bits[(at + 2) % 5]] for at in range(5)]
    assert env.fitness(bits) == pytest.approx(np.mean(parts))
    with pytest.raises(InputError, match="did you mean 'shared'"):
        Papers(sharing="share")  # type: ignore[arg-type]


def test_a_search_finds_the_most_similar_and_tells_them_shortly():
    env = Papers(labs=2, found="similar", hits="summaries", top=2)
    assert all(" | " not in each.text for each in env.reset(0).values())
    for _ in range(3):
        env.step({"lab-1": 1, "lab-2": 1})
    own = max((each for each in env.state.archive.entries if each.owner == "lab-1"), key=lambda each: each.score)
    assert env.visible("lab-1")[0] is own
    assert len(env.look()["lab-1"].text.split(" | ")) == 3
    with pytest.raises(InputError, match="hits"):
        Papers(hits="all")  # type: ignore[arg-type]
