"""Play, reward, credit, learn, prove: two language models learn to understand each other, and an interval says so.

The scout sees in which box a thing is and may say one word; the opener hears that word and opens a box. Both begin as
new transformers that imitate a teacher who mumbles. Everything happens here, in the order of the loop, so that each
line can be changed; `palaestra.Trainer` is this loop with metrics and checkpoints. No download, about 10 seconds:

    python examples/first_proof.py
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np
import polars as pl
import torch

from palaestra import LMPolicy, PolicyGradient, ScriptedPolicy, Team, Turns
from palaestra.agents import Request
from palaestra.credit import episode_return, fill_missing, standardise, where
from palaestra.envs import Action, Observation, StepResult
from palaestra.evaluation import comparison_table, trials, verdict
from palaestra.learning import demonstrations, supervised_warm_start
from palaestra.play.rollout import rollout

BOXES = ("red", "green", "blue", "black")
WORDS = ("ba", "do", "ki", "lu")
THINGS = ("key", "coin", "ring", "shell", "pearl", "stamp", "watch", "bell")


class Boxes:
    """What is played: one word from the scout to the opener. A word that is none of the four ends the round."""

    agents = ("scout", "opener")
    task = ""

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Hide something; the scout sees where."""
        rng = np.random.default_rng(seed)
        self.box = str(rng.choice(BOXES))
        thing, lost = rng.choice(THINGS, 2, replace=False)
        self.task = f"the {thing} is in the {self.box} box, the {lost} is lost"
        return {"scout": Observation(self.task, choices=WORDS)}

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """The scout's word is what the opener is told; the opener's box ends the round."""
        ((agent, action),) = actions.items()
        if agent == "scout" and action in WORDS:
            return StepResult({"opener": Observation(f"you hear {action}", choices=BOXES)})
        found = agent == "opener" and action == self.box
        legal = action in (WORDS if agent == "scout" else BOXES)
        info = {"success": found, "valid": {agent: legal}}
        return StepResult({}, dict.fromkeys(self.agents, float(found)), terminated=True, info=info)


def mumbling_teacher(request: Request) -> Action:
    """The word of the box, or the box of the word; but half of the time anything."""
    heard, said = (BOXES, WORDS) if request.agent == "scout" else (WORDS, BOXES)
    if request.rng.random() < 0.5:
        return str(request.rng.choice(said))
    return next(answer for cue, answer in zip(heard, said) if f" {cue}" in request.observation.text)


def main(seed: int = 0) -> None:
    torch.set_num_threads(1)  # for models this small, more threads only get into each other's way
    # Who plays: two transformers of 0.1 M parameters, each with its own, after a second of imitation.
    teacher = ScriptedPolicy(mumbling_teacher)
    lessons = rollout(Boxes, Team(scout=teacher, opener=teacher), groups=500, seed=seed)
    corpus = [*lessons["observation"], *lessons["action"]]
    team = Team(
        scout=LMPolicy.tiny(corpus, name="scout", seed=2 * seed, max_new_tokens=4),
        opener=LMPolicy.tiny(corpus, name="opener", seed=2 * seed + 1, max_new_tokens=4),
    )
    supervised_warm_start(team, demonstrations(lessons, team), steps=100, seed=seed)
    before = team.frozen_copy()

    learner = PolicyGradient(team, lr=3e-3)
    began = time.process_time()
    for iteration in range(1, 26):
        # 1. Play: 32 tasks, each 8 times. The same seed gives the same turns, to the bit.
        turns = rollout(Boxes, team, groups=32, group_size=8, seed=seed, iteration=iteration)
        # 2. Reward: what the env gave, and a fine for saying what is no word.
        turns = turns.with_column(reward=where("valid", fill_missing("reward", 0.0), -0.1))
        # 3. Credit: was this episode better than the others of its group?
        turns = turns.with_column(advantage=standardise(episode_return(), over="group"))
        # 4. Learn: one step per policy.
        metrics = learner.update(turns)
        if iteration % 5 == 0:
            success, entropy = turns["success"].mean(), metrics["scout"]["entropy"]
            print(f"iteration {iteration:2d}  success {success:.2f}  entropy of the scout {entropy:.2f}")
    print(f"learning took {time.process_time() - began:.1f} CPU-seconds\n")

    # 5. Evaluate: 100 rounds from seeds that training never uses, 4 trials each, the same for both teams.
    played = [
        rollout(Boxes, players, groups=100, group_size=4, seed=seed, stream="eval").with_column(system=pl.lit(name))
        for name, players in (("before", before), ("after", team))
    ]
    for row in comparison_table(trials(Turns.concat(played))):
        s = row.success
        print(f"{row.system:6s} success {s.mean:.0%} (95 % interval {s.low:.0%} to {s.high:.0%}): {verdict(row)}")


if __name__ == "__main__":
    main()
