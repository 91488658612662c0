"""[216] Text2Reward (arXiv 2309.11489): reward code in general names, translated, and revised by feedback.

A scripted model writes for the world `fetch`: a key must be brought to a door. Its first program pays for picking up
the key, which is farmed by dropping it again; told so, it adds that the key must not be dropped. A table of logits is
trained by the recipe `world` under each program, by the stage `program`, and under a hand-written reward for progress.
Left out: robots, a real model, and examples retrieved from a pool (`Brief.text2reward` takes them).
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestra.agents import Team
from palaestra.agents.scripted import random_legal
from palaestra.envs.worlds import Fetch
from palaestra.judges.programs import RewardProgram
from palaestra.judges.prompts import Brief, NameMap, describe
from palaestra.judges.writing import design
from palaestra.play.rollout import rollout
from palaestra_atlas.reproductions import Outcome, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

NAMES = NameMap(
    {
        "key": "carried",
        "key_distance": "key_gap",
        "door_distance": "door_gap",
        "key_picked": "picked",
        "key_dropped": "dropped",
        "door": "opened",
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
WORLD: dict[str, Any] = {
    "env": {"make": "native/fetch", "options": {"side": 4, "horizon": 20}},
    "credit": 'centre(return_to_go(gamma=0.95), over=("group", "turn"))',
    "train": {"iterations": 40},
}
EXPERT = {**WORLD, "reward": '5 * col("reward") + shape(2 * col("progress"), gamma=1.0)'}
"""Progress of every move. With the discount of the return, shaping adds up to a number of the state alone, which a
return that is played to the end does not notice."""


def under(program: RewardProgram) -> dict[str, Any]:
    """The recipe with this program in place of the reward."""
    path = Path(tempfile.mkdtemp()) / "reward.py"
    path.write_text(program.source, "utf-8")
    stage = f'program("{path}", functions=["{program.function}"], columns={list(COLUMNS)})'
    return {**WORLD, "stages": [stage], "reward": f'col("r_{program.function}")'}


def looked_at(learned: TrainingResult) -> dict[str, float]:
    """Share of fresh episodes that open the door, keys dropped per episode."""
    turns = learned.play(groups=50, seed=1).frame
    episodes = turns.n_unique(["group", "episode"])
    return {"opened": int(turns["opened"].sum()) / episodes, "drops": int(turns["dropped"].sum()) / episodes}


def round_trip(seed: int) -> bool:
    """Whether translating there and back is the identity on 20 snippets of names that contain each other."""
    rng = np.random.default_rng(seed)
    pieces = [*NAMES.names, "keys", "turn['", "']", " + ", "door_", "\n", "("]
    snippets = ["".join(rng.choice(pieces, 20)) for _ in range(20)]
    return all(NAMES.to_general(NAMES.to_specific(text)) == text for text in snippets)


@reproduction(
    216,
    claim="Reward code written in general names is translated without loss, trains as well as an expert's reward "
    "once its flaw was fed back, and the fed-back constraint is kept.",
    baseline="a hand-written reward for progress and the door; the first program, before feedback",
    criterion="20 snippets there and back unchanged; door opened at least as often as with the expert's reward less "
    ".05 after 40 iterations; fewer than .05 keys dropped an episode after the feedback round, more than 1 before, "
    "means over the seeds (so in the fresh block of three that was tried)",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """Two rounds of writing, and the expert."""
    answers, trained = iter([FIRST, SECOND]), []

    def brief_training(program: RewardProgram) -> tuple[float, str]:
        arms = train_arms("world", {"program": under(program)}, seeds, looked_at)
        trained.append(arms)
        opened, drops = (arms.mean("program", name) for name in ("opened", "drops"))
        return opened, f"opens the door in {opened:.0%}, drops the key {drops:.1f} times"

    table = rollout(Fetch, Team(hand=random_legal()), groups=8, seed=0)
    prompt = Brief("fetch the key and open the door", NAMES.to_general(describe(table, COLUMNS))).text2reward()
    template = RewardProgram("", "compute_dense_reward", COLUMNS)
    rounds = design(
        lambda prompts: [next(answers) for _ in prompts],
        prompt, template, table, brief_training, rounds=2, specific=NAMES.to_specific,
    )  # fmt: skip
    if any(each.program is None for each in rounds):
        return Outcome({"rounds": len(rounds)}, False)
    expert = train_arms("world", {"expert": EXPERT}, seeds, looked_at)
    first, second = ({name: arms.mean("program", name) for name in ("opened", "drops")} for arms in trained)
    measured = expert.measured() | {f"{name}_first": x for name, x in first.items()}
    measured |= {f"{name}_second": x for name, x in second.items()}
    measured["round_trip"] = float(all(round_trip(seed) for seed in seeds))
    good = second["opened"] >= expert.mean("expert", "opened") - 0.05 and second["drops"] < 0.05 and first["drops"] > 1
    return Outcome(measured, bool(good and measured["round_trip"]))
