"""A package of its own that adds one of each kind: one file, one registration apiece."""

from __future__ import annotations

from typing import Any

import numpy as np

import palaestra as pa
from palaestra.agents import ScriptedPolicy
from palaestra.algebra.signals import Signal, col
from palaestra.envs import ENVS, Observation, StepResult
from palaestra.evaluation.logs.readers import READERS, LogReader
from palaestra.evaluation.logs.rows import Rows
from palaestra.interface.cli.app import app
from palaestra.interface.report.load import Run
from palaestra.interface.report.panels import CHARTS, Chart, panel
from palaestra.learning.stages import Context, Stage, stage
from palaestra.learning.terms import TERMS, MicroBatch, Term
from palaestra.runs.measures import MEASURES
from palaestra.runs.policies import POLICIES, Making
from palaestra.runs.scripts import SCRIPTS
from palaestra.teams import WORKFLOWS


@pa.register()
def warmth(x: str = "heat") -> Signal:
    """Reward by the thermometer."""
    return 0.1 * col(x)


@stage
class thermometer(Stage):
    """Fills `heat`."""

    needs = ("reward",)
    adds = {"heat": "degrees"}

    def __call__(self, turns: pa.Turns, context: Context) -> pa.Turns:
        return turns.with_column(heat=np.full(len(turns), 20.0) + context.rng.random(len(turns)))


@TERMS.register()
def push(weight: float = 0.1) -> Term:
    """-weight · mean log-probability of what was done."""

    def loss(piece: MicroBatch) -> Any:
        return -weight * (piece.new * piece.mask).sum() / max(piece.tokens, 1)

    return Term("push", loss)


@ENVS.register("extra/coin")
class Coin:
    """Heads or tails; `side` is told, and what it is worth."""

    agents = ("caller",)
    facts = {"side": str, "worth": float}
    task = "coin"

    def reset(self, seed: int) -> dict[str, Observation]:
        self.side = "heads" if seed % 2 else "tails"
        return {"caller": Observation("call", choices=("heads", "tails"))}

    def step(self, actions: dict[str, Any]) -> StepResult:
        right = ("heads", "tails")[int(actions["caller"])] == self.side
        return StepResult(
            {},
            {"caller": float(right)},
            terminated=True,
            info={"side": self.side, "worth": float(self.side == "heads"), "success": right},
        )


@POLICIES.register("stubborn")
def stubborn(made: Making) -> ScriptedPolicy:
    """Always heads."""
    return ScriptedPolicy(lambda request: 0, name=made.name)


@SCRIPTS.register()
def heads() -> Any:
    """Always heads."""
    return lambda request: 0


@WORKFLOWS.register()
def plainly(env: Any) -> Any:
    """The env as it is."""
    return env


@MEASURES.register()
def nothing_at_all(game: str, table: Any) -> float:
    """A quarter, whatever is played."""
    return 0.25


@READERS.register("extra_log")
def extra_log() -> LogReader:
    """Lines with `coin` and `fell`."""

    def read(found: Any, rows: Rows) -> None:
        for where, record in found:
            right = record["fell"] == record["call"]
            rows.episode(where, [{"action": record["call"]}], task=record["coin"], success=right)

    return LogReader(read, fits=lambda record: {"coin", "fell"} <= record.keys())


@CHARTS.register()
def heads_of_state(run: Run) -> Chart | None:
    """Reward, drawn again."""
    return panel("Heads <of> state", "from outside", [("all", run.seeds, lambda row: row["reward"])])


@CHARTS.register()
def broken_chart(run: Run) -> Chart | None:
    """Cannot be drawn."""
    raise RuntimeError("no <ink>")


@app.command()
def greet() -> None:
    """Say hello."""
    print("hello from outside")
