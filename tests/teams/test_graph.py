from __future__ import annotations

import pytest

from palaestra.errors import InputError
from palaestra.teams import Graph


def test_those_who_hear_nobody_speak_first():
    made = Graph.of(["hub", "one", "two"], edges={"hub": ["two", "one"]})
    assert made.steps == (("one", "two"), ("hub",))
    assert made.heard == {"hub": ("two", "one"), "one": (), "two": ()}
    assert made.calls == 3


def test_a_chain_is_one_after_the_other_and_a_circle_of_rounds_all_at_once():
    assert Graph.of(["a", "b", "c"], edges="chain").steps == (("a",), ("b",), ("c",))
    assert Graph.of(["a", "b"], edges="all", rounds=2).steps == (("a", "b"),)
    assert Graph.of(["a", "b"], edges=[["a", "b"], ["b", "a"]], steps=["a", "b"]).steps == (("a",), ("b",))


def test_a_role_reads_its_senders_in_the_order_of_the_edges():
    roles = ["auditor", "solver", "checker"]
    steps = ["solver", "auditor", "checker"]
    asked = Graph.of(roles, edges={"checker": ["solver", "auditor"]}, steps=steps)
    pairs = Graph.of(roles, edges=[["solver", "checker"], ["auditor", "checker"]], steps=steps)
    assert asked.heard["checker"] == pairs.heard["checker"] == ("solver", "auditor")
    assert Graph.of(roles, edges="all", rounds=2).heard["checker"] == ("auditor", "solver")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"roles": []}, "at least one"),
        ({"roles": ["a", "a"]}, "a name of its own"),
        ({"roles": ["a", " "]}, "expected a name"),
        ({"roles": ["a"], "rounds": 0}, "rounds=0"),
        ({"roles": ["a", "b"], "edges": "al"}, "did you mean 'all'"),
        ({"roles": ["alice", "bob"], "edges": {"bob": ["alise"]}}, "did you mean 'alice'"),
        ({"roles": ["alice", "bob"], "edges": {"bob": "alice"}}, "expected a list of roles"),
        ({"roles": ["a", "b"], "edges": [["a", "b", "a"]]}, "expected a pair"),
        ({"roles": ["a", "b"], "edges": ["ab"]}, "expected a pair"),
        ({"roles": ["a"], "edges": {"a": ["a"]}}, "hears itself"),
        ({"roles": ["a", "b"], "edges": "all"}, "in a circle, so nobody is first"),
        ({"roles": ["a", "b"], "steps": ["a"]}, "'b' is in no step"),
        ({"roles": ["a"], "steps": ["a", []]}, "each once"),
        ({"roles": ["a"], "steps": [["a", "a"]]}, "each once"),
        ({"roles": ["a"], "steps": ["a", "c"]}, "'c', which is no role"),
        ({"roles": ["a"], "memory": "lates"}, "did you mean 'latest'"),
        ({"roles": ["a"], "gate": "tops(2)"}, "did you mean 'top'"),
        ({"roles": ["a"], "gate": "top(0)"}, "else nothing gets through"),
        ({"roles": ["a"], "gate": "kept(0)"}, "lets nothing through"),
        ({"roles": ["a"], "route": "sampled(-1)"}, "at least 1"),
        ({"roles": ["a"], "stop": "agree(share=2)"}, "no share"),
        ({"roles": ["a"], "aggregate": "vote(3)"}, "has 3, which is no role"),
    ],
)
def test_what_cannot_work_is_named_before_anything_is_played(options, said):
    with pytest.raises(InputError, match=said.replace("(", r"\(").replace(")", r"\)")):
        Graph.of(**options)


def test_a_rule_about_a_role_that_is_not_there_is_named():
    with pytest.raises(InputError, match="did you mean 'hub'"):
        Graph.of(["hub", "worker"], aggregate="of('hab')")
    with pytest.raises(InputError, match="did you mean 'checker'"):
        Graph.of(["actor", "checker"], stop="accepted('cheker')")
