"""Llamas, Mistrals and Qwens in float32, without their modules: the same numbers at half the cost of a small model.

Reads the live weights, so training needs no copy. Grouped heads, biases (Qwen2), norms of queries and keys (Qwen3) and
LoRA are walked through as they are; where adapters are small, a product that needs no gradient is made with both in one
matrix. Attention that would hold more than `LARGE` scores goes through torch's fused kernel, and so does that of few
scores, where calls outweigh the arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from palaestra.agents.backends.decoding import ROTARY
from palaestra.agents.backends.forward import (
    BLIND,
    KeyValueCache,
    State,
    joined,
    left_pad,
    prompts_with_answers,
    read_and_extend,
    whole_rows_pay,
)
from palaestra.agents.backends.gradients import embedding
from palaestra.agents.backends.head import Head, Low, is_linear, lows, slices
from palaestra.agents.backends.prefix_trees import Forest, masks

BLOCK = 2048
"""Tokens read at once: activations that stay in the cache of one core are about a quarter faster. Under checkpoints a
layer's gradient is made of so many at once, too, and holds the activations of no more."""
LARGE = 2**22
"""Attention scores of one call above which they are not held as a whole."""
FEW = 2**13
"""Attention scores of one call up to which the fused kernel costs less than the products (heads with own keys)."""
KINDS = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj"), ("gate_proj", "up_proj", "down_proj")


class Matrix(NamedTuple):
    """Data of a linear layer with its LoRA adapters; calling it maps [..., in] to [..., out]."""

    weight: Tensor
    bias: Tensor | None
    lows: Sequence[Low]

    def __call__(self, x: Tensor) -> Tensor:
        """Output of the layer with its adapters: [..., in] -> [..., out]."""
        y = F.linear(x, self.weight, self.bias)
        for low in self.lows:
            y = y + F.linear(low(x), low.up)
        return y


class Layer(NamedTuple):
    """Data of the weights of one Llama decoder layer; norms of queries and keys may be absent."""

    before: Tensor
    q: Matrix
    k: Matrix
    v: Matrix
    o: Matrix
    after: Tensor
    gate: Matrix
    up: Matrix
    down: Matrix
    norms: tuple[Tensor, Tensor] | None


class Llama:
    """Hand-written `Forward` of the model families in `KINDS` in float32, optionally with activation checkpoints."""

    compute: torch.dtype | None = None
    shares = True

    @staticmethod
    def fits(model: Any) -> bool:
        """Whether the model is one of `KINDS` in float32 that this walk computes exactly.

        Its rotary positions stay as they are, it attends to all that was, and has no adapters but LoRA on linear
        layers.
        """
        inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        if type(inner).__name__ not in KINDS:
            return False
        c = inner.config
        windows = set(getattr(c, "layer_types", None) or ()) - {"full_attention"}
        if type(inner).__name__ == "MistralForCausalLM" and c.sliding_window is not None:
            return False
        body = inner.model
        return (
            c.hidden_act == "silu"
            and not windows
            and c.rope_parameters["rope_type"] in ROTARY
            and all(type(p) in (nn.Parameter, Tensor) and p.dtype == torch.float32 for p in body.parameters())
            and type(body.embed_tokens) is nn.Embedding
            and is_linear(inner.get_output_embeddings())
            and all(is_linear(each) for layer in body.layers for each in _projections(layer))
        )

    def __init__(self, model: Any, *, checkpoints: bool = False) -> None:
        self.model, self.device, self.checkpoints = model, model.device, checkpoints
        self.inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        self.body, c = self.inner.model, self.inner.config
        self.heads, self.groups = c.num_key_value_heads, c.num_attention_heads // c.num_key_value_heads
        self.size, self.eps = self.body.layers[0].self_attn.head_dim, c.rms_norm_eps
        self.head, self.width = Head.of(self.inner), c.hidden_size
        self.cos = self.sin = torch.empty(0)

    def read(self, prompts: Sequence[np.ndarray], rows: Tensor, room: int) -> tuple[Tensor, State]:
        """Read prompts block by block, then copy their keys and values to the rows; see `Forward.read`."""
        layers = self._layers()
        width, hidden, parts = len(prompts[-1]), [], []
        self._turn(width + room)
        for block in _blocks(prompts):
            ids, pad = left_pad(block, self.device)
            part = _LlamaState(layers, pad, ids.shape[1])
            hidden.append(self._walk(part, ids, keep=1))
            parts.append(part)
        state = _LlamaState(layers, torch.cat([p.pad + width - p.length for p in parts]), width + room)
        gaps = [(0, 0, width - part.length, 0) for part in parts]
        for i in range(len(layers)):
            state.keys.append(torch.cat([F.pad(p.keys[i], gap) for p, gap in zip(parts, gaps, strict=True)]))
            state.values.append(torch.cat([F.pad(p.values[i], gap) for p, gap in zip(parts, gaps, strict=True)]))
        state.length = width
        state.keep(rows)
        if not torch.is_grad_enabled():
            state.keys = [F.pad(k, (0, 0, 0, room)) for k in state.keys]
            state.values = [F.pad(v, (0, 0, 0, room)) for v in state.values]
        return torch.cat(hidden)[rows], state

    def extend(self, state: State, ids: Tensor) -> Tensor:
        """Append tokens, in place unless a gradient is wanted; see `Forward.extend`."""
        assert isinstance(state, _LlamaState)
        return self._walk(state, ids, keep=ids.shape[1])

    def whole(self, prompts: Sequence[np.ndarray], rows: Tensor, ids: Tensor) -> Tensor:
        """See `Forward.whole`: distinct prompts are read once where that costs less than one more walk.

        Under checkpoints they are: a row is longer, and its activations are held at once.
        """
        if self.checkpoints or not whole_rows_pay(prompts, ids, self.width):
            return read_and_extend(self, prompts, rows, ids)
        every, pad = prompts_with_answers(prompts, rows, ids)
        self._turn(every.shape[1])
        return self._walk(_LlamaState(self._layers(), pad, every.shape[1]), every, keep=ids.shape[1])

    def trees(self, forest: Forest) -> Tensor:
        """Read packed trees, at most `BLOCK` tokens or one sequence at once; see `Forward.trees`."""
        layers, width = self._layers(), forest.ids.shape[1]
        self._turn(int(forest.positions.max()) + 1)
        found = []
        for at in slices(len(forest.ids), max(1, BLOCK // width)):
            ids, positions, seen = masks(forest, self.device, at)
            found.append(self._walk(_TreeState(layers, positions, seen), ids, keep=width))
        return torch.cat(found)

    def _walk(self, state: _LlamaState, ids: Tensor, keep: int) -> Tensor:
        """Hidden states of the last `keep` tokens; the last layer computes queries for those only."""
        tokens = ids.shape[1]
        at, bias = state.places(tokens), state.bias(tokens)
        cos, sin = self.cos[at], self.sin[at]
        x = embedding(ids, self.body.embed_tokens.weight)
        again = self.checkpoints and torch.is_grad_enabled()
        for i, layer in enumerate(state.layers):
            last = keep if i == len(state.layers) - 1 and keep < tokens else tokens
            if again:
                parts = [
                    checkpoint(
                        self._layer,
                        layer,
                        x[at],
                        *(_of_rows(each, at) for each in (cos, sin, bias)),
                        state.past(i, at),
                        last,
                        use_reentrant=False,
                        preserve_rng_state=False,
                    )
                    for at in slices(len(x), max(1, BLOCK // tokens))
                ]
                x, k, v = (torch.cat(each) for each in zip(*parts, strict=True))
            else:
                x, k, v = self._layer(layer, x, cos, sin, bias, state.past(i), last)
            state.append(i, k, v)
        state.length += tokens
        return self._norm(x, self.body.norm.weight)

    def _layer(
        self, layer: Layer, x: Tensor, cos: Tensor, sin: Tensor, bias: Tensor | None, past: Any, keep: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """One layer: hidden states of the last `keep` tokens, and the keys and values of all that are new."""
        rows, tokens = x.shape[:2]
        h = self._norm(x, layer.before)
        k = layer.k(h).view(rows, tokens, self.heads, self.size)
        new_v = v = layer.v(h).view(rows, tokens, self.heads, self.size).transpose(1, 2)
        if layer.norms is not None:
            k = self._norm(k, layer.norms[1])
        new_k = k = self._rotate(k, cos, sin).transpose(1, 2)
        if past is not None:
            k, v = past(k, v)
        if keep < tokens:
            h, x, cos, sin = h[:, -keep:], x[:, -keep:], cos[..., -keep:, :, :], sin[..., -keep:, :, :]
            bias = None if bias is None else bias[..., -keep:, :]
        q = layer.q(h).view(rows, keep, self.heads * self.groups, self.size)
        if layer.norms is not None:
            q = self._norm(q, layer.norms[0])
        mixed = self._attend(self._rotate(q, cos, sin), k, v, bias)
        x = x + layer.o(mixed)
        h = self._norm(x, layer.after)
        x = x + layer.down(F.silu(layer.gate(h)) * layer.up(h))
        return x, new_k, new_v

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        """Q [rows, tokens, heads, size] over k, v [rows, key heads, places, size]: [rows, tokens, heads · size]."""
        rows, tokens, heads, _ = q.shape
        places = k.shape[2]
        scores = rows * heads * tokens * places
        if scores > LARGE or (scores <= FEW and self.groups == 1):
            if self.groups > 1:
                k, v = (each.repeat_interleave(self.groups, 1) for each in (k, v))
            mixed = F.scaled_dot_product_attention(q.transpose(1, 2), k, v, bias)
            return mixed.transpose(1, 2).reshape(rows, tokens, -1)
        q = (q * self.size**-0.5).transpose(1, 2)
        # the queries of a group are rows of one product: keys need not be repeated
        seen = q.reshape(rows, self.heads, self.groups * tokens, self.size) @ k.transpose(-1, -2)
        if bias is not None:
            seen = (seen.view(rows, heads, tokens, places) + bias).view_as(seen)
        return (seen.softmax(-1) @ v).view(rows, heads, tokens, -1).transpose(1, 2).reshape(rows, tokens, -1)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight, self.eps)

    def _rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return x * cos + x.roll(self.size // 2, -1) * sin

    def _turn(self, places: int) -> None:
        """Cosines and sines of so many positions at least."""
        if len(self.cos) < places:
            rotary = self.body.rotary_emb
            with torch.inference_mode(False):  # a gradient may want them later
                count = torch.arange(max(places, 2 * len(self.cos)), device=self.device)
                angles = count[:, None] * rotary.inv_freq.float()
                cos, sin = angles.cos() * rotary.attention_scaling, angles.sin() * rotary.attention_scaling
                self.cos, self.sin = torch.cat([cos, cos], -1)[:, None], torch.cat([-sin, sin], -1)[:, None]

    def _layers(self) -> list[Layer]:
        """The weights as they are now."""
        made = []
        for layer in self.body.layers:
            attention = layer.self_attn
            q, k, v, o, gate, up, down = map(_matrix, _projections(layer))
            norms = (attention.q_norm.weight, attention.k_norm.weight) if hasattr(attention, "q_norm") else None
            before, after = layer.input_layernorm.weight, layer.post_attention_layernorm.weight
            made.append(Layer(before, q, k, v, o, after, gate, up, down, norms))
        return made


def _projections(layer: nn.Module) -> list[Any]:
    attention, mlp = PROJECTIONS
    return [getattr(layer.self_attn, name) for name in attention] + [getattr(layer.mlp, name) for name in mlp]


def _matrix(layer: Any) -> Matrix:
    base, adapters = getattr(layer, "base_layer", layer), lows(layer)
    weight = base.weight
    if adapters and not torch.is_grad_enabled() and weight.numel() <= LARGE // 16:
        for low in adapters:
            weight = torch.addmm(weight, low.up, low.down, alpha=low.scale)
        adapters = []
    return Matrix(weight, base.bias, adapters)


class _LlamaState(KeyValueCache):
    """keys, values: per layer [rows, heads, places, head size]; without gradient, free places follow the `length`.

    news: with gradient, what came after them.
    """

    joins = True

    def __init__(self, layers: list[Layer], pad: Tensor, places: int) -> None:
        super().__init__(pad, 0, places)
        self.layers, self.room = layers, places
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        self.news: list[list[tuple[Tensor, Tensor]]] = [[] for _ in layers]

    def keep(self, rows: Tensor) -> None:
        self.choose(rows)
        self.keys = [k.index_select(0, rows) for k in self.keys]
        self.values = [v.index_select(0, rows) for v in self.values]

    def join(self, other: _LlamaState) -> None:
        lengths = self.length, other.length
        room = other.room - other.length
        moves = self.beside(other)
        for mine, theirs in ((self.keys, other.keys), (self.values, other.values)):
            for i, pair in enumerate(zip(mine, theirs, strict=True)):
                mine[i] = joined(pair, lengths, moves, room)
        self.room = self.length + room
        self._shade(self.room)

    def past(self, i: int, rows: slice = slice(None)) -> Any:
        """Function that appends a layer's new keys and values of these rows to the cached ones."""
        if i == len(self.keys):
            return None
        keys, values, start = self.keys[i][rows], self.values[i][rows], self.length
        before = [(k[rows], v[rows]) for k, v in self.news[i]]

        def whole(k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            if torch.is_grad_enabled():
                news = [*before, (k, v)]
                return torch.cat([keys, *(new[0] for new in news)], 2), torch.cat(
                    [values, *(new[1] for new in news)], 2
                )
            end = start + k.shape[2]
            keys[:, :, start:end], values[:, :, start:end] = k, v
            return keys[:, :, :end], values[:, :, :end]

        return whole

    def append(self, i: int, k: Tensor, v: Tensor) -> None:
        """Remember what is new; `past` has written it down already if no gradient needs the old."""
        if i == len(self.keys):
            self.keys.append(k)
            self.values.append(v)
        elif torch.is_grad_enabled():
            self.news[i] = [*self.news[i], (k, v)]


class _TreeState(_LlamaState):
    """State of packed trees, which are read in one go: positions and mask are given, [sequences, tokens (, tokens)]."""

    def __init__(self, layers: list[Layer], positions: Tensor, seen: Tensor) -> None:
        super().__init__(layers, torch.zeros(len(positions), dtype=torch.long, device=positions.device), 0)
        self.positions = positions
        self.shade = torch.zeros(seen.shape, device=seen.device).masked_fill_(~seen, BLIND)[:, None]

    def places(self, tokens: int) -> Tensor:
        return self.positions

    def bias(self, tokens: int) -> Tensor:
        return self.shade


def _of_rows(tensor: Tensor | None, rows: slice) -> Tensor | None:
    """The part of what has four dimensions, of which rows are the first; all have the rest in common."""
    return tensor[rows] if tensor is not None and tensor.dim() == 4 else tensor


def _blocks(prompts: Sequence[np.ndarray]) -> Iterator[Sequence[np.ndarray]]:
    """Cut prompts of ascending length into runs of at most `BLOCK` padded tokens (at least one prompt each)."""
    start = 0
    for stop in range(1, len(prompts) + 1):
        if stop == len(prompts) or (stop + 1 - start) * len(prompts[stop]) > BLOCK:
            yield prompts[start:stop]
            start = stop
