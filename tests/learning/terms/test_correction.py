"""Truncated importance weights: worked numbers, verl's and TRL's formulas, and the start of an update of many steps."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import torch
from torch import Tensor

from palaestra.agents import LMPolicy, Team
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.learning import PolicyGradient
from palaestra.learning.terms import TERMS, MicroBatch
from palaestra.learning.terms.correction import truncated_weights

FLAVOURS = [
    ("token", 2.0, None, "cut"),
    ("token", 1.2, 0.8, "drop"),
    ("token", 1.2, 0.8, "cut"),
    ("sequence", 2.0, None, "cut"),
    ("sequence", 3.0, None, "drop"),
    ("sequence", 1.5, 0.5, "drop"),
]


def ratios(seed: int) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    mask = torch.tensor(np.arange(6) < rng.integers(1, 7, 24)[:, None])
    return torch.tensor(rng.normal(scale=0.5, size=mask.shape)), mask


def test_worked_numbers() -> None:
    """Tokens 1.5, 2.5, 0.4; their product 1.5."""
    ratio, mask = torch.tensor([[1.5, 2.5, 0.4, 7.0]]).log(), torch.tensor([[True, True, True, False]])

    def weights(**options: object) -> list[float]:
        return truncated_weights(ratio, mask, **options)[0][0, :3].tolist()  # type: ignore[arg-type]

    assert weights(cap=2.0) == pytest.approx([1.5, 2.0, 0.4])
    assert weights(cap=2.0, floor=0.5) == pytest.approx([1.5, 2.0, 0.5])
    assert weights(cap=2.0, floor=0.5, outside="drop") == pytest.approx([1.5, 0.0, 0.0])
    assert weights(level="sequence", cap=2.0) == pytest.approx([1.5] * 3)
    assert weights(level="sequence", cap=1.2) == pytest.approx([1.2] * 3)
    assert weights(level="sequence", cap=1.2, outside="drop") == [0.0] * 3
    assert truncated_weights(ratio, mask, cap=2.0)[1].tolist() == [[False, True, False, False]]
    assert truncated_weights(torch.full((1, 1), 90.0), torch.ones(1, 1, dtype=torch.bool), cap=None, floor=0.1)[0] < 1e9


@pytest.mark.parametrize(("level", "cap", "floor", "outside"), FLAVOURS)
def test_the_loss_is_the_weight_times_the_loss(level: str, cap: float, floor: float | None, outside: str) -> None:
    """On-policy the ratio of the inner term is 1, so its gradient is -w·A·∇log π over all tokens."""
    difference, mask = ratios(0)
    new = (-torch.rand(mask.shape, dtype=torch.float64) - 0.5).requires_grad_()
    advantage = torch.randn(len(mask), 1, dtype=torch.float64)
    term = TERMS["corrected"]("surrogate()", level=level, cap=cap, floor=floor, outside=outside)
    piece = MicroBatch.of(new, old=new.detach() - difference, advantage=advantage, mask=mask)
    (slope,) = torch.autograd.grad(term(piece), new)
    weight, _ = truncated_weights(difference, mask, level=level, cap=cap, floor=floor, outside=outside)  # type: ignore[arg-type]
    torch.testing.assert_close(slope, (-weight * advantage / mask.sum()).masked_fill(~mask, 0.0))


def test_without_a_mismatch_it_is_the_term_itself() -> None:
    new = torch.randn(5, 3, requires_grad=True)
    advantage = torch.randn(5, 1)
    plain, weighed = TERMS["surrogate"](), TERMS["corrected"]()
    piece = MicroBatch.of(new, advantage=advantage)
    assert float(weighed(piece).detach()) == pytest.approx(float(plain(piece).detach()))
    assert weighed.everywhere == plain.everywhere
    assert weighed.credit


def test_what_cannot_be_is_refused() -> None:
    for text, said in (
        ("corrected('entropy(.1)')", "reads no credit"),
        ("corrected(cap=None)", "give cap="),
        ("corrected(cap=1, floor=2)", "must be below"),
        ("corrected(level='turn')", "'turn' is unknown"),
        ("corrected('surogate()')", "did you mean 'surrogate'"),
    ):
        with pytest.raises(InputError, match=said):
            TERMS.build(text)


def served(rows: int = 24, shift: float = 0.3) -> tuple[LMPolicy, Turns]:
    """Rows whose log-probabilities are not the policy's: a third is right, a third too high, a third too low."""
    policy = LMPolicy.tiny(hidden=16, layers=1, heads=2, name="lm")
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({
        "group": [0] * rows, "episode": list(range(rows)), "turn": [0] * rows, "agent": ["a"] * rows,
        "policy": ["lm"] * rows, "prompt_ids": [[5, 6, 7][: 1 + k % 3] for k in range(rows)],
        "action_ids": [rng.integers(5, 40, size=1 + k % 4).tolist() for k in range(rows)],
        "advantage": rng.normal(size=rows),
    })  # fmt: skip
    with torch.no_grad():
        scored = policy.score(frame)
    logprobs = [
        (row[keep] + shift * (k % 3 - 1)).tolist()
        for k, (row, keep) in enumerate(zip(scored.logprobs, scored.mask, strict=True))
    ]
    return policy, Turns(frame.with_columns(logprobs=pl.Series(logprobs)))


def test_metrics_say_how_much_was_corrected() -> None:
    policy, turns = served(shift=1.0)
    told = PolicyGradient(Team(a=policy), "corrected(cap=2.0)", lr=0.0).update(turns)["lm"]
    lengths = np.array([1 + k % 4 for k in range(24)])
    high = lengths[np.arange(24) % 3 == 0].sum() / lengths.sum()  # e^1 > 2
    assert told["weights_cut"] == pytest.approx(high)
    kind = np.arange(24) % 3
    mean = (lengths * np.select([kind == 0, kind == 1], [2.0, 1.0], np.exp(-1))).sum() / lengths.sum()
    assert told["weight"] == pytest.approx(mean, rel=1e-4)


def test_rows_without_credit_do_not_dilute_the_metrics() -> None:
    """Row 0 alone has credit, and all of its weights are cut at 2."""
    policy, turns = served(shift=1.0)
    turns = turns.with_column(advantage=[1.0] + [0.0] * 23)
    told = PolicyGradient(Team(a=policy), "corrected(cap=2.0)", lr=0.0).update(turns)["lm"]
    assert (told["weight"], told["weights_cut"]) == (2.0, 1.0)


@pytest.mark.parametrize(
    "options", [{"minibatch": 7}, {"epochs": 3}, {"minibatch": 5, "epochs": 2, "chunk_tokens": 40}]
)
def test_many_steps_compare_with_the_start_of_the_update(options: dict) -> None:
    """The same as if the table had held the learner's own log-probabilities and the advantage had been weighed."""
    policy, turns = served()
    twin, _ = served()
    with torch.no_grad():
        scored = twin.score(turns.frame)
    own = [row[keep].tolist() for row, keep in zip(scored.logprobs, scored.mask, strict=True)]
    sampled = turns["logprobs"].to_list()
    weighed = [
        [float(min(np.exp(a - b), 1.2)) * credit for a, b in zip(here, there, strict=True)]
        for here, there, credit in zip(own, sampled, turns["advantage"], strict=True)
    ]
    table = Turns(turns.frame.with_columns(logprobs=pl.Series(own), advantage=pl.Series(weighed)))
    for learner, given in ((policy, turns), (twin, table)):
        text = "corrected('surrogate()', cap=1.2)" if learner is policy else "surrogate()"
        PolicyGradient(Team(a=learner), text, lr=0.05, **options).update(given, rng=np.random.default_rng(1))
    for a, b in zip(policy.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-4)


def test_the_start_is_known_also_where_the_first_step_has_no_credit() -> None:
    """The learner sampled the rows itself, so every weight is 1, whichever step is the first to learn."""
    moved = []
    for text in ("corrected('surrogate()')", "surrogate()"):
        policy, turns = served(shift=0.0)
        advantage = turns["advantage"].to_numpy().copy()
        advantage[np.random.default_rng(1).permutation(24)[:7]] = 0.0
        learner = PolicyGradient(Team(a=policy), text, lr=0.05, minibatch=7)
        told = learner.update(turns.with_column(advantage=advantage), rng=np.random.default_rng(1))["lm"]
        assert not told.get("weights_cut")
        moved.append(torch.cat([each.detach().flatten() for each in policy.parameters()]))
    torch.testing.assert_close(*moved, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(("level", "cap", "floor", "outside"), FLAVOURS)
@pytest.mark.parametrize("seed", range(3))
def test_weights_are_verls(level: str, cap: float, floor: float | None, outside: str, seed: int) -> None:
    helper = pytest.importorskip("verl.trainer.ppo.rollout_corr_helper")
    if (floor is None) != (outside == "cut"):
        pytest.skip("verl cuts above, or drops on both sides")
    difference, mask = ratios(seed)
    threshold = cap if floor is None else f"{floor}_{cap}"
    theirs, _ = helper.compute_rollout_correction_weights(difference, mask.double(), level, threshold)
    ours, _ = truncated_weights(difference, mask, level=level, cap=cap, floor=floor, outside=outside)  # type: ignore[arg-type]
    torch.testing.assert_close(ours.masked_fill(~mask, 0.0), theirs)


@pytest.mark.parametrize(("level", "cap", "floor", "outside"), FLAVOURS)
@pytest.mark.parametrize("seed", range(3))
def test_weights_are_trls(level: str, cap: float, floor: float | None, outside: str, seed: int) -> None:
    """Its formula is inside a method of 500 lines, so it is written here: exp, then clamp or mask (TRL 1.16)."""
    difference, mask = ratios(seed)
    apart = difference * mask
    theirs = torch.exp(apart.sum(-1, keepdim=True) if level == "sequence" else apart)
    if outside == "cut":
        theirs = torch.clamp(theirs, min=floor, max=cap)
    else:
        low = -torch.inf if floor is None else floor
        theirs = theirs.masked_fill((theirs < low) | (theirs > cap), 0.0)
    ours, _ = truncated_weights(difference, mask, level=level, cap=cap, floor=floor, outside=outside)  # type: ignore[arg-type]
    torch.testing.assert_close(ours[mask], theirs.expand_as(ours)[mask])
