"""Alternation: a reward model refitted beside the policy, which scores before credit is given; and pairs for DPO."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl

from palaestra.algebra.parse import parse
from palaestra.algebra.signals import as_signal, evaluate
from palaestra.algebra.turns import Turns
from palaestra.errors import InputError
from palaestra.foundation.registry import read_call
from palaestra.judges.corrupt import Kind, corrupt, replayed
from palaestra.judges.pairs import PAIRINGS, marked
from palaestra.judges.protocol import SCORERS
from palaestra.learning.reward_models.data import Preferences
from palaestra.learning.reward_models.reward_model import REWARD_MODELS, RewardModel
from palaestra.learning.stages.stage import Context, Stage, packed, stage, unpacked


@stage
class alternate(Stage):
    """Stage: column `model_reward`, by a reward model that is refitted on `pairs` of each iteration (Cooper [10]).

    Source: arXiv 2508.05613.

    Every `every` iterations the model's `fit` is given the pairs of the last `refresh` of them; then all turns are
    scored, so that credit rests on the model of now, and the policy's step follows. after: they are scored first, as
    Cooper does, whose model learns after the policy's step; one without weights is fitted first. every=0: a frozen
    model. Its metrics hold `model_reward` beside `truth`, means over the turns of what the model says and of the env's
    success: where they part, the model is being hacked. A page draws both.

    Args:
        pairs: text of a pairing. model: text of a kind of reward model, which is fitted anew or goes on from where it
            was (`online_linear`), or of a scorer that is one (`reward_model(path)`). Its rows are the turns with
            `prompt` and `response`, what was seen and said. margins: it is given theirs. end: an episode is what its
            last turn shows: that row stands for it in pairs and is scored, other turns get 0.
        reference: a column with the right answer, what the scorer gets as reference. condition: a column with what a
            row shall be scored by; where pairs have a criterion, that is theirs.
        corrupted: kinds of `corrupt`; the first episode of each group where `verified` holds is corrupted, one copy,
            and the copies that the env finds wrong when they are played (success, and `verified`) stand among the rows
            that are paired. None of them is trained on. squash: the reward is σ(score), else the score.

    Raises:
        InputError: a number is out of range, the model cannot be fitted, or a pairing or scorer is unknown.
    """

    adds = {"model_reward": "what the reward model says of the turn"}

    def __init__(
        self,
        pairs: str = 'verified_vs_corrupted("rule")',
        *,
        model: str = "linear()",
        reference: str | None = None,
        condition: str | None = None,
        corrupted: Sequence[Kind] = (),
        verified: str = "rule",
        every: int = 1,
        refresh: int = 1,
        squash: bool = True,
        margins: bool = False,
        end: bool = False,
        after: bool = False,
    ) -> None:
        if every < 0 or refresh < 1:
            raise InputError(f"alternate: every={every} must not be negative, refresh={refresh} at least 1")
        self.pairing = PAIRINGS.build(pairs)
        kind = read_call(model)[0]
        made = REWARD_MODELS.build(model) if kind in REWARD_MODELS else SCORERS.build(model)
        if not isinstance(made, RewardModel):
            raise InputError(f"alternate: {model} cannot be fitted; take a reward model, or annotate() to score only")
        self.model = made
        self.reference, self.condition, self.verified = reference, condition, verified
        self.corrupted, self.every, self.refresh, self.squash = tuple(corrupted), every, refresh, squash
        self.after, self.end, self.margins, self.past = after, end, margins, cast("list[pl.DataFrame]", [])
        self.fitted = getattr(made, "weights", None) is not None or kind not in REWARD_MODELS
        self.needs = {"group", "episode", "observation", "action"} | {
            name for name in (reference, condition, verified if self.corrupted else None) if name
        }
        if self.corrupted:
            corrupt(Turns({"group": [], "episode": [], "turn": [], "action": []}), self.corrupted)
            self.needs |= {"seed", "agent"}

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with `model_reward`; null where the model gives no score."""
        refit = bool(self.every) and (context.iteration - 1) % self.every == 0
        first = refit and not (self.after and self.fitted)
        if first:
            self._collect(turns, context)
            self._fit(context)
        score = self._score(turns.frame).to_numpy().astype(float)
        if refit and not first:
            self._collect(turns, context)
            self._fit(context)
        said = 1 / (1 + np.exp(-np.clip(score, -700, 700))) if self.squash else score
        scored = _last(turns) == np.arange(len(turns)) if self.end else np.ones(len(turns), bool)
        if scored.any() and not np.isnan(said[scored]).all():
            context.metrics["model_reward"] = float(np.nanmean(said[scored]))
        if "success" in turns.columns and (truth := turns["success"].cast(pl.Float64).mean()) is not None:
            context.metrics["truth"] = float(truth)  # type: ignore[arg-type]
        said = np.where(scored | np.isnan(said), said, 0.0)
        return turns.with_column(model_reward=said)

    def _collect(self, turns: Turns, context: Context) -> None:
        """The pairs of an iteration: their rows only, and the pairs numbered by them."""
        if self.corrupted:
            good = np.asarray(evaluate(turns, as_signal(self.verified))[0], float) == 1
            firsts = (
                turns.frame.filter(good).select("group", "episode").unique("group", keep="first", maintain_order=True)
            )
            copied = Turns(turns.frame.join(firsts, on=["group", "episode"], how="semi", maintain_order="left"))
            check = replayed(context.env, right=("success", self.verified))
            made = corrupt(copied, self.corrupted, seed=context.rng, fails=check)
            frame = pl.concat([turns.frame, made.frame.drop("origin")], how="diagonal_relaxed")
            turns = Turns(frame if "corrupted" in frame.columns else frame.with_columns(corrupted=None))
        found = self.pairing(turns)
        if self.end:
            last = _last(turns)
            found = found.with_columns(pl.Series(side, last[found[side].to_numpy()]) for side in ("chosen", "rejected"))
        used = np.unique(np.concatenate([found["chosen"].to_numpy(), found["rejected"].to_numpy()]))
        rows = _plain(turns.frame[used])
        at = {side: np.searchsorted(used, found[side].to_numpy()) for side in ("chosen", "rejected")}
        both = [rows[each].select(pl.all().name.prefix(f"{side}.")) for side, each in at.items()]
        self.past = [*self.past, pl.concat([found, *both], how="horizontal")][-self.refresh :]

    def _fit(self, context: Context) -> None:
        """Refit on what is kept. Rows stand once for each side of each pair."""
        kept = [each for each in self.past if each.height]
        every = pl.concat(kept, how="diagonal_relaxed").filter(~pl.col("tie")) if kept else pl.DataFrame()
        if not every.height:
            context.metrics["pairs"] = 0.0
            return
        one, other = (
            every.select(pl.col(f"^{side}\\..*$").name.map(lambda name: name.partition(".")[2]))
            for side in ("chosen", "rejected")
        )
        given: dict[str, Any] = dict(self._given(one))
        if every["criterion"].null_count() < every.height:
            given["condition"] = every.select("criterion")
        weight = every["weight"].fill_null(1.0).to_numpy()
        margin = every["margin"].fill_null(0.0).to_numpy() if self.margins else None
        told = self.model.fit(Preferences(one, other, margin, weight=weight, **given), seed=context.iteration)
        self.fitted = True
        context.metrics |= {"pairs": float(every.height)} | {f"fit_{name}": value for name, value in told.items()}

    def _score(self, frame: pl.DataFrame) -> pl.Series:
        if not self.fitted:  # nothing was verified yet, and what was made with no weights has no opinion
            return pl.Series([None] * frame.height, dtype=pl.Float64)
        rows = _asked(frame)
        return self.model.score(rows, **self._given(rows))

    def _given(self, rows: pl.DataFrame) -> dict[str, pl.DataFrame]:
        given = {}
        if self.reference is not None:
            given["reference"] = rows.select(response=pl.col(self.reference).cast(pl.String))
        if self.condition is not None:
            given["condition"] = rows.select(criterion=pl.col(self.condition).cast(pl.String))
        return given

    def state_dict(self) -> dict[str, Any]:
        """State: the model's files, and the stored pairs with their rows, as bytes."""
        files = {}
        if self.fitted:
            with tempfile.TemporaryDirectory() as folder:
                self.model.save(folder)
                found = (path for path in sorted(Path(folder).rglob("*")) if path.is_file())
                files = {path.relative_to(folder).as_posix(): _bytes(path) for path in found}
        return {"model": files, "past": [packed(each) for each in self.past]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.past = [found for each in state["past"] if (found := unpacked(each)) is not None]
        if not state["model"]:
            return
        with tempfile.TemporaryDirectory() as folder:
            for name, content in state["model"].items():
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(np.asarray(content).tobytes())
            self.model = type(self.model).load(folder, **self.model.options)
        self.fitted = True


def _last(turns: Turns) -> np.ndarray:
    """Of each row the number of the last row, in the order of play, of its episode."""
    ids = turns.codes("episode").ids
    order = np.lexsort((turns["turn"].to_numpy(), ids)) if "turn" in turns.columns else np.argsort(ids, kind="stable")
    last = np.zeros(ids.max(initial=-1) + 1, np.int64)
    last[ids[order]] = order
    return np.asarray(last[ids])


def _bytes(path: Path) -> np.ndarray:
    return np.frombuffer(bytearray(path.read_bytes()), np.uint8)


def _asked(frame: pl.DataFrame) -> pl.DataFrame:
    """Turns as scorers read them."""
    return frame.with_columns(
        prompt=pl.col("observation").cast(pl.String), response=pl.col("action").cast(pl.String).fill_null("")
    )


def _plain(frame: pl.DataFrame) -> pl.DataFrame:
    """Columns of turns that a later refit needs."""
    tokens = [
        name
        for name in ("prompt_ids", "action_ids", "logprobs", "token_versions", "entropies")
        if name in frame.columns
    ]
    return _asked(frame).drop(tokens).with_columns(pl.col(pl.Categorical).cast(pl.String))


@stage
class preferences(Stage):
    """Stage: `pair` and `chosen` for `dpo()`, by a pairing of episodes (`unit`); a row repeats for each of its pairs.

    Rows of units in several pairs stand once for each, so rows may be added; see `palaestra.judges.marked`. With
    `siblings("q")` it is step-level DPO [68], with `current_vs_reference(...)` fresh pairs of the policy of now [105].

    Args:
        pairs: text of a pairing. q: text of a signal that is put into the column `q` first. unit: what is a side of a
            pair, "episode", or "turn" for one row.
    """

    adds = {"pair": "number of the comparison", "chosen": "this side was preferred", "q": "what the pairing compares"}

    def __init__(self, pairs: str = "best_vs_worst()", *, q: str | None = None, unit: str = "episode") -> None:
        if unit not in ("episode", "turn"):
            raise InputError(f"preferences: unit={unit!r} is 'episode' or 'turn'")
        self.pairing, self.unit = PAIRINGS.build(pairs), ("row",) if unit == "turn" else "episode"
        self.q = None if q is None else parse(q)
        self.needs = {"group", "episode", "reward"} | (set() if self.q is None else self.q.needs())

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The table with the columns of pairs, and rows repeated for units in several pairs."""
        if self.q is not None:
            turns = turns.with_column(q=self.q)
        found = self.pairing(turns)
        context.metrics["pairs"] = float((~found["tie"]).sum())
        return marked(turns, found, unit=self.unit)
