"""Scripted play: whom a policy imitates before it learns, and whom it plays against.

A scripted policy is a function from its options to a function from a `Request` to an action. Recipes name it, or give
`module:function` for one of your own.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
import string
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from palaestra.agents.policy import Request
from palaestra.envs.protocol import Action
from palaestra.errors import InputError, MissingExtraError, RecipeError, nearest
from palaestra.foundation.registry import Registry

Play = Callable[[Request], Action]
SCRIPTS: Registry[Play] = Registry("script", home=("palaestra.runs.scripts",), example="kuhn")
script = SCRIPTS.register


def make(name: str, options: dict[str, Any], field: str = "script", *, seed: int = 0) -> Play:
    """Make the scripted player (request -> action) of a registered name, or `module:function`, with these options.

    Raises:
        RecipeError: no such script, or options that it does not take.
    """
    with naming(field):
        factory = SCRIPTS.find(name)
    if "seed" in inspect.signature(factory).parameters:
        options = {"seed": seed, **options}
    play: Play = call(factory, options, f"{field} {name!r}")
    return play


def check_script(name: str, options: Mapping[str, Any], field: str) -> None:
    """Raise RecipeError if a registered script is unknown or does not take these options; `module:name` is not checked.

    Raises:
        RecipeError: it is unknown, or an option is.
    """
    if ":" not in name:
        with naming(field):
            factory = SCRIPTS.find(name)
        check(factory, options, f"{field} of {name!r}")


def call(
    function: Callable[..., Any],
    options: dict[str, Any],
    field: str,
    *arguments: Any,
    accepts: Sequence[Callable[..., Any]] = (),
    **given: Any,
) -> Any:
    """Call `function(*arguments, **given, **options)`, checking `options` first; errors name the recipe's `field`.

    Raises:
        RecipeError: `options`, which stand in `field` of a recipe, are not what the function takes.
    """
    check(function, options, field, len(arguments), accepts=accepts, given=given)
    try:
        with naming(field):
            return function(*arguments, **given, **options)
    except (TypeError, ValueError) as error:
        raise RecipeError(f"{field}: {error}") from error


def parameters(
    function: Callable[..., Any],
    given: Collection[str] = (),
    fixed: int = 0,
    accepts: Sequence[Callable[..., Any]] = (),
) -> dict[str, inspect.Parameter]:
    """Dict of the parameters that recipe options may set: the function's own, and the keyword-only ones of `accepts`.

    Without the first `fixed` arguments and those that are given otherwise.
    """
    own = list(inspect.signature(function).parameters.values())[fixed:]
    others = [p for each in accepts for p in inspect.signature(each).parameters.values() if p.kind is p.KEYWORD_ONLY]
    found = [p for p in (*own, *others) if p.name not in given]
    return {p.name: p for p in found if not (accepts and p.kind is p.VAR_KEYWORD)}


def check(
    function: Callable[..., Any],
    options: Mapping[str, Any],
    field: str,
    fixed: int = 0,
    *,
    accepts: Sequence[Callable[..., Any]] = (),
    given: Collection[str] = (),
) -> None:
    """Raise RecipeError if a function does not take these options, without calling it; arguments as in `parameters`.

    Raises:
        RecipeError: an option is unknown, or is no plain value of the type that stands beside it.
    """
    takes = parameters(function, given, fixed, accepts)
    known = [name for name, each in takes.items() if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)]
    anything = any(each.kind is each.VAR_KEYWORD for each in takes.values())
    for option, value in options.items():
        if option not in known and not anything:
            raise RecipeError(f"{field}: unknown option {option!r}{nearest(option, known) or '; it takes none'}")
        wanted = str(takes[option].annotation).split(" | ") if option in known else []
        if wanted and _PLAIN.keys() >= set(wanted) and not any(_is(value, _PLAIN[each]) for each in wanted):
            expected = " or ".join("null" if each == "None" else each for each in wanted)
            raise RecipeError(f"{field}.{option}: expected {expected}, found {value!r} ({type(value).__name__})")


_PLAIN: dict[str, Any] = {"int": int, "float": (int, float), "str": str, "bool": bool, "None": type(None)}


def _is(value: Any, wanted: Any) -> bool:
    """A plain value of this type; true is no number."""
    return isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool))


@contextlib.contextmanager
def naming(field: str) -> Iterator[None]:
    """Context manager that turns an InputError raised inside into a RecipeError that names the recipe's `field`."""
    try:
        yield
    except (RecipeError, MissingExtraError):
        raise
    except InputError as error:
        raise RecipeError(f"{field}: {error}") from error


@script("random")
def random_legal() -> Play:
    """Makes a scripted player (request -> action): uniform over the legal actions."""

    def play(request: Request) -> Action:
        legal = request.observation.legal
        return legal[int(request.rng.integers(len(legal)))] if legal else ""

    return play


@script("answers")
def answers(accuracy: float | dict[str, float] = 1.0) -> Play:
    """Makes a scripted player: answers short reasoning-gym questions, right with probability `accuracy` (or per role).

    The first role of a pipeline answers; later roles accept what is right and replace what is wrong.
    """
    from palaestra.envs.questions import solve
    from palaestra.teams import scripted_role

    return scripted_role(solve, accuracy=accuracy)


@script("proposals")
def proposals(largest: int = 9, accuracy: float = 1.0, noise: float = 0.0) -> Play:
    """Makes a scripted player: proposes sums, differences of numbers to `largest`; answers right at rate `accuracy`."""
    from palaestra.teams.proposer import scripted_proposals

    return scripted_proposals(largest, accuracy, noise)


@script("varied")
def varied(concentration: float = 2.0, seed: int = 0) -> Play:
    """Makes a scripted player: random legal actions, with fixed preferences per observation text from a Dirichlet.

    Imitating it makes a language model tell observations apart. Imitating uniform play leaves it blind to, say, its own
    card for hundreds of steps of reinforcement learning.
    """

    def play(request: Request) -> Action:
        legal = request.observation.legal
        preferences = np.random.default_rng([seed, request.observation.key()]).dirichlet([concentration] * len(legal))
        return legal[int(request.rng.choice(len(legal), p=preferences))]

    return play


@script("kuhn")
def kuhn(slope: float = 0.06) -> Play:
    """Makes a scripted Kuhn poker player: bets with probability 1/2 - slope, 1/2 or 1/2 + slope by its card.

    Slope 0 is uniform play (exploitability 0.458); 0.06 is hardly better (0.39), but not blind to the card.
    """

    def play(request: Request) -> Action:
        card = int(request.observation.text[3])  # "p0 2…"
        return int(request.rng.random() < 0.5 + slope * (card - 1))

    return play


@script("convention")
def convention(clarity: float = 0.6, seed: int = 0) -> Play:
    """Makes a scripted Tiny Hanabi player: with chance `clarity` the first signals its card; the second plays randomly.

    Which action means which card is drawn from `seed`. With probability 1 - clarity the first player plays anything.
    The second plays every observation differently, as `varied` does: what it is told it has yet to understand.
    """
    anything = varied(seed=seed)

    def play(request: Request) -> Action:
        seat, _, seen = request.observation.text.partition(":d")
        if seat != "p0":
            return anything(request)
        legal = request.observation.legal
        if request.rng.random() < clarity:
            return legal[int(np.random.default_rng(seed).permutation(len(legal))[int(seen)])]
        return legal[int(request.rng.integers(len(legal)))]

    return play


@script("nim")
def nim(skill: float = 0.0) -> Play:
    """Makes a scripted Nim player: the winning move with probability `skill`, else a random legal move.

    With probability `skill` the winning move (Bouton 1901: make the exclusive or of the piles 0) if there is one, else
    a random legal move.
    """

    def play(request: Request) -> Action:
        legal = request.observation.legal
        if request.rng.random() < skill:
            piles = [int(number) for number in request.observation.text.split()]
            balance = functools.reduce(operator.xor, piles)
            for pile, size in enumerate(piles):
                if size ^ balance < size:
                    return f"[{pile} {size - (size ^ balance)}]"
        return legal[int(request.rng.integers(len(legal)))]

    return play


@script("trader")
def trader(skill: float = 1.0) -> Play:
    """Makes a scripted trader for TextArena's SimpleNegotiation: with chance `skill` its own best trade, else random.

    For the short text of the observation.

    With probability `skill` it accepts an offer from which it gains, else makes the legal offer from which it would
    gain most; it knows nothing of what the trade is worth to the other player.
    """
    from palaestra.envs.textarena import best_trade

    def play(request: Request) -> Action:
        legal = request.observation.legal
        if request.rng.random() < skill:
            return best_trade(request.observation.text, legal)
        return legal[int(request.rng.integers(len(legal)))]

    return play


@script("toolbox")
def toolbox(skill: float = 0.5) -> Play:
    """Makes a scripted player of `roles/toolbox`: right tool use with probability `skill` per turn, else a guess."""
    from palaestra.envs.roles.toolbox import solve

    def play(request: Request) -> Action:
        if request.rng.random() < skill:
            return solve(request.observation.messages or ())
        return str(int(request.rng.integers(10, 100)))

    return play


@script("lookups")
def lookups(skill: float = 1.0, hop: dict[str, int] | None = None) -> Play:
    """Makes a scripted player of `roles/multi_hop`: right lookups, per turn with chance 1 - `skill` a random answer.

    hop: role -> the hop after which it answers, 1 (the port) or 2; default: 1 for `finder`, else 2.
    """
    from palaestra.envs.roles.multi_hop import lookups as play

    return play(skill, hop)


@script("functions")
def functions(accuracy: float | dict[str, float] = 1.0) -> Play:
    """Makes a scripted player of `roles/functions`: right with probability `accuracy` (or per role), else wrong.

    For the short prompt.

    A mistake is the expression of another specification. The first role of a pipeline writes; later roles review.
    """
    from palaestra.envs.roles.functions import mistaken, solve
    from palaestra.teams import scripted_role

    return scripted_role(solve, accuracy=accuracy, mistake=mistaken)


@script("cups")
def cups(accuracy: float = 1.0, notes: bool = False, cups: int = 5) -> Play:
    """Makes a scripted player of `native/cups`: follows the ball, but with chance 1 - `accuracy` names a random cup.

    notes: it reads page by page and takes notes.
    """
    from palaestra.envs.worlds.cups import reader

    return functools.partial(reader, cups=string.ascii_lowercase[:cups], accuracy=accuracy, notes=notes)


@script("shelf")
def shelf(skill: str | None = None, alphabet: int = 5) -> Play:
    """Makes a scripted player of `native/shelf`: workers apply their seat's operation, the coordinator calls any.

    In the seat `solo` it does all.
    """
    from palaestra.envs.worlds.shelf import WORDS, worker

    if skill is not None and skill not in WORDS:
        raise InputError(f"shelf: skill={skill!r} must be one of {', '.join(WORDS)}")
    return functools.partial(worker, skill=skill, alphabet=string.ascii_lowercase[:alphabet])


@script("commons")
def commons(wish: int = 14) -> Play:
    """Makes a scripted player of `native/commons`: harvests the mean agreed limit, else sustainable share or `wish`."""
    from palaestra.envs.worlds.commons import keeper

    return functools.partial(keeper, wish=wish)


@script("stays_home")
def stays_home(strength: float = 4.0, reads: Literal["all", "near"] = "all", noise: float = 0.0) -> Play:
    """Makes a scripted player of `native/epidemic`: stays home with strength · infectious share · (½ + age) · caution.

    At most 1.

    Args:
        strength: How much the share that is infectious frightens.
        reads: That share: of all people, or of one's own contacts.
        noise: Standard deviation of an error of the answer.
    """

    def play(request: Request) -> Action:
        age, _, caution, near, everywhere = _array(request).tolist()
        told = strength * (near if reads == "near" else everywhere) * (0.5 + age) * caution
        answer = float(np.clip(told + (request.rng.normal(0.0, noise) if noise else 0.0), 0.0, 1.0))
        legal = request.observation.legal
        return f"{answer!r}" if not legal else min(legal, key=lambda each: abs(float(each) - answer))

    return play


def _array(request: Request) -> np.ndarray:
    if request.observation.array is None:
        raise InputError("stays_home needs an observation with an array, as in native/epidemic")
    return request.observation.array


@script("quest")
def quest(errs: float = 0.0) -> Play:
    """Makes a scripted player of `native/quest`: the shortest way; with probability `errs` any action instead.

    Such an action may undo a step.
    """
    from palaestra.envs.worlds.quest import shortest

    return functools.partial(shortest, errs=errs)


@script("punisher")
def punisher(share: float = 1.0) -> Play:
    """Makes a scripted player of `native/reputation`: punishes players seen to defect, with probability `share`."""
    from palaestra.envs.worlds.reputation import punisher as play

    return functools.partial(play, share=share)


@script("code")
def code(number: int | None = 0, noise: float = 0.0, shared: int = 0) -> Play:
    """Makes a scripted speaker and listener of `native/referential`, which maps objects to words by a numbered code.

    Args:
        number: The code: 0 is the human one, others permute its words; null: in each turn a code drawn anew.
        noise: Share of turns with a random choice instead.
        shared: The first so many objects have their human word in every code.
    """
    from palaestra.envs.worlds.referential import coder

    return functools.partial(coder, number=number, noise=noise, shared=shared)


@script("optimum")
def optimum(game: str) -> Play:
    """Makes a scripted player: best joint policy of a small common-interest OpenSpiel game, found by enumeration."""
    from palaestra.envs.openspiel import OpenSpielEnv
    from palaestra.envs.worlds.exact.exploitability import information_states, team_optimum

    env = OpenSpielEnv(game)
    _, table = team_optimum(game)
    moves = {}
    for state in information_states(game):
        row = table[state.key]
        moves[env.look(state.state, state.player).text] = max(row, key=row.__getitem__)
    return lambda request: moves[request.observation.text]
