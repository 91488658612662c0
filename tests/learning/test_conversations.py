"""Rows of conversations: what is packed, and that a loss over tokens has the gradient that rows of turns give it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from palaestra.agents import LMPolicy, TabularPolicy, Team
from palaestra.agents.backends import prefix_trees
from palaestra.agents.backends.llama import Llama
from palaestra.agents.backends.modules import Generic, Once
from palaestra.agents.conversation import sequences
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, MissingColumnError
from palaestra.learning import PolicyGradient
from palaestra.learning.batch import make_batch
from palaestra.learning.conversations import group, pack

VOCABULARY = 300


@functools.cache
def model(seed: int = 0) -> LMPolicy:
    return LMPolicy.tiny(seed=seed, hidden=16, heads=2, vocabulary=VOCABULARY, name="lm")


def table(seed: int = 0, *, conversations: int = 4, turns: int = 4, agents: int = 1, breaks: float = 0.0) -> Turns:
    """Talks whose prompts hold all that was before; a share `breaks` of them begin anew. Rows in a drawn order."""
    rng = np.random.default_rng(seed)

    def ids(low: int, high: int) -> list[int]:
        return [int(each) for each in rng.integers(3, 250, rng.integers(low, high))]

    rows: list[dict[str, Any]] = []
    for number in range(conversations):
        for agent in range(agents):
            past: list[int] = []
            for turn in range(int(rng.integers(1, turns + 1))):
                past = [] if rng.random() < breaks else past
                prompt, action = past + ids(0 if past else 2, 6), ids(1, 5)
                rows.append({
                    "group": number // 2, "episode": number % 2, "turn": turn * agents + agent, "agent": f"a{agent}",
                    "policy": "lm", "task": f"t{number // 2}", "prompt_ids": prompt, "action_ids": action,
                    "logprobs": (-rng.exponential(size=len(action)) - 4).tolist(),
                    "entropies": rng.random(len(action)).tolist(), "reward": float(rng.normal()),
                    "advantage": float(rng.normal()), "weight": float(rng.integers(1, 4)), "error": None,
                })  # fmt: skip
                past = prompt + action
    return Turns(pl.DataFrame(rows, schema_overrides={"error": pl.String}).sample(fraction=1, shuffle=True, seed=seed))


def slope(turns: Turns, terms: str, rows: str, policy: LMPolicy | None = None, **options: Any) -> tuple[Any, Any]:
    """Metrics and the gradient of a step, after the policy moved away from its start."""
    policy = policy or model()
    learner = PolicyGradient(Team(a=policy), terms, rows=rows, **options)  # type: ignore[arg-type]
    with torch.no_grad():
        for number, parameter in enumerate(policy.parameters()):
            source = torch.Generator().manual_seed(number)
            parameter.add_(torch.randn(parameter.shape, generator=source, dtype=parameter.dtype), alpha=0.05)
    metrics = learner.forward_backward(turns)["lm"]
    gradient = torch.cat(
        [torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in policy.parameters()]
    )
    return metrics, gradient.double()


def alike(first: torch.Tensor, second: torch.Tensor) -> None:
    assert float(second.norm()) > 1e-3
    assert float((first - second).norm()) < 1e-6 * max(1.0, float(second.norm()))


TOKEN_TERMS = (
    "surrogate(clip=[.2, .28])", "surrogate(dual_clip=3, aggregate='token-sum')", "cispo()",
    "sapo(aggregate='token-mean')", "gpg()", "reinforce(aggregate='token-mean')", "dppo()", "dro()",
    "kl_cov(share=.2)", "clip_cov(low=0, share=1)",
    "surrogate(), kl(.1), entropy(.01)", "kl(.1, 'k3', corrected=True)", "clone()", "clone(column='weight')",
    "corrected('surrogate()', cap=2)", "value(.5, 'weight', level='token'), surrogate()", "pinned()",
    "stable(aggregate='token-mean')",
)  # fmt: skip


@pytest.mark.parametrize("terms", TOKEN_TERMS)
def test_a_loss_over_tokens_is_that_of_rows_of_turns(terms: str) -> None:
    turns = table(1, conversations=5, agents=2)
    (one, first), (other, second) = (slope(turns, terms, rows, model().twin()) for rows in ("turn", "conversation"))
    assert other["loss"] == pytest.approx(one["loss"], rel=1e-6, abs=1e-6)
    alike(first, second)
    for name in one.keys() - {"rows", "seconds", "shared", "zero_credit", "grad_norm"}:
        assert other[name] == (one[name] and pytest.approx(one[name], rel=1e-5, abs=1e-6)), name
    assert other["rows"] == 10 < other["turns"] == one["rows"] == len(turns)
    assert other["splits"] == 0


def test_losses_over_sequences_are_others() -> None:
    turns = table(1, conversations=5)
    (_, first), (_, second) = (slope(turns, "gspo()", rows, model().twin()) for rows in ("turn", "conversation"))
    assert float((first - second).norm()) > 0.05 * float(first.norm())


@given(seed=st.integers(0, 2**31), breaks=st.sampled_from([0.0, 0.3, 1.0]))
def test_sequences_are_those_of_plain_loops(seed: int, breaks: float) -> None:
    """`agents.conversation.sequences` finds them row by row."""
    turns = table(seed, conversations=3, agents=2, breaks=breaks)
    batch = pack(make_batch(turns, "lm", "advantage"))
    ids = [_said_in_order(row) for row in batch.rows.iter_rows(named=True)]
    expected = sequences(turns.frame)
    assert sorted(ids) == sorted(zip(expected["ids"].to_list(), expected["mask"].to_list(), strict=True))
    assert batch.turns == len(turns)
    assert batch.splits == expected.height - expected.select("group", "episode", "agent").n_unique()
    assert batch.size.tolist() == [len(said) for said, _ in ids]
    assert batch.lengths.tolist() == [sum(mask) for _, mask in ids]


def _said_in_order(row: dict[str, Any]) -> tuple[list[int], list[bool]]:
    """All tokens of a packed row, and which of them were sampled."""
    ids, mask, context = list(row["prompt_ids"]), [False] * len(row["prompt_ids"]), 0
    for number in range(len(row["action_ids"]) + 1):
        while context < len(row["context_ids"]) and row["context_places"][context] == number:
            ids, mask, context = [*ids, row["context_ids"][context]], [*mask, False], context + 1
        if number < len(row["action_ids"]):
            ids, mask = [*ids, row["action_ids"][number]], [*mask, True]
    return ids, mask


def test_worked_example() -> None:
    rows = {
        "group": [0] * 5, "episode": [0, 0, 0, 0, 1], "turn": [0, 1, 2, 3, 0], "agent": ["a"] * 5,
        "prompt_ids": [[1], [1, 2, 3, 9], [1, 2, 3, 9, 4, 8, 8], [7, 7], [1]],
        "action_ids": [[2, 3], [4], [5, 6], [2], [2]], "advantage": [0.5, -1.0, 2.0, 0.0, 0.0],
        "score": [1, 1, 2, 3, 4], "policy": ["lm"] * 5,
        "logprobs": [[-1.0, -2.0], [-3.0], [-4.0, -5.0], [-6.0], [-7.0]],
    }  # fmt: skip
    batch = pack(make_batch(Turns(rows), "lm", "advantage"), ["score"])
    columns = ("turn", "prompt_ids", "action_ids", "context_ids", "context_places", "score")
    assert batch.rows.select(columns).rows() == [
        (0, [1], [2, 3, 4, 5, 6], [9, 8, 8], [2, 3, 3], [1, 1, 1, 2, 2]),
        (3, [7, 7], [2], [], [], [3]),
        (0, [1], [2], [], [], [4]),
    ]
    assert batch.advantage.tolist() == [0.5, 0.5, -1.0, 2.0, 2.0, 0.0, 0.0]
    assert batch.old.tolist() == [-1, -2, -3, -4, -5, -6, -7]
    assert batch.metrics == {"turns": 5, "splits": 1}
    assert batch.credited.tolist() == [True, False, False]
    constant = Turns(rows).with_column(score=pl.lit(3))
    assert pack(make_batch(constant, "lm", "advantage"), ["score"]).rows["score"].to_list() == [3, 3, 3]


def test_an_answer_without_credit_is_context() -> None:
    """Turns without an advantage, with an error, or of a token without one leave the loss, not the conversation."""
    turns = table(3, conversations=6, turns=6)
    drawn = np.random.default_rng(1).random(len(turns))
    turns = turns.with_column(
        advantage=pl.when(pl.Series(drawn < 0.3)).then(None).otherwise(pl.col("advantage")),
        error=pl.when(pl.Series(drawn > 0.8)).then(pl.lit("EnvError")).otherwise(None),
    )
    (one, first), (other, second) = (
        slope(turns, "surrogate()", rows, model().twin()) for rows in ("turn", "conversation")
    )
    alike(first, second)
    assert (other["tokens"], other["splits"]) == (one["tokens"], 0)
    assert other["turns"] == one["rows"] < len(turns)


def test_credit_per_token_and_pieces_of_a_step() -> None:
    turns = table(4, conversations=6, agents=2, breaks=0.2)
    rng = np.random.default_rng(0)
    lists = [
        [None if rng.random() < 0.2 else float(rng.normal()) for _ in ids] for ids in turns["action_ids"].to_list()
    ]
    turns = turns.with_column(advantage=pl.Series(lists, dtype=pl.List(pl.Float64)))
    (_, first), (other, second), (_, third) = (
        slope(turns, "surrogate()", rows, model().twin(), chunk_tokens=tokens)
        for rows, tokens in (("turn", 8192), ("conversation", 8192), ("conversation", 40))
    )
    alike(first, second)
    alike(third, second)
    assert other["splits"] > 0


def test_every_way_through_a_model_is_the_same() -> None:
    """The modules of Hugging Face, with checkpoints and without, one pass for all rows, and the short way."""
    turns = table(5, conversations=3)
    _, expected = slope(turns, "surrogate()", "turn", model().twin())
    ways: list[Callable[[Any], Any]] = [
        Generic, lambda each: Generic(each, checkpoints=True), Once, lambda each: Llama(each, checkpoints=True)
    ]  # fmt: skip
    for way in ways:
        policy = model().twin()
        policy.forward = way(policy.model)
        alike(slope(turns, "surrogate()", "conversation", policy)[1], expected)


def test_a_minibatch_counts_conversations() -> None:
    turns = table(6, conversations=8)
    learner = PolicyGradient(Team(a=model().twin()), rows="conversation", minibatch=4, epochs=2, lr=1e-3)
    metrics = learner.update(turns, rng=np.random.default_rng(0))["lm"]
    assert (metrics["rows"], metrics["turns"]) == (8, len(turns))
    state = next(iter(learner.optimisers["lm"].state.values()))
    assert float(state["step"]) == 4


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"terms": "kto()"}, "term kto is about single turns"),
        ({"terms": "surrogate(), value()"}, r"write value\(level='token'\)"),
        ({"sequential": "turn"}, "learn.sequential='turn' takes turns one after the other"),
        ({"rows": "talks"}, "rows='talks' is unknown"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        PolicyGradient(Team(a=model()), **{"rows": "conversation", **options})


def test_only_token_models_have_conversations() -> None:
    both = Team(a=model(), b=TabularPolicy(2, name="table"))
    with pytest.raises(InputError, match=r"learn\.rows: 'conversation': policy 'table' \(TabularPolicy\)"):
        PolicyGradient(both, rows="conversation")
    PolicyGradient(both, rows="conversation", freeze=["table"])


def test_bad_tables_are_named() -> None:
    turns = table(7)
    learner = PolicyGradient(Team(a=model().twin()), "clone(column='weight')", rows="conversation")
    assert learner.needs() >= {"weight", "episode", "prompt_ids"}
    with pytest.raises(InputError, match=r"column 'weight', which term clone reads, differs between turns"):
        learner.forward_backward(turns.with_column(weight=pl.col("weight") > 1))
    with pytest.raises(MissingColumnError, match="episode"):
        learner.forward_backward(Turns(turns.frame.drop("episode")))
    rows = pl.DataFrame({"prompt_ids": [[3]], "action_ids": [[4, 5]], "context_ids": [[6]], "context_places": [[3]]})
    with pytest.raises(InputError, match="row 0: context_places must say"):
        model().score(rows)


def test_nothing_to_learn_from_is_no_error() -> None:
    turns = table(8).with_column(advantage=pl.lit(None, pl.Float64))
    metrics = PolicyGradient(Team(a=model().twin()), rows="conversation").update(turns)["lm"]
    assert (metrics["rows"], metrics["turns"], metrics["loss"]) == (0, 0, None)


def test_groups_are_found_in_any_order() -> None:
    turns = table(9, conversations=5, agents=2, breaks=0.3)
    sorted_ = turns.frame.sort("group", "episode", "agent", "turn")
    found, again = group(turns.frame), group(sorted_)
    assert len(found.starts) == len(again.starts)
    assert turns.frame[found.order].select("prompt_ids", "action_ids").n_unique() == len(turns)


def test_weights_of_several_steps_are_scored_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """π_start of all conversations is read before the first of several steps, at most so many tokens at once."""
    turns, widths = table(10, conversations=6, turns=6), []
    found = []
    for chunk in (8192, 30):
        monkeypatch.setattr("palaestra.learning.terms.correction.CHUNK", chunk)
        policy = model().twin()
        learner = PolicyGradient(Team(a=policy), "corrected(cap=1.5)", rows="conversation", minibatch=3, lr=0.01)
        score = policy.score

        def watched(rows: pl.DataFrame, score: Any = score) -> Any:
            if not torch.is_grad_enabled():
                widths.append(len(rows))
            return score(rows)

        monkeypatch.setattr(policy, "score", watched)
        learner.update(turns, rng=np.random.default_rng(0))
        found.append(torch.cat([p.detach().flatten() for p in policy.parameters()]))
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-4)
    assert widths[0] == 6
    assert len(widths) > 4


def branching(seed: int = 0, episodes: int = 6, turns: int = 3) -> Turns:
    """Talks that branch: an episode keeps some turns of one before it, and goes on by itself."""
    rng = np.random.default_rng(seed)
    talks: list[list[tuple[list[int], list[int]]]] = []
    for _ in range(episodes):
        talk = list(talks[rng.integers(len(talks))][: rng.integers(turns)]) if talks else []
        while len(talk) < turns:
            past = [*talk[-1][0], *talk[-1][1]] if talk else [4, 5]
            talk.append((past + rng.integers(3, 250, 4).tolist(), rng.integers(3, 250, rng.integers(1, 5)).tolist()))
        talks.append(talk)
    rows = [
        {"group": episode // 3, "episode": episode % 3, "turn": turn, "agent": "a", "policy": "lm",
         "prompt_ids": prompt, "action_ids": action, "logprobs": (-rng.exponential(size=len(action)) - 4).tolist(),
         "reward": float(rng.normal()), "advantage": float(rng.normal()), "weight": float(rng.integers(1, 4))}
        for episode, talk in enumerate(talks) for turn, (prompt, action) in enumerate(talk)
    ]  # fmt: skip
    return Turns(pl.DataFrame(rows).sample(fraction=1, shuffle=True, seed=seed))


SEQUENCE_TERMS = (
    "gspo()", "gmpo()", "rloo()", "vespo()", "surrogate(aggregate='sequence-mean')", "kl_cov(share=.2)",
    "surrogate(), kl(.1), entropy(.01), value(.5, 'weight', level='token')",
)  # fmt: skip


@pytest.mark.parametrize("rows", ["turn", "conversation"])
@pytest.mark.parametrize("terms", [*SEQUENCE_TERMS, "surrogate(clip=[.2, .28])", "cispo()"])
def test_branches_share_what_was_before_them(terms: str, rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loss and gradient are those of rows that are read apart, in one piece and in several."""
    monkeypatch.setattr(prefix_trees, "PER_WIDTH", 10**6)  # as if the model were large
    turns = branching(2)
    with prefix_trees.unshared():
        one, first = slope(turns, terms, rows, model().twin())
    assert one["shared"] == 0
    for chunk in (8192, 60):
        other, second = slope(turns, terms, rows, model().twin(), chunk_tokens=chunk)
        assert other["shared"] > 0.1
        assert other["loss"] == pytest.approx(one["loss"], rel=2e-5, abs=1e-6)  # rounding: of shorter products
        alike(first, second)
        for name in one.keys() - {"seconds", "shared"}:
            assert other[name] == (one[name] and pytest.approx(one[name], rel=2e-5, abs=1e-6)), name


def test_rows_of_a_tree_are_in_one_piece_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_trees, "PER_WIDTH", 10**6)
    turns, policy = branching(3, episodes=12), model().twin()
    score, sizes = policy.score, []

    def watched(rows: pl.DataFrame) -> Any:
        sizes.append(len(rows))
        return score(rows)

    monkeypatch.setattr(policy, "score", watched)
    metrics, gradient = slope(turns, "surrogate()", "conversation", policy, chunk_tokens=100)
    shared = metrics["shared"]
    with prefix_trees.unshared():
        metrics, expected = slope(turns, "surrogate()", "conversation", model().twin(), chunk_tokens=100)
        batch = pack(make_batch(turns, "lm", "advantage"))
    alike(gradient, expected)
    assert shared > 0.2
    assert len(sizes) < batch.size.sum() / 100
