"""[216] Text2Reward (arXiv 2309.11489): reward code in general names, translated, and revised by feedback.

A scripted model writes for a 5 x 5 grid in which a key must be fetched to open a door. Its first program pays for
picking up the key, which is farmed by dropping it again; told so, it adds that the key must not be dropped. Tabular
Q-learning under each program is compared with a hand-written shaping of the same task. Left out: robots, a real model,
and examples retrieved from a pool (`Brief.text2reward` takes them).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.algebra.turns import Turns
from palaestra.atlas.harness import Outcome, reproduction
from palaestra.atlas.reproductions.tabular import uniform
from palaestra.judges.programs import RewardProgram
from palaestra.judges.prompts import Brief, NameMap, describe
from palaestra.judges.writing import design

SIDE, LONGEST, EPISODES, TESTS = 5, 30, 300, 100
KEY, DOOR = (0, 4), (4, 1)
ACTIONS = ((-1, 0), (1, 0), (0, -1), (0, 1), "pick up", "drop")
OPEN = 2 * SIDE**2
"""The state after the door; the others are 2 · cell + has the key."""
EPSILON, ALPHA, GAMMA = 0.1, 0.5, 0.95
NAMES = NameMap(
    {
        "key": "carried",
        "key_distance": "obj_0_l1",
        "door_distance": "obj_1_l1",
        "key_picked": "obj_0_grasp",
        "key_dropped": "obj_0_release",
        "door": "unlocked",
    }
)
COLUMNS = tuple(NAMES.names.values())
FIRST = """def compute_dense_reward(turn):
    if turn["door"]:
        return 5.0
    # stage 1: fetch the key; stage 2: bring it to the door
    if turn["key"]:
        return 1.0 * turn["key_picked"] - 0.02 * turn["door_distance"]
    return -0.1 - 0.02 * turn["key_distance"]
"""
SECOND = FIRST.replace('    if turn["key"]:', '    if turn["key_dropped"]:\n        return -2.0\n    if turn["key"]:')


def world() -> tuple[np.ndarray, Turns]:
    """Next state, int[states, actions], and a table with a row for each state and action."""
    after, rows = np.zeros((OPEN + 1, len(ACTIONS)), int), []
    for state in range(OPEN + 1):
        for action, effect in enumerate(ACTIONS):
            cell, has = (state // 2 // SIDE, state // 2 % SIDE), state % 2
            now = has
            if isinstance(effect, tuple):
                cell = (min(max(cell[0] + effect[0], 0), SIDE - 1), min(max(cell[1] + effect[1], 0), SIDE - 1))
            elif effect == "drop":
                now = 0
            elif cell == KEY:  # a key that is dropped is back where it was
                now = 1
            opened = state == OPEN or (cell == DOOR and now == 1)
            after[state, action] = OPEN if opened else 2 * (cell[0] * SIDE + cell[1]) + now
            away = [float(abs(cell[0] - goal[0]) + abs(cell[1] - goal[1])) for goal in (KEY, DOOR)]
            rows.append((bool(now), *away, now > has, has > now, opened))
    keys = {"episode": range(len(rows)), "turn": [0] * len(rows), "agent": ["hand"] * len(rows)}
    return after, Turns(keys | dict(zip(COLUMNS, zip(*rows, strict=True), strict=True)))


def expert(after: np.ndarray) -> np.ndarray:
    """Sparse 5 for the door, shaped by γΦ' - Φ with Φ >= 0; else standing still would pay (γ - 1)·Φ at first."""
    cells = np.arange(SIDE**2)
    row, column = cells // SIDE, cells % SIDE
    to_key, to_door = (np.abs(row - goal[0]) + np.abs(column - goal[1]) for goal in (KEY, DOOR))
    between = abs(KEY[0] - DOOR[0]) + abs(KEY[1] - DOOR[1])
    left = np.stack([to_key + 1 + between, to_door], axis=-1).ravel()
    phi = np.append(0.1 * (left.max() - left), 0.0)
    shaped = GAMMA * phi[after] - phi[:, None] + 5.0 * (after == OPEN)
    return np.where(np.arange(OPEN + 1)[:, None] == OPEN, 0.0, shaped)


def train(reward: np.ndarray, after: np.ndarray, seeds: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Q-learning, then greedy play from random cells: share that opens the door, drops per episode; per seed."""
    streams = [np.random.default_rng(seed) for seed in seeds]
    runs, q = np.arange(len(seeds)), np.zeros((len(seeds), OPEN + 1, len(ACTIONS)))
    for _ in range(EPISODES):
        luck = uniform(streams, LONGEST + 1, 3)
        state = 2 * (luck[:, 0, 0] * SIDE**2).astype(int)
        for turn in range(1, LONGEST + 1):
            tie = q[runs, state] + 1e-9 * np.modf(luck[:, turn, 2:] * np.arange(7, 7 + len(ACTIONS)))[0]
            action = np.where(
                luck[:, turn, 0] < EPSILON, (luck[:, turn, 1] * len(ACTIONS)).astype(int), tie.argmax(axis=1)
            )
            new = after[state, action]
            goal = reward[state, action] + GAMMA * np.where(new == OPEN, 0.0, q[runs, new].max(axis=1))
            live = state != OPEN
            q[runs, state, action] += ALPHA * live * (goal - q[runs, state, action])
            state = new
    state = 2 * (uniform(streams, TESTS) * SIDE**2).astype(int)
    dropped = np.zeros(state.shape)
    for _ in range(LONGEST):
        action = q[runs[:, None], state].argmax(axis=-1)
        new = after[state, action]
        dropped += (state % 2 == 1) & (ACTIONS.index("drop") == action)
        state = new
    return (state == OPEN).mean(axis=1), dropped.mean(axis=1)


def round_trip(seed: int) -> bool:
    """Whether translating there and back is the identity on 20 snippets of names that contain each other."""
    rng = np.random.default_rng(seed)
    pieces = [*NAMES.names, "keys", "turn['", "']", " + ", "door_", "\n", "("]
    snippets = ["".join(rng.choice(pieces, 20)) for _ in range(20)]
    return all(NAMES.to_general(NAMES.to_specific(text)) == text for text in snippets)


@reproduction(
    216,
    claim="Reward code written in general names is translated without loss, trains as well as an expert's reward once "
    "its flaw was fed back, and the fed-back constraint is kept.",
    baseline="potential-shaped reward written by hand; the first program, before feedback",
    criterion="20 snippets there and back unchanged; door opened at least as often as with the expert's reward less "
    ".05 after 300 episodes; no key dropped after the feedback round, some before (5 seeds)",
    seeds=tuple(range(5)),
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Two rounds of writing, and the expert."""
    after, table = world()
    answers = iter([FIRST, SECOND])
    results = []

    def brief_training(program: RewardProgram) -> tuple[float, str]:
        values, _ = program.score(table)
        opened, dropped = train(values.reshape(after.shape), after, seeds)
        results.append((opened, dropped))
        return float(opened.mean()), f"opens the door in {opened.mean():.0%}, drops the key {dropped.mean():.1f} times"

    prompt = Brief("fetch the key and open the door", NAMES.to_general(describe(table, COLUMNS))).text2reward()
    template = RewardProgram("", "compute_dense_reward", COLUMNS)
    rounds = design(
        lambda prompts: [next(answers) for _ in prompts],
        prompt, template, table, brief_training, rounds=2, specific=NAMES.to_specific,
    )  # fmt: skip
    if any(each.program is None for each in rounds):
        return Outcome({"rounds": len(rounds)}, False)
    best = train(expert(after), after, seeds)[0]
    (first, drops), (second, drops_after) = results
    measured = {
        "opened_expert": float(best.mean()), "opened_first": float(first.mean()), "opened_second": float(second.mean()),
        "drops_first": float(drops.mean()), "drops_second": float(drops_after.mean()),
        "round_trip": float(all(round_trip(seed) for seed in seeds)),
    }  # fmt: skip
    holds = second.mean() >= best.mean() - 0.05 and drops_after.sum() == 0 and drops.mean() > 0
    return Outcome(measured, bool(holds and measured["round_trip"]))
