from __future__ import annotations

import pytest

from palaestra.agents import ScriptedPolicy, Team
from palaestra.algebra.messages import messages
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.errors import EnvError, InputError
from palaestra.play.rollout import rollout
from palaestra.teams import WORKFLOWS, tree_search
from palaestra.testing.env import check_env


class Letters(TaskEnv):
    """Two letters; only `b b` is right, and the tests that come with it see nothing before."""

    def draw(self, seed: int) -> Task:
        """Of a seed."""
        return Task(f"{seed}", f"{seed}: spell", lambda text: float(text == "b b"), "b b")


SURE = {"a": 0.9, "a a": 0.9, "a b": 0.8, "b": 0.7, "b a": 0.1, "b b": 0.6}


def say(request):
    """The first role says a, the second b, with an opinion of it."""
    _, *way = request.observation.text.split(" | ")
    letter = "ab"[int(request.agent[-1]) - 1]
    return f"{letter} @ {SURE[' '.join([*way, letter])]} 1"


def play(env, policy=say, groups=1):
    return rollout(env, Team(dict.fromkeys(env().agents, ScriptedPolicy(policy))), groups=groups, timeout=None)


def test_what_fails_sends_the_search_to_the_sibling():
    turns = play(tree_search(Letters, 2, depth=2, budget=6))
    frame = turns.frame
    assert frame["way"].to_list() == ["", "", "a", "a", "b", "b"]
    assert frame["answer"].to_list() == ["a", "b", "a a", "a b", "b a", "b b"]
    assert frame["opinion"].to_list() == [SURE[answer] for answer in frame["answer"]]
    assert frame["success"].all()
    assert frame["reward"].to_list() == [0.0] * 4 + [1.0] * 2
    heard = messages(turns).select("sender", "sender_turn", "receiver", "receiver_turn").rows()
    assert heard == [
        ("proposer-1", 0, "proposer-1", 1), ("proposer-1", 0, "proposer-2", 1),
        ("proposer-2", 0, "proposer-1", 2), ("proposer-2", 0, "proposer-2", 2),
    ]  # fmt: skip


def test_without_room_for_the_sibling_it_ends_with_what_it_thinks_best():
    frame = play(tree_search(Letters, 2, depth=2, budget=4, price=0.1)).frame
    assert frame["answer"].to_list() == ["a", "b", "a a", "a b"]
    assert not frame["success"].any()
    assert frame["reward"].to_list() == pytest.approx([0.0, 0.0, -0.4, -0.4])


def first_letters(request):
    """The same two letters; whatever begins with a has the opinion .9, whatever begins with b .7."""
    _, *way = request.observation.text.split(" | ")
    letter = "ab"[int(request.agent[-1]) - 1]
    return f"{letter} @ {0.9 if [*way, letter][0] == 'a' else 0.7} 1"


@pytest.mark.parametrize(
    ("options", "after_the_failure"),
    [
        ({}, "b"),  # a: 2 · .9 / 3 + .3 √(ln 2 / 2) = .78, b: .7 + .3 √ln 2 = .95
        ({"c": 0.0}, "b"),  # .6 and .7
        ({"c": 0.0, "trust": 1e9}, "a b"),  # .9 and .7: no failure counts
        ({"c": 2.0, "trust": 1e9}, "b"),  # .9 + 2 √(ln 2 / 2) = 2.08 and .7 + 2 √ln 2 = 2.37
    ],
)
def test_trust_and_exploration_say_where_a_failure_sends_the_search(options, after_the_failure):
    frame = play(tree_search(Letters, 2, depth=3, budget=8, **options), first_letters).frame
    assert frame["way"].unique(maintain_order=True).to_list() == ["", "a", "a a", after_the_failure]


def test_a_step_may_have_several_lines():
    say = {"proposer-1": "Confidence: 0.9\nStep: Let x = 4. Then\nx + 3 = 7.", "proposer-2": "Step: x\nConfidence: 0.1"}
    frame = play(tree_search(Letters, 2, depth=1, budget=2), lambda request: say[request.agent]).frame
    assert frame["answer"].to_list() == ["Let x = 4. Then\nx + 3 = 7.", "x"]
    assert frame["opinion"].to_list() == [0.9, 0.1]


@pytest.mark.parametrize(
    ("said", "step", "opinion"),
    [
        ("Confidence: 80%\nStep: x", "x", 0.8),
        ("Confidence: 8/10\nStep: x", "x", 0.8),
        ("Confidence: -1\nStep: x", "x", 0.0),
        ('{"confidence": "1e-3", "step": "x"}', "x", 0.001),
        ('{"confidence": 0.2, "step": "Mail bob@corp.com 9 times"}', "Mail bob@corp.com 9 times", 0.2),
        ("Mail bob@corp.com 9 times", "Mail bob@corp.com 9 times", 0.0),
        ("Mail bob@corp.com @ .8 .6", "Mail bob@corp.com", 0.8),
        ("Step: add 3", "add 3", 0.0),
    ],
)
def test_an_opinion_is_a_number_that_was_said_as_one(said, step, opinion):
    frame = play(tree_search(Letters, 1, depth=1, budget=1), lambda request: said).frame
    assert (frame["answer"][0], frame["opinion"][0]) == (step, opinion)


def test_who_says_no_opinion_has_the_verifiers():
    frame = play(tree_search(Letters, 2, depth=2, budget=6), lambda request: "ab"[int(request.agent[-1]) - 1]).frame
    assert set(frame["sure"]) == {1.0}
    assert dict(frame.select("answer", "opinion").rows())["b b"] == 1.0
    assert dict(frame.select("answer", "opinion").rows())["a b"] == 0.0


def test_a_validator_that_passes_everything_takes_the_first():
    frame = play(tree_search(Letters, 2, depth=2, budget=6, validator="accepts(1.0, 1.0)")).frame
    assert frame["answer"].to_list() == ["a", "b", "a a", "a b"]
    assert not frame["success"].any()


def test_it_keeps_the_protocol_and_names_what_is_wrong():
    assert "tree_search" in WORKFLOWS
    check_env(tree_search(Letters))
    with pytest.raises(InputError, match="budget=2 at least the depth"):
        tree_search(Letters, 2, depth=3, budget=2)
    with pytest.raises(InputError, match="no task with one answer"):
        tree_search(tree_search(Letters))
    env = tree_search(Letters)()
    env.reset(0)
    with pytest.raises(EnvError, match=r"agents to act are \['proposer-1', 'proposer-2'\]"):
        env.step({"proposer-1": "a"})
