from __future__ import annotations

import functools
import pickle

import numpy as np
import pytest

from palaestra.agents import ScriptedPolicy, Team
from palaestra.algebra.messages import messages
from palaestra.algebra.turns import Turns
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.errors import EnvError, InputError, MissingColumnError
from palaestra.play.rollout import rollout
from palaestra.teams import Graph, workflows
from palaestra.teams.deliberation import Deliberation
from palaestra.testing.env import check_env


class Sums(TaskEnv):
    """a + b; half the score for an answer that is one off."""

    def draw(self, seed: int) -> Task:
        a, b = seed % 10, seed // 10 % 10
        return Task(f"{a}+{b}", f"{a} + {b} =", lambda text: 1 - min(abs(int(text) - a - b), 2) / 2, str(a + b))


ALL = {
    "single": workflows.single(Sums), "self_consistency": workflows.self_consistency(Sums, 3),
    "debate": workflows.debate(Sums, 3, gate="top(1)", stop="agree()"), "star": workflows.star(Sums, 2, rounds=2),
    "chain": workflows.chain(Sums), "tree": workflows.tree(Sums, 2, 2), "layered": workflows.layered(Sums),
    "relay": workflows.relay(Sums), "blackboard": workflows.blackboard(Sums), "contest": workflows.contest(Sums),
    "auction": workflows.auction(Sums), "refine": workflows.refine(Sums),
    "plan_act_check": workflows.plan_act_check(Sums),
    "search": workflows.search(Sums), "sparse": workflows.graph(Sums, ["a", "b", "c"], edges="all", rounds=3,
                                                          gate="kept(.5)", route="sampled(2)"),
    "like": workflows.graph(Sums, ["a", "b", "c"], edges="all", rounds=2, gate="contribution(.1)",
                            aggregate="central()"),
    "read": workflows.graph(Sums, ["a", "b"], edges="all", rounds=2, gate="readable()", aggregate="best_scored()"),
}  # fmt: skip


@pytest.mark.parametrize("name", ALL)
def test_every_shape_keeps_the_protocol_and_can_be_sent_to_another_process(name):
    check_env(ALL[name])
    assert pickle.loads(pickle.dumps(ALL[name]))().agents == ALL[name]().agents


def play(factory, say, seed=43):
    """What each turn read, (role, text), and the last result. say: role -> what it says, one after the other."""
    env = factory() if not isinstance(factory, Deliberation) else factory
    observations, told, left = env.reset(seed), [], {role: list(texts) for role, texts in say.items()}
    while observations:
        told += [(role, seen.text) for role, seen in observations.items()]
        result = env.step({role: left[role].pop(0) for role in observations})
        observations = result.observations
    return told, result


def test_a_debate_hears_the_others_and_votes():
    told, result = play(
        workflows.debate(Sums, 3, rounds=2),
        {"debater-1": ["7", "7"], "debater-2": ["8", "7"], "debater-3": ["9", "9"]},
    )
    assert told[:3] == [(f"debater-{k}", "3 + 4 =") for k in (1, 2, 3)]
    assert told[3:] == [
        ("debater-1", "3 + 4 = | 7 | 8 | 9"),
        ("debater-2", "3 + 4 = | 8 | 7 | 9"),
        ("debater-3", "3 + 4 = | 9 | 7 | 8"),
    ]
    assert result.rewards == {"debater-1": 1.0, "debater-2": 1.0, "debater-3": 1.0}
    assert result.info["final"] == "7"
    assert result.info["success"] is True


def test_agreement_ends_a_debate_early_and_turns_cost_their_price():
    say = {f"debater-{k}": ["7", "0"] for k in (1, 2, 3)}
    told, result = play(workflows.debate(Sums, 3, rounds=2, stop="agree()", price=0.1), say)
    assert len(told) == 3
    assert result.rewards == {role: pytest.approx(0.7) for role in say}
    told, result = play(workflows.debate(Sums, 3, rounds=2, price=0.1), say)
    assert len(told) == 6
    assert result.rewards["debater-1"] == pytest.approx(0 - 0.6)


def test_the_word_of_acceptance_repeats_what_was_heard():
    told, result = play(workflows.chain(Sums, ["solver", "checker"]), {"solver": ["7"], "checker": [" OK "]})
    assert told[1] == ("checker", "3 + 4 = | 7")
    assert result.info["answer"] == {"checker": "7"}
    assert result.info["success"] is True
    _, result = play(workflows.single(Sums), {"solver": ["ok"]})
    assert result.info["valid"] == {"solver": False}


def test_a_checker_that_accepts_ends_the_work():
    factory = workflows.plan_act_check(Sums, rounds=3)
    told, result = play(factory, {"planner": ["add"], "actor": ["7"], "checker": ["ok"]})
    assert [role for role, _ in told] == ["planner", "actor", "checker"]
    assert result.info["final"] == "7"
    told, _ = play(factory, {"planner": ["add", "again", "x"], "actor": ["6", "7", "x"], "checker": ["no", "ok"]})
    assert told[3] == ("planner", "3 + 4 = | add | no")
    assert len(told) == 6


def test_an_auction_is_answered_by_the_highest_bidder_of_equal_ones_the_first():
    say = {"bidder-1": ["I bid 2", "6"], "bidder-2": ["4.5", "7"], "bidder-3": ["4.5", "5"]}
    told, result = play(workflows.auction(Sums), say)
    assert [role for role, _ in told] == ["bidder-1", "bidder-2", "bidder-3", "bidder-2"]
    assert result.info["final_role"] == "bidder-2"


def test_refining_ends_when_the_test_passes_and_reads_its_last_answer():
    told, result = play(workflows.refine(Sums, 4), {"solver": ["5", "6", "7"]})
    assert [text for _, text in told] == ["3 + 4 =", "3 + 4 = | 5", "3 + 4 = | 6"]
    assert result.info["success"] is True


def test_only_those_that_others_agree_with_go_on():
    say = {"agent-1": ["1"] * 4, "agent-2": ["7", "7", "7", "7"], "agent-3": ["7", "7", "6", "7"], "agent-4": ["2"] * 4}
    told, _ = play(workflows.layered(Sums, 4, rounds=4, keep=2), say)
    assert [role for role, _ in told[8:]] == ["agent-2", "agent-3"] * 2  # from the third round on
    early = {"edges": "all", "rounds": 2, "route": "agreeing(2)"}
    told, _ = play(workflows.graph(Sums, ["agent-1", "agent-2", "agent-3"], **early), say)
    assert [role for role, _ in told[3:]] == ["agent-2", "agent-3"]
    told, _ = play(workflows.layered(Sums, 3, rounds=3, keep=2), say | {"agent-3": ["6"] * 4})
    assert len(told) == 9  # three are not pruned
    with pytest.raises(InputError, match="start"):
        workflows.graph(Sums, ["a", "b"], edges="all", rounds=2, route="agreeing(1, start=1)")


def test_a_blackboard_shows_all_that_was_written():
    say = {"agent-1": ["1", "7"], "agent-2": ["2", "7"]}
    told, _ = play(workflows.blackboard(Sums, 2), say)
    assert told == [
        ("agent-1", "3 + 4 ="), ("agent-2", "3 + 4 = | 1"), ("agent-1", "3 + 4 = | 1 | 2"),
        ("agent-2", "3 + 4 = | 1 | 2 | 7"),
    ]  # fmt: skip


def test_a_search_goes_on_from_the_best_so_far_and_ends_with_it():
    say = {"proposer-1": ["8", "1", "1"], "proposer-2": ["0", "2", "2"]}
    told, result = play(workflows.search(Sums, 2, 3), say)
    assert [text for _, text in told] == ["3 + 4 ="] * 2 + ["3 + 4 = | 8"] * 4, "who found it reads it, too"
    assert result.info["final"] == "8"
    assert result.rewards == {"proposer-1": 0.5, "proposer-2": 0.5}


def test_a_tree_hears_its_children():
    leaves = {f"node-2-{k}": [str(k)] for k in range(1, 5)}
    told, result = play(workflows.tree(Sums), leaves | {"node-1-1": ["5"], "node-1-2": ["6"], "node-0-1": ["7"]})
    assert dict(told)["node-1-2"] == "3 + 4 = | 3 | 4"
    assert dict(told)["node-0-1"] == "3 + 4 = | 5 | 6"
    assert result.info["final_role"] == "node-0-1"


def test_chat_models_read_a_conversation_with_names():
    made = workflows.graph(Sums, {"one": "You guess.", "two": ""}, edges="all", rounds=2)()
    made.reset(43)
    result = made.step({"one": "I guess.\nAnswer: 5", "two": "<think>hm</think>It is 6."})
    system, asked, said, heard = result.observations["one"].messages
    assert system["content"].startswith("You guess.\n\nYou are one, one of a team of 2")
    assert (asked["role"], said) == ("user", {"role": "assistant", "content": "I guess.\nAnswer: 5"})
    assert asked["content"].startswith("Question:\n3 + 4 =\n\nRound 1 of 2.")
    assert heard["content"].startswith('Round 2 of 2.\n\n<message from="two">\nIt is 6.\n</message>')
    assert result.info["read_as"] == {"one": "line", "two": "whole"}
    assert result.info["answer"] == {"one": "5", "two": "It is 6."}
    assert result.info["valid"] == {"one": True, "two": False}, "what cannot be read is no answer"
    assert result.observations["one"].text == "3 + 4 = | 5 | It is 6."


def test_thinking_that_was_cut_off_is_read_by_nobody():
    made = workflows.graph(Sums, {"one": "", "two": ""}, edges="all", rounds=2)()
    made.reset(43)
    seen = made.step({"one": "5", "two": "<think>A secret:\nAnswer: 7\nor"}).observations["one"]
    assert "secret" not in seen.text + seen.messages[-1]["content"]


def test_who_did_not_act_is_an_error():
    made = workflows.debate(Sums, 2)()
    made.reset(0)
    with pytest.raises(EnvError, match="the agents to act are"):
        made.step({"debater-1": "1"})


@pytest.mark.parametrize("options", [{"price": -1}, {"accept": " "}, {"separator": ""}, {"longest": 0}])
def test_options_are_checked_at_once(options):
    with pytest.raises(InputError, match="workflow:"):
        workflows.single(Sums, **options)
    with pytest.raises(InputError, match="whole number"):
        workflows.debate(Sums, 0)


def test_what_is_no_task_is_named():
    with pytest.raises(InputError, match="Deliberation is no task"):
        workflows.single(workflows.single(Sums))


# -- the table of messages ---------------------------------------------------------------------------------------------


def said(request):
    return str(int(request.rng.integers(5, 9)))


def debates(**options) -> Turns:
    policy = ScriptedPolicy(said)
    team = Team(dict.fromkeys((f"debater-{k}" for k in (1, 2, 3)), policy))
    return rollout(workflows.debate(Sums, 3, **options), team, groups=4, group_size=2, seed=3)


def test_messages_are_what_was_heard_by_pair():
    turns = debates(gate="top(1)")
    table = messages(turns)
    assert len(table) == 8 * 3 * 2  # of the second round, each of three hears two
    assert table["kept"].sum() == 8 * 3
    assert set(table.filter(~table["kept"])["reason"]) == {"not among the 1"}
    assert table.filter(table["kept"])["reason"].is_null().all()
    assert set(table["sender_turn"]) == {0}
    assert set(table["receiver_turn"]) == {1}
    assert (table["sender"] != table["receiver"]).all()


def test_messages_find_the_tokens_of_who_spoke():
    turns = debates()
    frame = turns.frame.with_columns(tokens_out=np.arange(len(turns)))
    table = messages(Turns(frame))
    keys = ["group", "episode", "agent", "turn"]
    spoken = {tuple(row[:4]): row[4] for row in frame.select(*keys, "tokens_out").iter_rows()}
    for row in table.iter_rows(named=True):
        assert row["tokens"] == spoken[row["group"], row["episode"], row["sender"], row["sender_turn"]]


def test_logs_of_others_need_no_more_than_who_and_when():
    turns = Turns(
        {"episode": [0, 0], "turn": [0, 1], "agent": ["a", "b"], "heard": [[], ["a"]], "heard_turn": [[], [0]]}
    )
    assert messages(turns).rows(named=True) == [
        {"episode": 0, "sender": "a", "sender_turn": 0, "receiver": "b", "receiver_turn": 1, "weight": 1.0,
         "tokens": None, "kept": True, "reason": None}
    ]  # fmt: skip
    with pytest.raises(MissingColumnError, match="whom it heard"):
        messages(Turns({"episode": [0], "turn": [0], "agent": ["a"]}))


def test_rules_draw_from_the_episode_alone():
    sparse = functools.partial(
        workflows.graph, Sums, [f"debater-{k}" for k in (1, 2, 3)], edges="all", rounds=3, gate="kept(.5)"
    )()
    team = Team(dict.fromkeys((f"debater-{k}" for k in (1, 2, 3)), ScriptedPolicy(said)))
    whole = rollout(sparse, team, groups=6, group_size=1, seed=1)
    part = rollout(sparse, team, groups=range(3, 6), group_size=1, seed=1)
    kept = messages(whole)
    assert 0 < kept["kept"].mean() < 1
    assert kept.filter(kept["group"] >= 3).equals(messages(part))


def test_every_rule_of_a_graph_can_be_written_out():
    made = Graph.of(["a", "b"], edges="all", rounds=2, gate="best(1)", route="everyone()", stop="verified(.5)")
    assert Deliberation(Sums, made).graph is made


EDITED = {
    "roles": ["a", "b", "c", "editor"],
    "edges": "all",
    "steps": [["a", "b", "c"], ["editor"]], "rounds": 2, "gate": "named('editor')", "aggregate": "vote('editor')",
}  # fmt: skip


@pytest.mark.parametrize(
    ("word", "arrives"),
    [("c", {"a": [8], "b": [8], "c": []}), ("a: b c; b: a", {"a": [7, 8], "b": [6], "c": []}),
     ("editor nobody", {"a": [], "b": [], "c": []}),
     ("Answer: a, `c`.", {"a": [8], "b": [6, 8], "c": [6]})],
)  # fmt: skip
def test_a_role_says_who_is_heard_and_has_no_vote(word, arrives):
    env = workflows.graph(Sums, **EDITED)()
    env.reset(43)  # 3 + 4
    env.step({"a": "6", "b": "7", "c": "8"})
    seen = env.step({"editor": word}).observations
    own = {"a": 6, "b": 7, "c": 8}
    assert {role: each.text for role, each in seen.items()} == {
        role: " | ".join(["3 + 4 =", *map(str, [own[role], *heard])]) for role, heard in arrives.items()
    }
    env.step({"a": "7", "b": "5", "c": "7"})
    info = env.step({"editor": "5"}).info
    assert (info["final"], info["final_role"]) == ("7", "a")


def test_rules_about_a_role_know_the_roles():
    with pytest.raises(InputError, match="'editr', which is no role; did you mean 'editor'"):
        workflows.graph(Sums, **{**EDITED, "gate": "named('editr')"})
    with pytest.raises(InputError, match="'editr', which is no role"):
        workflows.graph(Sums, **{**EDITED, "aggregate": "vote(without='editr')"})


def test_a_gate_that_forgets_a_message_is_named(monkeypatch):
    env = workflows.debate(Sums, 3)()
    monkeypatch.setattr(env, "_gate", lambda *asked: [(1.0, None)])
    env.reset(43)
    with pytest.raises(EnvError, match=r"the gate all\(\) gave 1 verdicts for 2 messages"):
        env.step(dict.fromkeys(env.agents, "7"))


def test_a_text_is_scored_once_in_an_episode():
    asked = []

    class Counted(Sums):
        def score(self, answer):
            asked.append(answer)
            return super().score(answer)

    env = workflows.debate(Counted, 3, rounds=2)()
    env.reset(43)
    env.step(dict.fromkeys(env.agents, "7"))
    assert env.step(dict(zip(env.agents, ("7", "6", "7"), strict=True))).info["success"]
    env.reset(44)
    env.step(dict.fromkeys(env.agents, "7"))
    assert asked == ["7", "6", "7"]
