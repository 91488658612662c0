from __future__ import annotations

import json

import numpy as np
import pytest

from palaestra.agents.policy import Request
from palaestra.envs.worlds.exact.networks import (
    FAMILIES,
    PROBLEMS,
    diameter,
    network,
    random_score,
    score,
    solve,
    valid_answers,
)
from palaestra.envs.worlds.graph_game import GraphGame
from palaestra.envs.worlds.protocols import flood, local


def play(env, seed, act):
    observations, rng = env.reset(seed), np.random.default_rng(seed)
    while observations:
        result = env.step({agent: act(Request(seen, agent, rng)) for agent, seen in observations.items()})
        observations = result.observations
    return result


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_agents_who_tell_all_they_know_solve_everything(problem, family):
    for n in (4, 8):
        for seed in range(3):
            result = play(GraphGame(problem, family=family, n=n), seed, flood(problem))
            assert result.info["score"] == 1.0
            assert result.info["success"]
            assert set(result.rewards.values()) == {1.0}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_classical_rules_do_well(problem):
    scores = [play(GraphGame(problem, n=8), seed, local(problem)).info["score"] for seed in range(8)]
    assert np.mean(scores) > 0.9


def test_news_that_cannot_cross_the_graph_does_not_help():
    blind = play(GraphGame("matching", family="ring", n=8, rounds=0), 0, flood("matching"))
    assert blind.info["score"] < 1


def test_scores_where_an_answer_is_none_or_out_of_place():
    """Nobody's answer is no agreement; mates must be neighbours; all members of half a cover count as needed."""
    ring = network("ring", 6, seed=0)
    assert score("consensus", ring, [None] * 6) == score("consensus", ring, [2] * 6) == 0
    assert score("matching", ring, [3, 2, 1, 0, 5, 4]) == pytest.approx(4 / 6), (
        "0 and 3 name each other across the ring"
    )
    assert score("matching", ring, [1, 0, 3, 2, 9, None]) == pytest.approx(4 / 6)
    assert score("cover", ring, [1, 1, 1, 0, 0, 0]) == pytest.approx(4 / 6)
    assert score("cover", ring, [1, 1, 1, 0, 1, 0]) == pytest.approx(3 / 4), "1 could stay out"


def test_default_rounds_are_the_published_ones():
    for problem, n, rounds in (("matching", 4, 4), ("cover", 8, 5), ("colouring", 16, 6)):
        env = GraphGame(problem, n=n)
        env.reset(0)
        assert env.state.rounds == rounds
    env = GraphGame("consensus", family="ring", n=6)
    env.reset(0)
    assert env.state.rounds == 2 * 3 + 1


def test_messages_reach_the_neighbour_that_they_are_addressed_to():
    env = GraphGame("consensus", family="ring", n=4, rounds=1)
    env.reset(0)
    result = env.step(
        {"n0": 'I say {"n1": "hello", "n2": "not a neighbour"}', "n1": "{}", "n2": "oops", "n3": '{"n0": 7}'}
    )
    assert result.info["valid"] == {"n0": True, "n1": True, "n2": False, "n3": True}
    told = {a: json.loads(o.text.splitlines()[-1])["received"] for a, o in result.observations.items()}
    assert told == {"n0": [{"n3": "7"}], "n1": [{"n0": "hello"}], "n2": [{}], "n3": [{}]}
    assert result.observations["n0"].choices == ("0", "1")


def test_words_are_heard_by_all_neighbours():
    env = GraphGame("consensus", family="ring", n=4, rounds=1, words=2)
    env.reset(0)
    seen = env.step({"n0": "say 1", "n1": "say 0", "n2": "say 0", "n3": "say 1"}).observations
    assert seen["n0"].text == "answer n0:1 | n1:0 n3:1"
    assert seen["n0"].legal == ("0", "1")


def test_words_of_two_digits_are_told_apart():
    seen = []
    for words in (("say 1", "say 11"), ("say 11", "say 1")):
        env = GraphGame("consensus", family="ring", n=4, rounds=2, words=12)
        env.reset(0)
        for word in words:
            result = env.step(dict.fromkeys(env.agents, word))
        seen.append(result.observations["n0"].text)
    assert seen == ["answer n0:1,11 | n1:1,11 n3:1,11", "answer n0:11,1 | n1:11,1 n3:11,1"]


def test_an_answer_that_is_none_spoils_consensus():
    env = GraphGame("consensus", family="ring", n=4, rounds=0, words=1)
    env.reset(0)
    assert env.step({"n0": "?", "n1": "0", "n2": "0", "n3": "0"}).info["score"] == 0.0


def test_reward_can_be_all_or_nothing():
    env = GraphGame("colouring", family="ring", n=4, rounds=0, words=1, reward="solved")
    env.reset(0)
    result = env.step({"n0": "group 1", "n1": "group 2", "n2": "group 1", "n3": "group 1"})
    assert result.info["score"] == 0.5
    assert result.rewards["n0"] == 0.0
    assert result.info["success"] is False


def test_families_are_connected_and_of_their_size():
    for family in FAMILIES:
        for n in (4, 8, 16):
            graph = network(family, n, seed=3)
            assert graph.shape == (n, n)
            assert (graph == graph.T).all()
            assert not graph.diagonal().any()
            assert 1 <= diameter(graph) < n
    assert network("small_world", 16, 0).sum() == 16 * 4
    assert network("preferential", 16, 0).sum() == 2 * 2 * 14


def test_scores_of_hand_made_answers():
    path = np.zeros((4, 4), bool)
    for a in range(3):
        path[a, a + 1] = path[a + 1, a] = True
    assert score("matching", path, [1, 0, 3, 2]) == 1
    assert score("matching", path, [-1, 2, 1, -1]) == 1
    assert score("matching", path, [1, 0, -1, -1]) == 0.5  # alone beside one who is alone
    assert (
        score("matching", path, [2, 0, 1, -1]) == 0.25
    )  # no neighbour; not mutual, twice; nobody free beside the last
    assert score("cover", path, [0, 1, 1, 0]) == 1
    assert score("cover", path, [0, 1, 1, 1]) == pytest.approx(1 / 3)  # only one member is needed
    assert score("cover", path, [0, 1, 0, 0]) == pytest.approx(2 / 3)  # incomplete: everybody in it is needed
    assert score("cover", path, [0, 0, 0, 0]) == 0
    assert score("colouring", path, [0, 1, 1, 0]) == pytest.approx(2 / 3)
    assert score("colouring", path, [0, 1, 3, 0]) == 0  # there are three colours
    assert score("leader", path, [0, 1, 0, 0]) == 1
    assert score("leader", path, [0, 1, 1, 0]) == score("leader", path, [0, 1, None, 0]) == 0


def test_random_answers_score_what_the_closed_form_says():
    rng = np.random.default_rng(0)
    for problem in ("consensus", "leader"):
        ring = network("ring", 4, 0)
        drawn = [score(problem, ring, rng.integers(2, size=4).tolist()) for _ in range(4000)]
        assert np.mean(drawn) == pytest.approx(random_score(problem, 4), abs=0.025)


def test_solutions_are_valid_answers():
    for problem in PROBLEMS:
        graph = network("delaunay", 12, 1)
        assert all(a in valid_answers(problem, graph, agent) for agent, a in enumerate(solve(problem, graph)))


def test_a_ring_is_one_task_and_a_drawn_graph_one_each():
    ring, drawn = GraphGame("matching", family="ring", n=6), GraphGame("matching", family="delaunay", n=6, graphs=3)
    tasks = []
    for env in (ring, drawn):
        for seed in range(20):
            env.reset(seed)
            tasks.append(env.task)
    assert set(tasks[:20]) == {"matching:ring:6"}
    assert set(tasks[20:]) == {f"matching:delaunay:6:{seed}" for seed in range(3)}
