"""The last layer of a language model, in chunks of tokens: never a [tokens, vocabulary] tensor of a whole update.

What learning needs of a distribution is a log-probability and an entropy per token. Both are read chunk by chunk from
the hidden states, and the backward pass makes each chunk's logits again, so that one chunk is all that is ever held:
    ∂/∂z = (g_logp · (onehot - p) - g_H · p · (log p + H)) / temperature,  H = -Σ p log p
Below `CHUNK` numbers the whole tensor is made at once, which is faster. A head is one linear layer, tied or not, with
LoRA or without, then what Granite and Cohere (a scale) and Gemma (a soft cap) do to logits; any other layer is called
as it is, chunk by chunk, through a checkpoint. Left out: parallelism over the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from palaestra.agents.backends.gradients import adds_up, grad_of
from palaestra.agents.backends.nucleus import nucleus
from palaestra.agents.policy import Distribution, Scored

CHUNK, CHUNK_ON_GPU = 2**24, 2**26
"""Numbers of a chunk of logits; 2^24 are 64 MiB in float32, of which a backward pass holds two."""


class Low(NamedTuple):
    """Data of a LoRA adapter of a linear layer, y += (x · downᵀ · scale) · upᵀ; calling it gives x · downᵀ · scale."""

    down: Tensor
    up: Tensor
    scale: float

    def __call__(self, x: Tensor) -> Tensor:
        """Scaled product x · downᵀ, the input of `up`."""
        return F.linear(x.to(self.down.dtype), self.down) * self.scale


def is_linear(layer: Any) -> bool:
    """Whether a layer is nn.Linear, or plain LoRA on one, so that its weight and its `Low`s compute it exactly."""
    base = getattr(layer, "base_layer", layer)
    if not isinstance(base, nn.Linear) or base.weight.shape != (base.out_features, base.in_features):
        return False
    if layer is base:
        return True
    return (
        type(layer).__module__ == "peft.tuners.lora.layer"
        and type(layer).__name__ == "Linear"
        and not layer.lora_variant  # DoRA and its relatives
        and not layer.fan_in_fan_out
        and all(up.bias is None for up in layer.lora_B.values())
    )


def lows(layer: Any) -> list[Low]:
    """List of a layer's active LoRA adapters as `Low`s; empty without adapters, or if they are disabled or merged."""
    if not hasattr(layer, "base_layer") or layer.disable_adapters or layer.merged:
        return []
    return [
        Low(layer.lora_A[name].weight, layer.lora_B[name].weight, layer.scaling[name])
        for name in layer.active_adapters
        if name in layer.lora_A
    ]


class Head:
    """Output head of a language model; `logits(x)` gives cap · tanh(scale · (W x + b) / cap) of hidden states x.

    layer: what is not linear is called, `layer(x)`; None if hidden states are logits already.
    compute: the type of the product, if not that of the weights.
    """

    def __init__(
        self, layer: Any, *, scale: float = 1.0, cap: float | None = None, compute: torch.dtype | None = None
    ) -> None:
        self.layer, self.scale, self.cap, self.compute = layer, scale, cap, compute
        self.linear = is_linear(layer)

    @classmethod
    def of(cls, model: Any, compute: torch.dtype | None = None) -> Head:
        """Head of a Hugging Face model, with the scale and cap of its configuration."""
        config = model.config.get_text_config()
        scale = getattr(config, "logit_scale", None) or 1 / (getattr(config, "logits_scaling", None) or 1)
        cap = getattr(config, "final_logit_softcapping", None)
        return cls(model.get_output_embeddings(), scale=float(scale), cap=cap, compute=compute)

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits of hidden states, float32[..., vocabulary], not yet divided by a temperature."""
        if self.layer is None:
            return hidden.float()
        if not self.linear:
            return self._bend(self.layer(hidden).float())
        pairs, bias = self._pairs(hidden)
        made = [F.linear(x.to(weight.dtype), weight).float() for x, weight in pairs]
        total = made[0] if bias is None else made[0] + bias
        return self._bend(sum(made[1:], total))

    def score(self, hidden: Tensor, ids: Tensor, mask: Tensor, temperature: float, top_p: float = 1.0) -> Scored:
        """Log-probabilities and entropies after `hidden` [rows, tokens, width] under the sampling distribution.

        ids, mask: [rows, tokens]. top_p: what is outside of the nucleus has no probability; ids are never outside. The
        result's distribution is that before the nucleus, of which exact KLs are finite: two nuclei have other tokens.

        Only real tokens go through a head that is chunked.
        """
        if self.small(mask.numel()):
            logits = self.logits(hidden) / temperature
            whole = torch.log_softmax(logits, -1)
            cut = whole if top_p >= 1 else torch.log_softmax(nucleus(logits, top_p, ids[..., None]), -1)
            chosen = cut.gather(-1, ids[..., None])[..., 0] * mask
            return Scored(chosen, -(cut.exp() * cut).sum(-1) * mask, mask, whole, hidden)
        real, said = hidden[mask], ids[mask]

        def distribution(at: slice | Tensor) -> Tensor:
            return torch.log_softmax(self.logits(real[at]) / temperature, -1)

        if self.linear and top_p >= 1:
            pairs, bias = self._pairs(real)
            flat = [tensor for pair in pairs for tensor in pair]
            logprobs, entropies = _Chunked.apply(self, said, temperature, bias, *flat)
        else:

            def one(at: slice) -> tuple[Tensor, Tensor]:
                logp = torch.log_softmax(nucleus(self.logits(real[at]) / temperature, top_p, said[at, None]), -1)
                return logp.gather(-1, said[at, None])[:, 0], -(logp.exp() * logp).sum(-1)

            logprobs, entropies = in_chunks(one, len(said), self.step)
        blank = torch.zeros(mask.shape, device=hidden.device)
        logprobs, entropies = (blank.masked_scatter(mask, each) for each in (logprobs, entropies))
        return Scored(logprobs, entropies, mask, Distribution(distribution, len(said), self.step), hidden)

    def small(self, tokens: int) -> bool:
        """Whether the logits of so many tokens may be held in memory at once."""
        return tokens <= self.step

    @property
    def step(self) -> int:
        """Number of tokens in a chunk, by the size of the vocabulary."""
        layer = getattr(self.layer, "base_layer", self.layer)
        vocabulary = getattr(layer, "out_features", None) or 2**15
        device = next(layer.parameters()).device.type if layer is not None else "cpu"
        return max(1, (CHUNK_ON_GPU if device == "cuda" else CHUNK) // vocabulary)

    def _pairs(self, hidden: Tensor) -> tuple[list[tuple[Tensor, Tensor]], Tensor | None]:
        """(x_i, W_i) with logits = Σ W_i x_i + b."""
        base = getattr(self.layer, "base_layer", self.layer)
        return [(hidden, base.weight), *((low(hidden), low.up) for low in lows(self.layer))], base.bias

    def _bend(self, logits: Tensor) -> Tensor:
        logits = logits if self.scale == 1 else logits * self.scale
        return logits if self.cap is None else (logits / self.cap).tanh() * self.cap


def slices(count: int, step: int) -> Iterator[slice]:
    """Iterator of slices that cut 0..count into runs of at most `step`."""
    return (slice(start, min(start + step, count)) for start in range(0, count, step))


def in_chunks(make: Callable[[slice], Any], count: int, step: int) -> Any:
    """Calls `make(slice)` over 0..count by `step`, gradient-checkpointed; concatenates its tensors or tuples."""
    parts = [checkpoint(make, at, use_reentrant=False, preserve_rng_state=False) for at in slices(count, step)]
    return (
        torch.cat(parts)
        if isinstance(parts[0], Tensor)
        else tuple(torch.cat(each) for each in zip(*parts, strict=True))
    )


class _Chunked(torch.autograd.Function):
    """(log-probabilities, entropies) of `ids` from Σ x_i W_iᵀ + b; one chunk of logits at a time, both ways."""

    @staticmethod
    def forward(ctx: Any, head: Head, ids: Tensor, temperature: float, bias: Tensor | None, *flat: Tensor) -> Any:
        ctx.head, ctx.temperature = head, temperature
        ctx.own = [weight if adds_up(weight) else None for weight in flat[1::2]]
        logprobs, entropies, total = (torch.empty(len(ids), device=ids.device) for _ in range(3))
        weights = _cast(head, flat)
        for at in slices(len(ids), head.step):
            z = _logits(head, flat[::2], weights, bias, at).div_(temperature)
            total[at] = z.logsumexp(-1)
            z -= total[at, None]
            logprobs[at] = z.gather(-1, ids[at, None])[:, 0]
            entropies[at] = -(z.exp().mul_(z)).sum(-1)
        ctx.save_for_backward(ids, bias, total, entropies, *flat)
        return logprobs, entropies

    @staticmethod
    def backward(ctx: Any, g_logp: Tensor, g_entropy: Tensor) -> Any:
        head, temperature = ctx.head, ctx.temperature
        ids, bias, total, entropies, *flat = ctx.saved_tensors
        wanted = ctx.needs_input_grad[4:]
        weights = _cast(head, flat)
        uses = zip(flat, wanted, [own for weight in ctx.own for own in (None, weight)], strict=True)
        grads = [None if not want else torch.zeros_like(x) if own is None else grad_of(own) for x, want, own in uses]
        g_bias = torch.zeros_like(bias) if ctx.needs_input_grad[3] else None
        for at in slices(len(ids), head.step):
            z = _logits(head, flat[::2], weights, bias, at)
            slope = None if head.cap is None else 1 - (z / head.cap).square_()
            logp = z.div_(temperature).sub_(total[at, None])
            g = logp.exp()
            g *= logp.add_(entropies[at, None]).mul_(-g_entropy[at, None]).sub_(g_logp[at, None])
            g.scatter_add_(-1, ids[at, None], g_logp[at, None])
            g *= head.scale / temperature
            g = g if slope is None else g.mul_(slope)
            del z, logp, slope  # before the products, which need room of their own
            if g_bias is not None:
                g_bias += g.sum(0)
            for i, weight in enumerate(weights):
                low = g.to(weight.dtype)
                if (g_x := grads[2 * i]) is not None:
                    g_x[at] = low @ weight
                if (g_w := grads[2 * i + 1]) is not None:
                    _add(g_w, low, flat[2 * i][at].to(weight.dtype))
            del g, low  # and before the next chunk
        for number, own in enumerate(ctx.own):
            if own is not None:
                grads[2 * number + 1] = None  # it is in its place already
        return None, None, None, g_bias, *grads


def _cast(head: Head, flat: Any) -> list[Tensor]:
    """Weights in the type of the arithmetic, once for all chunks."""
    return [weight.detach().to(head.compute or weight.dtype) for weight in flat[1::2]]


def _logits(head: Head, inputs: Any, weights: list[Tensor], bias: Tensor | None, at: slice) -> Tensor:
    """float32[chunk, vocabulary], a tensor of its own."""
    found: Tensor | None = None
    for x, weight in zip(inputs, weights, strict=True):
        made = F.linear(x[at].to(weight.dtype), weight).float()
        found = made if found is None else found.add_(made)
    assert found is not None
    return head._bend(found if bias is None else found.add_(bias))


def _add(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Total += leftᵀ · right, without a copy where the types allow it."""
    if total.dtype == left.dtype:
        total.addmm_(left.T, right)
    else:
        total += left.T @ right
