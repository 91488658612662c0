"""The policy protocol: one method, batched over all episodes that wait for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from palaestra.envs.protocol import Action, Observation

if TYPE_CHECKING:
    import polars as pl
    import torch


@dataclass(frozen=True, slots=True)
class PreviousTurn:
    """Data of an agent's latest turn in this episode: observation, prompt's and answer's token ids."""

    observation: Observation
    prompt_ids: np.ndarray
    action_ids: np.ndarray


class Request:
    """Data of a request for the next action of one agent of one episode: observation, agent, rng, past turn.

    rng is the episode's own stream: whatever is random in the answer is drawn from it, so that the answer does not
    depend on who else is in the batch. It may be given as what makes it for this agent, for many policies never draw.
    past: what came before, if this observation has messages and there are tokens.
    """

    __slots__ = ("_rng", "agent", "observation", "past")

    def __init__(
        self,
        observation: Observation,
        agent: str,
        rng: np.random.Generator | Callable[[str], np.random.Generator],
        past: PreviousTurn | None = None,
    ) -> None:
        self.observation, self.agent, self._rng, self.past = observation, agent, rng, past

    @property
    def rng(self) -> np.random.Generator:
        """The episode's random generator, from which a policy's random choices are drawn."""
        if callable(self._rng):
            self._rng = self._rng(self.agent)
        return self._rng


@dataclass(slots=True)
class Decision:
    """Data of a policy's answer to a `Request`: action, token ids and log-probabilities sampled, or an error.

    prompt_ids, action_ids: int32[P], int32[A]. logprobs (under the sampling distribution), entropies (nats):
    float32[A]. token_versions: int32[A], updates that the learner had made when each token was sampled, if they differ.
    messages: what a chat model was shown, where the env left it to the policy to have that written.
    prefix: how `prompt_ids` continue the agent's earlier turns, one of `palaestra.agents.conversation.PREFIXES`.
    finish: why the generation ended (stop, length, tool …), see `palaestra.agents.backends.endpoint.finish_reason`.
    error: the policy failed on this request; the episode ends as a row with this error.
    known: the answer was read from a file of earlier calls, with what it took then; nobody was asked now.
    """

    action: Action
    prompt_ids: np.ndarray | None = None
    action_ids: np.ndarray | None = None
    logprobs: np.ndarray | None = None
    entropies: np.ndarray | None = None
    token_versions: np.ndarray | None = None
    messages: Sequence[Mapping[str, Any]] | None = None
    prefix: str | None = None
    finish: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost: float | None = None
    duration: float | None = None
    error: str | None = None
    known: bool = False


@runtime_checkable
class Policy(Protocol):
    """Protocol of a policy: `act(requests)` returns a list of `Decision`s; `name` fills the `policy` column."""

    name: str

    def act(self, requests: Sequence[Request]) -> list[Decision]:
        """Decisions for the requests, one each, in order."""


def error_text(error: BaseException) -> str:
    """Text `Type: message` of an exception, also of one whose message cannot be read.

    >>> error_text(ValueError("no"))
    'ValueError: no'
    """
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # its own fault
        return f"{type(error).__name__}: (its text cannot be read)"


@dataclass(frozen=True)
class Distribution:
    """Lazy log-probabilities over a whole vocabulary, computed in slices of tokens to save memory.

    make: from a slice or the numbers of the real tokens, row after row, to [tokens, vocabulary], with gradient. tokens:
    how many there are. step: how many to make at once.
    """

    make: Callable[[slice | torch.Tensor], torch.Tensor]
    tokens: int
    step: int


@dataclass
class Scored:
    """Data of stored actions' differentiable log-probabilities and entropies, [rows, longest action], with mask.

    logprobs, entropies: float; mask: bool, True on real tokens.
    distribution: of the whole vocabulary, for terms that ask: [rows, tokens, vocabulary], or how to make it in parts.
    With a nucleus (`top_p`) it is that before it.
    units: what the last layer read, [rows, tokens, width], where that is known.
    read: number of tokens that were read for it where rows were read as prefix trees, else None.
    """

    logprobs: torch.Tensor
    entropies: torch.Tensor
    mask: torch.Tensor
    distribution: torch.Tensor | Distribution
    units: torch.Tensor | None = None
    read: int | None = None

    @property
    def logits(self) -> torch.Tensor:
        """Log-probabilities of the whole vocabulary, [rows, tokens, vocabulary], however large; 0 on padding."""
        if not isinstance(self.distribution, Distribution):
            return self.distribution
        real = self.distribution.make(slice(None))
        blank = real.new_zeros(*self.mask.shape, real.shape[-1])
        return blank.masked_scatter(self.mask[..., None], real)


@runtime_checkable
class Learnable(Policy, Protocol):
    """Protocol of a trainable policy: `score(rows)` -> `Scored` with gradient, parameters, state, frozen copy.

    Non-LM policies are sequences of one token (the action id).

    One whose `score` reads `context_ids` and `context_places` between the actions of a row, which is what learning from
    whole conversations gives it, says so by an attribute `reads_context = True`.
    """

    def score(self, rows: pl.DataFrame) -> Scored:
        """Log-probabilities of the rows' `action_ids` given their `prompt_ids`, with gradient."""

    def parameters(self) -> list[torch.nn.Parameter]:
        """Trainable parameters."""

    def state_dict(self) -> dict[str, Any]:
        """All of its state, as tensors and plain values."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""

    def frozen_copy(self) -> Learnable:
        """A copy that never changes: reference of a KL term, opponent of self-play, the team before training."""
