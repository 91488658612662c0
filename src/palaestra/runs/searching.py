"""`evaluation.controls.NAME.search`: the trained team of a run, some of its policies searching when they act."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from palaestra.agents import Team
from palaestra.agents.policy import Policy
from palaestra.envs.protocol import EnvFactory
from palaestra.errors import PalaestraError, RecipeError, nearest
from palaestra.judges.judged import PolicyAsker
from palaestra.judges.metering import Meter, Metered
from palaestra.judges.planning import SEARCHES, Search, Searching, foresight
from palaestra.judges.scorers import build, numbers

Searches = str | Mapping[str, str]
"""A search for every policy that learns, or one for each policy by name."""


def read(text: str) -> Search:
    """Make a `Search`, such as `best_of(…)`, from recipe text; scorers may be nested in it.

    Raises:
        ExpressionError: it names none, or does not take these options.
    """
    found: Search = build(text, SEARCHES)
    return found


def texts(searches: Searches) -> tuple[str, ...]:
    """Tuple of search texts, from one text or from a mapping of texts by policy."""
    return (searches,) if isinstance(searches, str) else tuple(searches.values())


def asked(controls: Mapping[str, Searches]) -> dict[str, tuple[str, ...]]:
    """Dict from each search's path in the recipe to policies that its scorer asks, of `controls` {name: searches}."""
    return {
        f"evaluation.controls.{name}.search": tuple(each for text in texts(said) for each in read(text).asks)
        for name, said in controls.items()
    }


def searching(
    searches: Searches,
    team: Team,
    env: EnvFactory,
    policies: Mapping[str, Policy],
    *,
    seed: int,
    field: str,
) -> tuple[EnvFactory, Team]:
    """(env factory, team) whose policies search before each action, by one text (all trainable) or {policy: text}.

    Raises:
        RecipeError: nobody of the team could search so; names the field.
    """
    chosen = {p.name: searches for p in team.trainable} if isinstance(searches, str) else dict(searches)
    for name in chosen:
        if name not in team.policies:
            raise RecipeError(f"{field}: the team has no policy {name!r}{nearest(name, team.policies)}")
        if 0 in (getattr(team.policies[name], "temperature", None), getattr(team.policies[name], "epsilon", None)):
            raise RecipeError(
                f"{field}: {name!r} answers alike every time (temperature 0), so there is nothing to choose from; "
                f"set policies.{name}.options.temperature"
            )
    made = {name: read(text) for name, text in chosen.items()}
    if any(each.tries for each in made.values()):
        env = functools.partial(foresight, env)
    if any(each.asks for each in made.values()) or any(hasattr(p, "sync") for p in team.policies.values()):
        return env, _bound(team, made, policies, seed)
    whole = Searching(team, made)
    if team.maker is not None:
        whole.maker = functools.partial(_again, team.maker, chosen)
    return env, whole


def _bound(team: Team, made: Mapping[str, Search], policies: Mapping[str, Policy], seed: int) -> Team:
    """With scorers that ask policies, which are here and nowhere else."""
    meter = Meter()
    for each in made.values():
        if each.asks:
            each.bind(lambda name: PolicyAsker(Metered(policies[name], meter), attempts=2, seed=seed))
    return Searching(team, made, meter)


def _again(maker: Callable[[], Team], chosen: Mapping[str, str]) -> Team:
    """The team in a worker."""
    return Searching(maker(), {name: read(text) for name, text in chosen.items()})


def check(searches: Searches, team: Team, env: EnvFactory, policies: Mapping[str, Policy], field: str) -> None:
    """Raise RecipeError if a search text cannot be made for a team and env factory, or its scorer reads no candidates.

    Raises:
        RecipeError: it cannot be, or the scorer needs a column that candidates do not have.
    """
    try:
        factory, _ = searching(searches, team, env, policies, seed=0, field=field)
        first: Any = next(iter(factory().reset(0).values()))
        candidate = pl.DataFrame({"prompt": [first.text], "response": [next(iter(first.legal), "")]})
        for text in texts(searches):
            search = read(text)
            if search.scorer is not None and not getattr(search.scorer, "asks", ()):
                numbers(search.scorer.score(candidate), 1, f"scorer {search.scorer.name}")
    except RecipeError:
        raise
    except PalaestraError as error:
        raise RecipeError(
            f"{field}: {error} (a scorer of candidates sees the columns prompt and response)"
            if "column" in str(error)
            else f"{field}: {error}"
        ) from error
