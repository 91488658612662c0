"""Terms with parameters of their own on a policy's trunk: Lucy-SKG's auxiliary tasks, and a value head.

The trunk is what the policy's last layer reads: the last hidden layer of an `mlp` policy, the last hidden state of a
language model. A language model says it; otherwise it is caught on its way there. A value costs no second forward pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn

from palaestra.agents.policy import Learnable, Scored
from palaestra.algebra.list_columns import ragged
from palaestra.algebra.turns import Ragged, Turns
from palaestra.errors import InputError, LearnerError
from palaestra.learning.auxiliary import Auxiliary
from palaestra.learning.batch import pieces
from palaestra.learning.losses import Aggregation
from palaestra.learning.losses import aggregate as aggregated
from palaestra.learning.objective import TERMS, Term
from palaestra.learning.terms.term import MicroBatch, choice, how_to_aggregate, number


@TERMS.register()
def auxiliary(reward: float = 1.0, reconstruction: float = 1.0, *, sequence: int = 20, zero: float = 0.005) -> Term:
    """Loss term: Lucy-SKG's [21] heads (2305.15801), which predict the reward's sign and rebuild the observation.

    For policies of kind `mlp`.

    reward, reconstruction: weights of the two. sequence, zero: see `palaestra.learning.auxiliary.Auxiliary`. The
    losses are in the metrics, unweighted, as `reward_class` and `reconstruction`.
    """
    number("auxiliary", low=0.0, reward=reward, reconstruction=reconstruction, zero=zero)
    if not reward + reconstruction or not isinstance(sequence, int) or sequence < 1:
        raise InputError(
            f"auxiliary: reward={reward} and reconstruction={reconstruction} must not both be 0, "
            f"sequence={sequence} a whole number of at least 1"
        )
    weights = {"reward_class": reward, "reconstruction": reconstruction}

    def make(policy: Learnable) -> Auxiliary:
        return Auxiliary(policy, reward=bool(reward), reconstruction=bool(reconstruction), sequence=sequence, zero=zero)

    def loss(piece: MicroBatch) -> Tensor:
        heads = piece.module
        assert isinstance(heads, Auxiliary)
        parts = heads.losses(piece.once(lambda: heads.targets(piece.step.table)), piece.at, piece.rows)
        for name, part in parts.items():
            piece.log(name, part)
        return torch.stack([weights[name] * part for name, part in parts.items()]).sum()

    return Term("auxiliary", loss, needs=("reward",) if reward else (), episodes=True, module=make)


@TERMS.register()
def value(
    weight: float = 0.5,
    target: str = "return",
    *,
    level: str = "turn",
    clip: float | None = None,
    old: str = "value",
    aggregate: Aggregation = "token-mean",
    constant: float | None = None,
) -> Term:
    """Loss term: PPO's value loss (1707.06347), ½·(v - target)², by a linear head on the policy's trunk.

    level: "turn": v of what the policy saw, read before its first token; the mean runs over turns. "token": one before
    every token; `aggregate` as of a policy loss. The target is a column of numbers, or at "token" also of lists; a turn
    or token where it is missing leaves the mean. clip: c: ½·max((v - R)², (clip(v, v_old ± c) - R)²) with v_old of
    column `old` (verl, TRL). `learner.values(turns)` has the predictions. Weights: verl and TRL train a critic of its
    own and give this loss alone a rate; a shared trunk needs a weight.
    """
    number("value", low=0.0, weight=weight)
    choice("value", ("turn", "token"), level=level)
    how_to_aggregate("value", aggregate, constant)
    if clip is not None:
        number("value", low=0.0, clip=clip)

    def loss(piece: MicroBatch) -> Tensor:
        assert piece.module is not None and piece.units is not None  # noqa: PT018
        units = piece.units if level == "token" else piece.units[:, :1]
        found, goal = piece.module(units), piece.column(target)
        if level == "turn" and goal.shape[1] != 1:
            raise InputError(f"term value: column {target!r} has lists; level='turn' wants one number per turn")
        missing, goal = goal.isnan(), goal.nan_to_num()  # a missing goal must not spoil the gradient of the others
        error = (found - goal).square()
        if clip is not None:
            before = piece.column(old)
            if level == "turn" and before.shape[1] != 1:
                raise InputError(f"term value: column {old!r} has lists; level='turn' wants one number per turn")
            before = torch.where(before.isnan(), found.detach(), before)
            other = (torch.minimum(torch.maximum(found, before - clip), before + clip) - goal).square()
            piece.log("value_clip_fraction", ((other > error) & piece.mask).sum(), per="token")
            error = torch.maximum(error, other)
        mask = (piece.mask if level == "token" else piece.mask.any(1, keepdim=True)) & ~missing
        error = error.masked_fill(~mask, 0.0) / 2
        known = piece.known(target)
        rows, tokens = int(known.sum()), int(piece.known_tokens(target).sum())
        if level == "turn":
            mean = error.sum() / max(int((known & (piece.step.counts[piece.step.chosen] > 0)).sum()), 1)
        else:
            mean = aggregated(error, mask, how=aggregate, constant=constant, rows=rows, tokens=tokens)
        piece.log("value_loss", mean)
        total: Tensor = weight * mean
        return total

    needs = (target, *((old,) if clip is not None else ()))
    return Term("value", loss, needs=needs, module=lambda policy: ValueHead(policy, level), trunk=True)


class ValueHead(nn.Module):
    """Linear value head on a policy's trunk, which starts at 0."""

    def __init__(self, policy: Learnable, level: str = "turn") -> None:
        super().__init__()
        layer = last_layer(policy)
        self.level = level
        self.linear = nn.Linear(layer.in_features, 1, device=next(iter(policy.parameters())).device)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, units: Tensor) -> Tensor:
        """Values [...] of units [..., width]."""
        found: Tensor = self.linear(units.to(self.linear.weight.dtype))
        return found[..., 0]


def last_layer(policy: Learnable) -> nn.Linear:
    """The linear layer of a policy's logits, whose inputs are the trunk's units; InputError if it has none.

    Raises:
        InputError: the policy has none; own policies may name theirs `last_layer`.
    """
    model, module = getattr(policy, "model", None), getattr(policy, "module", None)
    if hasattr(policy, "last_layer"):
        layer = policy.last_layer
    elif model is not None and hasattr(model, "get_output_embeddings"):
        layer = model.get_output_embeddings()
    else:
        layer = module[-1] if isinstance(module, nn.Sequential) else None
    if not hasattr(layer, "in_features"):
        raise InputError(
            f"policy {policy.name!r} ({type(policy).__name__}) has no trunk that a value head could read; use an 'mlp' "
            "or a language model, or give it last_layer, the linear layer of its logits"
        )
    found: nn.Linear = layer
    return found


@contextmanager
def recorded_inputs(layer: nn.Module) -> Iterator[list[Tensor]]:
    """Context manager that records the inputs of a layer, call by call, in a list."""
    seen: list[Tensor] = []
    handle = layer.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    try:
        yield seen
    finally:
        handle.remove()


def score_with_units(policy: Learnable, frame: pl.DataFrame) -> tuple[Scored, Tensor]:
    """Pair (`policy.score(frame)`, inputs of the policy's last layer before each token: [rows, tokens, width]).

    Raises:
        LearnerError: the policy calls its last layer in a way that is not understood.
    """
    with recorded_inputs(last_layer(policy)) as seen:
        scored = policy.score(frame)
    units = seen[0][:, None] if scored.units is None and seen and seen[0].dim() == 2 else scored.units
    if units is None or units.shape[:2] != scored.mask.shape:
        raise LearnerError(f"policy {policy.name!r}: its last layer was called {len(seen)} times, not understood")
    return scored, units


def predicted(
    heads: Mapping[str, ValueHead], policies: Mapping[str, Learnable], turns: Turns, chunk_tokens: int
) -> np.ndarray | Ragged:
    """Predictions of `heads` {policy: ValueHead} on `Turns`: float64[rows], `Ragged` if one is per token; NaN if none.

    If one of them has level="token": a value per token of `action_ids`, of rows without any none. Rows go through the
    model in pieces of at most `chunk_tokens` padded tokens.
    """
    _, _, lengths = ragged(turns["action_ids"])
    tokens, offsets = np.full(int(lengths.sum()), np.nan), np.cumsum(lengths) - lengths
    prompts = ragged(turns["prompt_ids"])[2] if "prompt_ids" in turns.columns else np.zeros_like(lengths)
    of = turns["policy"].cast(pl.String).to_numpy()
    for name, head in heads.items():
        mine = np.flatnonzero((of == name) & (lengths > 0))
        with torch.no_grad():
            for piece in pieces(mine, lengths + prompts, chunk_tokens):
                scored, units = score_with_units(policies[name], turns.frame[piece])
                places = np.arange(scored.mask.shape[1])
                real = places < lengths[piece, None]
                at = (offsets[piece, None] + places)[real]
                tokens[at] = head(units).double().cpu().numpy()[real]
    if any(head.level == "token" for head in heads.values()):
        return Ragged(tokens, lengths)
    values = np.full(len(lengths), np.nan)
    values[lengths > 0] = tokens[offsets[lengths > 0]]
    return values
