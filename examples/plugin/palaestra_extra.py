"""A plugin with one of every kind: a definition and a registration each, in one file.

`extend` brings all that a definition needs. What needs torch is imported where it is used, so that the commands that do
without torch work with this plugin, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from palaestra import extend

# -- expressions over the table ---------------------------------------------------------------------------------------


@extend.kernel("squared", range="row")
def _squared(evaluation: extend.Evaluation, node: extend.Signal) -> Any:
    """The computation of an operator that the algebra has no word for."""
    return evaluation(node.inputs[0]) ** 2


@extend.signal()
def warmth(x: str = "heat") -> extend.Signal:
    """A tenth of a column, and a hundredth of its square: 0.1 x + 0.01 x²."""
    return 0.1 * extend.col(x) + 0.01 * extend.Signal("squared", extend.col(x))


# -- envs, policies and teams -----------------------------------------------------------------------------------------


@extend.env("extra/coin")
class Coin:
    """A coin to call; pays 1 for the right side. facts: the side, and 1 for heads."""

    agents = ("caller",)
    facts = {"side": str, "worth": float}
    task = "coin"

    def reset(self, seed: int) -> dict[str, extend.Observation]:
        """Toss the coin: a hash of the seed, so that every part of a seed counts."""
        self.side = ("heads", "tails")[int(np.random.default_rng(seed).integers(2))]
        return {"caller": extend.Observation("call", choices=("heads", "tails"))}

    def step(self, actions: Mapping[str, Any]) -> extend.StepResult:
        """Compare the call with the side."""
        right = ("heads", "tails")[int(actions["caller"])] == self.side
        facts = {"side": self.side, "worth": float(self.side == "heads"), "success": right}
        return extend.StepResult({}, {"caller": float(right)}, terminated=True, info=facts)


@extend.policy("stubborn")
def stubborn(made: extend.Making) -> extend.Policy:
    """A policy kind that always takes the first choice."""
    return extend.ScriptedPolicy(lambda request: 0, name=made.name)


@extend.script()
def heads() -> Any:
    """Scripted play for warm starts and controls: always the first choice."""
    return lambda request: 0


@extend.workflow()
def plainly(env: extend.EnvFactory) -> extend.EnvFactory:
    """A team procedure: a function from an env's factory to another factory."""
    return env


@extend.gate("short")
def short(most: int = 20) -> Any:
    """Messages of at most so many characters arrive; each verdict is a weight and, if held back, a reason."""
    return lambda receiver, own, said, draw: [
        (1.0, None if len(each.text) <= most else "too long") for each in said
    ]  # fmt: skip


@extend.route("first")
def first() -> Any:
    """The first role acts alone."""
    return lambda roles, said, draw: list(roles)[:1]


@extend.aggregate("shortest")
def shortest() -> Any:
    """The shortest of the last answers counts."""
    return lambda said, draw: min(said, key=lambda each: len(each.text))


@extend.verifier("halved")
def halved() -> Any:
    """Half of the task's own score."""
    return lambda score, draw: None if score is None else score / 2


@extend.stop("spoke")
def spoke(times: int = 2) -> Any:
    """The discussion ends after so many messages."""
    return lambda said: len(said) >= times


@extend.audit("polite")
def polite() -> Any:
    """An auditor's question to a message: None, or what should change."""
    return lambda said, draw: [None if "please" in said.text else "say please"]


@extend.format("angle")
class Angle(extend.Format):
    """Tool calls as `<name>`, without arguments."""

    def find(self, text: str, tools: Any) -> tuple[str, list[extend.Call]]:
        """The name between angle brackets."""
        before, _, rest = text.partition("<")
        name, closed, after = rest.partition(">")
        return (before + after, [extend.Call(name, {})]) if closed else (text, [])

    def write(self, calls: Sequence[extend.Call]) -> str:
        """Each name between angle brackets."""
        return "".join(f"<{call.name}>" for call in calls)


# -- training ---------------------------------------------------------------------------------------------------------


@extend.stage()
class thermometer(extend.Stage):
    """A stage that fills the column `heat`."""

    needs = ("reward",)
    adds = {"heat": "degrees"}

    def __call__(self, turns: extend.Turns, context: extend.Context) -> extend.Turns:
        """Around 20 degrees."""
        return turns.with_column(heat=np.full(len(turns), 20.0) + context.rng.random(len(turns)))


@extend.term()
def push(weight: float = 0.1) -> extend.Term:
    """A term of the objective: -weight · mean log-probability of the actions."""

    def loss(piece: extend.MicroBatch) -> Any:
        return -weight * (piece.new * piece.mask).sum() / max(piece.tokens, 1)

    return extend.Term("push", loss)


@extend.learner("idle")
class Idle:
    """A learner that changes nothing; its methods are those of `extend.Learner`."""

    def __init__(self, team: extend.Team, **fields: Any) -> None:
        self.policies: dict[str, Any] = {}
        self.updates = 0

    def needs(self) -> set[str]:
        """Columns beside the advantage."""
        return set()

    def forward_backward(self, turns: extend.Turns, *, advantage: str = "advantage") -> dict[str, Any]:
        """Nothing."""
        return {}

    def optim_step(self) -> None:
        """Count the update."""
        self.updates += 1

    def update(self, turns: extend.Turns, *, advantage: str = "advantage", rng: Any = None) -> dict[str, Any]:
        """Both."""
        self.optim_step()
        return {}

    def state(self) -> dict[str, Any]:
        """State for a resume."""
        return {"updates": self.updates}

    def restore(self, state: dict[str, Any]) -> None:
        """Inverse of `state`."""
        self.updates = state["updates"]


@extend.executor("here")
class Here:
    """An executor that plays in this process, as `local` does."""

    def __init__(self, **options: Any) -> None:
        from palaestra.play.executors import Local

        self._local = Local(**options)

    def play(self, env: extend.EnvFactory, team: Any, plan: extend.Plan) -> extend.Turns:
        """Every turn of the plan's episodes."""
        return self._local.play(env, team, plan)

    def starts(self, env: extend.EnvFactory, plan: extend.Plan) -> list[extend.Observation | None]:
        """First observations of the plan's groups."""
        return self._local.starts(env, plan)

    def close(self) -> None:
        """Nothing to give back."""


@extend.tool()
def shout() -> extend.Tool:
    """A tool that answers in capital letters."""
    return extend.Tool("shout", "Say it louder.", {"text": {"type": "string"}}, str.upper)


@extend.tracker("textfile")
class TextFile:
    """A tracker that appends a line per iteration to `tracked.txt` of the seed's folder."""

    def __init__(self, run: extend.Tracked) -> None:
        self.path = Path(run.directory) / "tracked.txt"

    def log(self, iteration: int, metrics: Mapping[str, float]) -> None:
        """One line."""
        with self.path.open("a") as file:
            file.write(f"{iteration} {len(metrics)}\n")

    def close(self) -> None:
        """Nothing is open."""


@extend.measure()
def nothing_at_all(game: str, table: Any) -> float:
    """A metric of a team in a game: a quarter, whatever is played."""
    return 0.25


# -- judging ----------------------------------------------------------------------------------------------------------


@extend.scorer()
class brevity:
    """A scorer: 1 / (1 + words) of each response."""

    name = "brevity"

    def score(self, rows: pl.DataFrame, *, reference: Any = None, condition: Any = None) -> pl.Series:
        """A number per row, null where it cannot be scored."""
        words = rows["response"].str.split(" ").list.len().cast(pl.Float64)
        return (1 / (1 + words)).alias(self.name)


@extend.search()
def greedy() -> extend.Search:
    """A search that takes what the policy says first: the policy as it is."""
    return extend.Search(lambda policy, meter: policy, None)


@extend.pairing()
def none_at_all() -> Any:
    """A pairing: from turns to pairs of rows; here none."""
    from palaestra.judges.pairs import table

    nothing = np.zeros(0, np.int64)
    return lambda turns: table(turns, nothing, nothing, margin=np.zeros(0), source="none_at_all")


@extend.reward_model("constant")
class Constant(extend.RewardModel):
    """A reward model that learns the mean label."""

    kind, name = "constant", "constant"

    def __init__(self) -> None:
        self.options: dict[str, Any] = {}
        self.mean = 0.0

    def fit(self, data: Any, **options: Any) -> dict[str, float]:
        """The mean of the labels."""
        self.mean = float(np.nanmean(data.value))
        return {"rows": float(len(data))}

    def score(self, rows: pl.DataFrame, *, reference: Any = None, condition: Any = None) -> pl.Series:
        """The same number for every row."""
        return pl.Series(self.name, np.full(len(rows), self.mean))

    def write(self, folder: Path) -> None:
        """`mean.txt`."""
        (folder / "mean.txt").write_text(repr(self.mean))

    def read(self, folder: Path) -> None:
        """Inverse of `write`."""
        self.mean = float((folder / "mean.txt").read_text())


# -- logs, analyses, pages and commands -------------------------------------------------------------------------------


@extend.reader("extra_log")
def extra_log() -> extend.LogReader:
    """A log format: lines with `coin`, `fell` and `call`."""

    def read(found: Any, rows: extend.Rows) -> None:
        for where, record in found:
            right = record["fell"] == record["call"]
            rows.episode(where, [{"action": record["call"]}], task=record["coin"], success=right)

    return extend.LogReader(read, fits=lambda record: {"coin", "fell"} <= record.keys())


@extend.analysis()
def longest(column: str = "action") -> extend.Analysis:
    """A question to a file: its longest text in a column."""

    def answer(file: str | Path) -> pl.DataFrame:
        from palaestra.evaluation.analyses import table

        return table(file).select(pl.col(column).sort_by(pl.col(column).str.len_chars()).last().alias("longest"))

    return answer


@extend.solver()
def first_choice() -> Any:
    """A solver of games: everybody plays the first strategy."""
    return lambda game: tuple(np.eye(size)[0] for size in game.shape)


@extend.matchmaking()
def youngest() -> Any:
    """A rule of a league: the youngest past self is met."""
    from palaestra.learning.league.rules import Rule

    class Youngest(Rule):
        def draw(self, standing: Any) -> Any:
            return np.arange(len(standing.past)) == len(standing.past) - 1

    return Youngest()


@extend.chart()
def heads_of_state(run: extend.Run) -> extend.Chart | None:
    """A chart on the page of a run: its reward, drawn again."""
    return extend.panel("Heads <of> state", "from outside", [("all", run.seeds, lambda row: row["reward"])])


@extend.chart()
def broken_chart(run: extend.Run) -> extend.Chart | None:
    """A chart that cannot be drawn; the page says so and shows the others."""
    raise RuntimeError("no <ink>")


@extend.command()
def greet() -> None:
    """Say hello."""
    print("hello from outside")
