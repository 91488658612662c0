"""`LMPolicy`: any Hugging Face causal language model as a policy that acts, scores and learns.

The request's own rng gives all uniforms of its answer up front and tokens are drawn by inverse CDF, so an answer does
not depend on who else is in the batch. Log-probabilities and entropies are those of the distribution that was sampled
from, temperature and top-p included. Left out on purpose: top-k, greedy decoding (not a distribution), and constrained
decoding (an illegal action is the env's to answer).
"""

from __future__ import annotations

import bisect
import copy
import dataclasses
import inspect
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from palaestra.agents import conversation
from palaestra.agents.backends import loading
from palaestra.agents.backends.fastest import forward_of
from palaestra.agents.backends.interleaved import evaluate_rows, trees_of
from palaestra.agents.backends.prefix_trees import Tree
from palaestra.agents.backends.sampling import chunks, evaluate, sample
from palaestra.agents.policy import Decision, Request, Scored
from palaestra.envs.conversations import ChatMessage, Reader
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError, nearest
from palaestra.foundation.files import read_object, refuse_links, write_json

if TYPE_CHECKING:
    import polars as pl

SETTINGS = (
    "name", "max_new_tokens", "temperature", "batch_size", "prompt_template", "history", "system_prompt",
    "chat_template_kwargs", "top_p", "stop",
)  # fmt: skip


class LMPolicy:
    """Trainable policy of a Hugging Face causal language model and its tokenizer; samples answers here.

    Attributes:
        pretrained: "whole" if the weights come from elsewhere and all of them learn, "adapters" if only adapters do,
            None for a model that was made here. Default learning rates depend on it.

    max_new_tokens: an answer ends after so many, or with an end token: the tokenizer's, the chat template's, or one of
    the generation config. temperature: > 0, of sampling and of scoring. top_p: in (0, 1], likewise: tokens outside of
    the nucleus have no probability, and the others share theirs. What was sampled and has left the nucleus since stays
    in it for the ratio. Below 1, log-probabilities of reference and server are of other sets of tokens; exact KLs are
    those before the nucleus.
    stop: texts that end an answer; they are not part of what it says, their tokens are learned from.
    batch_size: most rows in one forward pass. prompt_template: what is made of an observation's text, with `{text}` in
    it; a tokenizer with a chat template wraps the result (or `Observation.messages` and tools) in that.
    system_prompt: message of the role system in front of every conversation; an env's own comes behind it, in the same
    message. chat_template_kwargs: variables of the chat template, {"enable_thinking": False} for example.
    history: what is shown of an agent's earlier turns where the template would not write them as they were sampled: the
    sampled tokens ("append") or what the template writes ("render"); see `palaestra.agents.conversation`.
    gradient_checkpointing: activations inside of layers are made again for the gradient, instead of kept: a third more
    arithmetic, and memory for one layer plus what stands between layers. It changes no number.
    compute: "bf16": matrices are multiplied in bfloat16, while weights that learn stay in float32 (autocast).
    Agents share parameters by sharing the object. Raises InputError for settings that cannot work.
    """

    pretrained: Literal["whole", "adapters"] | None = None
    reads_context = True

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        name: str = "lm",
        max_new_tokens: int = 16,
        temperature: float = 1.0,
        batch_size: int = 256,
        prompt_template: str = "{text}",
        history: str = "append",
        system_prompt: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        top_p: float = 1.0,
        stop: str | Sequence[str] = (),
        gradient_checkpointing: bool = False,
        compute: str | torch.dtype | None = None,
    ) -> None:
        positions = loading.positions(model.config)
        _check(
            max_new_tokens, temperature, batch_size, prompt_template, name, history, gradient_checkpointing, positions,
            system_prompt=system_prompt, chat_template_kwargs=chat_template_kwargs, top_p=top_p, stop=stop,
        )  # fmt: skip
        half = next((p.dtype for p in model.parameters() if p.requires_grad and p.dtype in loading.HALF), None)
        if half is not None:
            raise InputError(
                f"LMPolicy {name!r}: weights that learn are {half}, in which small updates are lost: call"
                " model.float(), or from_pretrained(dtype=...), which keeps them in float32; or freeze what is"
                " only to play: model.requires_grad_(False)"
            )
        if tokenizer.eos_token_id is None:
            raise InputError("LMPolicy: the tokenizer has no eos token: set tokenizer.eos_token first")
        self.model, self.tokenizer, self.name = model.eval(), tokenizer, name
        self.max_new_tokens, self.temperature = max_new_tokens, temperature
        self.top_p, self.stop = top_p, [stop] if isinstance(stop, str) else list(stop)
        self.batch_size, self.prompt_template, self.history = batch_size, prompt_template, history
        self.forward = forward_of(model, loading.compute_of(compute), checkpoints=gradient_checkpointing)
        also = getattr(getattr(model, "generation_config", None), "eos_token_id", None) or []
        self.system_prompt, self.chat_template_kwargs = system_prompt, dict(chat_template_kwargs or {})
        self._style = conversation.Style(system_prompt, self.chat_template_kwargs)
        self._style.check(tokenizer)
        self._end = conversation.end_of_turn(tokenizer, self._style)
        self._ends = np.unique([tokenizer.eos_token_id, self._end, *(also if isinstance(also, list) else [also])])
        self._learns = [name for name, p in model.named_parameters() if p.requires_grad]
        self._limit = positions or 2**31

    # Making one

    @classmethod
    def tiny(cls, corpus: Iterable[str] | None = None, *, seed: int = 0, **options: Any) -> LMPolicy:
        """New policy: a transformer of at most a million parameters, a tokenizer for `corpus` (default: ASCII).

        The default corpus is printable ASCII.

        options: `hidden`, `layers`, `heads`, `vocabulary`, `chat` of `tiny.build`, and those of LMPolicy.
        """
        from palaestra.agents.tiny import build

        shape = {key: options.pop(key) for key in ("hidden", "layers", "heads", "vocabulary", "chat") if key in options}
        return cls(*build(corpus, seed=seed, **shape), **options)

    @classmethod
    def from_pretrained(
        cls,
        model: str | Path,
        *,
        lora: Mapping[str, Any] | None = None,
        device: str | torch.device = "cpu",
        dtype: str | torch.dtype = torch.float32,
        **options: Any,
    ) -> LMPolicy:
        """Policy of a pretrained model, by folder or hub id.

        Only adapters learn if `lora` (peft's LoraConfig fields) is given, or if the folder holds an adapter, which is
        then loaded on its base.

        dtype: of weights that do not learn, "bf16" for example. Weights that learn are float32, because small updates
        are lost in 16 bits; with bfloat16 the arithmetic on a GPU has 16 bits all the same, on a CPU if compute="bf16".
        Policies with adapters on the same base share its tensors: two roles cost one model and two adapters.
        Warns, with its parts, of a model that takes more than a quarter of the memory. Raises InputError for what
        cannot be loaded.
        """
        made = cls.check(model, lora=lora, device=device, dtype=dtype, **options)
        with _quietly():
            loaded = loading.load(made)
        policy = cls(*loaded, **options | {"compute": made.compute})
        policy.pretrained = "adapters" if hasattr(policy.model, "peft_config") else "whole"
        return policy

    @staticmethod
    def check(
        model: str | Path,
        *,
        lora: Mapping[str, Any] | None = None,
        device: str | torch.device = "cpu",
        dtype: str | torch.dtype = torch.float32,
        **options: Any,
    ) -> loading.LoadingPlan:
        """Check the arguments of `from_pretrained` without loading weights. Raises InputError if it cannot work."""
        known = [name for name in inspect.signature(LMPolicy).parameters if name not in ("model", "tokenizer")]
        for name in options:
            if name not in known:
                raise InputError(f"LMPolicy: no option {name!r}{nearest(name, [*known, 'lora', 'device', 'dtype'])}")
        made = loading.plan(model, lora, device, dtype, options.get("compute"))
        _check(**options, positions=loading.positions(made.config))
        style = conversation.Style(options.get("system_prompt"), options.get("chat_template_kwargs") or {})
        if style.system or style.arguments:
            style.check(loading.tokenizer_of(made))
        return made

    def save(self, path: str | Path) -> None:
        """Write model (safetensors; adapters only for LoRA), tokenizer and settings into a folder."""
        folder = Path(path)
        refuse_links(folder)  # transformers writes through them
        with _quietly():
            self.model.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)
        settings = {key: getattr(self, key) for key in SETTINGS}
        compute = getattr(self.forward, "compute", None)
        dtype = str(compute or self.model.dtype).removeprefix("torch.")
        more = {} if compute is None else {"compute": dtype}
        more |= {"pretrained": self.pretrained} if self.pretrained else {}
        write_json(folder / "palaestra.json", {"kind": "lm"} | settings | {"dtype": dtype} | more)

    @classmethod
    def load(
        cls, path: str | Path, *, device: str | torch.device = "cpu", dtype: str | torch.dtype | None = None
    ) -> LMPolicy:
        """Load a policy from the folder that `save` wrote; `dtype` as in `from_pretrained`, default: as it was."""
        folder = Path(path)
        found = read_object(folder / "palaestra.json")
        if found is None:
            raise InputError(f"LMPolicy: {folder} has no palaestra.json: use from_pretrained for foreign models")
        if found.get("kind", "lm") != "lm":
            raise InputError(f"LMPolicy: {folder} holds a policy of kind {found['kind']!r}, no language model")
        settings = {key: found[key] for key in (*SETTINGS, "compute") if key in found}
        dtype = dtype or found.get("dtype") or torch.float32
        policy = cls.from_pretrained(folder, device=device, dtype=dtype, **settings)
        policy.pretrained = found.get("pretrained")
        return policy

    # Acting

    def act(self, requests: Sequence[Request]) -> list[Decision]:
        """Sample an answer per request; one that cannot be shown to the model gives a decision with `error`."""
        start = time.perf_counter()
        shown = self.shown(requests)
        prompts = [prompt.ids for prompt in shown]
        uniforms = [request.rng.random(self.max_new_tokens) for request in requests]
        fits = [i for i, prompt in enumerate(shown) if prompt.error is None]
        decisions = [Decision("", tokens_in=len(prompt.ids), error=prompt.error) for prompt in shown]
        if fits:
            ids, logprobs, entropies = sample(
                self.forward,
                [prompts[i] for i in fits],
                np.array([uniforms[i] for i in fits]),
                ends=self._ends,
                temperature=self.temperature,
                batch_size=self.batch_size,
                top_p=self.top_p,
                over=self._over if self.stop else None,
            )
            ended = np.isin(ids, self._ends)
            lengths = np.where(ended.any(1), ended.argmax(1) + 1, self.max_new_tokens)
            answers = [ids[row, :length] for row, length in enumerate(lengths)]
            stopped = [self._stopped(answer) for answer in answers]
            answers = [answer[:at] for answer, at in zip(answers, stopped, strict=True)]
            for row, (i, text) in enumerate(zip(fits, self._texts(answers), strict=True)):
                n = len(answers[row])
                whole = bool(ended[row].any()) or stopped[row] is not None
                decisions[i] = Decision(
                    text,
                    prompts[i],
                    answers[row],
                    logprobs[row, :n],
                    entropies[row, :n],
                    finish="stop" if whole else "length",
                    tokens_in=len(prompts[i]),
                    tokens_out=n,
                )
        seconds = (time.perf_counter() - start) / max(1, len(requests))
        for decision, prompt, request in zip(decisions, shown, requests, strict=True):
            decision.duration, decision.prefix = seconds, prompt.prefix
            decision.messages = self.recorded(request)
        return decisions

    def _over(self, answers: np.ndarray) -> np.ndarray:
        """bool[rows]: which answers so far hold a stop text."""
        said = self.tokenizer.batch_decode(answers.tolist(), skip_special_tokens=True)
        return np.array([self._ending(text) is not None for text in said], bool)

    def _ending(self, text: str) -> int | None:
        """Where the first stop text begins."""
        places = [place for stop in self.stop if (place := text.find(stop)) >= 0]
        return min(places, default=None)

    def _stopped(self, answer: np.ndarray) -> int | None:
        """Number of tokens with which the first stop text is whole; None: there is none."""
        if not self.stop or not self._over(answer[None])[0]:
            return None
        return 1 + bisect.bisect_left(range(1, len(answer)), True, key=lambda n: bool(self._over(answer[None, :n])[0]))

    def recorded(self, request: Request) -> Sequence[ChatMessage] | None:
        """Chat messages shown to the model, if the table would otherwise lack them; else None."""
        return conversation.to_record(request.observation, self._reader) if self.reads_messages else None

    def _too_long(self, prompt: conversation.Prompt, request: Request) -> str:
        room = self._limit - self.max_new_tokens
        return (
            f"InputError: what {request.agent!r} sees has {len(prompt.ids)} tokens, at most {room} fit beside"
            f" max_new_tokens={self.max_new_tokens} in the {self._limit} positions of {self.name!r}: shorten the"
            f" env's observation, which begins {request.observation.text[:40]!r}"
        )

    def shown(self, requests: Sequence[Request]) -> list[conversation.Prompt]:
        """Prompt of each request: its observation, in a conversation after the tokens of earlier turns.

        One that the chat template refuses, or that does not fit the model, has an error.
        """
        firsts = self._ids([self._try_text(request.observation) for request in requests])
        prompts = conversation.prompts(
            self.tokenizer, requests, firsts, ends=self._ends, history=self.history, style=self._style
        )
        room = self._limit - self.max_new_tokens
        return [
            prompt._replace(error=self._too_long(prompt, request)) if len(prompt.ids) > room else prompt
            for prompt, request in zip(prompts, requests, strict=True)
        ]

    def prompt_ids(self, observations: Sequence[Observation]) -> list[np.ndarray]:
        """Token ids of each observation's prompt, int32, equal observations sharing one array.

        Raises:
            InputError: the chat template refuses an observation.
        """
        return [np.asarray(each) for each in self._ids([self._text(observation) for observation in observations])]

    def _text(self, observation: Observation) -> str:
        """Observation under the prompt template and the chat template."""
        text = self.prompt_template.replace("{text}", observation.text)
        if not self.reads_messages:
            return text
        talk = dataclasses.replace(observation, text=text).conversation(self._reader)
        return conversation.render(self.tokenizer, dataclasses.replace(observation, messages=talk), self._style)

    @property
    def reads_messages(self) -> bool:
        """Whether prompts are conversations rather than plain texts: the tokenizer has a chat template."""
        return bool(getattr(self.tokenizer, "chat_template", None))

    @property
    def _reader(self) -> Reader:
        return Reader(self._count, self._first)

    def _count(self, text: str) -> int:
        return len(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _first(self, text: str, limit: int) -> str:
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"][:limit]
        return str(self.tokenizer.decode(ids, skip_special_tokens=False))

    def _try_text(self, observation: Observation) -> str | InputError:
        try:
            return self._text(observation)
        except InputError as error:
            return error

    def _ids(self, texts: Sequence[str | InputError]) -> list[np.ndarray | InputError]:
        """int32 token ids of each text; an error stays."""
        distinct = list(dict.fromkeys(text for text in texts if isinstance(text, str)))
        if not distinct:
            return [text for text in texts if isinstance(text, InputError)]
        # A chat template writes the special tokens itself.
        special = not getattr(self.tokenizer, "chat_template", None)
        encoded = self.tokenizer(distinct, add_special_tokens=special, return_attention_mask=False)["input_ids"]
        # A model needs something to continue, even an empty observation.
        arrays = [np.array(ids or [self.tokenizer.eos_token_id], np.int32) for ids in encoded]
        known = dict(zip(distinct, arrays, strict=True))
        return [known[text] if isinstance(text, str) else text for text in texts]

    def encode(self, prompt: str | Observation, action: str) -> tuple[np.ndarray, np.ndarray]:
        """Token ids (prompt_ids, action_ids) of a prompt and an action chosen elsewhere, for a warm start.

        The action ends with the token that ends a turn under the chat template; without one with the eos token.
        """
        observation = Observation(prompt) if isinstance(prompt, str) else prompt
        return self.prompt_ids([observation])[0], self._action_ids(action)

    def _action_ids(self, action: str) -> np.ndarray:
        ids = self.tokenizer(action, add_special_tokens=False)["input_ids"]
        return np.array([*ids, self._end], np.int32)

    def _texts(self, answers: Sequence[np.ndarray]) -> list[str]:
        """Decoded answers without special tokens, stripped."""
        distinct = {answer.tobytes(): answer.tolist() for answer in answers}
        texts = self.tokenizer.batch_decode(list(distinct.values()), skip_special_tokens=True)
        said = {key: text[: self._ending(text)].strip() for key, text in zip(distinct, texts, strict=True)}
        return [said[answer.tobytes()] for answer in answers]

    # Learning

    def score(self, rows: pl.DataFrame) -> Scored:
        """Log-probabilities of stored `action_ids` after their `prompt_ids`, with gradient unless it is switched off.

        `logits` are log-probabilities of the whole vocabulary under the sampling distribution; where they would be
        large they are made only if a term asks, and everything else chunk by chunk (`backends/head.py`).
        `context_ids` of a row stand between its actions, where `context_places` says (`learning.conversations`).
        Raises InputError if a row lacks its tokens.
        """
        return evaluate_rows(self.forward, rows, temperature=self.temperature, top_p=self.top_p)

    def prefix_trees(self, rows: pl.DataFrame, limit: int) -> list[Tree] | None:
        """Rows that begin with the same tokens, in trees of at most `limit` tokens; None where that does not pay."""
        return trees_of(self.forward, rows, limit)

    def choice_probabilities(self, observations: Sequence[Observation]) -> tuple[np.ndarray, np.ndarray]:
        """Exact probabilities of legal choices, float64[n, choices], and the illegal mass, [n].

        A choice is said by its usual tokens and the end token. Other spellings that an env would accept ("BET",
        "b"+"et") count as illegal mass. Of a policy with top-p it is the play without. Raises InputError without
        choices, or if one is longer than `max_new_tokens`.
        """
        prompts, actions, cells = [], [], []
        for i, (observation, prompt) in enumerate(zip(observations, self.prompt_ids(observations), strict=True)):
            if observation.choices is None:
                raise InputError(f"choice_probabilities: observation {i} has no choices (its action is free text)")
            for choice in observation.legal:
                prompts.append(prompt)
                actions.append(self._said(choice))
                cells.append((i, observation.choices.index(choice)))
        at = np.array(cells)
        width = max(len(observation.choices or ()) for observation in observations)
        logp = np.full((len(observations), width), -np.inf)
        with torch.inference_mode():
            for chunk in chunks(prompts, self.batch_size):
                scored = evaluate(
                    self.forward,
                    [prompts[i] for i in chunk],
                    [actions[i] for i in chunk],
                    temperature=self.temperature,
                )
                logp[tuple(at[chunk].T)] = scored.logprobs.double().sum(1).cpu().numpy()
        mass = np.logaddexp.reduce(logp, axis=1)
        return np.exp(logp - mass[:, None]), np.clip(1 - np.exp(mass), 0, 1)

    def _said(self, choice: str) -> np.ndarray:
        ids = self._action_ids(choice)
        if len(ids) - 1 > self.max_new_tokens:
            raise InputError(
                f"choice_probabilities: choice {choice!r} takes {len(ids) - 1} tokens,"
                f" but {self.name!r} has max_new_tokens={self.max_new_tokens}: raise it"
            )
        return ids[: self.max_new_tokens]

    def parameters(self) -> list[torch.nn.Parameter]:
        """Trainable parameters: all, or the adapters only."""
        return [p for p in self.model.parameters() if p.requires_grad]

    def check_memory(self, *, reference: bool) -> None:
        """Raise InputError if an optimiser's state beside the weights, and a reference, do not fit."""
        learn = sum(parameter.numel() for parameter in self.parameters())
        loading.check_room(self.name, learn, self.forward.device, reference=reference)

    def state_dict(self) -> dict[str, Any]:
        """Trainable parameters by name (tied ones once). These are the live tensors, as in torch."""
        own = dict(self.model.named_parameters())
        return {name: own[name].detach() for name in self._learns}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Copy `state` into the parameters. Raises InputError if names or shapes do not fit."""
        own = self.state_dict()
        wrong = sorted(own.keys() ^ state.keys()) or sorted(n for n in own if own[n].shape != state[n].shape)
        if wrong:
            raise InputError(f"LMPolicy {self.name!r}: state does not fit the model, {len(wrong)} times: {wrong[0]!r}")
        for name, tensor in state.items():
            own[name].copy_(tensor)

    def frozen_copy(self) -> LMPolicy:
        """A copy that is not trained; weights that never change (below LoRA) are shared, not copied."""
        shared = {id(p): p for p in self.model.parameters() if not p.requires_grad}
        model = copy.deepcopy(self.model, shared).requires_grad_(False)
        settings = {key: getattr(self, key) for key in SETTINGS}
        frozen = LMPolicy(model, self.tokenizer, compute=getattr(self.forward, "compute", None), **settings)
        frozen._learns, frozen.pretrained = self._learns, self.pretrained
        return frozen

    def twin(self) -> LMPolicy:
        """A copy that can be trained like the original; see `Team.twin`."""
        copied = self.frozen_copy()
        for name, parameter in copied.model.named_parameters():
            parameter.requires_grad_(name in self._learns)
        return copied


def _check(
    max_new_tokens: Any = 1,
    temperature: Any = 1.0,
    batch_size: Any = 1,
    prompt_template: Any = "{text}",
    name: Any = "lm",
    history: Any = "append",
    gradient_checkpointing: Any = False,
    positions: int | None = None,
    compute: Any = None,
    system_prompt: Any = None,
    chat_template_kwargs: Any = None,
    top_p: Any = 1.0,
    stop: Any = (),
) -> None:
    """Raises InputError for settings that cannot work, with a model of so many positions."""
    loading.compute_of(compute)
    if not isinstance(gradient_checkpointing, bool):
        raise InputError(f"LMPolicy: gradient_checkpointing is {gradient_checkpointing!r}, expected true or false")
    for field, value in (("max_new_tokens", max_new_tokens), ("batch_size", batch_size)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"LMPolicy: {field} is {value!r}, must be a whole number of at least 1")
    if isinstance(temperature, bool) or not isinstance(temperature, int | float) or not 0 < temperature < float("inf"):
        raise InputError(f"LMPolicy: temperature is {temperature!r}, must be > 0: there is no greedy distribution")
    if isinstance(top_p, bool) or not isinstance(top_p, int | float) or not 0 < top_p <= 1:
        raise InputError(f"LMPolicy: top_p is {top_p!r}, must be above 0 and at most 1")
    texts = [stop] if isinstance(stop, str) else stop
    if not isinstance(texts, list | tuple) or not all(isinstance(each, str) and each for each in texts):
        raise InputError(f"LMPolicy: stop is {stop!r}, expected a text that is not empty, or a list of them")
    if not isinstance(prompt_template, str) or "{text}" not in prompt_template:
        raise InputError(f"LMPolicy: prompt_template {prompt_template!r} lacks '{{text}}'")
    if system_prompt is not None and not isinstance(system_prompt, str):
        raise InputError(f"LMPolicy: system_prompt is {system_prompt!r}, expected a text")
    if not isinstance(chat_template_kwargs, Mapping | None):
        raise InputError(
            f"LMPolicy: chat_template_kwargs is {chat_template_kwargs!r}, expected names with values, such as"
            " {'enable_thinking': False}"
        )
    if not isinstance(name, str):
        raise InputError(f"LMPolicy: name is {name!r}, expected a text")
    if history not in conversation.HISTORIES:
        raise InputError(f"LMPolicy: history is {history!r}{nearest(str(history), conversation.HISTORIES)}")
    if positions is not None and max_new_tokens >= positions:
        raise InputError(
            f"LMPolicy: max_new_tokens is {max_new_tokens}, but the model has {positions} positions in all"
        )


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the progress bars that transformers draws even for a hundred kilobytes."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
