"""A run that was stopped and resumed ends as one that was not, whatever its stages remember."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from palaestra.agents import Team
from palaestra.algebra.turns import Turns
from palaestra.learning import Trainer
from palaestra.runs.build import resolve
from palaestra.runs.recipe import load

WRITER = "policies.writer={kind: script, options: {script: 'palaestra.judges.scripted:nearer'}}"
ANNOTATOR = (
    "policies.annotator={kind: script, options: {script: 'palaestra.judges.scripted:mentions', words: [useful]}}"
)
LINE = ("env.options={map: S....G, horizon: 8, bonus: {S: 0.3}}",)
RUNS: dict[str, tuple[str, ...]] = {
    "judge": ("talk",),
    "message_labels": (
        "maze", "env.options={map: message, horizon: 8}", ANNOTATOR, "stages=message_labels('reach the goal', batch=1)",
        "reward=oni_reward('label', 'message')",
    ),
    "counts and scale": (
        "codes", "stages=counts('depth'), running_scale('episodic_global_bonus(\"depth\")')",
        "reward=scaled(episodic_global_bonus('depth'), 'scale')",
    ),
    "hops": (
        "maze", "env.options={map: S....G, horizon: 8}",
        "policies.guide={kind: script, options: {script: 'palaestra.envs.worlds.film:demonstrator'}}",
        "stages=hops('guide')", "reward=robo_dopamine(hop_progress('hop.forward', method='forward'), gamma=0.95)",
    ),
    "scene": (
        "kitchen", "policies.reader={kind: script, options: {script: 'palaestra.envs.worlds.kitchen:reader'}}",
        "stages=scene()", "reward=goal_score('scene', 'scene.wanted')",
    ),
    "utterances": (
        "talk", "stages=judge('fits', question='Right?', level='turn'), utterance_reward(\"col('judge.fits')\")",
        "reward=col('utterance')",
    ),
    "rnd": ("maze", *LINE, "stages=embed('observation', size=8), rnd('embedding')", "reward=col('novelty')"),
    "program": (
        "maze", "env.options={map: lava, horizon: 6}", WRITER,
        "stages=program(writer='writer', columns=['before', 'distance', 'lava', 'goal'], functions=['dense', 'sparse'],"
        " task='out')", "reward=auto_mc_reward()",
    ),
    "step_rewards": ("film",),
    "multipliers": (
        "arms", "stages=multipliers({'broken': 0.2})", "reward=lagrangian('reward', ('broken', 'price.broken'))",
    ),
    "designed": ("maze", *LINE, "stages=designed(2)", "reward=col('designed')"),
    "expadard": ("maze", *LINE, "stages=designed(adapt=3)", "reward=col('designed')"),
    "explors": ("maze", *LINE, "stages=explors(every=1)", "credit=centre(return_to_go('explored',gamma=.9),over=())"),
    "alternate": (
        "cooper", "env.options={largest: 1, free: false}", "warm_start=null",
        "policies.pupil={kind: tabular, options: {capacity: 16}}",
    ),
    "rubric_game": (
        "world", "env.make=native/stories", "stages=rubric_game(rules=[0, 11])", "reward=col('verdict')",
    ),
    "bilevel": ("maze", *LINE, "stages=bilevel(first=2)", "reward=col('aligned')"),
}  # fmt: skip


def train(name: str, directory: Path, iterations: int, *, resume: bool = False) -> tuple[Team, list[Any]]:
    recipe, *changes = RUNS[name]
    setup = resolve(load(recipe, changes))
    team = setup.team(0, ())
    trainer = Trainer(
        setup.train, team, credit=setup.credit, reward=setup.reward, stages=setup.stages, learner=setup.learner(team),
        advisers=setup.advisers(0, ()), executor=setup.executor(), iterations=iterations, groups=2, group_size=2,
        directory=directory, checkpoint_every=2, save_turns="all", incomplete="keep",
    )  # fmt: skip
    return team, trainer.run(resume=resume)


@pytest.mark.parametrize("name", RUNS)
def test_a_resume_is_exact(name: str, tmp_path: Path) -> None:
    whole, _ = train(name, tmp_path / "whole", 3)
    train(name, tmp_path / "stopped", 2)
    resumed, _ = train(name, tmp_path / "stopped", 3, resume=True)
    for policy, state in whole.state_dict().items():
        for part, tensor in state.items():
            assert tensor.equal(resumed.state_dict()[policy][part]), (policy, part)
    tables = [Turns.load(tmp_path / each / "turns").frame.drop("duration") for each in ("whole", "stopped")]
    assert tables[0].equals(tables[1])
