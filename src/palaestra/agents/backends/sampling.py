"""Drawing answers from a `Forward`, and evaluating given ones: the two loops of everything about language models.

Tokens are drawn by inverse CDF from uniforms that the caller provides, so a row's answer does not depend on the batch.
Prompts that are equal are read once. Rows go in order of prompt length, which keeps padding small.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from palaestra.agents.backends.forward import Forward, State, precision
from palaestra.agents.backends.nucleus import nucleus
from palaestra.agents.backends.prefix_trees import Forest, cost, plant, sharing
from palaestra.agents.policy import Distribution, Scored

EVERY = 8
"""Tokens between two looks at whether an answer is over."""


def sample(
    forward: Forward,
    prompts: Sequence[np.ndarray],
    uniforms: np.ndarray,
    *,
    ends: np.ndarray,
    temperature: float,
    batch_size: int,
    top_p: float = 1.0,
    over: Callable[[np.ndarray], np.ndarray] | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Samples by a `Forward` up to T ids after each id array with `uniforms` [rows, T]: (ids, logprobs, entropies).

    By inverse CDF, `uniforms` being float64[rows, T] in [0, 1).

    ends: ids that end an answer. over: says of answers so far, ids[rows, tokens], which of them have ended by another
    rule; it is asked every `EVERY` tokens, so an answer may go on beyond that. Returns ids (int32), log-probabilities
    and entropies (float32), all [rows, T]; what follows a row's first end is junk. At most `batch_size` rows go on at
    once; others take the places of those that have ended.
    """
    ids = torch.zeros(uniforms.shape, dtype=torch.long, device=forward.device)
    logprobs, entropies = (torch.zeros(uniforms.shape, device=forward.device) for _ in range(2))
    order, most = in_order(prompts), uniforms.shape[1]
    with torch.inference_mode(), precision(forward):
        thresholds, stops = torch.from_numpy(uniforms).to(forward.device), torch.from_numpy(ends).to(forward.device)

        def begin(rows: np.ndarray) -> tuple[torch.Tensor, State, torch.Tensor]:
            unique, places = distinct([prompts[i] for i in rows])
            return *forward.read(unique, places.to(forward.device), most), torch.from_numpy(rows).to(forward.device)

        while len(order):
            waiting, order = order[batch_size:], order[:batch_size]
            hidden, state, at = begin(order)
            said, longest = torch.zeros_like(at), 0  # tokens of each row so far, and the most of one
            done = torch.zeros_like(at, dtype=torch.bool)
            while True:
                token, *told = _draw(forward, hidden, thresholds[at, said, None], temperature, top_p)
                ids[at, said] = token
                logprobs[at, said], entropies[at, said] = told
                said, longest = said + 1, longest + 1
                done |= torch.isin(token, stops) | (said == most)
                if over is not None and longest % EVERY == 0:
                    ended = [over(ids[row, :n][None].cpu().numpy())[0] for row, n in zip(at.tolist(), said.tolist())]
                    done |= torch.tensor(ended, device=done.device)
                finished = int(done.sum())
                if finished == len(done):
                    break
                if finished >= len(done) / 4 or longest == most:  # then dropping them pays for copying the others' past
                    left = (~done).nonzero()[:, 0]
                    state.keep(left)
                    at, said, token, done = at[left], said[left], token[left], done[left]
                    longest = int(said.max())
                hidden = forward.extend(state, token[:, None])
                if (free := batch_size - len(at)) and len(waiting) and state.joins:
                    fresh, others, new = begin(waiting[:free])
                    waiting = waiting[free:]
                    state.join(others)
                    hidden, at = torch.cat([hidden, fresh]), torch.cat([at, new])
                    said, done = (torch.cat([old, torch.zeros_like(new, dtype=old.dtype)]) for old in (said, done))
            order = waiting
    return ids.cpu().numpy().astype(np.int32), logprobs.cpu().numpy(), entropies.cpu().numpy()


def _draw(
    forward: Forward, hidden: torch.Tensor, thresholds: torch.Tensor, temperature: float, top_p: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(token, log-probability, entropy) of each row."""
    logp = torch.log_softmax(nucleus(forward.head.logits(hidden[:, -1]) / temperature, top_p), -1)
    p = logp.exp()
    cdf = p.cumsum(-1, dtype=torch.float64)
    token = torch.searchsorted(cdf, thresholds * cdf[:, -1:], right=True).clamp_(max=cdf.shape[1] - 1)
    return token[:, 0], logp.gather(1, token)[:, 0], -(p * logp).sum(-1)


def evaluate(
    forward: Forward,
    prompts: Sequence[np.ndarray],
    actions: Sequence[np.ndarray],
    *,
    temperature: float,
    top_p: float = 1.0,
) -> Scored:
    """`Scored` (log-probabilities and entropies, with gradient) by a `Forward` of id arrays `actions` after `prompts`.

    Only positions of the actions go through the vocabulary layer.
    """
    lengths = np.array([len(action) for action in actions])
    real = np.arange(lengths.max()) < lengths[:, None]
    padded = np.zeros(real.shape, np.int64)
    padded[real] = np.concatenate(actions)
    return evaluate_at(forward, prompts, padded, real, None, temperature, top_p)


def evaluate_at(
    forward: Forward,
    prompts: Sequence[np.ndarray],
    after: np.ndarray,
    real: np.ndarray,
    at: np.ndarray | None,
    temperature: float,
    top_p: float,
) -> Scored:
    """`Scored` by a `Forward` of tokens at places `at` (None: in order) of id array `after` [rows, T] behind prompts.

    Args:
        forward: A model.
        prompts: Token ids of each row.
        after: Token ids behind the prompts, padded on the right, int64[rows, longest].
        real: Which columns of the result are tokens, bool[rows, tokens].
        at: Where in `after` each token of the result is, int64[rows, tokens]; None: in order from the first on.
        temperature: Of the distribution that is sampled from.
        top_p: Likewise.
    """
    device = forward.device
    unique, rows = distinct(prompts)
    count = real.sum(1)
    read = (count if at is None else np.take_along_axis(at, count[:, None] - 1, 1)[:, 0] + 1) - 1
    read = np.maximum(read, 0)
    ids = after if at is None else np.take_along_axis(after, at, 1)
    said, mask = torch.from_numpy(np.where(real, ids, 0)).to(device), torch.from_numpy(real).to(device)
    with precision(forward):
        forest = _forest(forward, prompts, unique, after, read)
        if forest is not None:
            places = np.arange(real.shape[1]) if at is None else at
            before = np.array([len(prompt) for prompt in prompts])[:, None] - 1 + places
            scored = _score_trees(forward, forest, np.where(real, before, 0), said, mask, temperature, top_p)
            scored.read = forest.tokens
            return scored
        hidden = forward.whole(unique, rows.to(device), torch.from_numpy(after).to(device))
        if at is not None:
            index = torch.from_numpy(at).to(device)[..., None]
            hidden = hidden.gather(1, index.expand(-1, -1, hidden.shape[-1]))
        return forward.head.score(hidden, said, mask, temperature, top_p)


def _forest(
    forward: Forward, prompts: Sequence[np.ndarray], unique: Sequence[np.ndarray], after: np.ndarray, read: np.ndarray
) -> Forest | None:
    """Forest of all rows; None if the model does not share, or distinct prompts and then every row cost less."""
    if not sharing() or len(prompts) < 2 or not getattr(forward, "shares", False):
        return None
    width, longest = forward.width, max(map(len, unique))
    apart = cost(len(unique), longest, longest, width)
    apart += cost(len(prompts), int(read.max()), longest + int(read.max()), width)
    sequences = [np.concatenate([prompt, row[:n]]) for prompt, row, n in zip(prompts, after, read, strict=True)]
    return plant(sequences, width, apart)


def _score_trees(
    forward: Forward,
    forest: Forest,
    before: np.ndarray,
    said: torch.Tensor,
    mask: torch.Tensor,
    temperature: float,
    top_p: float,
) -> Scored:
    """Scores of each row's tokens from packed trees: what several rows say after the same tokens is scored once.

    before: position in its row of the token before each token of the result, int64[rows, tokens]. said, mask: tokens of
    the result and which of them are real, of that shape.
    """
    device = said.device
    places = torch.from_numpy(np.take_along_axis(forest.places, before, 1)).to(device)
    largest = int(said.max()) + 1
    pairs, index = torch.unique((places * largest + said)[mask], return_inverse=True)
    hidden = forward.trees(forest).flatten(0, 1).index_select(0, pairs // largest)
    scored = forward.head.score(
        hidden[None], (pairs % largest)[None], torch.ones_like(pairs, dtype=torch.bool)[None], temperature, top_p
    )
    of = torch.zeros_like(said).masked_scatter(mask, index)
    whole, step = scored.distribution, forward.head.step
    if isinstance(whole, torch.Tensor):
        nodes = whole[0]
        small = forward.head.small(mask.numel())
        spread = nodes[of] if small else Distribution(lambda at: nodes[index[at]], len(index), step)
    else:
        make = whole.make
        spread = Distribution(lambda at: make(index[at]), len(index), step)
    return Scored(scored.logprobs[0][of] * mask, scored.entropies[0][of] * mask, mask, spread, hidden[of])


def chunks(prompts: Sequence[np.ndarray], size: int) -> list[np.ndarray]:
    """List of int arrays of at most `size` row indices, which together hold all rows of id arrays, sorted by length."""
    order = in_order(prompts)
    return np.array_split(order, range(size, len(order), size))


def in_order(prompts: Sequence[np.ndarray]) -> np.ndarray:
    """Row indices sorted by prompt length, equal prompts adjacent; an int array."""
    first: dict[bytes, int] = {}
    group = [first.setdefault(prompt.tobytes(), i) for i, prompt in enumerate(prompts)]
    return np.lexsort([group, [len(prompt) for prompt in prompts]])


def distinct(prompts: Sequence[np.ndarray]) -> tuple[list[np.ndarray], torch.Tensor]:
    """Distinct prompts, ascending in length, and each row's index among them: (list, int64 tensor)."""
    by_bytes = {prompt.tobytes(): prompt for prompt in prompts}
    place = {key: i for i, key in enumerate(sorted(by_bytes, key=len))}
    return [by_bytes[key] for key in place], torch.tensor([place[prompt.tobytes()] for prompt in prompts])
