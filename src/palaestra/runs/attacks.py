"""Attacks on a trained team: one seat is given to a new policy, which learns to harm the team while the others stay.

The attack is an ordinary training of a recipe that is derived from the run's: the other seats are played by the stored
policies, the attacker is paid for what the team loses, and the intact team is a control. The reward of the attacker is
minus the mean return of the other members (adversarial policies, arXiv 1905.10615), or 1 in each episode in which a
targeted behaviour happened; a bonus for turning the others to target actions may be added (adversarial minority
influence, [123]). Shifts of what a member sees: `palaestra.runs.observation_attacks`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestra.algebra.parse import parse
from palaestra.algebra.schema import SCHEMA
from palaestra.envs.facts import facts_of
from palaestra.errors import ExpressionError, InputError, nearest
from palaestra.foundation.checksums import signed
from palaestra.foundation.files import plain, read_object, remove, write_json
from palaestra.foundation.progress import Bars
from palaestra.learning import checkpoints
from palaestra.learning.run_lock import locked
from palaestra.learning.stages.stage import Stages
from palaestra.runs.attack_results import INTACT, summarise
from palaestra.runs.envs import agents_of, env
from palaestra.runs.recipe import Recipe, override, typed, validate
from palaestra.runs.saved_policies import changed
from palaestra.runs.saved_teams import export, load_run

if TYPE_CHECKING:
    from rich.console import Console

TRAINING = "training"
"""Folder of an attack that holds its training, which is a run of its own."""

UNABLE = ("script", "random", "chat", "saved")
"""Kinds of policies that do not learn here."""

CREDIT = "standardise(agent_return(), over=('group', 'agent'), unit='episode')"
BY_TURN = "standardise(return_to_go(gamma=0.95), over=('agent', 'turn'))"
"""Credit of an attacker that is paid in each of its turns."""


def attack(
    run: Path,
    *,
    train: Callable[..., Any],
    seat: str,
    target: str | None = None,
    influence: float | None = None,
    kind: str | None = None,
    iterations: int | None = None,
    seeds: int | None = None,
    overrides: Sequence[str] = (),
    directory: Path | None = None,
    jobs: int | None = None,
    console: Console | None = None,
    trust: bool = False,
) -> dict[str, Any]:
    """Train, by function `train`, an attacker in a `seat` of the team of a run's folder; returns dict of held-out loss.

    Args:
        run: folder that `palaestra train` wrote.
        train: what trains the derived recipe, `palaestra.runs.jobs.train`, which attacks as a part of a recipe's proof.
        seat: the agent that the attacker plays.
        target: expression over the table of turns, above 0 where the targeted behaviour happened. None: the attacker is
            paid minus the mean return of the other members.
        influence: weight of the stage `minority_influence` in the attacker's reward. None: that stage is left out; 0:
            too, with the same credit, for comparison.
        kind: of the attacker's policy. None: kind and options of the policy that has the seat.
        iterations: of the attacker's training. None: as many as the run has.
        seeds: number of attackers; they take the trained seeds of the run in turn. None: one for each.
        overrides: fields of the derived recipe, such as "learn.lr=0.1" or "policies.attacker.options.hidden=32".
        directory: where the attack goes. None: RUN/attacks/SEAT. An interrupted attack goes on there.
        jobs: seeds at once.
        console: where progress is shown.
        trust: whether code that the run's recipe names may run.

    Returns:
        The summary, as `summary.json` has it.

    Raises:
        InputError: there is no such seat, or nobody else in the team; the run has no checkpoint; the seat's policy
            cannot learn and no kind is given; the target cannot be read, or names an unknown column.
        PalaestraError: what stopped the training.
    """
    recipe, begun = load_run(run, trust=trust)
    agents = agents_of(env(recipe.env, "train"))
    _check_seat(run, seat, agents)
    if target is not None:
        _check_target(recipe, target)
    trained = _trained(run, begun, trust)
    derived = derive(
        recipe,
        run,
        trained,
        seat=seat,
        target=target,
        influence=influence,
        kind=kind,
        iterations=iterations,
        seeds=seeds,
    )
    derived = override(derived, typed(overrides))
    folder = directory or folder_of(run, seat)
    begin_anew(derived, folder / TRAINING, console)
    train(derived, folder / TRAINING, resume=True, jobs=jobs, console=console)
    about = {
        "run": str(run),
        "recipe": recipe.name,
        "seat": seat,
        "target": target,
        "influence": influence,
        "kind": derived.policies[_attacker(recipe)].kind,
        "iterations": derived.train.iterations,
        "seeds": list(derived.seeds),
        "teams": trained,
    }
    summary = signed(plain(about | summarise(folder / TRAINING, derived, seat=seat, target=target)))
    write_json(folder / "summary.json", summary)
    return summary


def begin_anew(derived: Recipe, training: Path, console: Console | None = None) -> None:
    """Delete from the folder of an attack's training, a `derived` recipe's, the seeds whose team is another by now."""
    recipe = derived.model_dump(mode="json")
    folders = {seed: training / f"seed-{seed}" for seed in derived.seeds}
    if not any(changed(recipe, seed, folder) for seed, folder in folders.items()):
        return
    with locked(training):
        for seed, folder in folders.items():
            if changed(recipe, seed, folder):
                said = f"{folder}: its team is another than the one that was attacked, so it begins anew"
                Bars(console).say(said, "yellow")
                remove(folder)


def folder_of(run: Path, seat: str) -> Path:
    """Path of the folder of an attack on a seat of a run, RUN/attacks/SEAT; nothing is made."""
    return run / "attacks" / _plain(seat)


def derive(
    recipe: Recipe,
    run: Path,
    trained: Sequence[int],
    *,
    seat: str,
    target: str | None = None,
    influence: float | None = None,
    kind: str | None = None,
    iterations: int | None = None,
    seeds: int | None = None,
) -> Recipe:
    """Makes the `Recipe` that trains an attacker in a seat of a run's team, from its recipe, folder, `trained` seeds.

    Kept are env, play, sizes of training and evaluation, the reward (negated) with the stages that stand before it, and
    the learner with its learning rate. Left out are phases, search, controls, scorers, and a warm start, unless the
    attacker is a language model that begins with random parameters. A learner that is no policy gradient keeps
    its stages and its credit.

    trained: seeds of the run that have a stored team. The rest as in `attack`.

    Raises:
        InputError: the seat's policy cannot learn, and no kind is given.
    """
    agents = agents_of(env(recipe.env, "train"))
    team = {agent: recipe.team.get(agent, recipe.team.get("*", "")) for agent in agents}
    member, name = team[seat], _attacker(recipe)
    part = {"kind": kind} if kind else recipe.policies[member].model_dump(mode="json")
    if part["kind"] in UNABLE:
        who = f"--kind {kind}" if kind else f"seat {seat!r} is played by {member!r}, of kind {part['kind']!r}, which"
        raise InputError(f"{who} does not learn; give a kind that does, e.g. --kind tabular, mlp or tiny")
    stored = (read_object(run / f"seed-{trained[0]}" / "policies" / "team.json") or {}).get("policies", {})

    def as_trained(policy: str) -> dict[str, Any]:
        if "folder" not in (stored.get(policy) or {}):
            return recipe.policies[policy].model_dump(mode="json")
        return {"kind": "saved", "options": {"run": str(run.resolve()), "policy": policy, "seeds": list(trained)}}

    others = {agent: policy for agent, policy in team.items() if agent != seat}
    policies: dict[str, Any] = {}
    for policy in recipe.policies:  # in the same order, because a script's seed depends on its number
        if policy == member and policy not in others.values():
            policies[name] = part
        else:
            policies[policy] = as_trained(policy) if policy in others.values() else recipe.policies[policy].model_dump()
    policies.setdefault(name, part)
    counted = [agent for agent in recipe.evaluation.agents or agents if agent != seat] or list(others)
    usual = recipe.learn.kind == "policy_gradient"
    if influence is not None and not usual:
        raise InputError(f"--influence: the run's learner is {recipe.learn.kind!r}, and a policy gradient is needed")
    reward, annotating = _team_reward(recipe)
    if influence:
        annotating = [*annotating, f"minority_influence({seat!r}, pay={_pay(counted, reward, target)!r})"]
    learn = recipe.learn.model_dump(mode="json") | {"freeze": [], "sequential": None, "devices": "one"}
    if isinstance(recipe.learn.lr, dict):
        learn["lr"] = recipe.learn.lr.get(member)
    if usual:
        learn |= {"terms": ["surrogate()"], "options": {}}
    data = {
        "name": _plain(f"{recipe.name} attack on {seat}"),
        "description": f"A new policy in the seat of {seat} learns to harm the trained team of {recipe.name}.",
        "imports": recipe.imports,
        "env": recipe.env.model_dump(mode="json"),
        "policies": policies,
        "team": {**others, seat: name},
        "warm_start": recipe.model_dump(mode="json")["warm_start"] if part["kind"] == "tiny" else None,
        "reward": paid(seat, counted, reward, target, influence or 0.0),
        "stages": annotating if usual else recipe.stages,
        "credit": (CREDIT if influence is None else BY_TURN) if usual else recipe.credit,
        "learn": learn,
        "train": recipe.train.model_dump(mode="json")
        | {"budget": None, "inflight": False}
        | ({} if iterations is None else {"iterations": iterations}),
        "play": recipe.play.model_dump(mode="json"),
        "evaluation": {
            **{field: getattr(recipe.evaluation, field) for field in ("tasks", "trials", "look_tasks", "look_trials")},
            "agents": counted,
            "measure": "score" if recipe.evaluation.measure == "score" else "success",
            "controls": {INTACT: {"policies": {name: as_trained(member)}, "note": "the trained team, no attacker"}},
        },
        "seeds": _seeds(trained, seeds),
    }
    return validate(data, f"{run}: attack on {seat}", trust=True)  # the run's recipe was loaded with or without trust


def _check_seat(run: Path, seat: str, agents: Sequence[str], *, others: bool = True) -> None:
    if not seat:
        raise InputError(f"{run}: give --seat, the agent that the attacker plays: one of {', '.join(agents)}")
    if seat not in agents:
        raise InputError(f"--seat {seat!r}: no such seat in {run}{nearest(seat, agents)}")
    if others and len(agents) == 1:
        raise InputError(f"--seat {seat}: it is the only seat of the team, so an attacker there has nobody to attack")


def _check_target(recipe: Recipe, target: str) -> None:
    """Whether the target can be computed from what held-out play leaves, where no stage adds columns."""
    facts = facts_of(env(recipe.env, "train"))
    known = {*SCHEMA, *facts} - {"advantage"}
    try:
        needs = parse(target, columns=facts).needs()
    except ExpressionError as error:
        raise InputError(f"--target: {error}") from error
    for column in sorted(set(needs) - known):
        raise InputError(f"--target {target!r}: the table of turns has no column {column!r}{nearest(column, known)}")


def _trained(run: Path, begun: Sequence[int], trust: bool) -> list[int]:
    """Seeds with a stored team; of a run that was stopped, the last checkpoint is exported first."""
    found = []
    for seed in begun:
        folder = run / f"seed-{seed}"
        if not (folder / "policies" / "team.json").exists():
            if checkpoints.newest(folder / "checkpoints") is None:
                continue
            export(run, seed=seed, trust=trust)
        found.append(seed)
    if not found:
        raise InputError(
            f"{run}: no seed has a checkpoint, so there is no trained team to attack; go on with "
            "`palaestra train … --resume`"
        )
    return found


def _attacker(recipe: Recipe) -> str:
    """Name of the attacker's policy: attacker, or the next one that the recipe does not have."""
    name = "attacker"
    while name in recipe.policies:
        name += "_"
    return name


def _plain(text: str) -> str:
    """A text as the name of a run and of its folder."""
    return re.sub(r"^[^\w]", "_", re.sub(r"[^\w .+-]", "_", text))


def _seeds(trained: Sequence[int], count: int | None) -> list[int]:
    """Seeds of the attackers: those of the run, then further ones."""
    count = len(trained) if count is None else count
    return [*trained, *range(max(trained) + 1, max(trained) + 1 + count)][:count]


def _team_reward(recipe: Recipe) -> tuple[str, list[str]]:
    """The reward of the run as text, and the stages that may add what it reads."""
    if recipe.reward is None:
        return "reward", []
    parts = recipe.reward.values() if isinstance(recipe.reward, dict) else [recipe.reward]
    return " + ".join(f"({part})" for part in parts), list(recipe.stages[: Stages(recipe.stages).reward_at])


def paid(
    seat: str, counted: Sequence[str], reward: str = "reward", target: str | None = None, influence: float = 0.0
) -> str:
    """Recipe text of attacker `seat`'s reward, last turn: minus the mean return of `counted`, or 1 if `target` held.

    It stands on the attacker's last turn of each episode; the reward of everybody else is 0.

    Args:
        seat: of the attacker.
        counted: the other agents, whose rewards are the team's.
        reward: expression of the reward.
        target: expression that is above 0 where the targeted behaviour happened.
        influence: weight of the column `influence`, which is taken off in each turn.

    >>> from palaestra.algebra.turns import Turns
    >>> two = {"episode": [0, 0, 1, 1], "agent": ["guide", "seeker"] * 2, "turn": [0, 1] * 2}
    >>> parse(paid("seeker", ["guide"])).evaluate(Turns(two | {"reward": [1.0, 1.0, 0.5, 0.0]})).tolist()
    [0.0, -1.0, 0.0, -0.5]
    """
    if target is None:
        worth = f"-total({_of(counted, reward)}, over='episode') / {len(counted)}"
    else:
        worth = f"1.0 * (highest(1.0 * ({target}), over='episode') > 0)"
    bonus = f" - {influence!r} * fill_missing('influence', 0.0)" if influence else ""
    return f"by_role(({seat!r}, on_last({worth}){bonus}), otherwise=0.0)"


def _pay(counted: Sequence[str], reward: str, target: str | None) -> str:
    """What an attacker is paid, on the row of the turn that earned it."""
    return f"-{_of(counted, reward)} / {len(counted)}" if target is None else f"1.0 * ({target})"


def _of(counted: Sequence[str], reward: str) -> str:
    return f"where(is_in('agent', {_texts(counted)}), {reward}, 0.0)"


def _texts(names: Sequence[str]) -> str:
    return f"({', '.join(repr(name) for name in names)},)"
