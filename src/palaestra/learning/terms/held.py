"""KL to the reference on some rows: what a policy does there is held, while it learns elsewhere."""

from __future__ import annotations

from torch import Tensor

from palaestra.learning.losses import kl_between
from palaestra.learning.objective import TERMS, Term
from palaestra.learning.terms.term import MicroBatch, number


@TERMS.register()
def pinned(weight: float = 1.0, column: str = "weight") -> Term:
    """Loss term: weight · mean over tokens of w·KL(π ‖ π_start), w from a column of numbers; missing is 0.

    SCoRe's β₂·KL on first attempts only (arXiv 2409.12917), with a column that is 1 there. Its metric `pinned_kl` is
    that mean for a weight of 1.
    """
    number("pinned", low=0.0, weight=weight)

    def loss(piece: MicroBatch) -> Tensor:
        held = piece.mean(piece.column(column).nan_to_num() * kl_between(piece.scored, piece.reference()))
        piece.log("pinned_kl", held)
        return weight * held

    return Term("pinned", loss, needs=(column,), reference=True)
