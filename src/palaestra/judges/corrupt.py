"""Corruption: copies of good episodes that are wrong in a known way, and are known to be wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
import polars as pl

from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import EnvFactory
from palaestra.errors import InputError, nearest

Kind = Literal["truncate", "splice", "extend", "mutate"]
KINDS: tuple[Kind, ...] = get_args(Kind)

Fails = Callable[[Mapping[str, Any], Sequence[str]], bool]
"""The first row of an episode and other actions for it: whether they fail."""

_UNKNOWN = (
    "prompt_ids",
    "action_ids",
    "logprobs",
    "token_versions",
    "entropies",
    "reward",
    "advantage",
    "valid",
    "metadata",
)


def corrupt(
    turns: Turns,
    kinds: Sequence[Kind] = KINDS,
    rate: float = 1.0,
    seed: int | np.random.Generator = 0,
    *,
    fails: Fails | None = None,
    attempts: int = 3,
) -> Turns:
    """`Turns`: corrupted copies of a share `rate` of episodes, with `corrupted` (kind) and `origin` (source row).

    UI-Genie's kinds [43] (arXiv 2505.21496), turn by turn, or word by word if an episode is one turn: truncate (cut off
    early), splice (a piece of another episode, of another task where there is one), extend (steps after the end, from
    others), mutate (one step is another). A copy is taken only if it differs and `fails` says that it fails; after
    `attempts` refusals the episode has none. What the copy would have earned, its tokens and verdicts are null.

    Args:
        turns: the episodes, each of one agent.
        kinds: what may be done to an episode: truncate, splice, extend, mutate.
        rate: share of the episodes that get a copy.
        seed: of the draws.
        fails: the check, e.g. `replayed(env)`; None: whatever differs fails.
        attempts: how many copies of an episode are tried.

    Raises:
        InputError: a kind is unknown, rate is no share, attempts is below 1, or an episode has two agents.
    """
    for kind in kinds:
        if kind not in KINDS:
            raise InputError(f"corrupt: kind {kind!r} is unknown{nearest(str(kind), KINDS)}")
    if not kinds or not 0 <= rate <= 1 or attempts < 1:
        raise InputError(
            f"corrupt: kinds={tuple(kinds)} must name one, rate={rate} be in [0, 1], {attempts=} at least 1"
        )
    rng = np.random.default_rng(seed)
    frame = turns.frame.with_columns(pl.col("action").cast(pl.String).fill_null(""), _at=turns.codes("episode").ids)
    frame = frame.with_row_index("origin").sort("_at", "turn" if "turn" in frame.columns else "origin")
    if "agent" in frame.columns and frame.group_by("_at").agg(pl.col("agent").n_unique())["agent"].max() not in (
        None,
        1,
    ):
        raise InputError("corrupt: an episode has turns of several agents; filter those of one agent first")
    episodes = frame.partition_by("_at", maintain_order=True)
    said = [each["action"].to_list() for each in episodes]
    steps = [words[0].split() if len(words) == 1 else words for words in said]
    tasks = [each["task"][0] if "task" in each.columns else None for each in episodes]
    found, number = [], 1 + int(turns["episode"].to_numpy().max(initial=-1)) if "episode" in turns.columns else 0
    for own in np.flatnonzero(rng.random(len(episodes)) < rate).tolist():
        for _ in range(attempts):
            kind = kinds[int(rng.integers(len(kinds)))]
            changed = _changed(kind, steps, own, tasks, rng)
            actions = [" ".join(changed)] if len(said[own]) == 1 else changed
            if actions == said[own] or not actions:
                continue
            if fails is None or fails(episodes[own].row(0, named=True), actions):
                found.append(_copy(episodes[own], actions, kind, number))
                number += 1
                break
    empty = frame.clear().with_columns(corrupted=pl.lit(None, pl.String))
    return Turns(pl.concat([empty, *found]).drop("_at"))


def _changed(kind: Kind, steps: list[list[str]], own: int, tasks: list[Any], rng: np.random.Generator) -> list[str]:
    mine = steps[own]
    strangers = [n for n in range(len(steps)) if tasks[n] != tasks[own] and steps[n]]
    strangers = strangers or [n for n in range(len(steps)) if n != own and steps[n]]
    other = steps[strangers[int(rng.integers(len(strangers)))]] if strangers else mine
    if kind == "truncate":
        return mine[: int(rng.integers(len(mine)))] if mine else []
    if not other:
        return mine
    begin = int(rng.integers(len(other)))
    piece = other[begin : begin + int(rng.integers(1, len(other) - begin + 1))]
    if kind == "extend":
        return [*mine, *piece]
    if not mine:
        return mine
    at = int(rng.integers(len(mine)))
    if kind == "splice":
        return [*mine[:at], *piece, *mine[at + len(piece) :]]
    return [*mine[:at], other[int(rng.integers(len(other)))], *mine[at + 1 :]]


def _copy(episode: pl.DataFrame, actions: list[str], kind: str, number: int) -> pl.DataFrame:
    """So many rows of the episode, the last one again for further actions, with what is not known of them taken out."""
    rows = np.minimum(np.arange(len(actions)), episode.height - 1)
    made = episode[rows].with_columns(action=pl.Series(actions, dtype=pl.String), corrupted=pl.lit(kind, pl.String))
    made = made.with_columns(pl.lit(None, made.schema[name]).alias(name) for name in _UNKNOWN if name in made.columns)
    made = made.with_columns(origin=pl.lit(episode["origin"][0], pl.UInt32))
    if "success" in made.columns:
        made = made.with_columns(success=pl.lit(False))
    if "turn" in made.columns:
        made = made.with_columns(turn=(int(episode["turn"][0]) + np.arange(len(actions))).astype(np.int32))
    return (
        made.with_columns(pl.lit(number, made.schema["episode"]).alias("episode"))
        if "episode" in made.columns
        else made
    )


def replayed(env: EnvFactory, *, right: Sequence[str] = ("success",)) -> Fails:
    """Makes `fails(row, actions)` for `corrupt`: replays actions in an env of a factory; False only on its success.

    It fails unless the env says that one of `right` (entries of its `info`) is true. What is not over when the actions
    are fails.

    Actions after the end of an episode are not played, so that steps too many fail only where the env counts them.
    """

    def fails(row: Mapping[str, Any], actions: Sequence[str]) -> bool:
        made, agent = env(), str(row["agent"])
        seen: Any = made.reset(int(row["seed"]))
        info: Mapping[str, Any] = {}
        for action in actions:
            if agent not in seen:
                break
            result = made.step({agent: action})
            seen, info = result.observations, result.info
        if seen:
            return True
        said = [info.get(name) for name in right]
        return not any(each.get(agent) if isinstance(each, Mapping) else each for each in said)

    return fails
