"""Supervised warm start: cross-entropy on scripted play, so that learning from rewards begins with legal, varied moves.

Scripted play is a table of turns made by a rollout of scripted policies in the same env. Left out: training on text
that no env saw, and fine-tuning at scale (TRL and its relatives do that).
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import polars as pl
import torch

from palaestra.agents.conversation import read
from palaestra.agents.policy import Learnable
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError, LearnerError, nearest
from palaestra.foundation.progress import Report, reporting
from palaestra.learning.learning_rates import Schedule, decay, default_rate, warn_of
from palaestra.learning.losses import aggregate

if TYPE_CHECKING:
    from palaestra.agents import Team
    from palaestra.algebra.turns import Turns

Metrics = dict[str, float | int]
FRESH = 3e-3
"""Learning rate of policies whose parameters were drawn at random."""


@runtime_checkable
class TextPolicy(Protocol):
    """Protocol of a policy with a tokenizer: `prompt_ids(observations)`, `encode(prompt, action)` -> token ids.

    `LMPolicy` is one.
    """

    def prompt_ids(self, observations: Sequence[Observation]) -> list[np.ndarray]:
        """Token ids of the prompts."""

    def encode(self, prompt: str, action: str) -> tuple[np.ndarray, np.ndarray]:
        """Token ids (prompt_ids, action_ids) of a prompt and an action chosen elsewhere."""


def demonstrations(turns: Turns, team: Team, *, choices: Sequence[str] | None = None) -> dict[str, pl.DataFrame]:
    """Dict {trainable policy of a team: its rows of scripted `Turns`, as it scores them}; failed, invalid rows omitted.

    Whoever sits in an agent's seat learns what was played there. Rows of failed episodes and of invalid actions are
    left out. A language model learns the action's text and an end token after the observation's text; other policies
    learn its id: its place among `choices` (the env's `Observation.choices`) if the table has no `action_ids`.

    Raises:
        InputError: an action is not among `choices`, or they are needed and not given.
    """
    usable = turns.frame.filter(
        pl.col("error").is_null(), pl.col("action").is_not_null(), pl.col("valid").fill_null(True)
    )
    found = {}
    for policy in team.trainable:
        seats = [agent for agent, fills in team.items() if fills is policy]
        rows = usable.filter(pl.col("agent").cast(pl.String).is_in(seats))
        if rows.height:
            found[policy.name] = (
                _tokenised(rows, policy) if isinstance(policy, TextPolicy) else _numbered(rows, choices)
            )
    return found


def supervised_warm_start(
    team: Team,
    examples: Mapping[str, pl.DataFrame],
    *,
    steps: int,
    batch: int = 64,
    lr: float | None = None,
    schedule: Schedule = "cosine",
    max_grad_norm: float = 1.0,
    seed: int = 0,
    progress: bool | Report = False,
) -> dict[str, Metrics]:
    """Supervised fine-tuning of a team in place on {policy: rows}: `steps` of AdamW on mean -log π; metrics by policy.

    Returns metrics by policy.
    Each policy of `examples` learns from `steps` batches.

    Args:
        team: Its trainable policies learn.
        examples: What `demonstrations` returns.
        steps: Number of batches per policy.
        batch: Rows of a batch.
        lr: Learning rate, which decays to 0 over the steps by `schedule`. None: 1e-5 for pretrained language models,
            3e-3 for other policies.
        schedule: How the learning rate decays.
        max_grad_norm: Longer gradients are shortened to this.
        seed: Of the order of rows.
        progress: Whether to say how far it is, or to whom.

    Returns:
        per policy: loss_before, loss_after (mean of the first and the last tenth of the steps), rows, tokens, seconds.

    Raises:
        InputError: examples for a policy that the team does not train, or none at all.
        LearnerError: a loss or gradient is not finite.
    """
    policies = {policy.name: policy for policy in team.trainable}
    for name, rows in examples.items():
        if name not in policies:
            raise InputError(f"warm start: {name!r} is no trainable policy of the team{nearest(name, policies)}")
        if not rows.height:
            raise InputError(f"warm start: no examples for policy {name!r}")
    if not examples:
        raise InputError(
            "warm start: no examples: every scripted episode failed or every action was invalid, "
            "or no agent that played has a trainable policy in the team"
        )
    metrics = {}
    for stream, (name, rows) in enumerate(examples.items()):
        chosen = _batches(rows, batch, np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(stream,))))
        with reporting(progress, f"warm start of {name}") as report:
            policy = policies[name]
            rate = default_rate(policy, FRESH) if lr is None else lr
            warn_of(rate, name, policy)
            falling = [rate * decay(schedule, step, steps) for step in range(steps)]
            metrics[name] = _imitate(policy, rows, itertools.islice(chosen, steps), falling, max_grad_norm, report)
    return metrics


def _imitate(
    policy: Learnable,
    rows: pl.DataFrame,
    batches: Iterator[np.ndarray],
    rates: Sequence[float],
    max_grad_norm: float,
    report: Report,
) -> Metrics:
    started = time.perf_counter()
    if meet := getattr(policy, "meet", None):  # a table grows before its optimiser is made
        meet(rows)
    parameters = policy.parameters()
    optimiser = torch.optim.AdamW(parameters, weight_decay=0.0, fused=True)
    losses, tokens = [], 0
    for step, (chosen, rate) in enumerate(zip(batches, rates, strict=True)):
        optimiser.param_groups[0]["lr"] = rate
        scored = policy.score(rows[chosen])
        loss = aggregate(-scored.logprobs, scored.mask)
        optimiser.zero_grad()
        loss.backward()
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, max_grad_norm))
        losses.append(float(loss.detach()))
        if not (math.isfinite(losses[-1]) and math.isfinite(norm)):
            raise LearnerError(
                f"warm start of {policy.name!r}, step {step}: the loss is {losses[-1]}, its gradient {norm}; lower lr"
            )
        optimiser.step()
        tokens += int(scored.mask.sum())
        report(f"warming up {policy.name}", step + 1, len(rates), f"loss {losses[-1]:.2f}")
    tenth = max(len(losses) // 10, 1)
    return {
        "loss_before": float(np.mean(losses[:tenth])) if losses else math.nan,
        "loss_after": float(np.mean(losses[-tenth:])) if losses else math.nan,
        "rows": rows.height,
        "tokens": tokens,
        "seconds": time.perf_counter() - started,
    }


def _batches(rows: pl.DataFrame, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Row numbers of batches, endlessly, every row once per pass.

    Not sorted by length: rows of equal length tend to be of one kind of task, and batches of one kind learn worse.
    """
    while True:
        order = rng.permutation(rows.height)
        yield from (order[at : at + size] for at in range(0, len(order), size))


def _tokenised(rows: pl.DataFrame, policy: TextPolicy) -> pl.DataFrame:
    """With `prompt_ids` and `action_ids` of the policy's own tokenizer; what is distinct is encoded once.

    Of conversations the prompt is what the chat template makes of the messages and tools.
    """
    seen = [name for name in ("observation", "messages", "tools") if name in rows.columns]
    shown = rows.select(seen).unique(maintain_order=True)
    actions = rows["action"].unique(maintain_order=True)
    prompts = policy.prompt_ids(
        [read(row.get("messages"), row.get("tools"), text=row["observation"] or "") for row in shown.to_dicts()]
    )
    said = [policy.encode("", text)[1] for text in actions]
    rows = rows.drop("prompt_ids", "action_ids", strict=False)
    rows = rows.join(shown.with_columns(prompt_ids=_lists(prompts)), on=seen, maintain_order="left", nulls_equal=True)
    return rows.join(pl.DataFrame({"action": actions, "action_ids": _lists(said)}), on="action", maintain_order="left")


def _lists(ids: Sequence[np.ndarray]) -> pl.Series:
    return pl.Series([each.tolist() for each in ids], dtype=pl.List(pl.Int32))


def _numbered(rows: pl.DataFrame, choices: Sequence[str] | None) -> pl.DataFrame:
    """With `action_ids` of one id, the action's place among `choices`."""
    if "action_ids" in rows.columns and not rows["action_ids"].null_count():
        return rows
    if choices is None:
        raise InputError(
            "demonstrations: give choices=, the names of the env's actions by id; the table of scripted play has their "
            "names only"
        )
    place = {name: number for number, name in enumerate(choices)}
    unknown = [name for name in rows["action"].unique() if name not in place]
    if unknown:
        raise InputError(f"demonstrations: action {unknown[0]!r} is not among choices{nearest(unknown[0], choices)}")
    ids = rows["action"].replace_strict(place, return_dtype=pl.Int32)
    return rows.with_columns(action_ids=ids.reshape((-1, 1)).cast(pl.List(pl.Int32)))
