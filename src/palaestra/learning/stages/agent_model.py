"""`agent_model`: trains what makes the context of a policy, and fills the contexts of play into a list column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.errors import InputError, nearest
from palaestra.learning.stages.stage import Context, Stage, stage

if TYPE_CHECKING:
    from palaestra.agents.contextual import ContextualPolicy
    from palaestra.learning.agent_models import ContrastiveEncoder, Trajectories
    from palaestra.learning.agent_prediction import PredictiveEncoder

LOSSES = ("contrastive", "predict")


@stage
class agent_model(Stage):
    """Stage: encodes contexts of a `contextual` policy into the column `context`, and trains its encoder.

    `loss="contrastive"` is CLAM [19] (arXiv 2401.00132): two random pieces of one trajectory are a positive pair, the
    trajectories of other episodes are negatives (`info_nce`). In one of the pieces turns are zero with probability
    `mask`. Only what the policy's own seats saw is read, and of each episode the trajectory of one seat, so that no
    pair of team mates is a negative.

    `loss="predict"` is iPLAN [48]: of each neighbour a latent of its behaviour is learned by predicting the next turns
    of a history, and one of its instant intent by predicting the next `ahead` turns (`PredictiveEncoder`). The policy
    has the option `others`, and windows as long as an episode, as latents run from its first turn.

    The column holds the contexts that were used in play. The encoder is trained after that, on a copy; the policy reads
    a slow copy of this copy, old + `ema` · (new - old), from the next iteration on. Log-probabilities are thus scored
    with the contexts of play, and no gradient of credit reaches the encoder.

    Args:
        policy: name of the policy, of kind `contextual`. loss: "contrastive" or "predict".
        least: turns of the shortest piece. mask: probability that a turn is zero. tau: temperature.
        ahead: turns that the instant latent predicts.
        ema: step of the slow copy. memory: trajectories that are kept, the newest. batch: trajectories of a step.
        steps, lr: of Adam in each iteration. size: of the projection that the loss compares.

    Several such stages, one for each policy, fill one column.

    Metrics: `loss` of the last step; `margin`: mean cosine of positive pairs less that of negatives, or `instant_loss`;
    `rank`: number of directions that the contexts of this iteration use.

    Raises:
        InputError: a number is out of range, or the team has no such policy, or it has another encoder.
    """

    adds = {"context": "what a policy of kind contextual made of its last turns, with which it acted (a list)"}
    needs = {"episode", "turn", "agent", "policy", "features"}

    def __init__(
        self,
        policy: str,
        loss: str = "contrastive",
        *,
        least: int = 8,
        mask: float = 0.5,
        tau: float = 0.5,
        ema: float = 0.1,
        memory: int = 2000,
        batch: int = 64,
        steps: int = 10,
        lr: float = 3e-3,
        size: int = 16,
        ahead: int = 5,
    ) -> None:
        if loss not in LOSSES:
            raise InputError(f"agent_model: loss={loss!r}{nearest(loss, LOSSES)}")
        if min(least, memory, batch, steps, size, ahead) < 1 or not (
            0 <= mask < 1 and 0 < ema <= 1 and tau > 0 and lr > 0
        ):
            raise InputError(
                f"agent_model: {least=}, {memory=}, {batch=}, {steps=}, {size=} and {ahead=} at least 1, "
                f"{mask=} in [0, 1), {ema=} in (0, 1], {tau=} and {lr=} above 0"
            )
        self.policy, self.loss = policy, loss
        self.how: dict[str, Any] = {"least": least, "mask": mask, "tau": tau, "size": size}
        if loss == "predict":
            self.how = {"ahead": ahead}
        self.ema, self.memory, self.batch, self.steps, self.lr = ema, memory, batch, steps, lr
        self.kept: Trajectories | None = None
        self.learner: ContrastiveEncoder | PredictiveEncoder | None = None
        self._state: dict[str, Any] | None = None

    def plan(self, plan: Any, context: Context) -> Any:
        """Copy the slow encoder into the policy before it plays."""
        if self.learner is not None or self._state:
            member = self._member(context)
            member.encoder.load_state_dict(self._learner(member, context.seed).slow.state_dict())
        return plan

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with `context`; null on rows of other policies."""
        member = self._member(context)
        own = np.flatnonzero((turns.frame["policy"].cast(pl.String) == self.policy).to_numpy())
        rows = turns.frame[own]
        windows = member.windows_of_rows(rows)
        found = member.encode(windows)
        places = np.full(len(turns), len(own))
        places[own] = np.arange(len(own))
        column = pl.Series([*found.tolist(), None], dtype=pl.List(pl.Float32)).gather(places)
        if len(own):
            from palaestra.learning.agent_models import effective_rank, joined, trajectories

            fresh = trajectories(Turns(rows), windows[:, -1, 1:], context.rng)
            self.kept = joined(self.kept, fresh, self.memory)
            learner = self._learner(member, context.seed)
            context.metrics |= learner.fit(self.kept, context.rng, steps=self.steps, batch=self.batch)
            learner.follow(self.ema)
            context.metrics["rank"] = effective_rank(found)
        before = [turns.frame["context"]] if "context" in turns.columns else []
        return turns.with_column(context=pl.select(pl.coalesce(column, *before)).to_series())

    def _member(self, context: Context) -> ContextualPolicy:
        from palaestra.agents.contextual import ContextualPolicy

        named = context.team.policies
        found = named.get(self.policy)
        if not isinstance(found, ContextualPolicy):
            known = [name for name, each in named.items() if isinstance(each, ContextualPolicy)]
            reason = "is not of kind contextual" if found else f"has no seat{nearest(self.policy, known)}"
            raise InputError(f"agent_model: the policy {self.policy!r} {reason}")
        return found

    def _learner(self, member: ContextualPolicy, seed: int) -> ContrastiveEncoder | PredictiveEncoder:
        if self.learner is None:
            self.learner = self._made(member, seed)
            if self._state:
                self.learner.load_state_dict(self._state)
        return self.learner

    def _made(self, member: ContextualPolicy, seed: int) -> ContrastiveEncoder | PredictiveEncoder:
        from palaestra.agents.encoders import NeighbourEncoder
        from palaestra.learning.agent_models import ContrastiveEncoder
        from palaestra.learning.agent_prediction import PredictiveEncoder

        if self.loss == "contrastive":
            return ContrastiveEncoder(
                member.encoder, inputs=member.context, steps=member.steps, seed=seed, lr=self.lr, **self.how
            )
        if not isinstance(member.encoder, NeighbourEncoder):
            raise InputError(f"agent_model: loss='predict' needs options.others of the policy {self.policy!r}")
        return PredictiveEncoder(member.encoder, seed=seed, lr=self.lr, **self.how)

    def state_dict(self) -> dict[str, Any]:
        """State: stored trajectories, both encoders and the optimiser."""
        kept = None if self.kept is None else {"seen": self.kept.seen, "lengths": self.kept.lengths}
        return {"kept": kept, "learner": self.learner.state_dict() if self.learner else self._state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        from palaestra.learning.agent_models import Trajectories

        kept = state["kept"]
        self.kept = Trajectories(np.array(kept["seen"], np.float32), np.array(kept["lengths"])) if kept else None
        self.learner, self._state = None, state["learner"]
