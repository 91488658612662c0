"""A recipe as steps of a pipeline: construct, filter, relabel, fit, schedule, in the words of a survey [36].

The survey (arXiv 2503.12434) sorts methods that optimise agents into those that change parameters and those that do
not, and the former by how trajectories are constructed, filtered and made use of although they are poor, by what is
fitted, and by the order of fits. Here all of it is read off the recipe and off what its names make: the columns that a
stage fills, whether it plans play, what the terms of its objective read. Nothing is declared by recipe. Left out: the
survey's chapters on data sets and applications.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from palaestra.errors import ExpressionError, InputError
from palaestra.foundation.registry import read_call
from palaestra.learning.stages.stage import STAGES, Stage
from palaestra.runs.phases import order, phases_of, read
from palaestra.runs.recipe import Recipe, validate

Kind = Literal["construct", "filter", "relabel", "fit", "schedule", "run"]
KINDS: tuple[str, ...] = get_args(Kind)
"""Kinds of step; `run` is what belongs to none of the survey's five: name, seeds, evaluation."""

FIELDS: dict[str, Kind] = {
    "env": "construct", "policies": "construct", "team": "construct", "opponents": "construct",
    "warm_start": "construct", "play": "construct", "reward": "fit", "credit": "fit", "learn": "fit",
    "train": "schedule", "phases": "schedule",
}  # fmt: skip
"""Kind of step of a recipe's field; stages have their own, every other field is `run`."""

COLUMNS: dict[str, Kind] = {
    "kept": "filter", "pair": "filter", "weight": "relabel", "label_mask": "relabel", "of_row": "relabel",
    "correct": "relabel", "corrected_action": "relabel", "source": "construct", "loss_mask": "construct",
    "fresh": "construct", "replayed": "construct", "delivered": "construct",
}  # fmt: skip
"""What a stage does, by a column that it fills; the first of these counts. `of_row` stands before `loss_mask`: rows
that are made of other rows are a use of poor ones."""


@dataclass(frozen=True)
class Step:
    """Data of one step of a recipe, such as construction, filter or fit: its kind, field, value and detail.

    Attributes:
        kind: one of `KINDS`.
        field: of the recipe, `stages.0` for the first stage.
        value: of that field, as plain data.
        detail: of construction, who plays ("expert" or "own"); of a fit, "imitation", "preference", "reward" or "none";
            of a filter, who judges ("environment", "model" or "rule"); of a schedule, "single", "sequential" or
            "alternating"; else empty.
    """

    kind: Kind
    field: str
    value: Any
    detail: str = ""


def steps_of(recipe: Recipe) -> list[Step]:
    """List of `Step` that a recipe is made of, one per field and stage; `recipe_of` makes the same recipe of them.

    Stages that a module of the recipe's own defines are asked as any other, so it must have been loaded, not looked at.
    """
    found = []
    for field, value in recipe.model_dump(mode="json").items():
        if field == "stages":
            found += [
                Step(kind_of_stage(text), f"stages.{place}", text, _detail_of_stage(text))
                for place, text in enumerate(value)
            ]
        elif field == "warm_start":
            found.append(Step("construct", field, value, "expert" if value else ""))
        elif field == "learn":
            found.append(Step("fit", field, value, fit_of(recipe)))
        elif field == "phases":
            found.append(Step("schedule", field, value, schedule_of(recipe)))
        else:
            detail = "own" if field == "team" else ""
            found.append(Step(FIELDS.get(field, "run"), field, value, detail))
    return found


def recipe_of(steps: Sequence[Step], *, trust: bool = False) -> Recipe:
    """Makes the `Recipe` of a list of `Step`; inverse of `steps_of`.

    Raises:
        RecipeError: a step that a recipe needs is not there, or is not valid.
    """
    data: dict[str, Any] = {"stages": [step.value for step in steps if step.field.startswith("stages.")]}
    data |= {step.field: step.value for step in steps if not step.field.startswith("stages.")}
    return validate(data, trust=trust)


def kind_of_stage(text: str) -> Kind:
    """Kind of `Step` that a stage's text is: as it declares, else by the columns it adds, else by planning play or not.

    Stages that only say what a turn was worth (critics, judges, rewards) belong to the fit.

    >>> kind_of_stage("keep('success')"), kind_of_stage("weights('reward')"), kind_of_stage("critic()")
    ('filter', 'relabel', 'fit')
    """
    make = _maker(text)
    declared: Kind | None = getattr(make, "step", None)
    if declared is not None:
        if declared not in KINDS:
            raise InputError(f"stage {text}: step={declared!r}; it is one of {', '.join(KINDS)}")
        return declared
    adds = getattr(make, "adds", {})
    for column, kind in COLUMNS.items():
        if column in adds:
            return kind
    plans = getattr(make, "plan", None) not in (None, Stage.plan)
    return "construct" if plans else "fit"


def _maker(text: str) -> Any:
    return inspect.unwrap(STAGES.find(read_call(text)[0]))


def _detail_of_stage(text: str) -> str:
    kind = kind_of_stage(text)
    if kind == "construct":
        asked = getattr(STAGES.build(text), "asks", ())
        return "expert" if asked else "own"
    if kind != "filter":
        return ""
    needs = set(getattr(STAGES.build(text), "needs", ()))
    if any(name.partition(".")[0] in ("judge", "score", "value", "against") or name == "verdict" for name in needs):
        return "model"
    return "environment" if needs & {"reward", "success", "score"} else "rule"


def fit_of(recipe: Recipe) -> str:
    """Kind of signal that a recipe's learner fits: "imitation", "preference", "reward", several with `+`, or "none".

    Read off its terms: `credit` means a reward, `pair` a preference, what needs neither is imitation; regularisers are
    no objective of their own. A learner other than the policy gradient learns from rewards.
    """
    if not has_weights(recipe):
        return "none"
    if recipe.learn.kind != "policy_gradient":
        return "reward"
    from palaestra.learning.objective import objective

    kinds = [
        "preference" if "pair" in term.needs else "imitation" if _imitates(term) else "reward"
        for term in objective(recipe.learn.terms).values()
        if term.credit or term.name not in REGULARISERS
    ]
    return "+".join(dict.fromkeys(kinds)) or "none"


def _imitates(term: Any) -> bool:
    return term.name == "clone" and "advantage" not in term.needs


REGULARISERS = ("kl", "entropy", "corridor", "pinned", "stable", "value", "auxiliary")
"""Terms that hold a policy, or give it a head; an objective of these alone fits nothing."""


def has_weights(recipe: Recipe) -> bool:
    """Whether a run of this recipe would train parameters of a policy in the team that is not frozen."""
    fixed = {"script", "random", "chat", "human", "saved", "perturbed"}
    learns = [
        name
        for name in set(recipe.team.values())
        if recipe.policies[name].kind not in fixed and name not in recipe.learn.freeze
    ]
    imitates = recipe.warm_start is not None and recipe.warm_start.steps > 0
    return bool(learns) and (imitates or (recipe.learn.kind != "play" and recipe.train.iterations > 0))


def parts_of(recipe: Recipe) -> list[Recipe]:
    """List of recipes: the recipe as it is in each of its phases, in order; itself alone if it has none."""
    return [recipe.in_phase(phase) for phase in phases_of(read(recipe.phases))] or [recipe]


def fits_in_order(recipe: Recipe, iterations: int | None = None) -> list[str]:
    """List of the fit ("reward", …) of each iteration of a recipe, one a phase; first "imitation" for a warm start.

    Args:
        recipe: what is run.
        iterations: of the run; None: as many as the recipe plans.
    """
    before = ["imitation"] if recipe.warm_start is not None and recipe.warm_start.steps else []
    length = recipe.train.iterations if iterations is None else iterations
    if not recipe.phases:
        return before + [fit_of(recipe)] * length
    fits = [fit_of(each) for each in parts_of(recipe)]
    return before + [fits[number] for number, _ in order(read(recipe.phases), length).steps[:length]]


def schedule_of(recipe: Recipe) -> str:
    """Schedule of a recipe's fits: "alternating" if phases repeat, "sequential" if one follows another, or "single"."""
    cycles = read(recipe.phases)
    if any(len(cycle.phases) > 1 and cycle.times != 1 for cycle in cycles):
        return "alternating"
    warm = recipe.warm_start is not None and recipe.warm_start.steps > 0
    return "sequential" if max(len(phases_of(cycles)), 1) + warm > 1 else "single"


def row_of(recipe: Recipe) -> dict[str, Any]:
    """Dict that describes a recipe: branch, names by kind of step, fits, schedule, and fields lost in a round trip.

    What its phases name counts as its own; `fit` has their fits one after the other. `steps`: all of them. `differs`:
    fields that are not the same after reading back, which should be none.
    """
    steps = steps_of(recipe)
    try:
        again = recipe_of(steps, trust=True).model_dump(mode="json")
        differs = [field for field, value in recipe.model_dump(mode="json").items() if again[field] != value]
    except (InputError, ExpressionError) as error:
        differs = [str(error)]
    parts = [step for part in parts_of(recipe) for step in steps_of(part)]
    warm = ["imitation"] if recipe.warm_start is not None and recipe.warm_start.steps else []
    return {
        "recipe": recipe.name,
        "branch": "weights" if any(map(has_weights, parts_of(recipe))) else "no weights",
        **{kind: _names(parts, kind) for kind in ("construct", "filter", "relabel")},
        "signals": _names(parts, "fit"),
        "fit": [*warm, *(fit_of(part) for part in parts_of(recipe))],
        "schedule": schedule_of(recipe),
        "differs": differs,
        "steps": [asdict(step) for step in steps],
    }


def _names(steps: Sequence[Step], kind: str) -> list[str]:
    found = []
    for step in steps:
        if step.kind != kind or not step.value:
            continue
        if step.field.startswith("stages."):
            found.append(f"{_called(step.value)} ({step.detail})" if step.detail else _called(step.value))
        elif step.field == "env":
            found.append(_env(step.value))
        elif step.field == "warm_start":
            found.append(f"{step.value['script']} (expert)")
    return list(dict.fromkeys(found))


def _env(value: Mapping[str, Any]) -> str:
    team = value["workflow"] if isinstance(value["workflow"], str) else "graph" if value["workflow"] else ""
    return f"{value['make']} ({_called(team)})" if team else str(value["make"])


def _called(text: str) -> str:
    return read_call(text)[0]
