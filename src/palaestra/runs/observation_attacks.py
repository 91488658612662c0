"""Attacks on what a member of a trained team sees: within ε its observations are shifted until it does what is wanted.

RAT ([182]): an intention policy learns a behaviour from preferences between episodes, and the shifts lead the frozen
victim to the intention's actions. They are found by gradient, or by a network that learns from weighted replay. Random
shifts of the same size are a control.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestra.errors import InputError
from palaestra.foundation.checksums import signed
from palaestra.foundation.files import plain, write_json
from palaestra.foundation.registry import read_call
from palaestra.runs import attacks
from palaestra.runs.attack_results import summarise
from palaestra.runs.envs import agents_of, env
from palaestra.runs.recipe import Recipe, override, typed, validate
from palaestra.runs.saved_teams import load_run

if TYPE_CHECKING:
    from rich.console import Console

NOISE = "noise"
"""The control: random shifts of the same size."""


def attack_observations(
    run: Path,
    *,
    train: Callable[..., Any],
    seat: str,
    shift: str,
    target: str,
    iterations: int | None = None,
    seeds: int | None = None,
    overrides: Sequence[str] = (),
    directory: Path | None = None,
    jobs: int | None = None,
    console: Console | None = None,
    trust: bool = False,
) -> dict[str, Any]:
    """Train, by `train`, shifts of a seat's observations in a run's folder towards expression `target`; summary dict.

    Args:
        run: folder that `palaestra train` wrote; the policy in the seat is of kind mlp.
        train: what trains the derived recipe, `palaestra.runs.jobs.train`.
        seat: the agent whose observations are shifted.
        shift: options of `PerturbedPolicy`, such as "epsilon=0.5" or "epsilon=0.5, steps=4, aim='noise'". With
            aim='network' the stage `weighted_attack` trains a network of shifts, without its outer loop if
            weights=False.
        target: expression over the table of turns, above 0 where the behaviour happened; of two episodes the one with
            more of it is preferred.
        iterations: of the intention's training. None: as many as the run has.
        seeds: number of attacks; they take the trained seeds of the run in turn. None: one for each.
        overrides: fields of the derived recipe.
        directory: where the attack goes. None: RUN/attacks/SEAT.
        jobs: seeds at once.
        console: where progress is shown.
        trust: whether code that the run's recipe names may run.

    Returns:
        The summary, as of `attack`; the systems have `noise` beside the others.

    Raises:
        InputError: there is no such seat, its policy is no network, or the shift or target cannot be read.
        PalaestraError: what stopped the training.
    """
    recipe, begun = load_run(run, trust=trust)
    agents = agents_of(env(recipe.env, "train"))
    attacks._check_seat(run, seat, agents, others=False)
    attacks._check_target(recipe, target)
    trained = attacks._trained(run, begun, trust)
    derived = derive(recipe, run, trained, seat=seat, shift=shift, target=target, iterations=iterations, seeds=seeds)
    derived = override(derived, typed(overrides))
    folder = directory or attacks.folder_of(run, seat)
    attacks.begin_anew(derived, folder / attacks.TRAINING, console)
    train(derived, folder / attacks.TRAINING, resume=True, jobs=jobs, console=console)
    about = {
        "run": str(run),
        "recipe": recipe.name,
        "seat": seat,
        "target": target,
        "observations": shift,
        "kind": "perturbed",
        "iterations": derived.train.iterations,
        "seeds": list(derived.seeds),
        "teams": trained,
    }
    summary = signed(plain(about | summarise(folder / attacks.TRAINING, derived, seat=seat, target=target)))
    write_json(folder / "summary.json", summary)
    return summary


def derive(
    recipe: Recipe,
    run: Path,
    trained: Sequence[int],
    *,
    seat: str,
    shift: str,
    target: str,
    iterations: int | None = None,
    seeds: int | None = None,
) -> Recipe:
    """Makes the `Recipe` of an observation attack from a run's recipe, folder, `trained` seeds; the victim sees shifts.

    Raises:
        InputError: the shift has no epsilon, or cannot be read.
    """
    _, values, options = read_call(f"perturbed({shift})")
    if values or "epsilon" not in options:
        raise InputError(f"--observations {shift!r}: expected options by name with epsilon, e.g. epsilon=0.5")
    weights = options.pop("weights", True)
    made = attacks.derive(
        recipe, run, trained, seat=seat, target=target, influence=0.0, kind="mlp", iterations=iterations, seeds=seeds
    )
    data = made.model_dump(mode="json")
    member = recipe.team.get(seat, recipe.team.get("*", ""))
    attacker = made.team[seat]
    victim = {"run": str(run.resolve()), "policy": member, "seeds": list(trained), **options}
    data["policies"][attacker] = {"kind": "perturbed", "options": victim}
    data["stages"] = [*made.stages, f"preference_reward({seat!r}, {'1.0 * (' + target + ')'!r})"]
    if options.get("aim") == "network":
        data["stages"].append(f"weighted_attack({seat!r}, weights={bool(weights)})")
    data["reward"] = f"by_role(({seat!r}, fill_missing('preference', 0.0)), otherwise=0.0)"
    counted = recipe.evaluation.agents
    data["evaluation"]["agents"] = None if counted is None else list(counted)
    noise = {attacker: {"kind": "perturbed", "options": victim | {"aim": NOISE}}}
    data["evaluation"]["controls"][NOISE] = {"policies": noise, "note": "the same team, shifted at random"}
    return validate(data, f"{run}: shifts of what {seat} sees", trust=True)
