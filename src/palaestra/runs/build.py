"""From a recipe to objects: envs, policies, the team, scripted play."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from palaestra.agents import ChatPolicy, LMPolicy, MLPPolicy, ScriptedPolicy, TabularPolicy, Team
from palaestra.agents.base import Decision, Policy, Request
from palaestra.agents.tiny import build as build_tiny
from palaestra.envs import make
from palaestra.envs.base import EnvFactory
from palaestra.errors import PalaestraError, RecipeError, nearest
from palaestra.learning.protocol import LEARNERS, Learner
from palaestra.runs.recipe import LearnPart, PolicyPart, Recipe
from palaestra.runs.teachers import call, load_object, naming
from palaestra.runs.teachers import make as make_teacher
from palaestra.teams import pipeline


def env(recipe: Recipe, split: str) -> EnvFactory:
    """The recipe's env for "train" or "test"; envs that have no splits take no notice.

    Raises:
        RecipeError: there is no such env, or it does not take these options.
        MissingExtraError: its library is not installed.
    """
    part = recipe.env
    options = dict(part.options)
    if part.make.startswith("reasoning_gym"):
        options["split"] = split
    if ":" in part.make:
        factory: EnvFactory = functools.partial(load_object(part.make, "env.make"), **options)
    else:
        with naming("env"):
            factory = make(part.make, **options)
    if part.roles is not None:
        factory = call(pipeline, part.pipeline, "env.pipeline", factory, roles=part.roles)
    return factory


def try_env(factory: EnvFactory, name: str) -> None:
    """Make and reset one env, because whoever wrote it may find something wrong only then.

    Raises:
        RecipeError: it cannot be made, or what was made is no env.
    """
    try:
        made = factory()
        missing = [each for each in ("agents", "reset", "step") if not hasattr(made, each)]
        if missing:
            raise RecipeError(f"env.make: {name!r} made {type(made).__name__}, which is no env: it lacks {missing[0]}")
        made.reset(0)
    except PalaestraError:
        raise
    except Exception as error:
        raise RecipeError(f"env: {name!r} cannot be played ({type(error).__name__}: {error})") from error


def agents_of(factory: EnvFactory) -> tuple[str, ...]:
    """Every agent that can act in an env."""
    return tuple(factory().agents)


def policy(name: str, part: PolicyPart, *, factory: EnvFactory, seed: int, corpus: Iterable[str] = ()) -> Policy:
    """One policy of a recipe. `corpus`: text of the env, from which a `tiny` model gets its tokenizer."""
    options, field = dict(part.options), f"policies.{name}.options"
    match part.kind:
        case "tiny":
            accepts = (build_tiny, LMPolicy.__init__)
            policy: Policy = call(LMPolicy.tiny, options, field, corpus, accepts=accepts, name=name, seed=seed)
        case "lm":
            path = options.pop("model")
            policy = call(LMPolicy.from_pretrained, options, field, path, accepts=(LMPolicy.__init__,), name=name)
        case "chat":
            policy = call(ChatPolicy, options, field, options.pop("model"), name=name)
        case "tabular":
            first = next(iter(factory().reset(0).values()))
            if first.choices is None:
                raise RecipeError(f"policies.{name}: this env has free text for actions; kind 'tabular' needs choices")
            policy = call(TabularPolicy, {"actions": len(first.choices), **options}, field, name=name)
        case "mlp":
            first = next(iter(factory().reset(0).values()))
            if first.array is None or first.choices is None:
                raise RecipeError(f"policies.{name}: this env shows text only; kind 'mlp' needs arrays and choices")
            sizes = len(first.array), len(first.choices)
            policy = call(MLPPolicy, options, field, *sizes, name=name, seed=seed)
        case "random":
            policy = ScriptedPolicy(make_teacher("random", options, field, seed=seed), name=name)
        case "script":
            play = make_teacher(options.pop("teacher"), options, field, seed=seed)
            policy = ScriptedPolicy(play, name=name)
    return policy


def team(recipe: Recipe, factory: EnvFactory, *, seed: int, corpus: Iterable[str] = ()) -> Team:
    """The team before any training."""
    corpus = list(corpus)
    made = {
        name: policy(name, part, factory=factory, seed=seed * 1000 + number, corpus=corpus)
        for number, (name, part) in enumerate(recipe.policies.items())
    }
    return Team(seats(recipe.team, made, agents_of(factory)))


def seats(names: Mapping[str, str], made: Mapping[str, Policy], agents: Iterable[str]) -> dict[str, Policy]:
    """agent -> policy, with `*` for every agent that is not named."""
    agents = list(agents)
    for agent in names:
        if agent != "*" and agent not in agents:
            raise RecipeError(f"team.{agent}: the env has no such agent{nearest(agent, agents)}")
    missing = [agent for agent in agents if agent not in names and "*" not in names]
    if missing:
        raise RecipeError(f"team: nobody plays {', '.join(missing)}; name a policy for each agent, or one for '*'")
    return {agent: made[names[agent] if agent in names else names["*"]] for agent in agents}


def learner(recipe: Recipe, team: Team) -> Learner:
    """The recipe's learner. One of your own is called with the team, those fields of `learn` that it takes, `updates`
    if it takes that, and `learn.options`.

    Raises:
        RecipeError: there is no such learner, or it does not take what the recipe says.
    """
    part, default = recipe.learn, LearnPart()
    with naming("learn.kind"):
        make_learner = LEARNERS.find(part.kind)
    parameters = inspect.signature(make_learner).parameters
    every = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    fields = {"updates": recipe.train.iterations} | part.model_dump(exclude={"kind", "options"})
    options = {
        name: value
        for name, value in fields.items()
        if every or name in parameters or (name != "updates" and value != getattr(default, name))
    }
    made = call(make_learner, options | part.options, "learn", team)
    missing = [
        each for each in ("policies", "needs", "update", "state_dict", "load_state_dict") if not hasattr(made, each)
    ]
    if missing:
        made_of = type(made).__name__
        raise RecipeError(f"learn.kind: {part.kind!r} made {made_of}, which is no learner: it lacks {missing[0]}")
    return made  # type: ignore[no-any-return]


def scripted_team(teacher: str, options: dict[str, Any], factory: EnvFactory, field: str, *, seed: int = 0) -> Team:
    """Every seat filled by one scripted play."""
    script = Demonstrator(make_teacher(teacher, options, field, seed=seed), name=f"script-{teacher.rpartition(':')[2]}")
    return Team(dict.fromkeys(agents_of(factory), script))


class Demonstrator(ScriptedPolicy):
    """Scripted play that also says the ids of its actions, from which policies over ids learn."""

    def act(self, requests: Sequence[Request]) -> list[Decision]:
        """One call per request."""
        decisions = super().act(requests)
        for request, decision in zip(requests, decisions, strict=True):
            chosen = request.observation.index(decision.action)
            if chosen is not None:
                decision.action_ids = np.array([chosen], np.int32)
        return decisions


def versions() -> dict[str, str]:
    """Versions of what a result depends on."""
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
