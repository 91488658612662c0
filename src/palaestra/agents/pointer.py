"""`PointerPolicy`: attention over the choices of each team member, messages between members, a pointer at a choice."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from palaestra.agents.discrete import DiscretePolicy
from palaestra.agents.mlp import MLPPolicy
from palaestra.errors import InputError


class PointerNetwork(nn.Module):
    """Torch module: logits of one's own choices, by attention over all members' blocks: `own` + `actions` · `each`.

    A block is `own` numbers of a member and then, for each choice, `each` numbers as that member sees them. Both begin
    with 1, or with 0 for a member or a choice that is not there: nobody attends to it.

    1. Encoder, shared by all members: a choice's numbers become an embedding, self-attention over a member's choices.
    2. Context of a member: its own numbers and the mean of its choices' embeddings, through a tanh layer.
    3. Messages: one layer of attention between the members, over their contexts, and over their embeddings of the same
       choice; the identity without `messages`.
    4. Pointer: 10 · tanh(query · key / √width) of one's context and one's embedding of each choice.

    Args:
        members: blocks. actions: choices. own, each: numbers as above.
        width: of every layer. heads: of each attention. messages: whether step 3 is there.
    """

    def __init__(
        self, members: int, actions: int, own: int, each: int, *, width: int, heads: int, messages: bool
    ) -> None:
        super().__init__()
        self.members, self.actions, self.own, self.each = members, actions, own, each
        self.embed = nn.Linear(each, width)
        self.encoder = nn.TransformerEncoderLayer(width, heads, 2 * width, dropout=0.0, batch_first=True)
        self.context = nn.Linear(own + width, width)
        self.talk = nn.TransformerEncoderLayer(width, heads, 2 * width, dropout=0.0, batch_first=True)
        self.query, self.key = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.messages = messages

    def blocks(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Numbers of the members [rows, members, own], and of their choices [rows, members, actions, each]."""
        parts = features.unflatten(-1, (self.members, -1))
        return parts[..., : self.own], parts[..., self.own :].unflatten(-1, (self.actions, self.each))

    def contexts(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """One's context [rows, width] and embeddings of one's choices [rows, actions, width], after the messages."""
        own, seen = self.blocks(features)
        there = seen[..., :1]
        closed = (there <= 0)[..., 0] & (there.sum(-2) > 0)  # where no choice is there, all are read
        units = self.encoder(self.embed(seen).flatten(0, 1), src_key_padding_mask=closed.flatten(0, 1))
        units = units.unflatten(0, own.shape[:2])
        mean = (units * there).sum(-2) / there.sum(-2).clamp(min=1.0)
        contexts = torch.tanh(self.context(torch.cat([own, mean], -1)))
        heard = self.exchange(torch.cat([contexts[..., None, :], units], -2), own[..., 0] > 0)[:, 0]
        return heard[:, 0], heard[:, 1:]

    def exchange(self, units: Tensor, there: Tensor) -> Tensor:
        """Units [rows, members, 1 + actions, width] after attention between members; of the same shape.

        there: bool[rows, members], whose messages are read.
        """
        if not self.messages:
            return units
        places = units.transpose(1, 2)
        closed = (~there)[:, None].expand(places.shape[:3])
        heard = self.talk(places.flatten(0, 1), src_key_padding_mask=closed.flatten(0, 1))
        found: Tensor = heard.unflatten(0, places.shape[:2]).transpose(1, 2)
        return found

    def forward(self, features: Tensor) -> Tensor:
        """Logits of one's own choices, [rows, actions]."""
        context, units = self.contexts(features)
        scores = (self.key(units) @ self.query(context)[..., None])[..., 0] / units.shape[-1] ** 0.5
        return 10.0 * torch.tanh(scores)


class PointerPolicy(MLPPolicy):
    """Trainable softmax policy with a `PointerNetwork` on blocks of `members`, one's own first; `each`: per choice.

    One network in all seats is the model of CAMP [207] (arXiv 2501.02977) in small: profiles of vehicle and client are
    embedded for each vehicle, contexts of the vehicles exchange messages at each step, and each points at a client.
    Every seat computes the messages of all from what it sees, so acting and learning need one's own row only.

    Args:
        inputs, actions: features of the observation, and choices.
        members: blocks of the observation. each: numbers of a choice in a block; what is left are those of the member.
        width, heads: of the layers. messages: whether members read each other's contexts.

    Raises:
        InputError: the features are not `members` equal blocks with `each` numbers for every choice, or `width` is not
            a multiple of `heads`.
    """

    KIND = "pointer"
    SETTINGS: ClassVar[tuple[str, ...]] = ("inputs", "actions", "members", "each", "width", "heads", "messages", "name")

    def __init__(
        self, inputs: int, actions: int, *, members: int, each: int, width: int = 32, heads: int = 2,
        messages: bool = True, name: str = "pointer", seed: int = 0,
    ) -> None:  # fmt: skip
        own = inputs // max(members, 1) - actions * each
        if members < 1 or each < 1 or own < 1 or inputs % members or heads < 1 or width % heads:
            raise InputError(
                f"PointerPolicy {name!r}: {inputs} features are not members={members} equal blocks of own numbers and "
                f"each={each} for {actions} choices, or width={width} is no multiple of heads={heads}"
            )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = PointerNetwork(members, actions, own, each, width=width, heads=heads, messages=messages)
        DiscretePolicy.__init__(self, module, actions=actions, name=name)
        self.network, self.inputs, self.width, self.messages = module, inputs, width, messages
        self.members, self.each, self.heads = members, each, heads

    def represent(self, features: Tensor) -> Tensor:
        """One's context after the messages, [rows, width]."""
        return self.network.contexts(features)[0]
