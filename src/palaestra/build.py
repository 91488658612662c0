"""From a recipe to objects: envs, policies, the team, scripted play."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from palaestra.agents import ChatPolicy, LMPolicy, MLPPolicy, ScriptedPolicy, TabularPolicy, Team
from palaestra.agents.base import Policy
from palaestra.envs import make
from palaestra.envs.base import EnvFactory
from palaestra.errors import RecipeError, nearest
from palaestra.recipe import PolicyPart, Recipe
from palaestra.teachers import load_object
from palaestra.teachers import make as make_teacher
from palaestra.workflows import pipeline


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
    try:
        factory = load_object(part.make, "env.make")(**options) if ":" in part.make else make(part.make, **options)
        return factory if part.roles is None else pipeline(factory, roles=part.roles, **part.pipeline)
    except TypeError as error:
        raise RecipeError(f"env.options of {part.make!r}: {error}") from error


def agents_of(factory: EnvFactory) -> tuple[str, ...]:
    """Every agent that can act in an env."""
    return tuple(factory().agents)


def policy(name: str, part: PolicyPart, *, factory: EnvFactory, seed: int, corpus: Iterable[str] = ()) -> Policy:
    """One policy of a recipe. `corpus`: text of the env, from which a `tiny` model gets its tokenizer."""
    options: dict[str, Any] = dict(part.options)
    field = f"policies.{name}"
    try:
        match part.kind:
            case "tiny":
                return LMPolicy.tiny(corpus, name=name, seed=seed, **options)
            case "lm":
                return LMPolicy.from_pretrained(options.pop("model"), name=name, **options)
            case "chat":
                return ChatPolicy(options.pop("model"), name=name, **options)
            case "tabular":
                return TabularPolicy(name=name, **options)
            case "mlp":
                first = next(iter(factory().reset(0).values()))
                if first.array is None or first.choices is None:
                    raise RecipeError(f"{field}: this env shows text only; kind 'mlp' needs arrays and choices")
                return MLPPolicy(len(first.array), len(first.choices), name=name, seed=seed, **options)
            case "random":
                return ScriptedPolicy(make_teacher("random", options, field, seed=seed), name=name)
            case "script":
                return ScriptedPolicy(make_teacher(options.pop("teacher"), options, field, seed=seed), name=name)
    except KeyError as error:
        raise RecipeError(f"{field}.options: {error.args[0]!r} is required for kind {part.kind!r}") from error
    except TypeError as error:
        raise RecipeError(f"{field}.options: {error}") from error


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


def scripted_team(teacher: str, options: dict[str, Any], factory: EnvFactory, field: str, *, seed: int = 0) -> Team:
    """Every seat filled by one scripted play."""
    script = ScriptedPolicy(
        make_teacher(teacher, options, field, seed=seed), name=f"script-{teacher.rpartition(':')[2]}"
    )
    return Team(dict.fromkeys(agents_of(factory), script))


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
