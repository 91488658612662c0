"""`RelationalPolicy`: attention over any number of other agents, under a latent that a description of the game draws.

The latent is the first token of an action and the choice its second one, so every objective for sequences trains both.
Left out: critics over relations, and one matrix of relations for all agents (each row of it is its agent's own).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from palaestra.agents.discrete import ILLEGAL, DiscretePolicy
from palaestra.agents.encoders import RelationNet
from palaestra.agents.policy import Decision, Request, Scored
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError

if TYPE_CHECKING:
    import polars as pl


class RelationalPolicy(DiscretePolicy):
    """Trainable policy: draws a latent from game features, then acts by `own` features and `each` of others' slots.

    The action depends on its own features and its relation under the latent z.

    An observation holds `own` numbers of oneself, of which the first `game` describe the game, such as how many agents
    there are; then the others one after the other, each as 1 and its features, zeros if a slot is empty. Arrays may
    differ in length, since there can be any number of slots. `action_ids` of a row are z and the choice.

    Args:
        inputs: Length of the first observation's array; only checked.
        actions: Number of choices.
        own: Numbers before the first slot.
        each: Numbers of a slot, the leading 1 included.
        game: Own numbers that the task encoder reads, a linear layer and a softmax over latents. Its weights begin at
            0, so all latents are equally likely in a game of which nothing was learned.
        latents: How many; with 1 the latent is constant.
        temperature: Of that softmax.
        reads_game: Whether relation and head read the description of the game as well; if not, they know it by z alone.
        heads: Of attention.
        width: Of a unit of the relation.
        hidden: Widths of the head's tanh layers.
        name: Of the policy.
        seed: Of the first parameters.

    Raises:
        InputError: A number is out of range, or the observation does not consist of such slots.

    Source: MRA [65], arXiv 2108.12988, and its code: z per agent from an encoder of the number of agents, attention
    over agents given z. There the encoder has a hidden layer and a temperature of 4, the relation is learned by the
    information bonus alone and the encoder by the classifier; here credit reaches all parts.
    """

    KIND = "relational"
    SETTINGS: ClassVar[tuple[str, ...]] = (
        "inputs", "actions", "own", "each", "game", "latents", "temperature", "reads_game", "heads", "width", "hidden",
        "name",
    )  # fmt: skip

    def __init__(
        self,
        inputs: int,
        actions: int,
        *,
        own: int,
        each: int,
        game: int = 1,
        latents: int = 6,
        temperature: float = 0.25,
        reads_game: bool = False,
        heads: int = 2,
        width: int = 16,
        hidden: Sequence[int] = (32,),
        name: str = "relational",
        seed: int = 0,
    ) -> None:
        smallest = min(latents, heads, width, game, *hidden)
        if smallest < 1 or not temperature > 0 or each < 2 or game > own:
            raise InputError(
                f"RelationalPolicy: latents={latents}, heads={heads}, width={width} and hidden={list(hidden)} must be "
                f"at least 1, each={each} 2, temperature={temperature} above 0, and game={game} from 1 to own={own}"
            )
        self.inputs, self.own, self.each, self.game, self.latents = inputs, own, each, game, latents
        self.reads_game, self.heads, self.width, self.hidden = reads_game, heads, width, tuple(hidden)
        self.temperature, self.mine = temperature, own if reads_game else own - game
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            encoder = nn.Linear(game, latents, bias=False)
            nn.init.zeros_(encoder.weight)
            relation = RelationNet(self.mine, each - 1, latents, heads, width)
            sizes, layers = [self.mine + heads * width, *hidden], list[nn.Module]()
            for size, following in zip(sizes, hidden, strict=False):
                layers += [nn.Linear(size, following), nn.Tanh()]
            head = nn.Sequential(*layers, nn.Linear(sizes[-1], actions))
        parts = {"encoder": encoder, "relation": relation, "head": head}
        super().__init__(nn.ModuleDict(parts), actions=actions, name=name)
        if reason := self._unfit(inputs):
            raise InputError(f"RelationalPolicy: {reason}")

    def _unfit(self, size: int | None) -> str | None:
        if size is not None and size >= self.own and not (size - self.own) % self.each:
            return None
        found = "no array" if size is None else f"{size} features"
        return f"the observation has {found}, policy {self.name!r} reads {self.own} and then slots of {self.each}"

    def misfit(self, observation: Observation) -> str | None:
        """Reason why this cannot be acted on, such as an array that is not own features and whole slots."""
        reason = self._unfit(None if observation.array is None else np.size(observation.array))
        return f"InputError: {reason}" if reason else super().misfit(observation)

    # -- parts --------------------------------------------------------------------------------------------------------

    def part(self, name: str) -> nn.Module:
        """Submodule `encoder`, `relation` or `head`."""
        return self.module.get_submodule(name)

    def padded(self, arrays: Sequence[Sequence[float] | np.ndarray]) -> Tensor:
        """Arrays of any lengths as float32[rows, longest], with empty slots at the end."""
        lengths = {len(each) for each in arrays}
        features = np.zeros((len(arrays), max(lengths, default=self.own)), np.float32)
        for length in lengths:
            at = [row for row, each in enumerate(arrays) if len(each) == length]
            features[at, :length] = np.asarray([arrays[row] for row in at], np.float32)
        return torch.from_numpy(features).to(next(self.module.parameters()).device)

    def features_of_rows(self, rows: pl.DataFrame) -> Tensor:
        """The column `features` as float32[rows, longest], padded with empty slots."""
        features = rows["features"]
        if features.null_count() or not ((features.list.len() - self.own) % self.each == 0).all():
            raise InputError(f"RelationalPolicy: every row needs features, {self.own} and then slots of {self.each}")
        return self.padded(features.to_list())

    def latent_logits(self, features: Tensor) -> Tensor:
        """Logits of the task encoder, [rows, latents]."""
        found: Tensor = self.part("encoder")(features[:, : self.game])
        return found / self.temperature

    def every_latent(self, features: Tensor) -> Tensor:
        """Numbers of all latents for each row, int64[rows, latents]."""
        return torch.arange(self.latents, device=features.device).expand(len(features), -1)

    def relations(self, features: Tensor, latents: Tensor) -> Tensor:
        """Relation to the others under n latents int64[rows, n], [rows, n, heads · width]."""
        others = features[:, self.own :].unflatten(1, (-1, self.each))
        found: Tensor = self.part("relation")(self._mine(features), others, latents)
        return found

    def choice_logits(self, features: Tensor, latents: Tensor, *, only_relation: bool = False) -> Tensor:
        """Logits of the choices under n latents int64[rows, n], [rows, n, actions].

        only_relation: their gradient reaches the relation net alone, not the head.
        """
        relations = self.relations(features, latents)
        mine = self._mine(features)[:, None].expand(-1, latents.shape[1], -1)
        head = self.part("head")
        state = {name: each.detach() for name, each in head.named_parameters()} if only_relation else {}
        found: Tensor = torch.func.functional_call(head, state, (torch.cat([mine, relations], -1),))
        return found

    def _mine(self, features: Tensor) -> Tensor:
        return features[:, self.own - self.mine : self.own]

    # -- a policy -----------------------------------------------------------------------------------------------------

    def logits(self, observations: Sequence[Observation]) -> Tensor:
        """Logarithms of the choices' probabilities, the latent summed out, [observations, actions]."""
        features = self.padded([np.ravel(each.array) for each in observations])  # type: ignore[arg-type]
        mixed = torch.log_softmax(self.latent_logits(features), -1)
        under = self._legal(self.choice_logits(features, self.every_latent(features)), observations)
        return torch.logsumexp(mixed[..., None] + torch.log_softmax(under, -1), 1)

    def logits_of_rows(self, rows: pl.DataFrame) -> Tensor:
        """Logits of the choices under the latent that each row drew."""
        return self.choice_logits(self.features_of_rows(rows), self.tokens(rows)[:, :1])[:, 0]

    def tokens(self, rows: pl.DataFrame) -> Tensor:
        """`action_ids` as int64[rows, 2], latent and choice."""
        lengths = rows["action_ids"].list.len()
        if lengths.null_count() or not (lengths == 2).all():
            raise InputError("RelationalPolicy: every row needs two action_ids, a latent and a choice")
        drawn = rows["action_ids"].explode().to_numpy().astype(np.int64).reshape(-1, 2)
        return torch.from_numpy(drawn).to(next(self.module.parameters()).device)

    def _legal(self, logits: Tensor, observations: Sequence[Observation]) -> Tensor:
        every = np.ones(self.actions, bool)
        legal = np.array([every if each.mask is None else each.mask for each in observations], bool)
        return torch.where(torch.from_numpy(legal).to(logits.device)[:, None], logits, ILLEGAL)

    def act(self, requests: Sequence[Request]) -> list[Decision]:
        """Draw a latent and then a choice per request, by inverse CDF; what does not fit gives an `error`."""
        start = time.perf_counter()
        decisions = [Decision(0, error=self._refused(request)) for request in requests]
        fit = [place for place, decision in enumerate(decisions) if decision.error is None]
        if fit:
            seen = [requests[place].observation for place in fit]
            uniforms = np.stack([requests[place].rng.random(2) for place in fit])
            with torch.no_grad():
                features = self.padded([np.ravel(each.array) for each in seen])  # type: ignore[arg-type]
                first = _draw(self.latent_logits(features), uniforms[:, 0])
                latent = torch.from_numpy(first[0]).to(features.device)[:, None]
                second = _draw(self._legal(self.choice_logits(features, latent), seen)[:, 0], uniforms[:, 1])
            ids, logprobs, entropies = (np.stack(both, 1) for both in zip(first, second, strict=True))
            for row, place in enumerate(fit):
                decision = decisions[place]
                decision.action, decision.action_ids = int(ids[row, 1]), ids[row].astype(np.int32)
                decision.logprobs, decision.entropies = logprobs[row], entropies[row]
        for decision in decisions:
            decision.duration = (time.perf_counter() - start) / len(requests)
        return decisions

    def score(self, rows: pl.DataFrame) -> Scored:
        """`Scored` of each row's latent and, under it, its choice, with gradient."""
        if rows["action_ids"].null_count():
            raise InputError("RelationalPolicy.score: rows without action_ids: filter such rows first")
        features, ids = self.features_of_rows(rows), self.tokens(rows)
        choices = self.choice_logits(features, ids[:, :1])[:, 0]
        if "legal" in rows.columns:
            listed = rows["legal"].is_not_null().to_numpy()
            legal = np.ones((len(rows), self.actions), bool)
            legal[listed] = rows["legal"].drop_nulls().explode().to_numpy().reshape(-1, self.actions)
            choices = torch.where(torch.from_numpy(legal).to(choices.device), choices, ILLEGAL)
        wide = max(self.latents, self.actions)
        both = [nn.functional.pad(each, (0, wide - each.shape[1]), value=ILLEGAL)
                for each in (self.latent_logits(features), choices)]  # fmt: skip
        logp = torch.log_softmax(torch.stack(both, 1), -1)
        chosen = logp.gather(2, ids[..., None])[..., 0]
        entropies = -(logp.exp() * logp).sum(-1)
        return Scored(chosen, entropies, torch.ones_like(chosen, dtype=torch.bool), logp)


def _draw(logits: Tensor, uniforms: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ids int64[rows], their log-probabilities and entropies, float32[rows]."""
    logp = torch.log_softmax(logits.double(), -1).cpu().numpy()
    chances = np.exp(logp)
    cdf = chances.cumsum(1)
    drawn = (cdf <= (uniforms * cdf[:, -1])[:, None]).sum(1)
    logprobs = np.take_along_axis(logp, drawn[:, None], 1)[:, 0].astype(np.float32)
    return drawn, logprobs, -(chances * logp).sum(1).astype(np.float32)
