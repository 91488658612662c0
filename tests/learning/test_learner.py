"""The learner: what it changes, what it refuses, and that neither pieces nor shortcuts change the mathematics."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from torch import Tensor

from palaestra.agents import TabularPolicy, Team
from palaestra.agents.policy import Scored
from palaestra.algebra.turns import Turns
from palaestra.credit import grpo
from palaestra.envs.worlds.corridor import MOVES, Corridor
from palaestra.errors import InputError, LearnerError, MissingColumnError, RewardError
from palaestra.learning import PolicyGradient
from palaestra.learning.learning_rates import decay
from palaestra.play.rollout import rollout

POSITIONS, VOCABULARY = 4, 3


class ToyPolicy:
    """A softmax at every (prompt, position): prompt_ids is [state], token t has logits `table[state, t]`."""

    def __init__(self, name: str = "toy", *, states: int = 2, seed: int = 0) -> None:
        self.name = name
        generator = torch.Generator().manual_seed(seed)
        self.table = torch.nn.Parameter(torch.randn(states, POSITIONS, VOCABULARY, generator=generator))
        self.calls = 0

    def act(self, requests: Any) -> list[Any]:
        raise NotImplementedError

    def score(self, rows: pl.DataFrame) -> Scored:
        self.calls += 1
        actions = rows["action_ids"].to_list()
        longest = max(map(len, actions), default=0)
        mask = torch.tensor([[t < len(a) for t in range(longest)] for a in actions])
        ids = torch.tensor([a + [0] * (longest - len(a)) for a in actions])
        logits = self.table[torch.tensor([p[0] for p in rows["prompt_ids"].to_list()]), :longest]
        logp = logits.log_softmax(-1)
        return Scored(logp.gather(-1, ids[..., None])[..., 0], -(logp.exp() * logp).sum(-1), mask, logits)

    def parameters(self) -> list[torch.nn.Parameter]:
        return [self.table] if self.table.requires_grad else []

    def state_dict(self) -> dict[str, Any]:
        return {"table": self.table.detach()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        with torch.no_grad():
            self.table.copy_(state["table"])

    def frozen_copy(self) -> ToyPolicy:
        twin = copy.deepcopy(self)
        twin.table.requires_grad_(False)
        return twin


def toy_team(*policies: ToyPolicy) -> Team:
    return Team({f"seat of {policy.name}": policy for policy in policies})


def toy_turns(policy: ToyPolicy, *, rows: int = 12, seed: int = 0, advantage: Any = "random", **columns: Any) -> Turns:
    """Rows sampled from the policy: groups of 4 episodes, one turn each, 1 to 4 tokens."""
    rng = np.random.default_rng(seed)
    probabilities = policy.table.detach().softmax(-1).double().numpy()
    data: dict[str, list[Any]] = {"prompt_ids": [], "action_ids": [], "logprobs": [], "entropies": []}
    for _ in range(rows):
        state, length = int(rng.integers(len(probabilities))), int(rng.integers(1, POSITIONS + 1))
        p = probabilities[state, :length] / probabilities[state, :length].sum(-1, keepdims=True)
        ids = [int(rng.choice(VOCABULARY, p=row)) for row in p]
        data["prompt_ids"].append([state])
        data["action_ids"].append(ids)
        data["logprobs"].append([float(np.log(row[i])) for row, i in zip(p, ids)])
        data["entropies"].append([float(-(row * np.log(row)).sum()) for row in p])
    values: Mapping[str, Any] = {
        "iteration": [0] * rows,
        "group": [i // 4 for i in range(rows)],
        "episode": [i % 4 for i in range(rows)],
        "turn": [0] * rows,
        "agent": [f"seat of {policy.name}"] * rows,
        "policy": [policy.name] * rows,
        "reward": rng.normal(size=rows).round(3),
        "error": [None] * rows,
        **data,
        "advantage": rng.normal(size=rows).round(3) if isinstance(advantage, str) else advantage,
        **columns,
    }
    return Turns({name: pl.Series(name, value) for name, value in values.items()})


@pytest.fixture
def policy() -> ToyPolicy:
    return ToyPolicy()


def gradient_of(turns: Turns, terms: str = "surrogate()", **options: Any) -> Tensor:
    """The gradient that one update applies, before clipping and Adam."""
    policy = ToyPolicy()
    learner = PolicyGradient(toy_team(policy), terms, max_grad_norm=None, **options)
    grabbed: list[Tensor] = []
    learner.optimisers["toy"].register_step_pre_hook(lambda *_: grabbed.append(policy.table.grad.clone()))  # type: ignore[union-attr]
    learner.update(turns)
    assert len(grabbed) == 1
    return grabbed[0]


def by_hand(turns: Turns, *, how: str, kl: float = 0.0, entropy: float = 0.0, clip: float = 0.2) -> Tensor:
    """The same gradient, row by row."""
    table = ToyPolicy().table.detach().clone().requires_grad_()
    start = table.detach().clone()
    total, tokens, regularisers = torch.zeros(()), 0, torch.zeros(())
    for row in turns.frame.iter_rows(named=True):
        state, n = row["prompt_ids"][0], len(row["action_ids"])
        logp, ref = table[state, :n].log_softmax(-1), start[state, :n].log_softmax(-1)
        ratio = (logp[torch.arange(n), row["action_ids"]] - torch.tensor(row["logprobs"])).exp()
        a = torch.tensor(row["advantage"])
        loss = -torch.minimum(ratio * a, ratio.clamp(1 - clip, 1 + clip) * a).sum()
        total = total + (loss / n if how == "sequence-mean" else loss)
        tokens += n
        regularisers = regularisers + kl * (logp.exp() * (logp - ref)).sum() + entropy * (logp.exp() * logp).sum()
    weight = {"token-mean": tokens, "sequence-mean": len(turns), "constant": 9 * len(turns)}[how]
    (gradient,) = torch.autograd.grad(total / weight + regularisers / tokens, table)
    return gradient


@pytest.mark.parametrize("how", ["token-mean", "sequence-mean", "constant"])
@pytest.mark.parametrize("regularised", [{}, {"kl": 0.3, "entropy": 0.2}])
@pytest.mark.parametrize("chunk_tokens", [1, 9, 10_000])
def test_gradient_is_the_one_by_hand_however_it_is_cut(
    policy: ToyPolicy, how: str, regularised: dict[str, float], chunk_tokens: int
) -> None:
    turns = toy_turns(policy, advantage=[1.0, -1.0, 0.0, 0.0, 2.0, 0.0, -0.5, 0.0, 0.0, 0.0, 0.0, 1.5])
    off_policy = turns.with_column(logprobs=pl.col("logprobs").list.eval(pl.element() + 0.15))
    terms = [f"surrogate(aggregate='{how}', constant=9.0)", *(f"{name}({w})" for name, w in regularised.items())]
    ours = gradient_of(off_policy, ", ".join(terms), chunk_tokens=chunk_tokens)
    torch.testing.assert_close(ours, by_hand(off_policy, how=how, **regularised), atol=1e-6, rtol=1e-5)


def test_advantage_per_token_equals_per_turn_when_constant(policy: ToyPolicy) -> None:
    turns = toy_turns(policy)
    per_token = turns.with_column(advantage=pl.col("advantage").repeat_by(pl.col("action_ids").list.len()))
    torch.testing.assert_close(gradient_of(turns), gradient_of(per_token))


def test_a_token_without_advantage_takes_no_part(policy: ToyPolicy) -> None:
    turns = toy_turns(policy, rows=4, advantage=[1.0] * 4, action_ids=[[0, 1, 2]] * 4, logprobs=[[-1.0] * 3] * 4)
    cut = turns.with_column(advantage=pl.Series([[1.0, None, None]] * 4))
    short = turns.with_column(
        advantage=pl.Series([[1.0]] * 4),
        action_ids=pl.Series([[0]] * 4, dtype=pl.List(pl.Int32)),
        logprobs=pl.Series([[-1.0]] * 4, dtype=pl.List(pl.Float32)),
    )
    torch.testing.assert_close(gradient_of(cut), gradient_of(short))


def test_rows_of_others_failed_rows_and_unscored_rows_take_no_part(policy: ToyPolicy) -> None:
    clean = toy_turns(policy, rows=8)
    stranger = toy_turns(ToyPolicy("stranger"), rows=4, advantage=[5.0] * 4)
    failed = toy_turns(policy, rows=4, seed=1, error=["env: ValueError: no"] * 4, advantage=[9.0] * 4)
    unscored = toy_turns(policy, rows=4, seed=2, advantage=[None] * 4)
    empty = Turns({"group": [9], "episode": [0], "error": ["env: ValueError: no"]})
    mixed = Turns.concat([stranger, unscored, clean, failed, empty])
    torch.testing.assert_close(gradient_of(mixed), gradient_of(clean))


def test_it_raises_what_was_credited_and_lowers_what_was_not(policy: ToyPolicy) -> None:
    turns = toy_turns(policy, rows=64)
    turns = turns.with_column(advantage=pl.col("action_ids").list.eval((pl.element() == 1) * 2.0 - 1.0))
    before = policy.table.detach().softmax(-1)[..., 1]
    learner = PolicyGradient(toy_team(policy), lr=0.1)
    metrics = learner.update(turns)["toy"]
    assert bool((policy.table.detach().softmax(-1)[..., 1] > before).all())
    assert metrics["rows"] == 64
    assert metrics["tokens"] == int(turns["action_ids"].list.len().sum())
    assert metrics["clip_fraction"] == 0
    assert metrics["zero_credit"] == 0
    assert metrics["kl"] is None
    assert metrics["entropy"] == pytest.approx(float(turns["entropies"].explode().mean()), rel=1e-6)  # type: ignore[arg-type]


def test_several_epochs_leave_the_old_policy_and_are_clipped(policy: ToyPolicy) -> None:
    metrics = PolicyGradient(toy_team(policy), lr=0.3, epochs=8).update(toy_turns(policy, rows=32))["toy"]
    clip_fraction = metrics["clip_fraction"]
    assert clip_fraction is not None
    assert 0.05 < clip_fraction < 1


def test_minibatches_are_drawn_from_rng_and_cover_all_rows(policy: ToyPolicy) -> None:
    turns = toy_turns(policy, rows=10)
    results = []
    for seed in (0, 0, 1):
        twin = ToyPolicy()
        learner = PolicyGradient(toy_team(twin), lr=0.1, minibatch=4, epochs=2)
        learner.update(turns, rng=np.random.default_rng(seed))
        results.append(twin.table.detach().clone())
        assert twin.calls == 6
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])
    with pytest.raises(InputError, match="rng="):
        PolicyGradient(toy_team(ToyPolicy()), minibatch=4).update(turns)


def test_zero_credit_rows_cost_no_forward_but_count_in_the_mean(policy: ToyPolicy) -> None:
    nothing = toy_turns(policy, advantage=[0.0] * 12)
    learner = PolicyGradient(toy_team(policy))
    learner.update(toy_turns(policy))  # Adam now has momentum
    before, calls = policy.table.detach().clone(), policy.calls
    metrics = learner.update(nothing)["toy"]
    assert torch.equal(policy.table, before)
    assert policy.calls == calls
    assert metrics["zero_credit"] == 1
    assert metrics["loss"] == 0


def test_kl_pulls_back_to_the_start(policy: ToyPolicy) -> None:
    learner = PolicyGradient(toy_team(policy), "surrogate(), kl(1.0)", lr=0.05)
    with torch.no_grad():
        policy.table.add_(torch.randn(policy.table.shape, generator=torch.Generator().manual_seed(1)))
    turns = toy_turns(policy, rows=64, advantage=[0.0] * 64)
    distances = [learner.divergence(turns, rows=64)["toy"]]
    kls = []
    for _ in range(60):
        kls.append(learner.update(turns)["toy"]["kl"])
        distances.append(learner.divergence(turns, rows=64)["toy"])
    assert kls == pytest.approx(distances[:-1])
    assert distances[-1] < 0.2 * distances[0]
    k3 = PolicyGradient(toy_team(policy), "surrogate(), kl(1.0, estimator='k3')").update(turns)["toy"]["kl"]
    assert k3 == pytest.approx(0, abs=1e-6)  # a new learner starts from here


def test_entropy_bonus_flattens(policy: ToyPolicy) -> None:
    turns = toy_turns(policy, rows=32, advantage=[0.0] * 32)
    before = float(policy.score(turns.frame).entropies.detach().mean())
    learner = PolicyGradient(toy_team(policy), "surrogate(), entropy(1.0)", lr=0.05)
    for _ in range(20):
        learner.update(turns)
    assert float(policy.score(turns.frame).entropies.detach().mean()) > before + 0.05


def test_each_policy_has_its_own_rate_and_shared_ones_are_one(policy: ToyPolicy) -> None:
    other = ToyPolicy("other", seed=1)
    turns = Turns.concat([toy_turns(policy), toy_turns(other)])
    before = policy.table.detach().clone(), other.table.detach().clone()
    metrics = PolicyGradient(toy_team(policy, other), lr={"toy": 0.1, "other": 1e-3}).update(turns)
    moved = (policy.table - before[0]).abs().max().item(), (other.table - before[1]).abs().max().item()
    assert moved == (pytest.approx(0.1, rel=1e-3), pytest.approx(1e-3, rel=1e-3))  # first step of Adam
    assert set(metrics) == {"toy", "other"}


def test_frozen_policies_are_left_alone(policy: ToyPolicy) -> None:
    frozen = ToyPolicy("frozen").frozen_copy()
    turns = Turns.concat([toy_turns(policy), toy_turns(frozen)])
    before = frozen.table.clone()
    assert set(PolicyGradient(toy_team(policy, frozen)).update(turns)) == {"toy"}
    assert torch.equal(frozen.table, before)
    with pytest.raises(InputError, match="nothing can be learned"):
        PolicyGradient(toy_team(frozen))


def test_gradient_norm_is_limited(policy: ToyPolicy) -> None:
    turns = toy_turns(policy, advantage=[1000.0] * 12)
    learner = PolicyGradient(toy_team(policy), max_grad_norm=0.5)
    seen: list[float] = []
    learner.optimisers["toy"].register_step_pre_hook(lambda *_: seen.append(policy.table.grad.norm().item()))  # type: ignore[union-attr]
    norm = learner.update(turns)["toy"]["grad_norm"]
    assert norm is not None
    assert norm > 100
    assert seen == [pytest.approx(0.5, rel=1e-4)]


def test_learning_rate_decays_over_the_updates(policy: ToyPolicy) -> None:
    learner = PolicyGradient(toy_team(policy), lr=0.1, schedule="linear", updates=4)
    rates = []
    for _ in range(5):
        learner.update(toy_turns(policy))
        rates.append(learner.optimisers["toy"].param_groups[0]["lr"])
    assert rates == pytest.approx([0.1, 0.075, 0.05, 0.025, 0.0])
    assert [decay("cosine", step, 2) for step in range(4)] == pytest.approx([1, 0.5, 0, 0])


def test_state_makes_another_learner_go_on_exactly(policy: ToyPolicy) -> None:
    def play(learner: PolicyGradient, player: ToyPolicy, steps: range) -> None:
        for seed in steps:
            learner.update(toy_turns(player, seed=seed))

    options: dict[str, Any] = {"terms": "surrogate(), kl(0.1)", "lr": 0.1, "schedule": "cosine", "updates": 6}
    learner = PolicyGradient(toy_team(policy), **options)
    play(learner, policy, range(3))
    state, parameters = copy.deepcopy(learner.state()), {"table": policy.table.detach().clone()}
    twin = ToyPolicy(seed=5)  # its own start must be overwritten
    second = PolicyGradient(toy_team(twin), **options)
    twin.load_state_dict(parameters)
    second.restore(state)
    play(learner, policy, range(3, 6))
    play(second, twin, range(3, 6))
    assert torch.equal(policy.table, twin.table)


# -- refusals: nothing may move ---------------------------------------------------------------------------------------


def broken(policy: ToyPolicy, kind: str) -> Turns:
    turns = toy_turns(policy)
    values: list[Any] = turns["advantage"].to_list()
    if kind.startswith("advantage"):
        values[5] = float(kind.split()[1])
        return Turns(turns.frame.with_columns(pl.Series("advantage", values)))
    if kind.startswith("reward"):
        rewards: list[Any] = turns["reward"].to_list()
        rewards[5] = float(kind.split()[1])
        return Turns(turns.frame.with_columns(pl.Series("reward", rewards)))
    if kind == "token":
        per_token = [[a] * n for a, n in zip(values, turns["action_ids"].list.len())]
        per_token[5][-1] = float("nan")
        return Turns(turns.frame.with_columns(pl.Series("advantage", per_token)))
    if kind == "length":
        return Turns(turns.frame.with_columns(pl.Series("advantage", [[1.0] * 9] * 12)))
    if kind == "sample":
        return Turns(turns.frame.with_columns(pl.Series("action_ids", [None] * 12, dtype=pl.List(pl.Int32))))
    return Turns(turns.frame.with_columns(pl.Series("logprobs", [None] * 12, dtype=pl.List(pl.Float32))))


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        ("reward nan", RewardError, "reward.*nan in 1 row .*group 1, episode 1, turn 0, agent seat of toy"),
        ("reward inf", RewardError, "group 1, episode 1"),
        ("advantage nan", LearnerError, "advantage.*not finite: 1 row .*group 1, episode 1"),
        ("advantage -inf", LearnerError, "group 1, episode 1"),
        ("token", LearnerError, "group 1, episode 1"),
        ("length", LearnerError, "not that of action_ids: 12 rows .*; ..."),
        ("sample", LearnerError, "no action_ids"),
        ("logprobs", LearnerError, "logprobs"),
    ],
)
def test_unusable_rows_are_named_and_nothing_moves(
    policy: ToyPolicy, kind: str, error: type[Exception], message: str
) -> None:
    first = ToyPolicy("first", seed=3)
    turns = (
        Turns.concat([toy_turns(first), broken(policy, kind)])
        if kind not in ("token", "length")
        else broken(policy, kind)
    )
    before = policy.table.detach().clone(), first.table.detach().clone()
    learner = PolicyGradient(toy_team(first, policy))
    with pytest.raises(error, match=message):
        learner.update(turns)
    assert torch.equal(policy.table, before[0])
    assert torch.equal(first.table, before[1])
    assert learner.updates == 0


def test_a_gradient_that_is_not_finite_undoes_the_whole_update(policy: ToyPolicy) -> None:
    """It happens in the second policy, second epoch: the first policy and the first epoch must be undone."""
    first = ToyPolicy("first", seed=3)
    learner = PolicyGradient(toy_team(first, policy), lr=0.1, epochs=2)
    turns = Turns.concat([toy_turns(first), toy_turns(policy)])
    learner.update(turns)
    before = policy.table.detach().clone(), first.table.detach().clone()
    moments = learner.optimisers["first"].state_dict()["state"][0]["exp_avg"].clone()
    steps: list[int] = []

    def poison(gradient: Tensor) -> Tensor:
        steps.append(1)
        return gradient * float("nan") if len(steps) == 2 else gradient

    policy.table.register_hook(poison)
    with pytest.raises(LearnerError, match=r"policy 'toy'.*nan"):
        learner.update(turns)
    assert len(steps) == 2
    assert torch.equal(policy.table, before[0])
    assert torch.equal(first.table, before[1])
    assert torch.equal(learner.optimisers["first"].state_dict()["state"][0]["exp_avg"], moments)


def test_what_another_policy_sampled_is_refused(policy: ToyPolicy) -> None:
    turns = toy_turns(policy)
    scored = policy.score

    def short(rows: pl.DataFrame) -> Any:
        result = scored(rows)
        result.mask = result.mask.clone()
        result.mask[0, 0] = False
        return result

    policy.score = short  # type: ignore[method-assign]
    with pytest.raises(LearnerError, match="sampled by another policy"):
        PolicyGradient(toy_team(policy)).update(turns)


def test_missing_advantage_is_named(policy: ToyPolicy) -> None:
    turns = Turns(toy_turns(policy).frame.drop("advantage"))
    with pytest.raises(MissingColumnError, match="advantage"):
        PolicyGradient(toy_team(policy)).update(turns)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"terms": "surrogate(ratio='tokens')"}, "did you mean 'token'"),
        ({"terms": "surrogate(aggregate='constant')"}, "needs constant="),
        ({"schedule": "linear"}, "needs updates="),
        ({"lr": {"toi": 0.1}}, "'toi'.*did you mean 'toy'"),
        ({"lr": {}}, "no entry"),
        ({"lr": -1.0}, "lr=-1.0 must be at least 0"),
        ({"terms": "surrogate(clip=-0.5)"}, "clip=-0.5 must be a number of at least 0"),
        ({"terms": "surrogate(clip=[0.2])"}, r"clip=\[0.2\] must be"),
        ({"terms": "surrogate(dual_clip=0.5)"}, "dual_clip=0.5, expected a number of at least 1"),
        ({"terms": "kl(-1.0)"}, "kl: weight=-1.0, expected a number of at least 0"),
        ({"terms": "kl(estimator='k4')"}, "estimator='k4' is unknown; did you mean 'k3'"),
        ({"terms": ""}, "at least one term"),
        ({"terms": [7]}, "term 7 is of type int"),
        ({"terms": "corridor()"}, "term corridor needs updates="),
        ({"transaction": "steps"}, "did you mean 'step'"),
        ({"epochs": 0}, "at least 1"),
    ],
)
def test_wrong_options_are_named(policy: ToyPolicy, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        PolicyGradient(toy_team(policy), **options)


@pytest.mark.parametrize("options", [{}, {"epochs": 2, "minibatch": 16}], ids=["one step", "several steps"])
def test_a_table_that_grows_learns_as_one_that_was_large_enough(options: dict[str, Any], tmp_path: Path) -> None:
    """Adam's moments grow with it, and a run that goes on from a checkpoint of the small table is the same run."""

    def run(capacity: int, *, stop: bool = False) -> dict[str, Any]:
        team = Team(walker=TabularPolicy(len(MOVES), name="table", capacity=capacity))
        learner = PolicyGradient(team, "surrogate()", lr=0.1, **options)
        for iteration in range(4):
            turns = rollout(Corridor, team, groups=4, group_size=4, seed=0, iteration=iteration)
            learner.update(turns.with_column(advantage=grpo()), rng=np.random.default_rng(iteration))
            if stop and iteration == 1:
                learner.save(tmp_path / f"{capacity}")
                team = Team(walker=TabularPolicy(len(MOVES), name="table", capacity=2))
                learner = PolicyGradient(team, "surrogate()", lr=0.1, **options)
                learner.load(tmp_path / f"{capacity}")
        state = team.for_agent("walker").state_dict()
        return {"states": state["states"], "logits": state["logits"][: len(state["states"])]}

    large, small, resumed = run(64), run(2), run(2, stop=True)
    assert len(large["states"]) > 4
    for name, value in large.items():
        torch.testing.assert_close(small[name], value, rtol=0, atol=1e-5)
        torch.testing.assert_close(resumed[name], small[name], rtol=0, atol=0)
