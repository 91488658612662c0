"""Terms in a learner: heads on trunks, pairs in minibatches, references, memory, transactions, recipes."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from palaestra.agents import LMPolicy, MLPPolicy, TabularPolicy, Team
from palaestra.algebra.turns import Ragged, Turns
from palaestra.errors import InputError, LearnerError, MissingColumnError
from palaestra.learning import Learner, PolicyGradient
from palaestra.learning.terms import MicroBatch, Term
from palaestra.learning.transaction import _snapshot


def numbers(rows: int = 64, *, seed: int = 0, **columns: Any) -> Turns:
    """Rows of an `mlp` policy; what comes back is the first feature."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3)).astype(np.float32)
    data = {
        "group": [0] * rows, "episode": list(range(rows)), "turn": [0] * rows, "agent": ["a"] * rows,
        "policy": ["mlp"] * rows, "features": pl.Series(x.tolist()), "logprobs": [[float(np.log(0.5))]] * rows,
        "action_ids": pl.Series(rng.integers(2, size=(rows, 1)).tolist()), "advantage": rng.normal(size=rows),
        "return": x[:, 0].astype(float),
    }  # fmt: skip
    return Turns(data | columns)


def mlp(seed: int = 0) -> MLPPolicy:
    return MLPPolicy(3, 2, hidden=(16,), seed=seed)


def words(rows: int = 24) -> tuple[LMPolicy, Turns]:
    """A language model and rows of one to three tokens after unequal prompts; the return is the prompt's."""
    policy = LMPolicy.tiny(hidden=16, layers=1, heads=2, name="lm")
    rng = np.random.default_rng(0)
    kind = rng.integers(3, size=rows)
    frame = pl.DataFrame({
        "group": kind, "episode": list(range(rows)), "turn": [0] * rows, "agent": ["a"] * rows, "policy": ["lm"] * rows,
        "prompt_ids": [[5, 6, 7, 8][: k + 1] for k in kind], "advantage": [0.0] * rows, "return": kind - 1.0,
        "action_ids": [rng.integers(5, 40, size=rng.integers(1, 4)).tolist() for _ in range(rows)],
    })  # fmt: skip
    with torch.no_grad():
        scored = policy.score(frame)
    logprobs = [row[keep].tolist() for row, keep in zip(scored.logprobs, scored.mask)]
    return policy, Turns(frame.with_columns(logprobs=pl.Series(logprobs)))


def test_it_is_a_learner_and_says_what_it_needs() -> None:
    learner = PolicyGradient(Team(a=mlp()), "surrogate(), value(clip=.2), clone(column='w')")
    assert isinstance(learner, Learner)
    assert learner.needs() == {"return", "value", "w"}
    with pytest.raises(MissingColumnError, match="term value reads column 'value', which is missing"):
        learner.update(numbers())


def test_a_value_head_learns_on_the_trunk_and_predicts_per_row() -> None:
    policy, table = mlp(), numbers()
    learner = PolicyGradient(Team(a=policy), "surrogate(), value(1.0)", lr=0.02, epochs=150)
    assert np.allclose(learner.values(table), 0), "it begins at 0"
    first = learner.update(table)["mlp"]["value_loss"]
    assert first is not None
    others = Turns(table.frame.with_columns(policy=pl.Series(["mlp"] * 63 + ["other"])))
    found = learner.values(others)
    assert isinstance(found, np.ndarray)
    assert np.isnan(found[63])
    assert np.corrcoef(found[:63], table["return"].to_numpy()[:63])[0, 1] > 0.95
    state = copy.deepcopy(learner.state())
    twin = mlp(seed=1)
    again = PolicyGradient(Team(a=twin), "surrogate(), value(1.0)")
    twin.load_state_dict(policy.state_dict())
    again.restore(state)
    np.testing.assert_allclose(again.values(table), learner.values(table))


@pytest.mark.parametrize("generic", [False, True])
def test_a_language_model_s_hidden_states_are_those_of_a_plain_forward_pass(generic: bool) -> None:
    from palaestra.agents.backends.modules import Generic
    from palaestra.learning.terms.heads import score_with_units

    policy, table = words()
    if generic:
        policy.forward = Generic(policy.model)
    scored, units = score_with_units(policy, table.frame)
    for row, (prompt, said) in enumerate(zip(table["prompt_ids"], table["action_ids"])):
        ids = torch.tensor([[*prompt, *said]])
        with torch.no_grad():
            hidden = policy.model.model(input_ids=ids).last_hidden_state[0, len(prompt) - 1 : -1]
        torch.testing.assert_close(units[row, : len(said)].detach(), hidden, atol=1e-5, rtol=1e-4)
    assert units.requires_grad
    assert scored.mask.sum() == table["action_ids"].list.len().sum()


def test_a_language_model_learns_values_by_turn_and_by_token() -> None:
    for level in ("turn", "token"):
        policy, table = words()
        learner = PolicyGradient(Team(a=policy), f"value(1.0, level='{level}')", lr=0.01, epochs=60, chunk_tokens=40)
        learner.update(table)
        found = learner.values(table)
        if isinstance(found, Ragged):
            assert found.lengths.tolist() == table["action_ids"].list.len().to_list()
            goal = np.repeat(table["return"].to_numpy(), found.lengths)
            assert np.corrcoef(found.values, goal)[0, 1] > 0.9
        else:
            assert np.corrcoef(found, table["return"].to_numpy())[0, 1] > 0.95


def test_what_has_no_trunk_or_no_head_is_named() -> None:
    with pytest.raises(InputError, match=r"policy 'tabular' .TabularPolicy. has no trunk that a value head could read"):
        PolicyGradient(Team(a=TabularPolicy(2)), "value()")
    with pytest.raises(InputError, match=r"add value\(\) to the terms"):
        PolicyGradient(Team(a=mlp())).values(numbers())


def test_preferences_need_no_credit_and_pairs_stay_together() -> None:
    policy = mlp()
    table = numbers(pair=[i // 2 for i in range(64)], chosen=[i % 2 == 0 for i in range(64)])
    same = Turns(table.frame.drop("advantage", "logprobs").with_columns(
        features=table["features"].gather([i // 2 * 2 for i in range(64)]),
        action_ids=pl.Series([[i % 2] for i in range(64)], dtype=pl.List(pl.Int32)),
    ))  # fmt: skip
    sizes: list[int] = []
    spy = Term("spy", lambda piece: sizes.append(len(piece.at)) or piece.new.sum() * 0.0)  # type: ignore[func-returns-value]
    learner = PolicyGradient(Team(a=policy), ["dpo(1.0)", spy], lr=0.05, epochs=3, minibatch=10)
    metrics = [learner.update(same, rng=np.random.default_rng(i))["mlp"] for i in range(4)]
    assert set(sizes) == {10, 4}
    assert metrics[-1]["preferred"] == 1.0
    assert metrics[-1]["dpo_loss"] < 0.5 * metrics[0]["dpo_loss"]  # type: ignore[operator]


@pytest.mark.parametrize(("terms", "sizes"), [("orpo()", {4}), ("orpo(), entropy(0.1)", {3, 4, 5})])
@pytest.mark.parametrize("minibatch", [4, None])
def test_rows_in_no_pair_fill_no_step(terms: str, sizes: set[int], minibatch: int | None) -> None:
    """Pairs alone leave them out; a term that looks everywhere has them in minibatches of the size that was asked."""
    policy = mlp()
    sides = {"pair": [i // 2 if i < 8 else None for i in range(64)], "chosen": [i % 2 == 0 for i in range(64)]}
    read: list[int] = []
    score = policy.score
    policy.score = lambda rows: (read.append(len(rows)), score(rows))[1]  # type: ignore[method-assign]
    learner = PolicyGradient(Team(a=policy), terms, minibatch=minibatch)
    learner.update(numbers(**sides), rng=np.random.default_rng(0))
    everything = 64 if "entropy" in terms else 8
    assert sum(read) == everything
    assert set(read) <= (sizes if minibatch else {everything})


@pytest.mark.parametrize("chunk_tokens", [1, 8192])
def test_tokens_without_a_weight_or_without_credit_leave_the_mean(chunk_tokens: int) -> None:
    """Every third token has no weight, every fifth takes no part, and the first row has no weights at all."""
    policy, table = words()
    spans = [range(at, at + len(row)) for at, row in enumerate(table["action_ids"])]
    weights = [[None if place % 3 == 0 else 1.0 for place in row] for row in spans]
    credit = [[None if place % 5 == 0 else 0.0 for place in row] for row in spans]
    table = table.with_column(w=pl.Series([None, *weights[1:]]), advantage=pl.Series(credit))
    learner = PolicyGradient(Team(a=policy), "surrogate(), clone(column='w')", lr=0.0, chunk_tokens=chunk_tokens)
    said = [
        each
        for row, w, a in zip(table["logprobs"], table["w"], table["advantage"], strict=True)
        for each, known, taking in zip(row, w if w is not None else (), a, strict=w is not None)
        if known is not None and taking is not None
    ]
    assert learner.update(table)["lm"]["loss"] == pytest.approx(-np.mean(said), rel=1e-5)


def test_a_verdict_per_row_moves_a_language_model() -> None:
    policy, table = words()
    table = table.with_column(chosen=pl.col("return") > 0)
    learner = PolicyGradient(Team(a=policy), "kto(.5)", lr=3e-3, epochs=5)
    before = learner.update(table)["lm"]["kto_loss"]
    after = learner.update(table)["lm"]["kto_loss"]
    assert after < before  # type: ignore[operator]


def test_the_origin_of_verdicts_is_how_far_answers_to_other_prompts_have_moved() -> None:
    policy, table = words()
    table = table.with_column(chosen=pl.lit(True))
    learner = PolicyGradient(Team(a=policy), "kto(.5)", lr=1e-2)
    rows: dict[int, list[int]] = {
        group: np.flatnonzero(table["group"].to_numpy() == group).tolist() for group in range(3)
    }
    before = [rows[(group - 1) % 3] for group in table["group"]]
    places = [rows[group].index(row) for row, group in enumerate(table["group"])]
    taken = [others[place % len(others)] for others, place in zip(before, places, strict=True)]
    other = table.frame.with_columns(action_ids=table["action_ids"][taken])

    def said() -> float:
        with torch.no_grad():
            scored = policy.score(other)
        return float(scored.logprobs.masked_fill(~scored.mask, 0.0).sum(1).mean())

    start, origins, moved = said(), [], []
    for _ in range(6):
        moved.append(max(0.0, said() - start))
        origins.append(learner.update(table)["lm"]["kto_origin"])
    assert origins == pytest.approx(moved, abs=1e-5)
    assert max(moved) > 0.01


def test_no_start_is_kept_unless_a_term_asks() -> None:
    policy = mlp()
    plain = PolicyGradient(Team(a=policy), lr=0.1)
    assert plain.references == plain.state()["start"] == {}
    assert plain.divergence(numbers()) == {}
    start = {"mlp": copy.deepcopy(policy.state_dict())}
    pulled = PolicyGradient(Team(a=policy), "surrogate(), kl(.1)", lr=0.1)
    pulled.update(numbers())
    assert plain.divergence(numbers(), start=start) == pytest.approx(pulled.divergence(numbers()))
    assert pulled.divergence(numbers())["mlp"] > 0


def test_an_update_of_one_step_copies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[int] = []

    def counting(optimiser: torch.optim.Optimizer) -> Any:
        copies.append(1)
        return _snapshot(optimiser)

    monkeypatch.setattr("palaestra.learning.transaction._snapshot", counting)
    PolicyGradient(Team(a=mlp())).update(numbers())
    PolicyGradient(Team(a=mlp()), epochs=2, transaction="step").update(numbers())
    assert not copies
    PolicyGradient(Team(a=mlp()), epochs=2).update(numbers())
    assert copies == [1]


@pytest.mark.parametrize("transaction", ["update", "step"])
def test_what_a_failure_leaves(transaction: Any) -> None:
    poison = Term("poison", lambda piece: piece.new.sum() * (torch.inf if piece.step.number == 2 else 0.0))
    policy = mlp()
    before = copy.deepcopy(policy.state_dict())
    learner = PolicyGradient(Team(a=policy), ["surrogate()", poison], epochs=3, lr=0.1, transaction=transaction)
    with pytest.raises(LearnerError, match="nothing was updated" if transaction == "update" else "2 steps were taken"):
        learner.update(numbers())
    same = all(torch.equal(before[name], tensor) for name, tensor in policy.state_dict().items())
    assert same is (transaction == "update")
    assert all(tensor.isfinite().all() for tensor in policy.state_dict().values())


def test_if_one_policy_fails_none_has_moved() -> None:
    first, second = MLPPolicy(3, 2, name="a", seed=1), MLPPolicy(3, 2, name="b", seed=2)
    table = Turns.concat([numbers(policy=[name] * 64) for name in ("a", "b")])
    before = copy.deepcopy(first.state_dict())

    def poison(piece: MicroBatch) -> torch.Tensor:
        assert piece.step.policy is not None
        return piece.new.sum() * (torch.nan if piece.step.policy.name == "b" else 0.0)

    learner = PolicyGradient(Team(a=first, b=second), ["surrogate()", Term("poison", poison)], lr=0.1)
    with pytest.raises(LearnerError, match=r"policy 'b'.*nothing was updated"):
        learner.update(table)
    assert all(torch.equal(before[name], tensor) for name, tensor in first.state_dict().items())
    assert not learner.optimisers["a"].state


def test_a_stale_token_does_not_stop_a_run() -> None:
    policy = mlp()
    table = numbers().with_column(logprobs=pl.Series([[-100.0]] + [[-0.7]] * 63))
    for terms in ("surrogate()", "surrogate(None)", "surrogate(ratio='sequence')", "sapo()", "vespo()"):
        metrics = PolicyGradient(Team(a=policy), terms).update(table)["mlp"]
        assert metrics["clamped"] == 1
        assert metrics["loss"] is not None
        assert np.isfinite(metrics["loss"])


@pytest.mark.parametrize("text", ["dpo()", "orpo()", "kto(zero='apo')", "clone(column='weight')"])
def test_momentum_alone_moves_no_policy(text: str) -> None:
    """An update without a pair, a verdict or a weight leaves everything as it is."""
    policy = mlp()
    learner = PolicyGradient(Team(a=policy), text, lr=0.1)
    sides = {"pair": [i // 2 for i in range(64)], "chosen": [i % 2 == 0 for i in range(64)], "weight": [1.0] * 64}
    learner.update(numbers(**sides))  # Adam has momentum now
    before = copy.deepcopy(policy.state_dict())
    learner.update(numbers(**{name: pl.Series([None] * 64, dtype=pl.Float64) for name in sides}))
    assert all(torch.equal(before[name], tensor) for name, tensor in policy.state_dict().items())


@pytest.mark.parametrize("pull", [0.0, 0.3])
def test_shipped_recipes_train_as_they_did(pull: float) -> None:
    """The former objective, written out: mean over tokens of the clipped surrogate plus pull · exact KL."""
    policy, table = words()
    table = table.with_column(advantage=np.random.default_rng(1).normal(size=len(table)))
    with torch.no_grad():
        for parameter in policy.parameters():
            start = copy.deepcopy(policy)
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
            break
    scored, then = policy.score(table.frame), start.score(table.frame)
    old = torch.zeros_like(scored.logprobs)
    for row, values in enumerate(table["logprobs"]):
        old[row, : len(values)] = torch.tensor(values.to_list())
    advantage = torch.tensor(table["advantage"].to_list(), dtype=torch.float32)[:, None]
    ratio = (scored.logprobs - old).exp()
    surrogate = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
    log_p, log_q = scored.logits.log_softmax(-1), then.logits.log_softmax(-1)
    kl = (log_p.exp() * (log_p - log_q)).sum(-1)
    expected = ((surrogate + pull * kl) * scored.mask).sum() / scored.mask.sum()
    norm = torch.stack([g.norm() for g in torch.autograd.grad(expected, policy.parameters())]).norm()
    learner = PolicyGradient(Team(a=policy), "surrogate(), kl(0.3)" if pull else "surrogate()")
    if pull:
        learner.references["lm"].load_state_dict(start.state_dict())
    metrics = learner.update(table)["lm"]
    assert metrics["loss"] == pytest.approx(float(expected.detach()), rel=1e-5, abs=1e-7)
    assert metrics["grad_norm"] == pytest.approx(float(norm), rel=1e-4)
