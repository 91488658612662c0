"""From a recipe to objects, once, at the door: env, team, stages, learner, play. Nothing below sees a recipe."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from palaestra.agents import Team
from palaestra.agents.policy import Learnable, Policy
from palaestra.algebra.parse import parse
from palaestra.algebra.signals import Signal, short
from palaestra.algebra.turns import SCHEMA, Turns
from palaestra.envs import telling
from palaestra.envs.facts import facts_of
from palaestra.envs.protocol import EnvFactory
from palaestra.errors import InputError, MissingExtraError, RecipeError, nearest
from palaestra.foundation.registry import read_call
from palaestra.learning.pipelining import check_inflight
from palaestra.learning.protocol import LEARNERS, VERBS, Learner
from palaestra.learning.stages.stage import REWARD, Stages, missing
from palaestra.learning.trackers import check as check_trackers
from palaestra.play.executors import EXECUTORS, Executor, Plan
from palaestra.play.rollout import rollout
from palaestra.runs import budget as budgets
from palaestra.runs import coalitions, opponents, searching
from palaestra.runs.config import EvaluationPart, LearnPart, PlayPart, PolicyPart, TrainPart, WarmStartPart
from palaestra.runs.envs import agents_of, env, try_env
from palaestra.runs.measures import check as check_measures
from palaestra.runs.opponents import OpponentsPart
from palaestra.runs.phases import Order, Phase, order, phases_of
from palaestra.runs.phases import read as read_phases
from palaestra.runs.policies import FROM_DISK, POLICIES, Demonstrator, Making, check_from_disk, reads_conversations
from palaestra.runs.recipe import Recipe, alone, override
from palaestra.runs.scoring import asked
from palaestra.runs.scripts import call, naming
from palaestra.runs.scripts import make as make_script
from palaestra.runs.searching import Searches
from palaestra.testing import check_episode


@dataclass(frozen=True)
class Setup:
    """Data of a resolved recipe: env factories, stages, signals, and per-seed makers of team, learner and other parts.

    They are called anew for each seed.

    train, test: the env's two splits. agents: who can act. team: (seed, corpus) -> Team.
    learner: Team -> Learner. stages: texts. executor: () -> Executor. controls: other teams by name, (seed, corpus) ->
    Team; searches: the trained team, searching; rivals: those that are trained themselves.
    advisers: (seed, corpus) -> the policies without a seat that are asked. parts: all policies that the recipe names,
    those of controls too. track: who is told the metrics. recipe: all of it as plain data. opponents: of a league.
    """

    name: str
    train: EnvFactory
    test: EnvFactory
    agents: tuple[str, ...]
    team: Callable[[int, Iterable[str]], Team]
    learner: Callable[[Team], Learner]
    stages: tuple[str, ...]
    executor: Callable[[], Executor]
    reward: Signal | dict[str, Signal] | None
    credit: Signal
    warm_start: WarmStartPart | None
    training: TrainPart
    evaluation: EvaluationPart
    controls: Mapping[str, Callable[[int, Iterable[str]], Team]]
    searches: Mapping[str, Searches]
    rivals: Mapping[str, Setup]
    advisers: Callable[[int, Iterable[str]], dict[str, Policy]]
    parts: tuple[tuple[str, PolicyPart], ...] = ()
    track: tuple[str, ...] = ()
    recipe: dict[str, Any] = field(default_factory=dict)
    phases: tuple[tuple[Phase, Setup], ...] = ()
    order: Order | None = None
    opponents: OpponentsPart | None = None

    def learned(self, team: Team) -> tuple[str, ...]:
        """Names of the policies of a team that are not frozen for the whole run."""
        frozen = self.recipe.get("learn", {}).get("freeze", ())
        return tuple(policy.name for policy in team.trainable if policy.name not in frozen)


def resolve(recipe: Recipe) -> Setup:
    """Resolve a `Recipe` into a `Setup`: look up all names, validate; makes env factories and signals, but no team yet.

    Of a recipe with phases each phase is a setup of its own; stages, reward, credit and learner are the first one's.

    Raises:
        RecipeError: something is not there, or does not take these options; in a phase, names that.
    """
    if not recipe.phases:
        return _resolved(recipe)
    cycles = read_phases(recipe.phases, recipe.train.iterations)
    made: list[tuple[Phase, Setup]] = []
    for phase in phases_of(cycles):
        with prefixed(phase.place):
            merged = recipe.in_phase(phase)
            made.append((phase, _resolved(merged)))
        # phases that learn alike share a learner
        alike = next(other.learner for (one, other) in made if recipe.in_phase(one).learn == merged.learn)
        made[-1] = (phase, replace(made[-1][1], learner=alike))
    whole, first = _resolved(recipe.model_copy(update={"phases": ()})), made[0][1]
    for phase, setup in made:
        if setup.agents != whole.agents:
            raise RecipeError(
                f"{phase.place}.env: its agents are {', '.join(setup.agents)}, those of the recipe's env "
                f"{', '.join(whole.agents)}; the seats stay the same"
            )
    return replace(
        whole,
        learner=first.learner,
        stages=first.stages,
        reward=first.reward,
        credit=first.credit,
        training=first.training,
        advisers=functools.partial(_all_advisers, [setup.advisers for _, setup in made]),
        phases=tuple(made),
        order=order(cycles, recipe.train.iterations),
        recipe=recipe.model_dump(mode="json"),
    )


def _all_advisers(
    makers: Sequence[Callable[[int, Iterable[str]], dict[str, Policy]]], seed: int, corpus: Iterable[str]
) -> dict[str, Policy]:
    """The policies without a seat that any phase asks, each once."""
    found: dict[str, Policy] = {}
    for make in makers:
        found = {**make(seed, corpus), **found}
    return found


@contextlib.contextmanager
def prefixed(place: str) -> Iterator[None]:
    """Context manager that turns an InputError raised inside into a RecipeError prefixed with a place in the recipe."""
    try:
        yield
    except InputError as error:
        if isinstance(error, MissingExtraError) or str(error).startswith(place):
            raise
        raise RecipeError(f"{place}.{error}") from error


def _resolved(recipe: Recipe) -> Setup:
    train, test = env(recipe.env, "train"), env(recipe.env, "test")
    try_env(train, recipe.env.make)
    agents = agents_of(train)
    controls: dict[str, Callable[[int, Iterable[str]], Team]] = {}
    rivals: dict[str, Setup] = {}
    searches: dict[str, Searches] = {}
    for name, part in recipe.evaluation.controls.items():
        if part.train is not None:
            changed = override(alone(recipe), part.train, f"evaluation.controls.{name}.train")
            rivals[name] = resolve(alone(changed))
        elif part.search is not None:
            searches[name] = part.search
        elif part.script is not None:
            controls[name] = functools.partial(
                _scripted, part.script, part.options, test, f"evaluation.controls.{name}.script"
            )
        else:
            policies = {**recipe.policies, **(part.policies or {})}
            controls[name] = functools.partial(_made, policies, recipe.team, test)
    return Setup(
        name=recipe.name,
        train=train,
        test=test,
        agents=agents,
        team=functools.partial(_made, recipe.policies, recipe.team, train),
        learner=functools.partial(_learner, recipe.learn, recipe.train.iterations),
        stages=recipe.stages,
        executor=functools.partial(executor, recipe.play, recipe.imports),
        reward=_reward(recipe.reward),
        credit=parse(recipe.credit),
        warm_start=recipe.warm_start,
        training=recipe.train,
        evaluation=recipe.evaluation,
        controls=controls,
        searches=searches,
        rivals=rivals,
        advisers=functools.partial(_advisers, recipe, train),
        parts=tuple(
            (name, part)
            for policies in (recipe.policies, *(each.policies or {} for each in recipe.evaluation.controls.values()))
            for name, part in policies.items()
        ),
        track=recipe.track,
        recipe=recipe.model_dump(mode="json"),
        opponents=recipe.opponents,
    )


def policy(
    name: str,
    part: PolicyPart,
    *,
    factory: EnvFactory,
    seed: int,
    corpus: Iterable[str] = (),
    agents: Sequence[str] = (),
) -> Policy:
    """Make the policy of one `PolicyPart` of a recipe, for an env factory and seed; RecipeError if its kind is unknown.

    corpus: text of the env, from which a `tiny` model gets its tokenizer. agents: seats that the policy has.
    """
    field = f"policies.{name}.options"
    with naming(f"policies.{name}"):
        make = POLICIES.find(part.kind)
    return make(Making(name, dict(part.options), field, factory, seed, corpus, agents))


def _advisers(recipe: Recipe, factory: EnvFactory, seed: int, corpus: Iterable[str]) -> dict[str, Policy]:
    """The policies without a seat that a stage, a scorer or a search asks.

    Raises:
        RecipeError: one asks one that is not there.
    """
    stages, made = Stages(recipe.stages), {}
    asking = {f"stages: {text}": getattr(each, "asks", ()) for text, each in zip(stages.texts, stages)}
    searches = {name: part.search for name, part in recipe.evaluation.controls.items() if part.search is not None}
    for who, names in (asking | asked(recipe.evaluation.scorers) | searching.asked(searches)).items():
        for name in names:
            if name not in recipe.policies:
                raise RecipeError(f"{who} asks the policy {name!r}{nearest(name, recipe.policies)}; add it")
            if name not in recipe.team.values():
                part = recipe.policies[name]
                made[name] = policy(name, part, factory=factory, seed=seed * 1000 + 999, corpus=corpus)
    return made


def _made(
    policies: Mapping[str, PolicyPart],
    seating: Mapping[str, str],
    factory: EnvFactory,
    seed: int,
    corpus: Iterable[str],
) -> Team:
    """A team that workers can make again, wherever they are."""
    return Team.made(_team, policies, seating, factory, seed, list(corpus))


def _team(
    policies: Mapping[str, PolicyPart],
    seating: Mapping[str, str],
    factory: EnvFactory,
    seed: int,
    corpus: Iterable[str],
) -> Team:
    """The team before any training."""
    agents = agents_of(factory)
    seated = {agent: seating.get(agent, seating.get("*")) for agent in agents}
    made = {
        name: policy(
            name,
            part,
            factory=factory,
            seed=seed * 1000 + number,
            corpus=corpus,
            agents=[agent for agent in agents if seated[agent] == name],
        )
        for number, (name, part) in enumerate(policies.items())
    }
    return Team(seats(seating, made, agents))


def seats(names: Mapping[str, str], made: Mapping[str, Policy], agents: Iterable[str]) -> dict[str, Policy]:
    """Dict agent -> policy, from names by agent (`*`: others) and policies `made` by name; RecipeError if one lacks."""
    agents = list(agents)
    for agent in names:
        if agent != "*" and agent not in agents:
            raise RecipeError(f"team.{agent}: the env has no such agent{nearest(agent, agents)}")
    missing = [agent for agent in agents if agent not in names and "*" not in names]
    if missing:
        raise RecipeError(f"team: nobody plays {', '.join(missing)}; name a policy for each agent, or one for '*'")
    return {agent: made[names[agent] if agent in names else names["*"]] for agent in agents}


def scripted_team(
    script: str,
    options: dict[str, Any],
    factory: EnvFactory,
    field: str,
    *,
    seed: int = 0,
    conversations: bool = False,
) -> Team:
    """A `Team` of one scripted policy (`script`, `options`) in every seat of a factory's env; errors name `field`."""
    return Team.made(_script, script, options, factory, field, seed, conversations)


def _script(
    script: str, options: dict[str, Any], factory: EnvFactory, field: str, seed: int, conversations: bool
) -> Team:
    name = f"script-{script.rpartition(':')[2]}"
    policy = Demonstrator(make_script(script, options, field, seed=seed), name=name, conversations=conversations)
    return Team(dict.fromkeys(agents_of(factory), policy))


def _scripted(
    script: str, options: dict[str, Any], factory: EnvFactory, field: str, seed: int, corpus: Iterable[str]
) -> Team:
    return scripted_team(script, options, factory, field, seed=seed)


def scripted_play(setup: Setup, executor: Executor, seed: int, *, groups: int = 64) -> tuple[Turns, list[str]]:
    """Play a `Setup`'s warm-start script (else random play) with an executor; (turns, observation and action texts).

    A `tiny` model gets its tokenizer from these texts, so whoever makes the team of a run again needs the same ones.
    groups: how much is played where there is no warm start.
    """
    part = setup.warm_start
    name, options, groups = (part.script, part.options, part.groups) if part else ("random", {}, groups)
    talks = part is not None and reads_conversations(policy for _, policy in setup.parts)
    script = scripted_team(name, options, setup.train, "warm_start.script", seed=seed, conversations=talks)
    played = executor.play(setup.train, script, Plan(groups=groups, seed=seed, run=str(seed), retries=0))
    return played, [*played["observation"].drop_nulls(), *played["action"].drop_nulls()]


def _learner(part: LearnPart, iterations: int, team: Team) -> Learner:
    """Makes a learner of one's own.

    It is called with the team, those fields of `learn` that it takes, `updates` if it takes that, and `learn.options`.

    Raises:
        RecipeError: there is no such learner, or it does not take what the recipe says.
    """
    default = LearnPart()
    with naming("learn.kind"):
        make_learner = LEARNERS.find(part.kind)
    parameters = inspect.signature(make_learner).parameters
    every = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    fields = {"updates": iterations} | part.model_dump(exclude={"kind", "options"})
    options = {
        name: value
        for name, value in fields.items()
        if (every or name in parameters or (name != "updates" and value != getattr(default, name)))
        and value is not None  # what is not said is the learner's to choose
    }
    made = call(make_learner, options | part.options, "learn", team)
    missing = [each for each in VERBS if not hasattr(made, each)]
    if missing:
        made_of = type(made).__name__
        raise RecipeError(f"learn.kind: {part.kind!r} made {made_of}, which is no learner: it lacks {missing[0]}")
    found: Learner = made
    return found


def executor(part: PlayPart, imports: Sequence[str] = ()) -> Executor:
    """Make a recipe's executor from its `play` section, with those of the section's options that it takes.

    Raises:
        RecipeError: there is no such executor, or it does not take these options.
    """
    name, values, options = read_call(part.executor)
    with naming("play.executor"):
        make = EXECUTORS.find(name)
    takes = inspect.signature(make).parameters
    given = part.model_dump(exclude={"executor"}) | {"imports": tuple(imports)}
    common = {name: value for name, value in given.items() if name in takes}
    found: Executor = call(make, common | options, "play.executor", *values)
    return found


def on_a_cluster(text: str) -> bool:
    """Whether the executor that this recipe text names plays on a cluster whose workers several seeds can share."""
    return hasattr(EXECUTORS.find(read_call(text)[0]), "shared")


def shared_executor(text: str, seeds: int, stack: contextlib.ExitStack) -> str:
    """Recipe text of an executor for parallel seeds; one on a cluster is started until `stack` closes and shared."""
    if not on_a_cluster(text):
        return text
    name, values, options = read_call(text)
    make: Any = EXECUTORS.find(name)
    given = inspect.signature(make).bind_partial(*values, **options).arguments
    ours = stack.enter_context(make.shared(given, seeds))
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in ours.items())})"


def _reward(written: str | dict[str, str] | None) -> Signal | dict[str, Signal] | None:
    if isinstance(written, dict):
        return {name: parse(text) for name, text in written.items()}
    return None if written is None else parse(written)


# -- what can be known before anything is played ----------------------------------------------------------------------


def check(setup: Setup, *, from_disk: bool = False) -> None:
    """Check a `Setup` by making every part of it once; raises InputError before anything is played for training.

    from_disk: there are models from disk; of those everything but the weights is looked at, and no team is made.

    Raises:
        InputError: whatever is asked for that is not there, or does not go together.
    """
    for agent in setup.evaluation.agents or ():
        if agent not in setup.agents:
            raise RecipeError(f"evaluation.agents: the env has no agent {agent!r}{nearest(agent, setup.agents)}")
    coalitions.check(setup.evaluation, setup.agents)
    if setup.warm_start is not None:
        part = setup.warm_start
        scripted_team(part.script, part.options, setup.train, "warm_start.script")
    if setup.training.budget is not None:
        player, nobody = setup.executor(), scripted_team("random", {}, setup.train, "train.budget")
        budgets.check(setup.training, setup.train, nobody, player)
        player.close()
    try:
        check_episode(setup.train)
    except AssertionError as error:
        raise RecipeError(f"env: {error} (palaestra.testing.check_env checks all of the protocol)") from error
    with naming("track"):
        check_trackers(setup.track)
    setup.executor().close()
    if setup.training.lag:
        Stages(setup.stages).check_overlap()
    corpus = [observation.text for observation in setup.train().reset(0).values()]
    learned = set(setup.recipe.get("team", {}).values()).difference(setup.recipe.get("learn", {}).get("freeze", ()))
    learner = None
    if from_disk:
        for name, each in setup.parts:
            if each.kind in FROM_DISK:
                check_from_disk(each.kind, Making(name, dict(each.options), f"policies.{name}.options", setup.train, 0))
                learns = each.kind != "served"
            else:
                made = policy(name, each, factory=setup.train, seed=0, corpus=corpus)
                learns = isinstance(made, Learnable) and bool(made.parameters())
            if setup.training.inflight and learns and name in learned:
                check_inflight(True, setup.training.lag, {name: each})
    else:
        for make_control in setup.controls.values():
            make_control(0, corpus)
        team = setup.team(0, corpus)
        learner = setup.learner(team)
        check_inflight(setup.training.inflight, setup.training.lag, learner.policies)
        if setup.opponents is not None:
            opponents.check(setup.opponents, team, setup.learned(team), setup.train)
        advisers = {**setup.advisers(0, corpus), **team.policies}
        for name, said in setup.searches.items():
            searching.check(said, team, setup.test, advisers, f"evaluation.controls.{name}.search")
        with naming("evaluation.metrics"):
            check_measures(setup.evaluation.metrics, setup.test, team)
    check_columns(setup, learner)
    check_phases(setup, None if from_disk else team)
    for rival in setup.rivals.values():
        check(rival, from_disk=from_disk)


def check_phases(setup: Setup, team: Team | None) -> None:
    """Check that each phase of a setup has the columns it reads and an env that can be played; raises RecipeError.

    Raises:
        RecipeError: names the phase, and what in it cannot work.
    """
    for phase, each in setup.phases:
        with prefixed(phase.place):
            check_columns(each, None if team is None else each.learner(team))
            if "env" in phase.changes:
                _try_to_play(each, team)


def _try_to_play(setup: Setup, team: Team | None) -> None:
    """One episode in an env that is not the one which the policies were made for."""
    try:
        check_episode(setup.train)
    except AssertionError as error:
        raise RecipeError(f"env: {error}") from error
    if team is not None:
        failed = rollout(setup.train, team, groups=1, seed=0).frame["error"].drop_nulls()
        if len(failed):
            raise RecipeError(f"env: the policies cannot play it: {failed[0]}")


def check_columns(setup: Setup, learner: Learner | None = None) -> None:
    """Raise RecipeError if a `Setup`'s reward, stages, credit or `learner` reads a column that is not made before it.

    Raises:
        RecipeError: names the column, who needs it, and the stage or env that gives it.
    """
    played_by = EXECUTORS.find(read_call(setup.recipe.get("play", {}).get("executor", "local()"))[0])
    has = {*SCHEMA, *facts_of(setup.train), *getattr(played_by, "adds", ())}
    has |= set() if setup.opponents is None else {"opponent"}
    stages = Stages(setup.stages)
    parts = setup.reward if isinstance(setup.reward, dict) else {} if setup.reward is None else {"": setup.reward}
    steps: list[tuple[str, Any, Any]] = [
        (f"stages: {text}", getattr(made, "needs", ()), getattr(made, "adds", ()))
        for text, made in zip(stages.texts, stages)
    ]
    rewards = [
        (f"reward{f'.{name}' if name else ''}: {short(part)}", part.needs(), (f"r_{name}",) if name else ())
        for name, part in parts.items()
    ]
    steps[stages.reward_at : stages.reward_at] = rewards
    steps.append((f"credit: {short(setup.credit)}", setup.credit.needs(), ("advantage",)))
    if learner is not None:
        steps.append(("learn", learner.needs(), ()))
    for number, (who, needs, adds) in enumerate(steps):
        line = missing({who: needs}, has, facts=telling)
        if line is not None:
            raise RecipeError(_made_later(who, set(needs) - has, steps[number + 1 :]) or line)
        has.update(adds)


def _made_later(who: str, lacking: set[str], later: Sequence[tuple[str, Any, Any]]) -> str | None:
    """Error if a stage that stands too late gives the first of these columns; None if none does."""
    for column in sorted(lacking):
        for stage, needs, adds in later:
            if column not in adds or not stage.startswith("stages: "):
                continue
            made = f"{who} needs column {column!r}, which {stage} gives later"
            if who.startswith("reward") and REWARD in needs:
                return f"{made} and from the reward: it cannot stand before what it needs; make the column of others"
            return f"{made}: move that stage before it"
    return None


def versions() -> dict[str, str]:
    """Dict of the versions of Python and of the packages that a result depends on."""
    return dict(_versions())


@functools.cache  # to read them takes 60 ms, and they stay as they are
def _versions() -> dict[str, str]:
    import importlib.metadata
    import platform

    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in ("palaestra", "torch", "transformers", "tokenizers", "numpy", "polars", "pyarrow", "open_spiel",
                    "textarena", "reasoning-gym", "pettingzoo", "gymnasium"):  # fmt: skip
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
