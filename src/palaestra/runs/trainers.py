"""Makes the trainer of one seed from a resolved recipe: the only place where fields of a recipe meet the `Trainer`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from palaestra.agents import Team
from palaestra.envs.protocol import EnvFactory
from palaestra.learning import Learner, Trainer
from palaestra.learning.phases import PhasedTrainer, TrainingPhase
from palaestra.play.executors import Executor
from palaestra.runs import budget
from palaestra.runs.build import Setup
from palaestra.runs.phases import Phase


def trainer_of(
    setup: Setup,
    team: Team,
    learner: Learner,
    executor: Executor,
    *,
    seed: int,
    corpus: Iterable[str],
    env: EnvFactory | None = None,
    **further: Any,
) -> Trainer:
    """Trainer of one seed.

    Args:
        setup: the resolved recipe; with phases the trainer changes its parts between them.
        team: who plays.
        learner: made for it.
        executor: plays.
        seed: of the training.
        corpus: texts that warm up tokenizers.
        env: in place of the recipe's training env, which it may wrap.
        further: arguments of `Trainer` that no field of a recipe sets: directory, evaluate, progress, …
    """
    part = setup.training
    whole = {
        "advisers": setup.advisers(seed, corpus),
        "learner": learner,
        "executor": executor,
        "iterations": part.iterations,
        "seed": seed,
        "should_stop": budget.stopper(part.budget),
        "run": str(seed),
        **further,
    }
    if setup.order is not None:
        phases = [phase_of(phase, each) for phase, each in setup.phases]
        steps, endless = setup.order.steps, setup.order.endless
        return PhasedTrainer(env or setup.train, team, phases=phases, steps=steps, endless=endless, **whole)
    return Trainer(
        env or setup.train,
        team,
        credit=setup.credit,
        reward=setup.reward,
        stages=setup.stages,
        groups=part.groups,
        group_size=part.group_size,
        incomplete=part.incomplete,
        lag=part.lag,
        **whole,
    )


def phase_of(phase: Phase, setup: Setup) -> TrainingPhase:
    """A phase of a training from its resolved recipe."""
    part = setup.training
    return TrainingPhase(
        phase.name,
        phase.ends,
        credit=setup.credit,
        reward=setup.reward,
        stages=setup.stages,
        groups=part.groups,
        group_size=part.group_size,
        incomplete=part.incomplete,
        learner=setup.learner,
        env=setup.train if "env" in phase.changes else None,
    )
