from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from palaestra.algebra.turns import Turns
from palaestra.credit.teams import shapley_values
from palaestra.errors import InputError, MissingColumnError
from palaestra.evaluation.teamwork import cosine_contribution, hindsight_credit, importance_flow

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")  # what is 0 / 0 is left out before it is divided
W1 = [[0.6, 0.2, 0.2], [0.4, 0.4, 0.2], [0.3, 0.3, 0.4]]
W2 = [[0.5, 0.3, 0.2], [0.2, 0.6, 0.2], [0.1, 0.1, 0.8]]
AGENTS = ["a", "b", "c"]


def network(weights, answers, groups=1):
    """A layered network of three agents, `weights[r][receiver][sender]` between rounds r and r + 1."""
    rounds = len(weights) + 1
    rows = [
        {"group": g, "episode": 0, "turn": r, "agent": agent, "answer": answers[at] if r == rounds - 1 else "?"}
        for g in range(groups) for r in range(rounds) for at, agent in enumerate(AGENTS)
    ]  # fmt: skip
    messages = [
        {"group": g, "episode": 0, "sender": sender, "sender_turn": r, "receiver": receiver, "receiver_turn": r + 1,
         "weight": weights[r][i][j], "kept": True}
        for g in range(groups) for r in range(rounds - 1)
        for i, receiver in enumerate(AGENTS) for j, sender in enumerate(AGENTS)
    ]  # fmt: skip
    return Turns(pl.DataFrame(rows)), pl.DataFrame(messages)


def test_the_worked_importance_of_dylan():
    found = importance_flow(*network([W1, W2], ["A", "A", "B"]))
    by = found.group_by("turn", maintain_order=True).agg("importance")["importance"].to_list()
    assert by[2] == pytest.approx([0.5, 0.5, 0.0])
    assert by[1] == pytest.approx([0.35, 0.45, 0.20])
    assert by[0] == pytest.approx([0.45, 0.31, 0.24])
    total = found.group_by("agent", maintain_order=True).agg(pl.col("importance").sum())["importance"]
    assert total.to_list() == pytest.approx([1.30, 1.26, 0.44])


def test_every_round_shares_one_in_every_episode_in_any_order_of_rows():
    turns, messages = network([W1, W2, W1], ["B", "A", "A"], groups=5)
    mixed = Turns(turns.frame.sample(fraction=1, shuffle=True, seed=1))
    found = importance_flow(mixed, messages.sample(fraction=1, shuffle=True, seed=2))
    assert found.group_by("group", "turn").agg(pl.col("importance").sum())["importance"].to_list() == pytest.approx(
        [1.0] * 20
    )
    assert found.sort("group", "turn", "agent")["importance"].to_list() == pytest.approx(
        importance_flow(turns, messages)["importance"].to_list()
    )


def test_weights_are_scaled_none_are_equal_and_what_was_held_back_counts_for_nothing():
    turns, messages = network([W1], ["A", "A", "A"])
    doubled = messages.with_columns(pl.col("weight") * 2)
    assert importance_flow(turns, doubled)["importance"].to_list() == pytest.approx(
        importance_flow(turns, messages)["importance"].to_list()
    )
    nothing = importance_flow(turns, messages.with_columns(weight=pl.lit(0.0)))
    assert nothing["importance"].to_list() == pytest.approx([1 / 3] * 6)
    held = messages.with_columns(kept=pl.col("sender") != "c")
    assert importance_flow(turns, held).filter(turn=0)["importance"].to_list() == pytest.approx(
        [(0.75 + 0.5 + 0.5) / 3, (0.25 + 0.5 + 0.5) / 3, 0.0]
    )


def test_the_final_answer_may_be_told():
    turns, messages = network([W1], ["A", "A", "B"])
    told = Turns(turns.frame.with_columns(final=pl.lit("B")))
    assert importance_flow(told, messages, final="final").filter(turn=1)["importance"].to_list() == [0.0, 0.0, 1.0]
    nobody = Turns(turns.frame.with_columns(final=pl.lit("C")))
    assert importance_flow(nobody, messages, final="final")["importance"].sum() == 0
    with pytest.raises(MissingColumnError, match="did you mean 'answer'"):
        importance_flow(turns, messages, answer="answers")


def test_contributions_of_likeness_follow_exact_shapley_values():
    """The card: n = 5, d = 64, right answers share a prototype; corr 0.9998 in a draw, the best agrees in 98.5 %."""
    rng = np.random.default_rng(0)
    prototypes = rng.normal(size=(21, 64))
    psi, exact = [], []
    for _ in range(60):
        right = rng.random(5) < 0.5
        vectors = prototypes[np.where(right, 0, rng.integers(1, 21, 5))] + 0.3 * rng.normal(size=(5, 64))
        turns = Turns({"group": [0] * 5, "episode": range(5), "turn": [0] * 5, "agent": list("abcde"),
                       "embedding": vectors.tolist()})  # fmt: skip
        psi.append(cosine_contribution(turns))
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        whole = unit.mean(0) / np.linalg.norm(unit.mean(0))

        def value(members, unit=unit, whole=whole):
            mean = unit[[int(each) for each in members]].mean(0) if members else np.zeros(64)
            return float(mean @ whole / max(np.linalg.norm(mean), 1e-300))

        exact.append(shapley_values(value, list("01234")))
    apart = [at for at in range(60) if np.std(exact[at]) > 1e-3]
    assert np.mean([np.corrcoef(psi[at], exact[at])[0, 1] for at in apart]) > 0.99
    assert np.mean(np.argmax(psi, 1) == np.argmax(exact, 1)) > 0.9


def test_contribution_knows_groups_and_what_is_missing():
    turns = Turns({"group": [0, 0, 1, 1], "embedding": [[1.0, 0.0], [0.0, 2.0], None, [3.0, 4.0]]})
    assert cosine_contribution(turns)[[0, 1, 3]] == pytest.approx([0.5**0.5, 0.5**0.5, 1.0])
    assert np.isnan(cosine_contribution(turns)[2])
    with pytest.raises(InputError, match="vectors of 1 and 2 numbers"):
        cosine_contribution(Turns({"group": [0, 0], "embedding": [[1.0], [1.0, 2.0]]}))
    with pytest.raises(MissingColumnError, match="embed"):
        cosine_contribution(Turns({"group": [0]}))


def test_who_was_not_invoked_counts_as_not_helpful():
    turns = Turns({
        "episode": [0, 0, 0, 1, 2, 3], "turn": [0, 1, 2, 0, 0, 0], "agent": ["a", "b", "a", "b", "a", "a"],
        "helped": [False, True, True, False, None, False],
    })  # fmt: skip
    rows = {row["agent"]: row for row in hindsight_credit(turns, "helped", members=["a", "b", "c"]).rows(named=True)}
    assert rows["a"] == {
        "agent": "a",
        "episodes": 3,
        "invoked": 3,
        "helpful": pytest.approx(1 / 3),
    }  # one unknown
    assert rows["b"] == {"agent": "b", "episodes": 4, "invoked": 2, "helpful": 0.25}
    assert rows["c"] == {"agent": "c", "episodes": 4, "invoked": 0, "helpful": 0.0}
    unknown = Turns({"episode": [0], "turn": [0], "agent": ["a"], "helped": pl.Series([None], dtype=pl.Boolean)})
    assert hindsight_credit(unknown, "helped")["helpful"].to_list() == [None]
    with pytest.raises(MissingColumnError, match="did you mean 'helped'"):
        hindsight_credit(turns, "helpd")


def test_what_is_missing_mattered_to_nobody():
    rows = {"episode": [0] * 4, "turn": [0, 0, 0, 0], "agent": list("abcd"), "answer": [None, None, "x", "x"]}
    turns = Turns({**rows, "heard": [[]] * 4, "heard_turn": [[]] * 4})
    kinds = {"episode": pl.Int64, "sender": pl.String, "sender_turn": pl.Int64}
    none = pl.DataFrame(schema={**kinds, "receiver": pl.String, "receiver_turn": pl.Int64, "weight": pl.Float64})
    assert importance_flow(turns, none)["importance"].to_list() == [0.0, 0.0, 0.5, 0.5]
    vectors = Turns({"group": [0] * 3, "episode": [0, 1, 2], "embedding": [[1.0, 0.0], [None, 1.0], [1.0, 0.0]]})
    assert cosine_contribution(vectors) == pytest.approx([1.0, np.nan, 1.0], nan_ok=True)
    judged = Turns({"episode": [0, 1], "turn": [0, 0], "agent": ["a", "a"], "helped": [float("nan"), 0.0]})
    assert hindsight_credit(judged, "helped").row(0) == ("a", 1, 2, 0.0)


def test_equal_answers_are_those_of_the_first_agent_by_name_whatever_the_order_of_rows():
    rows = {"episode": [0, 0], "turn": [0, 0], "agent": ["a", "b"], "answer": ["y", "x"]}
    table = pl.DataFrame({**rows, "heard": [[]] * 2, "heard_turn": [[]] * 2})
    kinds = {"episode": pl.Int64, "sender": pl.String, "sender_turn": pl.Int64}
    none = pl.DataFrame(schema={**kinds, "receiver": pl.String, "receiver_turn": pl.Int64, "weight": pl.Float64})
    for turns in (table, table.reverse()):
        found = importance_flow(Turns(turns), none).filter(agent="a")["importance"]
        assert found.to_list() == [1.0]


def test_vectors_of_a_fixed_length_are_read_and_what_is_none_is_named():
    turns = Turns({"group": [0] * 2, "episode": [0, 1], "embedding": [[1.0, 0.0], [1.0, 0.0]]})
    fixed = Turns(turns.frame.with_columns(pl.col("embedding").list.to_array(2)))
    assert cosine_contribution(fixed) == pytest.approx([1.0, 1.0])
    with pytest.raises(InputError, match="'embedding' holds Float64, expected lists of numbers"):
        cosine_contribution(turns.with_column(embedding=pl.Series([1.0, 2.0])))


@pytest.mark.parametrize("turn", [-1, 2, 3])
def test_a_message_of_a_turn_that_nobody_took_is_nobodys(turn):
    turns = Turns({"episode": [0] * 4, "turn": [0, 0, 1, 1], "agent": list("abab"), "answer": ["x"] * 4})
    base = {"episode": [0], "receiver": ["a"], "receiver_turn": [1], "weight": [1.0]}
    for sender in "ab":
        said = pl.DataFrame({**base, "sender": [sender], "sender_turn": [turn]})
        assert importance_flow(turns, said)["importance"].to_list() == [0, 0, 0.5, 0.5]
    said = pl.DataFrame({**base, "sender": ["b"], "sender_turn": [0]})
    assert importance_flow(turns, said)["importance"].to_list() == [0, 0.5, 0.5, 0.5]
