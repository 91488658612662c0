"""Encoders of what an agent saw in its last turns, and of its relation to the agents around it, to a vector.

A window is float32[rows, steps, 1 + features] as `palaestra.envs.recent` makes it: the newest turn last, each turn
begins with 1, turns before the agent's first one are zeros.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

ABSENT = -1e9
"""Logit of attention to somebody who is not there."""


class PrefixEncoder(nn.Module):
    """Torch module: encodes a window of `steps` turns into [rows, size], by self-attention, mean and a tanh layer.

    Each turn's place counts from the newest one. Turns that were not played take no part.

    Args:
        features: of an observation. steps: turns of a window. size: of the context. width: of the layer.
    """

    def __init__(self, features: int, steps: int, size: int, *, width: int = 16) -> None:
        super().__init__()
        self.embed = nn.Linear(features, width)
        self.place = nn.Parameter(0.1 * torch.randn(steps, width))
        self.layer = nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.0, batch_first=True)
        self.head = nn.Linear(width, size)

    def forward(self, windows: Tensor) -> Tensor:
        """Contexts of windows, [rows, size], each number in (-1, 1); NaN for a window without turns."""
        present = windows[..., 0] > 0
        units = self.embed(windows[..., 1:]) + self.place
        units = self.layer(units, src_key_padding_mask=~present) * present[..., None]
        return torch.tanh(self.head(units.sum(1) / present.sum(1, keepdim=True)))


def soft_update(values: Tensor, there: Tensor, eta: float) -> Tensor:
    """Exponential moving average over the turns of [rows, turns, …, size]: b ← (1 - eta) b + eta · value where `there`.

    values: [rows, turns, …, size]. there: bool[rows, turns, …].

    >>> ones = torch.ones(1, 3, 1)
    >>> [round(float(each), 3) for each in soft_update(ones, ones[..., 0] > 0, 0.1).ravel()]
    [0.1, 0.19, 0.271]
    """
    found, kept = [], torch.zeros_like(values[:, 0])
    for now, some in zip(values.unbind(1), there.unbind(1), strict=True):
        kept = kept + eta * some[..., None] * (now - kept)
        found.append(kept)
    return torch.stack(found, 1)


class NeighbourEncoder(nn.Module):
    """Torch module, iPLAN's encoder [48]: behaviour and instant latents of `others` agents from observation windows.

    An observation holds, after `own` numbers that are not read, the others one after the other, each as 1 and its
    features, zeros if a slot is empty. The behaviour of a neighbour is the `soft_update` with `eta` of a softmax of
    what a GRU makes of its last `window` turns. Its instant latent is carried over the turns by a GRU cell that reads
    its state, its behaviour, and attention over the others: soft weights of queries and keys, times a hard gate of
    each pair, by a bidirectional GRU over the pairs.

    Args:
        features: of an observation. others: slots. own: numbers before the first slot. window: turns of a history.
        eta: step of the running behaviour. behaviour, instant: sizes of the latents. width: of the layers.

    Raises:
        ValueError: features behind `own` are not `others` equal parts.

    Source: code of iPLAN (behaviour net, GAT net), which adds Gumbel noise to the gate; here noise is an argument.
    """

    def __init__(
        self,
        features: int,
        *,
        others: int,
        own: int = 0,
        window: int = 10,
        eta: float = 0.1,
        behaviour: int = 8,
        instant: int = 8,
        width: int = 16,
    ) -> None:
        super().__init__()
        if others < 1 or not 0 <= own < features or (features - own) % others:
            raise ValueError(f"{features} features are not {own} and those of {others} others")
        self.own, self.others, self.window, self.eta, self.parts = own, others, window, eta, (behaviour, instant)
        self.each, self.size = (features - own) // others, others * (behaviour + instant)
        self.read = nn.GRU(self.each, width, batch_first=True)
        self.kind = nn.Linear(width, behaviour)
        inputs = self.each + behaviour
        self.embed, self.query, self.key = nn.Linear(inputs, width), nn.Linear(width, width), nn.Linear(width, width)
        self.pairs = nn.GRU(2 * width, width, batch_first=True, bidirectional=True)
        self.gate = nn.Linear(2 * width, 2)
        self.cell = nn.GRUCell(2 * width, instant)

    def slots(self, observations: Tensor) -> Tensor:
        """Features of the other agents, cut from observations [rows, turns, features]: [rows, turns, others, each]."""
        found: Tensor = observations[..., self.own :].unflatten(-1, (self.others, self.each))
        return found

    def histories(self, seen: Tensor) -> Tensor:
        """Last `window` turns of each slot, zeros before the first; [rows, turns, others, window, each]."""
        padded = nn.functional.pad(seen, (0, 0, 0, 0, self.window - 1, 0))
        return padded.unfold(1, self.window, 1).transpose(-1, -2)

    def behaviours(self, seen: Tensor) -> Tensor:
        """Running behaviour of each slot after each turn, [rows, turns, others, behaviour]."""
        there = seen[..., 0] > 0
        found = seen.new_zeros(*seen.shape[:-1], self.parts[0])
        _, last = self.read(self.histories(seen)[there])
        found[there] = torch.softmax(self.kind(last[0]), -1)
        return soft_update(found, there, self.eta)

    def instants(self, seen: Tensor, behaviour: Tensor, noise: Tensor | None = None) -> Tensor:
        """Instant latent of each slot after each turn, [rows, turns, others, instant]; noise: on the gate's logits."""
        there = seen[..., 0] > 0
        units = torch.relu(self.embed(torch.cat([seen, behaviour], -1)))
        met = self.attention(units, there, noise)
        state, found = seen.new_zeros(len(seen) * self.others, self.parts[1]), []
        for turn in range(seen.shape[1]):
            new = self.cell(torch.cat([units[:, turn], met[:, turn]], -1).flatten(0, 1), state)
            state = torch.where(there[:, turn].reshape(-1, 1), new, state)
            found.append(state.unflatten(0, (len(seen), self.others)))
        return torch.stack(found, 1)

    def attention(self, units: Tensor, there: Tensor, noise: Tensor | None = None) -> Tensor:
        """Attention output of each slot over the other present agents, of the shape of `units`."""
        count = self.others
        one, two = (units.unsqueeze(place).expand(*there.shape, count, units.shape[-1]) for place in (-2, -3))
        logits = self.gate(self.pairs(torch.cat([one, two], -1).flatten(0, 2))[0]).unflatten(0, there.shape)
        if noise is not None:
            logits = logits + noise
        soft = torch.softmax(logits / 0.01, -1)[..., 1]
        gate = (logits[..., 1] > logits[..., 0]).float() + soft - soft.detach()  # hard, with the gradient of soft
        scores = self.query(units) @ self.key(units).transpose(-1, -2) / units.shape[-1] ** 0.5
        met = there[..., None, :] & ~torch.eye(count, dtype=torch.bool, device=there.device)
        weights = torch.softmax(scores.masked_fill(~met, -1e9), -1) * met * gate
        joined: Tensor = weights @ units
        return joined

    def forward(self, windows: Tensor) -> Tensor:
        """Latents [rows, size]: each slot's behaviour and instant latent of the newest turn, zeros if it is empty."""
        first = int((windows[..., 0] > 0).any(0).int().argmax())  # before it nothing was seen in any row
        now = windows[:, first:]
        seen = self.slots(now[..., 1:]) * now[..., :1, None]
        behaviour = self.behaviours(seen)
        instant = self.instants(seen, behaviour)
        found = torch.cat([behaviour[:, -1], instant[:, -1]], -1) * (seen[:, -1, :, :1] > 0)
        return found.flatten(1)


class RelationNet(nn.Module):
    """Torch module, MRA's relation [65]: [rows, n, heads · width] from `own` features, `each` of others, n latents.

    The number of others may vary.

    units u_j = tanh(W [own, other_j] + latent); the weights of a head are a softmax of A u_j over the others that are
    there; the relation is the sum of weight · u_j, head after head. The order of the others has no effect. With nobody
    there the relation is 0.

    Args:
        own: features of oneself. each: features of another agent. latents: how many. heads: of attention.
        width: of a unit.

    Source: arXiv 2108.12988 and its code, where the relation is an n × n matrix and a policy's attention follows it.
    Here each agent computes its own row, and the units themselves are summed.
    """

    def __init__(self, own: int, each: int, latents: int, heads: int, width: int) -> None:
        super().__init__()
        self.pair = nn.Linear(own + each, width)
        self.latent = nn.Embedding(latents, width)
        self.attend = nn.Linear(width, heads, bias=False)

    def forward(self, own: Tensor, others: Tensor, latents: Tensor) -> Tensor:
        """Relations under n latents per row, [rows, n, heads · width].

        Args:
            own: [rows, own].
            others: [rows, slots, 1 + each], the first number of a slot 1 if somebody is there.
            latents: int64[rows, n].
        """
        there = (others[..., :1] > 0)[:, None]
        about = own[:, None].expand(-1, others.shape[1], -1)
        pairs = self.pair(torch.cat([about, others[..., 1:]], -1))
        units = torch.tanh(pairs[:, None] + self.latent(latents)[:, :, None])
        weights = torch.softmax(self.attend(units).masked_fill(~there, ABSENT), 2) * there
        return (weights.transpose(2, 3) @ units).flatten(2)
