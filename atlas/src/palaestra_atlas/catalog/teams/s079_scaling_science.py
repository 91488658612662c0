"""[79] Towards a science of scaling agent systems (arXiv 2512.08296): what coordination costs beside one agent.

The paper's table of five architectures, whose efficiency and overhead follow from success and turns; the law of turns;
and teams that are really played: scripted agents in the shipped workflows, of which overhead and density of messages
are known beforehand. The law is fitted to simulated tasks from parallel to sequential. Left out: 260 configurations.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy, Team
from palaestra.agents.policy import Request
from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import EnvFactory
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.evaluation.teamwork import ScalingLaw, advise, analyses, coordination, turn_law
from palaestra.play.rollout import rollout
from palaestra.teams import workflows
from palaestra_atlas.reproductions import Outcome, exact, reproduction
from palaestra_atlas.verification.measures import Left, Measure

SUCCESS = np.array([0.466, 0.370, 0.477, 0.463, 0.452])
TURNS = np.array([7.2, 11.4, 26.1, 27.7, 44.3])
EFFICIENCY, OVERHEAD = [0.466, 0.234, 0.132, 0.120, 0.073], [0, 58.3, 262.5, 284.7, 515.3]
MEMBERS, LAW = [1, 2, 3, 4, 6, 10], [5.5, 13.2, 23.6, 36.4, 68.6, 156.7]
GROUPS = 60


class Coins(TaskEnv):
    """Say heads or tails."""

    def draw(self, seed: int) -> Task:
        """Of a seed."""
        side = ("heads", "tails")[seed // 2 % 2]
        return Task(f"{seed}", "which?", lambda text: float(text == side), side)


def say(request: Request) -> str:
    """Either."""
    return ("heads", "tails")[int(request.rng.integers(2))]


def played(seed: int) -> pl.DataFrame:
    """Coordination of three workflows beside one agent."""
    made: dict[str, EnvFactory] = {
        "single": workflows.single(Coins), "debate": workflows.debate(Coins, 3, 2), "star": workflows.star(Coins, 3),
        "votes": workflows.self_consistency(Coins, 3),
    }  # fmt: skip
    parts = []
    for name, env in made.items():
        team = Team(dict.fromkeys(env().agents, ScriptedPolicy(say, name="coin")))
        turns = rollout(env, team, groups=GROUPS, seed=seed, run=name, timeout=None)
        parts.append(turns.with_column(system=pl.Series("system", [name] * len(turns))))
    every = Turns.concat(parts)
    return coordination(every, baseline="single")


ARCHITECTURES = {
    "single": (1, 0.0, 0.0), "independent": (4, 0.583, 0.0), "centralised": (4, 2.847, 0.39),
    "decentralised": (4, 2.625, 0.41),
}  # fmt: skip
"""Members, overhead and density of messages."""
FEATURES = ("baseline", "sequential", "members", "overhead", "density")
INTERACTIONS = [(one, other) for at, one in enumerate(FEATURES) for other in FEATURES[at + 1 :]]
TOKENS = {"single": 7.0, "independent": 9.0, "centralised": 22.0, "decentralised": 19.0}


def expected(architecture: str, baseline: float, sequential: float) -> float:
    """Success of an architecture on a task: parallel parts gain, sequential ones lose what one agent can do."""
    gain, loss = {
        "single": (0.0, 0.0), "independent": (0.25, 0.1), "centralised": (0.7, 0.6), "decentralised": (0.5, 0.3),
    }[architecture]  # fmt: skip
    return baseline + gain * (1 - baseline) * (1 - sequential) - loss * baseline * sequential


def configurations(rng: np.random.Generator, tasks: int, known: int) -> tuple[pl.DataFrame, dict[str, str]]:
    """Architectures on tasks, success counted over 200 runs and unknown after the first `known` tasks; the best."""
    rows, best = [], {}
    for task in range(tasks):
        baseline, sequential = float(rng.uniform(0.1, 0.8)), float(rng.uniform(0, 1))
        true = {name: expected(name, baseline, sequential) for name in ARCHITECTURES}
        best[f"{task}"] = max(true, key=lambda name: true[name])
        for name, (members, overhead, density) in ARCHITECTURES.items():
            counted = float(rng.binomial(200, np.clip(true[name], 0, 1))) / 200
            rows.append(
                {"task": f"{task}", "architecture": name, "success": counted if task < known else None,
                 "baseline": baseline, "sequential": sequential, "members": members, "overhead": overhead,
                 "density": density, "tokens": TOKENS[name]}
            )  # fmt: skip
    return pl.DataFrame(rows, infer_schema_length=None), best


def runs(seed: int, folder: Path) -> None:
    """Writes `runs.csv`, 40 tasks that were played and 60 that were not, and `best.json`."""
    table, best = configurations(np.random.default_rng(seed), 100, 40)
    table.write_csv(folder / "runs.csv")
    (folder / "best.json").write_text(json.dumps(best))


def right_advice() -> Measure:
    """Share of the new tasks for which the advised architecture is the best."""

    def measured(left: Left) -> list[float]:
        best = json.loads((left.directory / "best.json").read_text())
        return [float(np.mean([row["architecture"] == best[str(row["task"])] for row in json.loads(left.stdout)]))]

    return measured


def table_of(**systems: dict[str, list[object]]) -> Turns:
    """Turns of several systems, each column a list of turns of one episode after the other."""
    frames = []
    for name, columns in systems.items():
        frames.append(
            pl.DataFrame({"system": [name] * len(columns["turn"]), "run": [name] * len(columns["turn"])} | columns)
        )
    return Turns(pl.concat(frames, how="diagonal_relaxed").with_columns(group=pl.col("episode")))


def tabled() -> pl.DataFrame:
    """`coordination` of a thousand episodes of each architecture, with the paper's success and turns."""
    frames = []
    for name, success, turns in zip(("single", "b", "c", "d", "e"), SUCCESS, TURNS, strict=True):
        episode = np.arange(round(1000 * turns)) % 1000
        frames.append(
            pl.DataFrame({"system": name, "run": name, "episode": episode, "success": episode < 1000 * success - 0.5})
        )
    every = pl.concat(frames).with_columns(group="episode", turn=0, agent=pl.lit("a"))
    return coordination(Turns(every), baseline="single")


@exact
def paper_table() -> None:
    """The paper's success and turns give its overheads and efficiencies."""
    table = tabled()
    np.testing.assert_allclose(100 * table["overhead"].to_numpy(), OVERHEAD, atol=0.05)
    np.testing.assert_allclose(table["efficiency"].to_numpy(), EFFICIENCY, atol=6e-4)


@exact
def counted_errors() -> None:
    """An error that is copied twice counts three times: 3 wrong turns beside 1, where failures are as many."""
    one = {"episode": [0, 1], "turn": [0, 0], "agent": ["a", "a"], "score": [0.0, 1.0], "success": [False, True]}
    team = {
        "episode": [0, 0, 0, 1, 1, 1], "turn": [0, 1, 2] * 2, "agent": ["a", "b", "c"] * 2,
        "score": [0.0, 0.5, 0.0] + [1.0] * 3, "success": [False] * 3 + [True] * 3,
    }  # fmt: skip
    found = coordination(table_of(one=one, team=team), baseline="one").filter(system="team")  # type: ignore[arg-type]
    assert found["error_amplification"].to_list() == [3.0]
    assert found["failure_ratio"].to_list() == [1.0]


@exact
def messages_and_copies() -> None:
    """A silent team has density 0, one whose members hear all others once 1; equal answers are repetitions."""
    parts = []
    for name, env in (("silent", workflows.self_consistency(Coins, 3)), ("debate", workflows.debate(Coins, 3, 2))):
        team = Team(dict.fromkeys(env().agents, ScriptedPolicy(lambda request: "heads", name="heads")))
        turns = rollout(env, team, groups=2, seed=0, run=name)
        parts.append(turns.with_column(system=pl.Series("system", [name] * len(turns))))
    found = coordination(Turns.concat(parts), baseline="silent").sort("system", descending=True)
    assert found["density"].to_list() == [0.0, 1.0]
    np.testing.assert_allclose(found["redundancy"].to_numpy(), [2 / 3, 5 / 6])


@exact
def fitted_law() -> None:
    """Gains shrink with how good one agent is, and the law says so of tasks that it has not seen."""
    table, best = configurations(np.random.default_rng(0), 80, 60)
    law, plain = ScalingLaw(FEATURES, INTERACTIONS).fit(table), ScalingLaw(FEATURES)
    assert law.coefficients["baseline*members"] + law.coefficients["baseline*overhead"] < 0
    assert law.held_out(table, "task") > 0.9
    assert law.held_out(table, "task") > plain.held_out(table, "task") + 0.02
    pairs = pl.DataFrame({"task": list("aabb"), "x": [0.0] * 4, "success": [0.0, 0.0, 2.0, 2.0]})
    np.testing.assert_allclose(ScalingLaw(["x"]).held_out(pairs, "task"), -3)  # by single rows it would be -.78
    advised = dict(advise(table, FEATURES, INTERACTIONS).select("task", "architecture").iter_rows())
    assert np.mean([best[task] == name for task, name in advised.items()]) > 0.7
    np.testing.assert_allclose(turn_law(MEMBERS, LAW), [2.72, 1.724], rtol=0.01)


@exact
def equal_tokens() -> None:
    """Within a budget of ten thousand tokens neither dear architecture is advised, however good it is."""
    table, _ = configurations(np.random.default_rng(0), 80, 60)
    with tempfile.TemporaryDirectory() as folder:
        table.write_csv(path := Path(folder) / "runs.csv")
        cheap = analyses.advise(FEATURES, INTERACTIONS, tokens=10.0)(path)
        every = analyses.advise(FEATURES, INTERACTIONS)(path)
    assert set(cheap["architecture"]) <= {"single", "independent"}
    assert set(every["architecture"]) > {"single", "centralised"}


@reproduction(
    79,
    claim="Overhead and efficiency of a team follow from its success and turns beside one agent's; turns grow faster "
    "than members.",
    baseline="one agent on the same tasks",
    criterion="the table's efficiencies to .001 and overheads to .1 points from its success and turns; the fitted "
    "power is 1.72; of workflows really played overhead is 5, 3 and 2 and density 1, .75 and 0, in every seed (exact)",
    seeds=(0, 1),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """The table, the law, real play."""
    table = tabled()
    efficiency, overhead = table["efficiency"].to_numpy(), 100 * table["overhead"].to_numpy()
    off = float(max(abs(efficiency - EFFICIENCY).max(), abs(overhead - OVERHEAD).max() / 100))
    scale, power = turn_law(MEMBERS, LAW)
    holds, rows = True, {}
    for seed in seeds:
        rows = {row["system"]: row for row in played(seed).iter_rows(named=True)}
        for name, over, density in (("debate", 5, 1.0), ("star", 3, 0.75), ("votes", 2, 0.0)):
            holds &= abs(rows[name]["overhead"] - over) < 1e-9 and abs(rows[name]["density"] - density) < 1e-9
    measured = {"largest_difference": off, "law_scale": scale, "law_power": power}
    measured |= {f"efficiency_{name}": row["efficiency"] for name, row in rows.items()}
    return Outcome(measured, bool(holds and off <= 1e-3 and abs(power - 1.724) < 0.01))
