"""[34] Auto MC-Reward (arXiv 2312.09238): a model writes the dense reward, a critic refuses it until it is sound.

A scripted model gives, in order, a program that is not Python, one that reads what is not there, one that pays every
turn the same, and a right one (distance gained, lava punished); each refusal is told to it. The accepted program, of
which only the sign counts, then trains a table to walk a 6 x 6 grid with lava; the baseline has the sparse reward
alone. At twice the learning rate that is learned in three of five seeds as well; and if falling into lava is a failure
of sign -1 rather than a bad step of -0.1, both learn to stand still. Left out: Minecraft, a real model, and the
analyser of trajectories (`design` calls one).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.signals import centre
from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.tabular import policy_gradient, sample, softmax, uniform
from palaestra.credit import return_to_go
from palaestra.judges.programs import RewardProgram, annotate, auto_mc_reward
from palaestra.judges.prompts import Brief, describe
from palaestra.judges.writing import write

SIDE, LONGEST, EPISODES, UPDATES, RATE = 6, 30, 16, 200, 2.0
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


def transitions() -> tuple[np.ndarray, Turns]:
    """Next cell, int[cells, moves], and the table of all turns that there can be, an episode each."""
    cells = [(row, column) for row in range(SIDE) for column in range(SIDE)]
    after, rows = [], []
    for row, column in cells:
        for down, right in MOVES:
            cell = (min(max(row + down, 0), SIDE - 1), min(max(column + right, 0), SIDE - 1))
            after.append(cells.index(cell))
            rows.append((distance(cell), distance((row, column)), float(cell in LAVA), float(cell == EXIT)))
    keys = {"episode": range(len(rows)), "turn": [0] * len(rows), "agent": ["walker"] * len(rows)}
    return np.reshape(after, (-1, 4)), Turns(keys | dict(zip(COLUMNS, zip(*rows, strict=True), strict=True)))


def distance(cell: tuple[int, int]) -> float:
    """Steps to the exit if there were no lava."""
    return float(EXIT[0] - cell[0] + EXIT[1] - cell[1])


def exits(reward: np.ndarray, after: np.ndarray, over: np.ndarray, seeds: Sequence[int]) -> np.ndarray:
    """Share of episodes that end at the exit in the last 20 updates, per seed. reward: by cell and move."""
    streams = [np.random.default_rng(seed) for seed in seeds]
    runs, theta = np.arange(len(seeds))[:, None], np.zeros((len(seeds), SIDE**2, len(MOVES)))
    credit = centre(return_to_go("reward", gamma=0.95), over=("run", "turn"))
    found = []
    for update in range(UPDATES):
        policy, luck = softmax(theta), uniform(streams, LONGEST, EPISODES)
        cell = np.zeros((len(seeds), EPISODES), int)
        alive, steps = np.ones(cell.shape, bool), []
        for turn in range(LONGEST):
            move = sample(policy[runs, cell], luck[:, turn])
            run, episode = np.nonzero(alive)
            steps.append((run, episode, np.full(len(run), turn), cell[alive], move[alive]))
            cell = np.where(alive, after[cell, move], cell)
            alive &= ~over[cell]
        if update >= UPDATES - 20:
            found.append((cell == SIDE**2 - 1).mean(axis=1))
        run, episode, turn_of, state, action = (np.concatenate(part) for part in zip(*steps, strict=True))
        keys = {"run": run.astype(str), "episode": episode, "turn": turn_of, "agent": ["walker"] * len(run)}
        advantage = np.asarray(credit.evaluate(Turns(keys | {"reward": reward[state, action]})))
        theta += RATE * policy_gradient(policy, run, state, action, advantage) / EPISODES
    return np.asarray(np.mean(found, axis=0))


@reproduction(
    34,
    claim="A critic refuses what is wrong with a written reward and says so; signs of an accepted dense reward teach "
    "what the sparse one cannot.",
    baseline="sparse reward alone, signs as well",
    criterion="refusals for syntax, unknown column and constant reward, then acceptance; exit reached in > .9 of "
    "episodes after 200 updates, in < .3 with the sparse reward (5 seeds)",
    seeds=tuple(range(5)),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Write, then train."""
    after, table = transitions()
    answers = iter(ANSWERS)
    prompt = Brief("walk to the exit, around the lava", describe(table, COLUMNS)).auto_mc()
    template = RewardProgram("", "dense", COLUMNS)
    program, attempts = write(
        lambda prompts: [next(answers) for _ in prompts], prompt, template, table, functions=("dense", "sparse")
    )
    reasons = [[issue.kind for issue in attempt.issues] for attempt in attempts]
    if program is None or reasons != REASONS:
        return Outcome({"refusals": len(attempts)}, False)
    for name in ("dense", "sparse"):
        table = annotate(table, RewardProgram(program.source, name, COLUMNS), name)
    over = np.zeros(SIDE**2, bool)
    over[[row * SIDE + column for row, column in (*LAVA, EXIT)]] = True
    reached = {}
    for name, weight in (("both", 0.1), ("sparse", 0.0)):
        reward = np.asarray(auto_mc_reward(weight=weight).evaluate(table)).reshape(after.shape)
        reached[name] = exits(reward, after, over, seeds)
    measured = {f"exit_{name}": float(value.mean()) for name, value in reached.items()}
    measured |= {f"exit_{name}_worst": float(value.min()) for name, value in reached.items()}
    holds = measured["exit_both"] > 0.9 and measured["exit_sparse"] < 0.3
    return Outcome({"refusals": len(attempts) - 1, **measured}, holds)
