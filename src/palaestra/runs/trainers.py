"""Makes the trainer of one seed from a resolved recipe: the only place where fields of a recipe meet the `Trainer`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from palaestra.agents import Team
from palaestra.envs.protocol import EnvFactory
from palaestra.learning import Learner, Trainer
from palaestra.play.executors import Executor
from palaestra.runs import budget
from palaestra.runs.build import Setup


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
        setup: the resolved recipe.
        team: who plays. learner: made for it. executor: plays.
        seed: of the training. corpus: texts that warm up tokenizers.
        env: in place of the recipe's training env, which it may wrap.
        further: arguments of `Trainer` that no field of a recipe sets: directory, evaluate, progress, …
    """
    part = setup.training
    return Trainer(
        env or setup.train,
        team,
        credit=setup.credit,
        reward=setup.reward,
        stages=setup.stages,
        advisers=setup.advisers(seed, corpus),
        learner=learner,
        executor=executor,
        iterations=part.iterations,
        groups=part.groups,
        group_size=part.group_size,
        seed=seed,
        should_stop=budget.stopper(part.budget),
        incomplete=part.incomplete,
        lag=part.lag,
        run=str(seed),
        **further,
    )
