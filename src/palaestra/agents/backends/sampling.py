"""Drawing answers from a `Forward`, and evaluating given ones: the two loops of everything about language models.

Tokens are drawn by inverse CDF from uniforms that the caller provides, so a row's answer does not depend on the batch.
Prompts that are equal are read once. Rows go in order of prompt length, which keeps padding small.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from palaestra.agents.backends.forward import Forward, precision


def sample(
    forward: Forward,
    prompts: Sequence[np.ndarray],
    uniforms: np.ndarray,
    *,
    ends: np.ndarray,
    temperature: float,
    batch_size: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw an answer of at most T tokens per prompt, `uniforms` being float64[rows, T] in [0, 1).

    ends: ids that end an answer. Returns ids (int32), log-probabilities and entropies (float32), all [rows, T]; what
    follows a row's first end is junk.
    """
    ids = torch.zeros(uniforms.shape, dtype=torch.long, device=forward.device)
    logprobs, entropies = (torch.zeros(uniforms.shape, device=forward.device) for _ in range(2))
    with torch.inference_mode(), precision(forward):
        thresholds, stops = torch.from_numpy(uniforms).to(forward.device), torch.from_numpy(ends).to(forward.device)
        for chunk in chunks(prompts, batch_size):
            unique, rows = distinct([prompts[i] for i in chunk])
            logits, state = forward.read(unique, rows.to(forward.device), uniforms.shape[1])
            at = torch.from_numpy(chunk).to(forward.device)
            done = torch.zeros(len(chunk), dtype=torch.bool, device=forward.device)
            for t in range(uniforms.shape[1]):
                logp = torch.log_softmax(logits[:, 0] / temperature, -1)
                p = logp.exp()
                cdf = p.cumsum(-1, dtype=torch.float64)
                token = torch.searchsorted(cdf, thresholds[at, t, None] * cdf[:, -1:], right=True)
                token.clamp_(max=cdf.shape[1] - 1)
                ids[at, t] = token[:, 0]
                logprobs[at, t] = logp.gather(1, token)[:, 0]
                entropies[at, t] = -(p * logp).sum(-1)
                done |= torch.isin(token[:, 0], stops)
                finished = int(done.sum())
                if finished == len(done) or t == uniforms.shape[1] - 1:
                    break
                if finished >= len(done) / 4:  # then dropping them pays for copying the others' past
                    left = (~done).nonzero()[:, 0]
                    state.keep(left)
                    at, token, done = at[left], token[left], done[left]
                logits = forward.extend(state, token)
    return ids.cpu().numpy().astype(np.int32), logprobs.cpu().numpy(), entropies.cpu().numpy()


def evaluate(
    forward: Forward, prompts: Sequence[np.ndarray], actions: Sequence[np.ndarray], *, temperature: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Log-probabilities [rows, tokens, vocabulary], the actions' ids and their mask [rows, tokens], right-padded.

    With gradient, unless it is switched off. Only positions of the actions go through the vocabulary layer.
    """
    lengths = np.array([len(action) for action in actions])
    mask = np.arange(lengths.max()) < lengths[:, None]
    padded = np.zeros(mask.shape, np.int64)
    padded[mask] = np.concatenate(actions)
    ids = torch.from_numpy(padded).to(forward.device)
    unique, rows = distinct(prompts)
    with precision(forward):
        logits, state = forward.read(unique, rows.to(forward.device), ids.shape[1] - 1)
        if ids.shape[1] > 1:
            logits = torch.cat([logits, forward.extend(state, ids[:, :-1])], 1)
    return torch.log_softmax(logits / temperature, -1), ids, torch.from_numpy(mask).to(forward.device)


def chunks(prompts: Sequence[np.ndarray], size: int) -> list[np.ndarray]:
    """Row numbers in order of prompt length, at most `size` at a time."""
    order = np.argsort([len(prompt) for prompt in prompts], kind="stable")
    return np.array_split(order, range(size, len(order), size))


def distinct(prompts: Sequence[np.ndarray]) -> tuple[list[np.ndarray], torch.Tensor]:
    """Distinct prompts, ascending in length, and each row's place among them."""
    by_bytes = {prompt.tobytes(): prompt for prompt in prompts}
    place = {key: i for i, key in enumerate(sorted(by_bytes, key=len))}
    return [by_bytes[key] for key in place], torch.tensor([place[prompt.tobytes()] for prompt in prompts])
