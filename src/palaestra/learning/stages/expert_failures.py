"""What a failed expert's runs are good for: the learner takes over in the middle of them, and what helped is cloned."""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.algebra.parse import parse
from palaestra.algebra.returns import episode_score
from palaestra.algebra.turns import Turns
from palaestra.envs.helped import Help, HelpedEpisode, Numbered
from palaestra.errors import InputError
from palaestra.learning.stages.demonstrate import advised, seated
from palaestra.learning.stages.guidance import ADDS, play_helped, with_helped
from palaestra.learning.stages.hints import hold_back
from palaestra.learning.stages.own_context import POLICY, rescored
from palaestra.learning.stages.stage import Context, Stage, packed, stage, unpacked

if TYPE_CHECKING:
    from palaestra.play.plan import Plan

KEY = ("group", "episode")


@stage
class expert_failures(Stage):
    """Stage: adds rows: play on from within an expert's failed runs, and its successes; `loss_mask`: what to clone.

    EEF [107] (arXiv 2504.13145). The expert, an adviser, plays every task once, when it is met. Its successful runs are
    learned from in every iteration. Of its failed runs the first turns are played again, up to each of `starts` places
    (the beginning, and others drawn uniformly), and the learner goes on from there. Its share of successes from a
    place is p. Where p rises from one place to the next, the expert's turns between them helped. Learn by
    `clone(column="loss_mask")`, which is true on

    - the learner's turns of successful episodes, from wherever they began;
    - the expert's turns that helped, in successful episodes that began behind them;
    - all turns of the expert's successful runs.

    Other turns of the expert stay in the table, and in what later turns saw, and are not learned from. A place without
    a success behind a place with one is hard to recover from: it is a start in every later round, until the learner
    succeeds from it. Episodes of the learner are within the iteration's number, those of the expert are not. Envs must
    play the same episode for the same seed and actions. Metrics: runs of the expert, failed, restarts, solved (of
    these), helpful (rows of the expert that are learned from), and recovery (places).

    Args:
        adviser: A policy of the recipe without a seat.
        starts: Number of places in each failed run; 1 is the beginning alone.
        share: Share of each group's episodes that begins in a failed run.
        score: Text of the signal that says how an episode went; it succeeded above `solved`.
        most: Number of the expert's runs, at most.

    Raises:
        InputError: A number is out of range; when it is called: no such adviser.
    """

    adds = ADDS | {
        "loss_mask": "the row is learned from",
        "start": "turn at which the learner took over from the expert; null in the expert's own runs",
    }
    notes = ("_more",)

    def __init__(
        self,
        adviser: str,
        *,
        starts: int = 5,
        share: float = 0.5,
        score: str = "reward",
        solved: float = 0.0,
        most: int = 256,
    ) -> None:
        if starts < 1 or not 0 < share < 1 or most < 1:
            raise InputError(f"expert_failures: starts={starts} and most={most} of at least 1, share={share} in (0, 1)")
        self.adviser, self.starts, self.share, self.solved, self.most = adviser, starts, share, solved, most
        self.score = parse(score, columns=(score,))
        self.needs = {*KEY, "turn", "seed", "task", "agent", "policy", "action", "observation"} | self.score.needs()
        self.asks = (adviser,)
        self.runs: pl.DataFrame | None = None
        """Turns of the expert, `group` the number of the run, with `_won`."""
        self.recovery: dict[int, list[int]] = {}
        """Further starts of failed runs."""
        self._more: dict[int, int] = {}

    def plan(self, plan: Plan, context: Context) -> Plan:
        """Plan with fewer episodes from the beginning of a task."""
        plan, self._more = hold_back(plan, self.share, "expert_failures")
        return plan

    def __call__(self, turns: Turns, context: Context) -> Turns:
        """The played rows, then those that began in a failed run, then the expert's successful runs."""
        self._meet(turns, context)
        first = int(turns["group"].max()) + 1  # type: ignore[arg-type]
        runs: Any = self.runs
        lost = runs.filter(~pl.col("_won"))
        wanted = self._restarts(lost, first, context) if len(lost) else []
        made = play_helped(context, turns, wanted, source=self.adviser) if wanted else None
        whole = with_helped(turns, made).with_column(_won=episode_score(self.score)).frame
        began = (pl.col("source") != POLICY).sum().over(KEY).cast(pl.Int64)
        whole = whole.with_columns(pl.col("_won") > self.solved, start=began)
        restarts = pl.col("group") >= first
        found = chances(whole.filter(restarts), "_won")
        self._note(found, first)
        whole = whole.with_columns(loss_mask=pl.col("_won") & ((pl.col("source") == POLICY) | helpful(whole, found)))
        rows = whole.filter(restarts)
        context.metrics |= {
            "runs": float(runs["group"].n_unique()),
            "failed": float(lost["group"].n_unique()),
            "restarts": float(rows.select(KEY).n_unique()),
            "solved": float(rows.filter("_won").select(KEY).n_unique()),
            "helpful": float(rows.filter((pl.col("source") != POLICY) & pl.col("loss_mask")).height),
            "recovery": float(sum(map(len, self.recovery.values()))),
        }
        good = self._shown(runs.filter("_won"), whole, first, context)
        return Turns(pl.concat([whole, good], how="diagonal_relaxed").drop("_won"))

    def _meet(self, turns: Turns, context: Context) -> None:
        """Let the expert play the tasks that it has not met."""
        from palaestra.play.plan import Plan

        known = [] if self.runs is None else self.runs["task"].unique().to_list()
        # behind the highest number, not their number: of those that were played, illegal ones are not kept
        first = 0 if self.runs is None else int(self.runs["group"].to_numpy().max(initial=-1)) + 1
        new = (
            turns.frame.group_by("group")
            .agg(pl.first("seed", "task"))
            .sort("group")
            .unique("task", maintain_order=True)
        )
        room = self.most - len(known)
        seeds = new.filter(~pl.col("task").is_in(known))["seed"].head(max(room, 0)).to_list()
        if not seeds:
            return
        plan = Plan(len(seeds), 1, int(context.rng.integers(2**31)), context.iteration, env_seeds=seeds)
        team = advised(context, self.adviser).team
        played = context.executor.play(functools.partial(Numbered, context.env), team, plan)
        frame = played.with_column(_won=episode_score(self.score)).frame
        frame = frame.with_columns(pl.col("_won") > self.solved)
        kept = frame.filter((pl.col("error").is_null() & pl.col("valid").fill_null(True)).all().over("group"))
        kept = seated(kept, context, self.adviser).with_columns(pl.col("group").cast(pl.Int64) + first)
        self.runs = pl.concat([kept] if self.runs is None else [self.runs, kept], how="diagonal_relaxed")

    def _restarts(self, lost: pl.DataFrame, first: int, context: Context) -> list[tuple[int, HelpedEpisode]]:
        """As many episodes as were held back, a failed run after the other, from each of its starts."""
        wanted: list[tuple[int, HelpedEpisode]] = []
        from_places: dict[int, list[HelpedEpisode]] = {}
        for (run,), part in lost.sort("turn").group_by("group", maintain_order=True):
            number, size, seed = int(run), len(part), int(part["seed"][0])  # type: ignore[call-overload]
            drawn = 1 + context.rng.permutation(max(size - 1, 0))[: self.starts - 1]
            places = sorted({0, *drawn.tolist(), *self.recovery.get(number, ())})
            said = part["action"].to_list()
            help_of = [{turn: Help(action=said[turn]) for turn in range(place)} for place in places]
            from_places[number] = [HelpedEpisode(seed, each) for each in help_of]
        for number in itertools.cycle(context.rng.permutation(list(from_places)).tolist()):
            wanted += [(first + number, each) for each in from_places[number]]
            if len(wanted) >= sum(self._more.values()):
                break
        return wanted[: sum(self._more.values())]

    def _note(self, found: pl.DataFrame, first: int) -> None:
        """Remember places to recover from, and forget those from which the learner succeeded."""
        earlier = pl.col("p").cum_max().shift(1).over("group")
        for group, start, p, best in found.select("group", "start", "p", earlier.alias("best")).iter_rows():
            places = set(self.recovery.get(group - first, ()))
            places = places - {start} if p > 0 else places | ({start} if (best or 0) > 0 else set())
            self.recovery[group - first] = sorted(places)

    def _shown(self, won: pl.DataFrame, whole: pl.DataFrame, first: int, context: Context) -> pl.DataFrame:
        """Successful runs of the expert as rows of this iteration, scored by the policies of now."""
        made = rescored(won.with_columns(_new=pl.lit(True)), context, "_new", number="choice_id")
        number = (pl.col("group") + first).cast(whole.schema["group"])
        made = made.with_columns(number, loss_mask=pl.lit(True), rescored=pl.lit(True), helped=pl.lit(False))
        if "iteration" in whole.columns:
            made = made.with_columns(iteration=pl.lit(whole["iteration"][0], whole.schema["iteration"]))
        return made.select(name for name in whole.columns if name in made.columns)

    def state_dict(self) -> dict[str, Any]:
        """State: the expert's turns as the bytes of a Parquet file, and places to recover from."""
        return {"runs": packed(self.runs), "recovery": list(self.recovery.items())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.runs = unpacked(state["runs"])
        self.recovery = {int(run): [int(each) for each in places] for run, places in state["recovery"]}


def chances(frame: pl.DataFrame, won: str) -> pl.DataFrame:
    """Table (group, start, p, gain): share `p` of a group's episodes from a start that succeeded, and its rise `gain`.

    frame: rows with group, episode, start and a truth value `won`. The first start of a group has no gain.
    """
    ends = frame.unique(KEY, maintain_order=True)
    found = ends.group_by("group", "start").agg(p=pl.col(won).mean()).sort("group", "start")
    return found.with_columns(gain=(pl.col("p") - pl.col("p").shift(1)).over("group"))


def helpful(frame: pl.DataFrame, found: pl.DataFrame) -> pl.Series:
    """Bool Series: rows between two starts of their group of which the later succeeds more often, by `chances` table.

    frame: rows with group and turn. found: as of `chances`.
    """
    ends = found.select("group", _turn=pl.col("start") - 1, _gain="gain").sort("_turn")
    rows = frame.select("group", _turn=pl.col("turn").cast(pl.Int64)).with_row_index("_row").sort("_turn")
    if not len(ends):
        return pl.Series("helpful", np.zeros(len(frame), bool))
    ends = ends.with_columns(pl.col("group").cast(frame.schema["group"]))
    told = rows.join_asof(ends, on="_turn", by="group", strategy="forward", check_sortedness=False).sort("_row")
    return (told["_gain"].fill_null(0) > 0).alias("helpful")
