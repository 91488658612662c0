"""A recipe trained in this process, without files and looks: what experiments and tests compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from palaestra.agents import Team
from palaestra.algebra.turns import Turns
from palaestra.learning import demonstrations, supervised_warm_start
from palaestra.learning.stages.stage import Stages
from palaestra.play.executors import Executor, Plan
from palaestra.runs.build import Setup, check_columns, check_phases, resolve, scripted_play
from palaestra.runs.recipe import Recipe, load, override, validate
from palaestra.runs.trainers import trainer_of


@dataclass(frozen=True)
class TrainingResult:
    """Result data of `learn`: the trained team, metrics dicts per iteration, setup, executor, and last stages."""

    team: Team
    lines: list[dict[str, Any]]
    setup: Setup
    executor: Executor
    stages: Stages | None = None

    def curve(self, field: str = "success") -> list[float]:
        """A metric by iteration as a list, NaN where it is missing; nested by dots: "policies.player.entropy"."""
        found = []
        for line in self.lines:
            value: Any = line
            for part in field.split("."):
                value = value.get(part) if isinstance(value, Mapping) else None
            found.append(float("nan") if value is None else float(value))
        return found

    def play(self, *, groups: int = 64, group_size: int = 1, seed: int = 0) -> Turns:
        """Play held-out tasks with the trained team; returns the turns."""
        plan = Plan(groups=groups, group_size=group_size, seed=seed, stream="eval")
        return self.executor.play(self.setup.test, self.team, plan)


def learn(
    recipe: Recipe | Mapping[str, Any] | str | Path,
    changes: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    after_iteration: Callable[[int, Team], dict[str, float]] | None = None,
    on_turns: Callable[[int, Turns], None] | None = None,
    trust: bool = False,
    start: Mapping[str, Mapping[str, Any]] | None = None,
) -> TrainingResult:
    """Train one seed of a recipe (object, dict, name, file) as `palaestra train`, but in memory: a `TrainingResult`.

    recipe: a `Recipe`, plain data, a shipped recipe's name or a file. changes: fields that replace its own.
    after_iteration: further numbers for the metrics. on_turns: shown every iteration's training turns.
    start: `state_dict` of a team with the same policies, whose parameters this one begins with, without a warm start.
    trust: run the code that a file or plain data names; see docs/security.md.

    Raises:
        InputError: the recipe asks for what is not there, before anything is played.
    """
    made = (
        recipe if isinstance(recipe, Recipe) else load(recipe, trust=trust) if isinstance(recipe, str | Path) else None
    )
    made = validate(dict(recipe), trust=trust) if made is None else made  # type: ignore[arg-type]
    setup = resolve(override(made, dict(changes)) if changes else made)
    executor = setup.executor()
    team, corpus = started(setup, executor, seed, start=start)
    learner = setup.learner(team)
    check_columns(setup, learner)
    check_phases(setup, team)
    trainer = trainer_of(
        setup, team, learner, executor, seed=seed, corpus=corpus, after_iteration=after_iteration, on_turns=on_turns
    )
    return TrainingResult(team, trainer.run(), setup, executor, trainer.stages)


def started(
    setup: Setup, executor: Executor, seed: int, *, start: Mapping[str, Mapping[str, Any]] | None = None
) -> tuple[Team, list[str]]:
    """(team, texts) of a `Setup`, executor and seed: the team after its warm start, texts for a `tiny` tokenizer.

    start: as of `learn`.
    """
    part = setup.warm_start
    played, corpus = scripted_play(setup, executor, seed, groups=16)
    team = setup.team(seed, corpus)
    if start is not None:
        team.load_state_dict({name: dict(state) for name, state in start.items()})
    elif part is not None and part.steps:
        supervised_warm_start(
            team, demonstrations(played, team), steps=part.steps, batch=part.batch, lr=part.lr, seed=seed
        )
    return team, corpus
