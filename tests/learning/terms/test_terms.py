"""Terms with worked numbers, and what holds for all of them: parts add up, padding never matters, gradients too."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from palaestra.errors import ExpressionError, InputError, MissingColumnError
from palaestra.learning.terms import TERMS, MicroBatch, Term, objective, surrogate
from palaestra.learning.terms.imitation import _of_other_groups
from palaestra.runs.build import check, resolve
from palaestra.runs.recipe import load

EXAMPLES = {
    "surrogate": "surrogate(clip=[.2, .28], dual_clip=3)",
    "surrogate#sequence": "surrogate(ratio='sequence', aggregate='sequence-mean')",
    "surrogate#constant": "surrogate(aggregate='constant', constant=7)",
    "clone": "clone(column='weight')",
    "kl": "kl(.3)",
    "kl#k3": "kl(.3, 'k3', aggregate='sequence-mean')",
    "value": "value(.5, clip=.2)",
    "kto": "kto(zero='apo')",
    "clip_cov": "clip_cov(low=.01)",
    "corridor": "corridor(.1)",
    "boosted": "boosted(column='chosen')",
}
NOT_FROM_TENSORS = {"auxiliary", "information", "task_classifier"}
"""They read the observations of a policy; tests/learning/test_auxiliary.py and terms/test_latents.py."""
TEXTS = {name: f"{name}()" for name in TERMS if name not in NOT_FROM_TENSORS} | EXAMPLES


class Value(nn.Module):
    def forward(self, units: Tensor) -> Tensor:
        return units.sum(-1)


def tensors(seed: int = 0, rows: int = 8, width: int = 5) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, width, 4, dtype=torch.double, generator=generator)
    then = logits + 0.5 * torch.randn(rows, width, 4, dtype=torch.double, generator=generator)
    mask = torch.arange(width) < torch.randint(1, width + 1, (rows, 1), generator=generator)
    return {
        "logits": logits, "reference_logits": then, "mask": mask,
        "old": then[..., 0].log_softmax(-1) - 1.0,
        "advantage": torch.randn(rows, width, dtype=torch.double, generator=generator).masked_fill(~mask, 0.0),
        "units": torch.randn(rows, width, 2, dtype=torch.double, generator=generator),
    }  # fmt: skip


def columns(rows: int = 8) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    return {
        "episode": [i // 3 for i in range(rows)], "pair": [i // 2 for i in range(rows)],
        "chosen": [i % 2 == 0 for i in range(rows)],
        "weight": [None if i == 3 else float(x) for i, x in enumerate(rng.normal(size=rows))],
        "return": [None if i == 2 else float(x) for i, x in enumerate(rng.normal(size=rows))],
        "value": rng.normal(size=rows),
    }  # fmt: skip


def piece_of(given: dict[str, Tensor]) -> tuple[MicroBatch, dict[str, Tensor]]:
    """A piece, and its leaves: the logits and the units of the trunk."""
    leaves = {name: given[name].clone().requires_grad_() for name in ("logits", "units")}
    logp = leaves["logits"].log_softmax(-1)
    piece = MicroBatch.of(
        logp[..., 0], old=given["old"], advantage=given["advantage"], mask=given["mask"],
        entropies=-(logp.exp() * logp).sum(-1), logits=logp,
        reference=given["reference_logits"].log_softmax(-1)[..., 0], reference_logits=given["reference_logits"],
        units=leaves["units"], module=Value(), columns=columns(len(logp)), memory={"history": [1.2, 1.4]}, planned=9,
    )  # fmt: skip
    return piece, leaves


def slopes(text: str, given: dict[str, Tensor]) -> tuple[float, Tensor]:
    piece, leaves = piece_of(given)
    loss = TERMS.build(text)(piece)
    found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    both = [torch.zeros_like(leaf) if slope is None else slope for leaf, slope in zip(leaves.values(), found)]
    return float(loss.detach()), torch.cat(both, -1)


every_term = pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)


@every_term
def test_padding_never_matters_and_has_no_gradient(text: str) -> None:
    given = tensors()
    value, slope = slopes(text, given)
    assert math.isfinite(value)
    assert slope.isfinite().all()
    assert slope[given["mask"]].abs().sum() > 0
    assert not slope[~given["mask"]].any()
    other = given | {name: given[name].clone() for name in ("logits", "reference_logits", "old", "advantage", "units")}
    for name in ("logits", "reference_logits", "units"):
        other[name][~given["mask"]] = 77.0
    other["old"][~given["mask"]] = -1e4
    other["advantage"][~given["mask"]] = 1e4
    again, slope_again = slopes(text, other)
    assert again == pytest.approx(value)
    torch.testing.assert_close(slope, slope_again)
    wide = {k: torch.cat([v, torch.zeros_like(v[:, :2])], 1) for k, v in given.items()}
    assert slopes(text, wide)[0] == pytest.approx(value)


@every_term
def test_parts_over_pieces_add_up_to_the_whole(text: str) -> None:
    term, given = TERMS.build(text), tensors()
    piece, leaves = piece_of(given)
    whole = term(piece)
    if term.whole:
        return
    parts = [term(part(piece, at)) for at in (np.arange(3), np.arange(3, 8))]
    assert float(sum(parts).detach()) == pytest.approx(float(whole.detach()))  # type: ignore[union-attr]
    for leaf in leaves.values():
        both = [
            torch.autograd.grad(each, leaf, retain_graph=True, allow_unused=True)[0] for each in (sum(parts), whole)
        ]
        if both[1] is not None:
            torch.testing.assert_close(*both)


def part(piece: MicroBatch, at: np.ndarray) -> MicroBatch:
    """Some rows of a piece, in the same step."""
    rows = torch.from_numpy(at)
    from palaestra.agents.policy import Scored

    def cut(scored: Scored) -> Scored:
        return Scored(*(getattr(scored, name)[rows] for name in ("logprobs", "entropies", "mask", "logits")))

    assert piece.units is not None
    found = MicroBatch(
        piece.step, at, piece.frame[at], cut(piece.scored), piece.old[rows], piece.advantage[rows], piece.mask[rows],
        piece.units[rows], piece.key, piece.memory, piece.module,
    )  # fmt: skip
    found.shared["reference"] = cut(piece.shared["reference"])
    return found


@every_term
def test_rows_without_credit_add_nothing_unless_the_term_looks_everywhere(text: str) -> None:
    term, given = TERMS.build(text), tensors()
    nothing = given | {"advantage": torch.zeros_like(given["advantage"])}
    value, slope = slopes(text, nothing)
    if term.everywhere or term.whole:
        assert slope.abs().sum() > 0 or term.name == "clip_cov"
    else:
        assert value == 0
        assert not slope.any()


@every_term
def test_stale_tokens_give_a_finite_loss_and_gradient(text: str) -> None:
    for stale in (-100.0, 0.0):
        given = tensors()
        given["old"] = torch.full_like(given["old"], stale)
        given = {name: value.float() if value.is_floating_point() else value for name, value in given.items()}
        value, slope = slopes(text, given)
        assert math.isfinite(value)
        assert slope.isfinite().all()


def test_clamped_tokens_are_counted() -> None:
    new = torch.tensor([[-1.0, -1.0, -1.0]])
    piece = MicroBatch.of(
        new, old=torch.tensor([[-100.0, -1.0, -100.0]]), advantage=1.0, mask=torch.tensor([[True, True, False]])
    )
    surrogate()(piece)
    assert {name: int(value) for _, name, per, value in piece.step.logged if per == "update"} == {"clamped": 1}


ROW: dict[str, Any] = {"old": torch.tensor([[-1.0, -2.0]]), "advantage": torch.tensor([[1.0, -1.0]])}


@pytest.mark.parametrize(
    ("text", "ratios", "loss"),
    [
        ("surrogate()", (1.5, 1.5), (-1.2 + 1.5) / 2),
        ("surrogate(clip=[.2, .28])", (1.5, 0.5), (-1.28 + 0.8) / 2),
        ("surrogate(aggregate='sequence-sum')", (1.0, 0.9), -1.0 + 0.9),
        ("surrogate(None)", (1.5, 0.5), (-1.5 + 0.5) / 2),
        ("surrogate(dual_clip=3)", (1.0, 9.0), (-1.0 + 3.0) / 2),
        ("sapo(1, 1)", (1.0, 1.0), (-2.0 + 2.0) / 2),
        ("gmpo(None)", (4.0, 1.0), 0.0),  # the mean advantage is 0
        ("dro(2)", (math.e, 1.0), (1.0 - (-1.0 + 1.0) + -2.0) / 2),
        ("gpg()", (1.0, 1.0), (1.0 - 2.0) / 2),
        ("cispo()", (1.0, 9.0), (1.0 + 5 * (-2.0 + math.log(9))) / 2),
        ("reinforce(2, aggregate='token-mean')", (1.0, 9.0), (1.0 + 2 * (-2.0 + math.log(9))) / 2),
    ],
)
def test_worked_numbers(text: str, ratios: tuple[float, float], loss: float) -> None:
    new = ROW["old"] + torch.tensor([ratios]).log()
    assert float(TERMS.build(text)(MicroBatch.of(new, **ROW))) == pytest.approx(loss, rel=1e-6, abs=1e-6)


def test_worked_product_and_covariance() -> None:
    new, old = torch.tensor([[-1.0, -2.0], [-1.0, -1.0]]), torch.tensor([[-1.1, -2.2], [-1.0, -1.0]])
    advantage = torch.tensor([[1.0, 1.0], [-1.0, -1.0]])
    piece = MicroBatch.of(new, old=old, advantage=advantage)
    assert float(TERMS.build("rloo(None)")(piece)) == pytest.approx((-math.exp(0.3) + 1.0) / 2)
    assert float(TERMS.build("gmpo(None)")(piece)) == pytest.approx((-math.exp(0.15) + 1.0) / 2)
    # covariances: 1 · (.25, -.75), -1 · (.25, .25); the highest is the first token, whose |log r| is .1
    plain = (-math.exp(0.1) - math.exp(0.2) + 2) / 4
    assert float(TERMS.build("kl_cov(1.0, share=.25)")(piece)) == pytest.approx(plain + 0.1 / 4, abs=1e-6)
    phi = math.exp(3 + 2 * 0.3 - 3 * math.exp(0.3))
    assert float(TERMS.build("vespo()")(piece)) == pytest.approx((phi * 3.0 - 2.0) / 4, abs=1e-6)


def test_clip_cov_leaves_out_so_many() -> None:
    given = tensors(rows=40)
    left = {}
    for share in (0.05, 0.1, 1.0):
        piece, leaves = piece_of(given)
        loss = TERMS.build(f"clip_cov(None, share={share}, low=.01)")(piece)
        (slope,) = torch.autograd.grad(loss, leaves["logits"])
        left[share] = int((slope.abs().sum(-1) == 0)[given["mask"]].sum())
        most = max(int(share * int(given["mask"].sum())), 1)
        assert left[share] == most if share < 1 else left[share] < most
    assert left[0.05] < left[0.1] < left[1.0]


def test_worked_pairs() -> None:
    new = torch.tensor([[-1.0, -1.0], [-3.0, -1.0], [-1.0, -2.0], [-1.0, -1.0], [-9.0, -9.0]])
    start = torch.tensor([[-2.0, -1.0], [-2.0, -1.0], [-1.0, -1.0], [-2.0, -1.0], [-1.0, -1.0]])
    table = {"pair": ["x", "x", "y", "y", None], "chosen": [True, False, True, False, True]}
    piece = MicroBatch.of(new, reference=start, columns=table)
    # Δ: x 1 against -1, y -1 against 1
    for text, of in {
        "dpo(.5)": lambda margin: math.log1p(math.exp(-0.5 * margin)),
        "dpo(.5, 'hinge')": lambda margin: max(0.0, 1 - 0.5 * margin),
        "ipo(.5)": lambda margin: (margin / 2 - 1) ** 2,
    }.items():
        assert float(TERMS.build(text)(piece)) == pytest.approx((of(2.0) + of(-2.0)) / 2)
    shares = [value for _, name, _, value in piece.step.logged if name == "preferred"]
    assert float(shares[0]) == 0.5
    odds = lambda logp: logp - math.log1p(-math.exp(logp))  # noqa: E731
    margins = odds(-1.0) - odds(-2.0), odds(-1.5) - odds(-1.0)
    orpo = sum(math.log1p(math.exp(-margin)) for margin in margins) / 2
    assert float(TERMS.build("orpo(1)")(piece)) == pytest.approx(orpo, rel=1e-6)


def test_a_side_of_several_turns_is_their_sum() -> None:
    new, start = torch.tensor([[-1.0], [-3.0], [-1.0]]), torch.tensor([[-2.0], [-2.0], [-2.0]])
    table = {"pair": [1, 1, 1], "chosen": [True, False, True]}
    assert float(TERMS.build("dpo(1)")(MicroBatch.of(new, reference=start, columns=table))) == pytest.approx(
        math.log1p(math.exp(-3.0))
    )


def test_a_pair_without_a_side_is_named() -> None:
    table = {"pair": ["x", "x", "y"], "chosen": [True, False, True]}
    piece = MicroBatch.of(torch.zeros(3, 1), reference=torch.zeros(3, 1), columns=table)
    with pytest.raises(InputError, match=r"pair y has no row with chosen=false \(1 of 2 pairs\)"):
        TERMS.build("dpo()")(piece)


def test_words_are_no_truth_values() -> None:
    table = {"pair": ["x", "x"], "chosen": ["yes", "no"]}
    piece = MicroBatch.of(torch.zeros(2, 1), reference=torch.zeros(2, 1), columns=table)
    with pytest.raises(InputError, match="column 'chosen' holds String, expected true and false"):
        TERMS.build("dpo()")(piece)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30))
def test_answers_of_other_groups(groups: list[int]) -> None:
    """Each row has one of the group before its own; where groups are as large, each answer is taken once."""
    other = _of_other_groups(pl.DataFrame({"group": groups}))
    found, known = [groups[each] for each in other], sorted(set(groups))
    if len(known) == 1:
        assert other.tolist() == np.roll(np.arange(len(groups)), 1).tolist()
        return
    assert found == [known[known.index(each) - 1] for each in groups]
    if len({groups.count(each) for each in known}) == 1:
        assert sorted(other) == list(range(len(groups)))


@pytest.mark.parametrize("lists", ["return", "value"])
def test_a_value_per_turn_reads_numbers(lists: str) -> None:
    columns = {name: [[0.1] * 4] * 2 if name == lists else [1.0, -1.0] for name in ("return", "value")}
    head = nn.Sequential(nn.Linear(3, 1, bias=False), nn.Flatten(1))
    piece = MicroBatch.of(torch.zeros(2, 4), columns=columns, units=torch.zeros(2, 4, 3), module=head)
    with pytest.raises(InputError, match=f"column '{lists}' has lists; level='turn' wants one number per turn"):
        TERMS.build("value(clip=.2)")(piece)


PAGE = Path(__file__).parents[3] / "docs" / "learning.md"
METHODS = PAGE.read_text().split("## Which line gives which method")[1].split("## The terms")[0]


@pytest.mark.parametrize("line", [each for each in METHODS.splitlines() if each.startswith("| ")][2:])
def test_a_line_of_the_page_is_a_recipe(line: str) -> None:
    method, *texts = line.strip("|").split(" | ")
    terms, credit = (re.findall("`(.*?)`", each)[0] for each in texts)
    stages = [f"stages={each}" for each in re.findall(r"stages: \[(.*?)\]", method)]
    check(resolve(load("corridor", [f"learn.terms={terms}", f"credit={credit}", *(stages or ["stages=[]"])])))


def test_worked_cloning() -> None:
    new = torch.tensor([[-1.0, -2.0], [-3.0, -4.0], [-5.0, -6.0]])
    of: Callable[[str, list[Any]], float] = lambda text, weight: float(  # noqa: E731
        TERMS.build(text)(MicroBatch.of(new, columns={"w": weight}))
    )
    assert of("clone()", [1, 1, 1]) == pytest.approx(21 / 6)
    assert of("clone(2, 'w')", [1.0, -1.0, None]) == pytest.approx(2 * (3 - 7) / 4)
    assert of("clone(column='w')", [1.0, 0.0, None]) == pytest.approx(3 / 4)
    assert of("clone(column='w')", [True, False, None]) == pytest.approx(3 / 2)
    assert of("clone(column='w')", [[1.0, None], [1.0, np.nan], None]) == pytest.approx((1 + 3) / 2)
    by_row = "clone(column='w', aggregate='sequence-mean')"
    assert of(by_row, [[1.0, None], [1.0, 1.0], [None, None]]) == pytest.approx((1 + 3.5) / 2)
    with pytest.raises(MissingColumnError, match="term term reads column 'v', which is missing"):
        of("clone(column='v')", [1, 1, 1])
    with pytest.raises(InputError, match="column 'w' holds String, expected numbers"):
        of("clone(column='w')", ["a", "b", "c"])


def test_worked_values() -> None:
    units = torch.tensor([[[1.0], [9.0]], [[3.0], [9.0]], [[5.0], [9.0]]])
    table = {"return": [2.0, 1.0, None], "value": [1.0, 2.5, 0.0]}
    piece = MicroBatch.of(torch.zeros(3, 2), columns=table, units=units, module=Value())
    assert float(TERMS.build("value(1)")(piece)) == pytest.approx((1 / 2 + 4 / 2) / 2)
    # the second may move to 3 only where old ± .2 allows: 2.7; the larger error counts
    assert float(TERMS.build("value(1, clip=.2)")(piece)) == pytest.approx((1 / 2 + 4 / 2) / 2)
    table = {"return": [[2.0, None], [1.0, 9.0], None]}
    piece = MicroBatch.of(torch.zeros(3, 2), columns=table, units=units, module=Value())
    assert float(TERMS.build("value(1, level='token')")(piece)) == pytest.approx((1 / 2 + 4 / 2 + 0) / 3)
    closer = MicroBatch.of(
        torch.zeros(1, 1), columns={"return": [1.0], "value": [3.0]}, units=torch.tensor([[[1.0]]]), module=Value()
    )
    assert float(TERMS.build("value(1, clip=.2)")(closer)) == pytest.approx(1.8**2 / 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("surrogat()", "unknown term 'surrogat'; did you mean 'surrogate'"),
        ("surrogate(clp=1)", r"unexpected keyword argument 'clp'; it is surrogate\(clip"),
        ("kl(estimator='k9')", "estimator='k9' is unknown; did you mean"),
        ("entropy('x')", "entropy: weight='x', expected a number"),
        ("entropy(True)", "entropy: weight=True, expected a number"),
        ("value(level='row')", "level='row' is unknown"),
        ("dpo(loss='sigmod')", "loss='sigmod' is unknown; did you mean 'sigmoid'"),
        ("dpo(loss='exo_pair')", "needs smoothing="),
        ("vespo(positive=[1])", "not enough values"),
        ("dppo(divergence='js')", "divergence='js' is unknown"),
        ("clip_cov(share=2)", "share=2, expected a number from 1e-09 to 1"),
    ],
)
def test_wrong_options_are_named(text: str, message: str) -> None:
    with pytest.raises((InputError, ExpressionError), match=message):
        objective(text)


def test_a_term_of_one_s_own_needs_a_name_only_if_a_recipe_names_it() -> None:
    def shout(weight: float = 1.0) -> Term:
        return Term("shout", lambda piece: weight * piece.mean(-piece.new))

    assert list(objective([shout(), "kl(.1)"])) == ["shout", "kl"]
    with pytest.raises(InputError, match="no reference is kept"):
        TERMS.build("kl(.1)")(MicroBatch.of(torch.zeros(1, 1)))


def test_columns_of_lists_are_padded() -> None:
    mask = torch.tensor([[True, True], [True, False]])
    piece = MicroBatch.of(torch.zeros(2, 2), mask=mask, columns={"x": [[1.0, None], [3.0]], "y": [[1.0], [2.0]]})
    np.testing.assert_array_equal(piece.column("x").numpy(), [[1.0, np.nan], [3.0, np.nan]])
    with pytest.raises(InputError, match="number of values in column 'y' is not that of action_ids"):
        piece.column("y")
    assert piece.known("x").tolist() == [True, True]
    assert isinstance(piece.frame, pl.DataFrame)


@pytest.mark.parametrize("text", ["cispo((None, 1.0))", "surrogate((None, 1.0))", "dppo(.1)"])
def test_tokens_that_were_cut_are_counted(text: str) -> None:
    old = torch.full((1, 3), -2.0)
    piece = MicroBatch.of(old + torch.tensor([[3.0, 1.0, 1.0]]).log(), old=old, advantage=torch.ones(1, 3))
    TERMS.build(text)(piece)
    assert [int(value) for _, name, _, value in piece.step.logged if name == "clip_fraction"] == [1]
