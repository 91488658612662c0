"""[34] Auto MC-Reward (arXiv 2312.09238): a model writes the dense reward, a critic refuses it until it is sound.

A scripted model gives, in order, a program that is not Python, one that reads what is not there, one that pays every
turn the same, and a right one (distance gained, lava punished); each refusal is told to it. Such a program,
of which only the sign counts, then trains a table to walk the 6 x 6 map `lava` by the recipe `maze`, where the stage
`program` asks a scripted writer; the baseline has the sparse reward alone. Left out: Minecraft, and a real
model; the stage tells the writer how failed episodes ended, and `revise=` how often.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from palaestra.agents import ScriptedPolicy
from palaestra.agents.policy import Request
from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import Observation
from palaestra.judges.programs import RewardProgram, annotate, auto_mc_reward, program
from palaestra.judges.prompts import Brief, describe
from palaestra.judges.scripted import taught
from palaestra.judges.writing import Ask, Proposal, design, write
from palaestra.learning.stages.programs import program as program_stage
from palaestra.learning.stages.stage import Context
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

SIDE = 6
EXIT = (SIDE - 1, SIDE - 1)
LAVA = {(1, 1), (1, 4), (3, 2), (3, 3), (4, 0), (4, 5)}
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
COLUMNS = ("distance", "before", "lava", "exit")
SPARSE = 'def sparse(turn, memory):\n    return turn["exit"]\n\n'
ANSWERS = (
    SPARSE + "def dense(turn, memory)\n    return 1",
    SPARSE + 'def dense(turn, memory):\n    return -turn["dist"]',
    SPARSE + "def dense(turn, memory):\n    return 1.0",
    SPARSE + "# nearer is better, lava is worse than anything\n"
    'def dense(turn, memory):\n    return -100.0 if turn["lava"] else turn["before"] - turn["distance"]',
)
REASONS = [["syntax"], ["unknown column"], ["constant"], []]


STAGE = (
    "program(writer='writer', functions=['dense', 'sparse'], columns=['before', 'distance', 'lava', 'goal'],"
    " task='walk to the goal, around the lava')"
)
SETTINGS = {
    "env": {"options": {"map": "lava", "horizon": 30}},
    "policies": {"writer": {"kind": "script", "options": {"script": "palaestra.judges.scripted:nearer"}}},
    "stages": [STAGE],
    "train": {"iterations": 100},
}
ARMS = {"both": {"reward": "auto_mc_reward()"}, "sparse": {"reward": "auto_mc_reward(weight=0.0)"}}


def every_turn() -> Turns:
    """All turns that there can be, an episode each."""
    rows = []
    for row in range(SIDE):
        for column in range(SIDE):
            for down, right in MOVES:
                cell = (min(max(row + down, 0), SIDE - 1), min(max(column + right, 0), SIDE - 1))
                rows.append((distance(cell), distance((row, column)), float(cell in LAVA), float(cell == EXIT)))
    keys = {"episode": range(len(rows)), "turn": [0] * len(rows), "agent": ["walker"] * len(rows)}
    return Turns(keys | dict(zip(COLUMNS, zip(*rows, strict=True), strict=True)))


def distance(cell: tuple[int, int]) -> float:
    """Steps to the exit if there were no lava."""
    return float(EXIT[0] - cell[0] + EXIT[1] - cell[1])


def few_turns() -> Turns:
    """Some of all turns, among them a step into lava and one to the exit."""
    turns = every_turn()
    ends = [turns.filter(pl.col(name) > 0).frame[:1] for name in ("lava", "exit")]
    return Turns(pl.concat([turns.frame[:3], *ends]))


def written(ask: Ask, attempts: int = 5) -> tuple[RewardProgram | None, list[Proposal]]:
    """What somebody who is asked for the pair writes, and how often that was refused."""
    table = few_turns()
    prompt = Brief("walk to the exit, around the lava", describe(table, COLUMNS)).auto_mc()
    template = RewardProgram("", "dense", COLUMNS)
    return write(ask, prompt, template, table, functions=("dense", "sparse"), attempts=attempts)


def listener(prompts: Sequence[str]) -> list[str]:
    """A writer whose next draft depends on what it is told."""
    play = taught()
    asked = [Request(Observation(prompt), "writer", np.random.default_rng(0)) for prompt in prompts]
    return [play(request).replace('turn["goal"]', 'turn["exit"]') for request in asked]


@exact
def refused() -> None:
    """The card's four drafts: three are refused, each for its reason."""
    answers = iter(ANSWERS)
    found, attempts = written(lambda prompts: [next(answers) for _ in prompts])
    assert [[issue.kind for issue in attempt.issues] for attempt in attempts] == REASONS
    assert found is not None


@exact
def told_why() -> None:
    """A writer that mends what it is told is wrong has its third draft accepted."""
    found, attempts = written(listener)
    assert [[issue.kind for issue in attempt.issues] for attempt in attempts] == [["unknown column"], ["constant"], []]
    assert found is not None


@exact
def told_what_failed() -> None:
    """Once failed episodes are said to have ended in lava, the next program punishes lava."""
    failed = {"episode": [0, 0], "turn": [0, 1], "agent": ["a"] * 2, "action": ["up"] * 2, "success": [False] * 2}
    cells = {"lava": [False, True], "goal": [False] * 2, "before": [3.0, 3.0], "distance": [2.0, 4.0]}
    revised = program_stage(writer=ScriptedPolicy(taught()), functions=("dense", "sparse"), columns=list(cells),
                            task="walk to the goal", revise=1)  # fmt: skip
    sources = []
    for iteration in (1, 2):
        here = Context(np.random.default_rng(0), iteration, None, None, None)  # type: ignore[arg-type]
        revised(Turns(failed | cells), here)
        sources.append(revised.program.source)
    assert "100" not in sources[0], sources[0]
    assert "100" in sources[1], "the writer is not told that failed episodes ended in lava"


@exact
def signs() -> None:
    """Only signs count, 1 of the sparse function and .1 of the dense one: a dense 1000 does not outweigh it."""
    turns = Turns({"r_sparse": [1.0, 0.0, -0.5, 1.0, 0.0], "r_dense": [0.3, 1000.0, 2.0, -7.0, 0.0]})
    np.testing.assert_allclose(np.asarray(auto_mc_reward().evaluate(turns)), [1.1, 0.1, -0.9, 0.9, 0.0])


BEST = """def reward(turn, memory):
    best = memory.get("best", 9.0)
    memory["best"] = min(best, turn["distance"])
    return max(best - turn["distance"], 0.0)
"""


@exact
def memory() -> None:
    """A program that pays for coming nearer than ever before remembers an episode's steps."""
    turns = Turns({"episode": [0] * 4, "turn": range(4), "agent": ["a"] * 4, "distance": [8.0, 7.0, 8.0, 7.0]})
    found = annotate(turns, RewardProgram(BEST, columns=("distance",)), "reward")["r_reward"].to_list()
    assert found == [1.0, 1.0, 0.0, 0.0], found


@exact
def designed() -> None:
    """A program that is trained with is told what came of it; the loop ends with its best round, also from a file."""
    table = few_turns()
    told: list[str] = []

    def ask(prompts: Sequence[str]) -> list[str]:
        told.extend(prompts)
        return listener(prompts)

    prompt = Brief("walk to the exit", describe(table, COLUMNS)).auto_mc()
    template = RewardProgram("", "dense", COLUMNS)
    rounds = design(ask, prompt, template, table, lambda _: (0.5, "at their end: lava in 3"), rounds=2,
                    functions=("dense", "sparse"))  # fmt: skip
    assert [each.program is not None for each in rounds] == [True, True]
    assert "100" in rounds[1].program.source  # type: ignore[union-attr]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "reward.py"
        path.write_text(f"COLUMNS = {list(COLUMNS)!r}\n{ANSWERS[-1]}", encoding="utf-8")
        paid = np.asarray(program(str(path), function="sparse").evaluate(table))
    np.testing.assert_array_equal(paid, table["exit"].to_numpy())


def exits(learned: TrainingResult) -> dict[str, float]:
    """Share of the last episodes that end at the exit."""
    return {"exit": float(np.mean(learned.curve()[-10:]))}


@reproduction(
    34,
    claim="A critic refuses what is wrong with a written reward and says so; signs of an accepted dense reward teach "
    "what the sparse one seldom does.",
    baseline="sparse reward alone, signs as well",
    criterion="refusals for syntax, unknown column and constant reward, then acceptance; exit reached in > .5 of the "
    "episodes after 100 iterations of the recipe `maze`, and more often than with the sparse reward by > 2 standard "
    "errors of the difference, paired by seed",
    seeds=tuple(range(3000, 3010)),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Write, then train."""
    table, answers = every_turn(), iter(ANSWERS)
    prompt = Brief("walk to the exit, around the lava", describe(table, COLUMNS)).auto_mc()
    template = RewardProgram("", "dense", COLUMNS)
    program, attempts = write(
        lambda prompts: [next(answers) for _ in prompts], prompt, template, table, functions=("dense", "sparse")
    )
    reasons = [[issue.kind for issue in attempt.issues] for attempt in attempts]
    if program is None or reasons != REASONS:
        return Outcome({"refusals": len(attempts)}, False)
    arms = train_arms("maze", {name: SETTINGS | arm for name, arm in ARMS.items()}, seeds, exits)
    gain, error = arms.gain("both", "sparse", "exit")
    measured = {"refusals": len(attempts) - 1, **arms.measured(), "gain": gain, "standard_error": error}
    return Outcome(measured, arms.mean("both", "exit") > 0.5 and gain > 2 * error)
