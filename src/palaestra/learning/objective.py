"""`Term`, a summand of an objective, the registry of terms, and the objective that a text names; needs no torch.

So a plugin can register a term where torch is not installed. What a term sees is in `palaestra.learning.terms.term`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from palaestra.errors import InputError, nearest
from palaestra.foundation.registry import Registry, split_calls

if TYPE_CHECKING:
    from torch import Tensor, nn

    from palaestra.agents.policy import Learnable
    from palaestra.learning.protocol import Metrics
    from palaestra.learning.terms.term import MicroBatch


@dataclass(frozen=True)
class Term:
    """Data: one summand of a loss: its name, loss function and needs; a call gives a micro-batch's scalar loss.

    It is made by a registered function whose parameters are its options.
    name: in metrics, states and messages. loss: from a piece to a scalar tensor, its weight included.
    needs: columns beside `policy` and `action_ids`. credit: it reads the advantage and the stored log-probabilities;
        if no term does, rows need neither, and all rows of the policy that did not fail take part.
    everywhere: it also needs the rows whose credit is 0, which are left out otherwise: they cost a forward pass.
    whole: it needs all rows of a step at once. together: rows of one value of this column stay in one minibatch;
        if all terms have one, rows without a value take no part.
    reference: it asks for the policy as it was when the learner was made, of which a copy is then kept.
    episodes: it looks at other turns of a row's episode, which sequential updates take away.
    planned: it has to know how many updates there will be.
    module: makes, from a policy, parameters of its own that learn with the policy (heads).
    trunk: it reads `MicroBatch.units`. after: called with its memory and its metrics after an update that succeeded.
    """

    name: str
    loss: Callable[[MicroBatch], Tensor]
    needs: tuple[str, ...] = ()
    credit: bool = False
    everywhere: bool = True
    whole: bool = False
    together: str | None = None
    reference: bool = False
    episodes: bool = False
    planned: bool = False
    module: Callable[[Learnable], nn.Module] | None = None
    trunk: bool = False
    after: Callable[[dict[str, Any], Metrics], None] | None = None

    def __call__(self, piece: MicroBatch) -> Tensor:
        """Contribution of a micro-batch to the loss of its step."""
        return self.loss(piece)


TERMS: Registry[Term] = Registry("term", home=("palaestra.learning.terms",), example="surrogate(clip=0.2)")
"""What `learn.terms` of a recipe may name."""


def objective(terms: str | Iterable[str | Term]) -> dict[str, Term]:
    """Dict {name: `Term`} of an objective, from texts or terms; a second one of a name gets #2.

    Raises:
        ExpressionError: a text is no term, or one with other options.
        InputError: there is no term, or it is something else.

    >>> list(objective("surrogate(clip=[.2, .28]), kl(.1), kl(.1, estimator='k3')"))
    ['surrogate', 'kl', 'kl#2']
    """
    found: dict[str, Term] = {}
    for each in split_calls(terms) if isinstance(terms, str) else terms:
        term = TERMS.build(each) if isinstance(each, str) else each
        if not isinstance(term, Term):
            raise InputError(f"term {each!r} is of type {type(term).__name__}, expected a Term{nearest('', TERMS)}")
        count = sum(other.name == term.name for other in found.values())
        found[f"{term.name}#{count + 1}" if count else term.name] = term
    if not found:
        raise InputError("an objective needs at least one term, e.g. surrogate()")
    return found
