"""Makes the trainer of one seed from a resolved recipe: the only place where fields of a recipe meet the `Trainer`."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

from palaestra.agents import Team
from palaestra.agents.policy import Policy
from palaestra.envs.protocol import EnvFactory
from palaestra.learning import Learner, Trainer
from palaestra.learning.league.population import League, LeagueSettings
from palaestra.learning.league.rules import read_rule
from palaestra.learning.league.trainer import LeagueTrainer, PhasedLeagueTrainer
from palaestra.learning.phases import PhasedTrainer, TrainingPhase
from palaestra.play.executors import Executor
from palaestra.runs import budget
from palaestra.runs.build import Setup, policy
from palaestra.runs.config import PolicyPart
from palaestra.runs.opponents import seat_lists
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
    """Make the `Trainer` of one seed from a `Setup`, its team, learner and executor.

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
    league = league_of(setup, team, seed=seed, corpus=corpus)
    if league is not None:
        whole["league"] = league
    if setup.order is not None:
        phases = [phase_of(phase, each) for phase, each in setup.phases]
        steps, endless = setup.order.steps, setup.order.endless
        phased = PhasedTrainer if league is None else PhasedLeagueTrainer
        return phased(env or setup.train, team, phases=phases, steps=steps, endless=endless, **whole)
    make = Trainer if league is None else LeagueTrainer
    return make(
        env or setup.train,
        team,
        credit=setup.credit,
        reward=setup.reward,
        stages=setup.stages,
        groups=part.groups,
        group_size=part.group_size,
        incomplete=part.incomplete,
        lag=part.lag,
        inflight=part.inflight,
        **whole,
    )


def phase_of(phase: Phase, setup: Setup) -> TrainingPhase:
    """Makes the trainer's `TrainingPhase` from a recipe's `Phase` and that phase's `Setup`."""
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


def league_of(setup: Setup, team: Team, *, seed: int, corpus: Iterable[str] = ()) -> League | None:
    """Makes the `League` of opponents of a `Setup`'s team, at first of scripts only; None if it has no opponents."""
    part = setup.opponents
    if part is None:
        return None
    settings = LeagueSettings(
        rule=read_rule(part.method),
        text=part.method,
        floor=part.floor,
        every=part.every,
        matches=part.matches,
        seats=seat_lists(part, team, setup.learned(team)),
        per_iteration=part.per_iteration,
    )
    named = dict(reversed(setup.parts))  # policies of controls come last, and are others
    parts = {name: named[name] for name in part.scripts}
    make = functools.partial(_policies, parts, setup.train, seed * 1000 + 999, list(corpus))
    return League(settings, team, learned=setup.learned(team), scripts=make(), make_scripts=make, seed=seed)


def _policies(
    parts: Mapping[str, PolicyPart], factory: EnvFactory, seed: int, corpus: Iterable[str]
) -> dict[str, Policy]:
    return {name: policy(name, part, factory=factory, seed=seed, corpus=corpus) for name, part in parts.items()}
