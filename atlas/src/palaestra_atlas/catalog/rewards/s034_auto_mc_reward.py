"""[34] Auto MC-Reward (arXiv 2312.09238): a model writes the dense reward, a critic refuses it until it is sound.

A scripted model gives, in order, a program that is not Python, one that reads what is not there, one that pays every
turn the same, and a right one (distance gained, lava punished); each refusal is told to it. Such a program,
of which only the sign counts, then trains a table to walk the 6 x 6 map `lava` by the recipe `maze`, where the stage
`program` asks a scripted writer; the baseline has the sparse reward alone. Left out: Minecraft, a real model, and the
analyser of trajectories (`revise=` of the stage tells the writer what came of its program).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.judges.programs import RewardProgram
from palaestra.judges.prompts import Brief, describe
from palaestra.judges.writing import write
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

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
