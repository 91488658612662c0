"""Any Hugging Face causal language model by its own modules.

They are called by shadows of them (shadows.py), for one new token their layers alone (decoding.py).
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from palaestra.agents.backends.decoding import Steps, steps_through
from palaestra.agents.backends.forward import (
    KeyValueCache,
    State,
    joined,
    left_pad,
    precision,
    prompts_with_answers,
    read_and_extend,
    whole_rows_pay,
)
from palaestra.agents.backends.head import Head, slices
from palaestra.agents.backends.prefix_trees import MOST, Forest, Tree, masks, pack
from palaestra.agents.backends.shadows import bare, shadowed
from palaestra.errors import InputError

WINDOWS = ("sliding_window", "window_size", "attention_window", "attention_chunk_size")
"""Fields of configurations that limit how far back a layer attends."""


class Generic:
    """`Forward` to hidden states (`head` makes logits) of any Hugging Face causal LM whose cache can select rows."""

    def __init__(self, model: Any, compute: torch.dtype | None = None, *, checkpoints: bool = False) -> None:
        self.model, self.device, self.compute, self.checkpoints = model, model.device, compute, checkpoints
        self.inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        self.accepted = set(inspect.signature(self.inner.forward).parameters)
        self.layers = _layers(self.inner) if checkpoints else []

    @functools.cached_property
    def head(self) -> Head:
        """The model's own output head, if a `Head` gives the same logits; otherwise one that lets the model make them.

        Tried once: what the model does to logits must be what `Head` does, for numbers of any size.
        """
        layer = self.inner.get_output_embeddings()
        if layer is None or not hasattr(self.inner, "config"):
            return Head(None)
        head = Head.of(self.inner, self.compute)
        size = getattr(getattr(layer, "base_layer", layer), "out_features", None) or self.inner.config.vocab_size
        spread = torch.linspace(-60, 60, size, device=self.device, dtype=self.inner.dtype)[None, None]
        ids = torch.zeros((1, 1), dtype=torch.long, device=self.device)
        with torch.no_grad(), _instead({layer: lambda _: spread}):
            found = self.model(input_ids=ids, use_cache=False).logits
        same = found.shape == spread.shape and torch.allclose(found.float(), head._bend(spread.float()), 1e-2, 1e-2)
        return head if same else Head(None)

    @functools.cached_property
    def body(self) -> nn.Module | None:
        """Module whose last hidden state is the input of the head, if `shadowed` it gives the same; else None.

        Tried once, with and without padding: the same to the last bit.
        """
        body = getattr(self.inner, getattr(self.inner, "base_model_prefix", ""), None)
        adapters = getattr(self.model, "peft_config", {}).values()
        if not isinstance(body, nn.Module) or body is self.inner or self.head.layer is None:
            return None
        if any(each.peft_type != "LORA" or getattr(each, "alora_invocation_tokens", None) for each in adapters):
            return None  # such adapters look at what the whole model is given
        if self.accepted & {"past_key_values", "position_ids"} - set(inspect.signature(body.forward).parameters):
            return None
        return body if self._same(lambda: None, lambda: shadowed(body)) else None

    @functools.cached_property
    def steps(self) -> bool:
        """Whether `Steps` through the body's layers give the same as its `forward`, to the last bit; tried once."""
        body = self.body
        return (
            body is not None
            and self.plain
            and steps_through(body)
            and self._same(lambda: shadowed(body), lambda: Steps(body))
        )

    def _same(self, *ways: Callable[[], Callable[..., Any] | None]) -> bool:
        """Whether rows with and without padding, and a token after them, give the same to the last bit in all ways."""
        try:
            with torch.no_grad(), precision(self):
                for prompts in ([[1], [2, 3]], [[1, 2], [3, 0]]):
                    ids, pad = left_pad([np.array(each, np.int64) for each in prompts], self.device)
                    said = []
                    for inside in ways:
                        state = _GenericState(self._cache(), pad, 2, 1, inside())
                        said.append(torch.cat([self._call(state, ids, 1), self._call(state, ids[:, 1:], 1)]))
                    if not torch.equal(*said):
                        return False
        except Exception:  # modules may do anything
            return False
        return True

    def _inside(self) -> Callable[..., Any] | None:
        """Function of the body's shadow, for the next passes; None: call the whole model, with its hooks."""
        whole = [self.model, getattr(self.model, "base_model", self.inner), self.inner]
        if self.body is None or not all(map(bare, [*whole, self.body])):
            return None
        return Steps(self.body) if self.steps and not self.body.training else shadowed(self.body)

    def _cache(self) -> Any:
        return _roomy(self.inner.config) if self.plain else None

    @functools.cached_property
    def plain(self) -> bool:
        """Whether all layers keep keys and values of all tokens, and the model takes a mask as it is given."""
        from transformers.cache_utils import DynamicCache, DynamicLayer

        try:
            layers = DynamicCache(config=self.inner.config).layers
        except Exception:  # a cache of its own
            return False
        return (
            {"past_key_values", "position_ids"} <= self.accepted
            and bool(layers)
            and all(type(layer) is DynamicLayer for layer in layers)
            and getattr(self.inner.config, "_attn_implementation", None) in ("eager", "sdpa")
            and not getattr(self.inner, "_is_stateful", False)
        )

    @property
    def width(self) -> int:
        """Hidden size of the configuration, 0 if it does not say."""
        return int(getattr(self.inner.config.get_text_config(), "hidden_size", 0) or 0)

    @functools.cached_property
    def shares(self) -> bool:
        """Whether the model attends by a mask of four dimensions and by given positions, in every layer.

        Tried once: in a packed tree hidden states must be those of the rows. No layer may have a window: what it
        leaves out depends on where a token is packed.
        """
        if not self.plain or not self.width or any(getattr(self.inner.config, name, None) for name in WINDOWS):
            return False
        rows = [np.array(ids, np.int64) for ids in ([1, 2, 3, 0], [1, 2, 0, 3, 1], [1, 0])]
        forest = pack(rows, [Tree(np.array([2, 1, 0]), np.array([0, 1, 2]), 8, 5)], [[0]])
        half = self.compute is not None or self.inner.dtype.itemsize < 4
        try:
            with torch.no_grad(), precision(self):
                packed = self.trees(forest).flatten(0, 1).float()
                for row, places in zip(rows, forest.places, strict=True):
                    ids = torch.from_numpy(row)[None].to(self.device)
                    state = _GenericState(None, torch.zeros(1, dtype=torch.long, device=self.device), len(row), 0, None)
                    alone = self._call(state, ids, keep=len(row), use_cache=False)[0].float()
                    apart = (packed[torch.from_numpy(places[: len(row)]).to(self.device)] - alone).norm()
                    if not bool(apart <= (0.03 if half else 1e-4) * alone.norm()):
                        return False
        except Exception:  # a model may refuse the mask in any way
            return False
        return True

    def read(self, prompts: Sequence[np.ndarray], rows: Tensor, room: int) -> tuple[Tensor, State]:
        """Read all prompts in one forward pass; see `Forward.read`."""
        ids, pad = left_pad(prompts, self.device)
        state = _GenericState(self._cache(), pad, ids.shape[1], room, self._inside())
        hidden = self._call(state, ids, keep=1)
        state.keep(rows)
        return hidden[rows], state

    def extend(self, state: State, ids: Tensor) -> Tensor:
        """Append tokens in one forward pass; see `Forward.extend`."""
        assert isinstance(state, _GenericState)
        return self._call(state, ids, keep=ids.shape[1])

    def whole(self, prompts: Sequence[np.ndarray], rows: Tensor, ids: Tensor) -> Tensor:
        """See `Forward.whole`: distinct prompts are read once where that costs less than one call of the model.

        With checkpoints every row is read as a whole.
        """
        small = self.body is not None and whole_rows_pay(prompts, ids, self.width)
        if small or (self.checkpoints and torch.is_grad_enabled()):
            return self.once(prompts, rows, ids)
        return read_and_extend(self, prompts, rows, ids)

    def once(self, prompts: Sequence[np.ndarray], rows: Tensor, ids: Tensor) -> Tensor:
        """`Forward.whole` in one call of the model, whatever the rows: ranks that share a model must call it alike."""
        every, pad = prompts_with_answers(prompts, rows, ids)
        inside = None if self.layers else self._inside()
        state = _GenericState(None, pad, every.shape[1], 0, inside)
        return self._call(state, every, keep=ids.shape[1], use_cache=False)

    def trees(self, forest: Forest) -> Tensor:
        """Read packed trees, as many sequences at once as have the mask of one large tree; see `Forward.trees`."""
        found, inside = [], None if self.layers else self._inside()
        for at in slices(len(forest.ids), max(1, MOST**2 // forest.ids.shape[1] ** 2)):
            ids, positions, seen = masks(forest, self.device, at)
            least = torch.finfo(self.inner.dtype).min
            bias = torch.zeros(seen.shape, dtype=self.inner.dtype, device=self.device).masked_fill_(~seen, least)
            arguments = {"position_ids": positions, "attention_mask": bias[:, None]}
            found.append(self._hidden(inside, ids, len(ids[0]), arguments, use_cache=False)[0])
        return torch.cat(found)

    def _call(self, state: _GenericState, ids: Tensor, keep: int, use_cache: bool = True) -> Tensor:
        tokens = ids.shape[1]
        if tokens == 1 and state.cache is not None and isinstance(state.inside, Steps):
            hidden = state.inside.step(ids, state.cache, state.places(1), self._bias(state, 1), state.length + 1)
            state.length += 1
            return hidden
        arguments: dict[str, Any] = {}
        if state.cache is not None:
            arguments["past_key_values"] = state.cache
        if state.blind is not None:  # without padding a model makes its own mask, and most need none
            if "position_ids" in self.accepted:
                arguments["position_ids"] = state.places(tokens)
            if state.joins:
                arguments["attention_mask"] = self._bias(state, tokens)
            else:
                there = torch.arange(state.length + tokens, device=ids.device)
                arguments["attention_mask"] = (there >= state.pad[:, None]).long()
        found, output = self._hidden(state.inside, ids, keep, arguments, use_cache)
        state.cache, state.length = output.get("past_key_values") if use_cache else None, state.length + tokens
        return found

    def _bias(self, state: _GenericState, tokens: int) -> Tensor | None:
        """See `KeyValueCache.bias`, in the type of the model."""
        bias = state.bias(tokens)
        if bias is None:
            return None
        kind = self.inner.dtype
        return bias.clamp(min=torch.finfo(kind).min).to(kind)

    def _hidden(
        self, inside: Callable[..., Any] | None, ids: Tensor, keep: int, arguments: dict[str, Any], use_cache: bool
    ) -> tuple[Tensor, Any]:
        """Input of the head for the last `keep` tokens, and all that the model or its shadow `inside` returns."""
        arguments["use_cache"] = use_cache
        if inside is not None:
            output = inside(input_ids=ids, **arguments)
            return output.last_hidden_state[:, -keep:], output
        if "logits_to_keep" in self.accepted:
            arguments["logits_to_keep"] = keep
        seen: list[Tensor] = []
        swaps: dict[nn.Module, Callable[..., Any]] = {}
        if self.head.layer is not None:

            def see(hidden: Tensor) -> Tensor:
                seen.append(hidden)
                return hidden

            swaps[self.inner.get_output_embeddings()] = see
        if not use_cache:
            swaps |= {layer: functools.partial(_again, layer.forward) for layer in self.layers}
        with _instead(swaps):
            output = self.model(input_ids=ids, **arguments)
        found = seen[0] if seen else output.logits
        return found[:, -keep:], output


class Once(Generic):
    """`Forward` of a Hugging Face LM that reads each row from its beginning in one call, never sharing prompts."""

    shares, body = False, None
    whole = Generic.once


class _GenericState(KeyValueCache):
    """cache: of the model. joins: it is one of `_roomy`'s. inside: what is called, see `Generic.body`."""

    def __init__(self, cache: Any, pad: Tensor, width: int, room: int, inside: Callable[..., Any] | None) -> None:
        super().__init__(pad, 0, width + room)
        self.cache, self.joins, self.room, self.inside = cache, cache is not None, room, inside

    def keep(self, rows: Tensor) -> None:
        self.choose(rows)
        self.cache.batch_select_indices(rows)

    def join(self, other: _GenericState) -> None:
        lengths = self.length, other.length
        moves = self.beside(other)
        for own, new in zip(self.cache.layers, other.cache.layers, strict=True):
            own.keys = joined([own.keys, new.keys], lengths, moves, 0)
            own.values = joined([own.values, new.values], lengths, moves, 0)
        self.room = max(self.room, other.room)
        self._shade(self.length + self.room)


@functools.cache
def _roomy_layer() -> type:
    from transformers.cache_utils import DynamicLayer

    class Roomy(DynamicLayer):  # type: ignore[misc, unused-ignore]
        """Without gradient, new keys and values are written into free places behind the old ones."""

        keys: Any
        values: Any
        spare: tuple[Tensor, Tensor, Tensor] | None = None  # both with free places, and the keys that they belong to

        def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
            if torch.is_grad_enabled() or not self.is_initialized or not self.keys.numel():
                found: tuple[Tensor, Tensor] = super().update(key_states, value_states, *args, **kwargs)
                return found
            length, end = self.keys.shape[2], self.keys.shape[2] + key_states.shape[2]
            if self.spare is None or self.spare[2] is not self.keys or self.spare[0].shape[2] < end:
                free = (0, 0, 0, end - length + length // 2 + 16)  # half as many again: few copies
                self.spare = F.pad(self.keys, free), F.pad(self.values, free), self.keys
            keys, values, _ = self.spare
            keys[:, :, length:end], values[:, :, length:end] = key_states, value_states
            self.keys, self.values = keys[:, :, :end], values[:, :, :end]
            self.spare = keys, values, self.keys
            return self.keys, self.values

    return Roomy


def _roomy(config: Any) -> Any:
    from transformers.cache_utils import DynamicCache

    cache = DynamicCache(config=config)
    cache.layers = [_roomy_layer()() for _ in cache.layers]
    return cache


_SWAPPING = threading.RLock()


@contextlib.contextmanager
def _instead(swaps: Mapping[nn.Module, Callable[..., Any]]) -> Iterator[None]:
    """Meanwhile these modules do something else; one thread at a time, or one would put back what another put in."""
    with _SWAPPING:
        before = {module: vars(module).get("forward") for module in swaps}
        try:
            for module, function in swaps.items():
                module.forward = function
            yield
        finally:
            for module, own in before.items():
                if own is None:
                    vars(module).pop("forward", None)
                else:
                    module.forward = own


def _again(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A layer whose activations are made again for its gradient; policies have no dropout, so they are the same."""
    return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)


def _layers(model: nn.Module) -> list[nn.Module]:
    from transformers.modeling_layers import GradientCheckpointingLayer

    found = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not found:
        raise InputError(f"LMPolicy: {type(model).__name__} has no layers that gradient_checkpointing=True could use")
    return found
