"""Recipes: a YAML file that says what is played, by whom, how credit is given and how the result is proved.

A recipe is validated before anything runs. Every field can be overridden on the command line, `train.iterations=20`.
"""

from __future__ import annotations

import difflib
import types
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from palaestra.errors import ExpressionError, RecipeError, nearest
from palaestra.parse import parse


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class EnvPart(_Part):
    """What is played: a registered env (`openspiel/kuhn_poker`) or your own (`module:factory`)."""

    make: str
    options: dict[str, Any] = {}
    roles: tuple[str, ...] | None = Field(None, description="turn a single-answer task into a pipeline of these roles")
    pipeline: dict[str, Any] = Field({}, description="options of the pipeline")


class PolicyPart(_Part):
    """Who plays: a model made on the spot (`tiny`), one from disk or a hub (`lm`), an endpoint, or a script."""

    kind: Literal["tiny", "lm", "chat", "tabular", "mlp", "random", "script"]
    options: dict[str, Any] = {}


class WarmStartPart(_Part):
    """Supervised learning on scripted play before reinforcement learning."""

    teacher: str = Field("random", description="a registered teacher, or module:function")
    options: dict[str, Any] = {}
    groups: int = Field(256, ge=1, description="episodes of scripted play")
    steps: int = Field(300, ge=0)
    batch: int = Field(64, ge=1)
    lr: float = Field(3e-3, gt=0)


class LearnPart(_Part):
    """How an advantage moves a policy; see `palaestra.learning.PolicyGradient`."""

    lr: float | dict[str, float] = 1e-3
    ratio: Literal["token", "sequence"] = "token"
    clip: float | tuple[float, float] = 0.2
    aggregate: Literal["token-mean", "sequence-mean", "constant"] = "token-mean"
    kl: float = Field(0.0, ge=0)
    entropy: float = 0.0
    epochs: int = Field(1, ge=1)
    minibatch: int | None = Field(None, ge=1)
    max_grad_norm: float = Field(1.0, gt=0)


class TrainPart(_Part):
    """How much is played and how often one looks."""

    iterations: int = Field(50, ge=0)
    groups: int = Field(16, ge=1, description="tasks per iteration")
    group_size: int = Field(8, ge=1, description="episodes per task")
    evaluate_every: int = Field(10, ge=1)
    checkpoint_every: int = Field(10, ge=1)
    save_turns: Literal["none", "last", "all"] = "last"
    concurrency: int = Field(256, ge=1)
    timeout: float | None = Field(60.0, description="seconds that one step of the env may take")
    retries: int = Field(1, ge=0, description="times a failed episode is played again")
    incomplete: Literal["drop", "keep"] = Field("drop", description="groups that lack episodes after the retries")
    threads: int = Field(1, ge=1, description="torch threads of one seed; results can depend on it in the last bits")


class ControlPart(_Part):
    """A system that the trained team is compared with: other policies in the same seats, or a training of its own."""

    policies: dict[str, PolicyPart] | None = None
    teacher: str | None = Field(None, description="the scripted team of a warm start")
    options: dict[str, Any] = {}
    train: dict[str, Any] | None = Field(None, description="overrides of this recipe, trained under the same seed")
    note: str = ""


class EvaluationPart(_Part):
    """How the difference is proved: the same held-out tasks for every system, several trials each."""

    tasks: int = Field(200, ge=2)
    trials: int = Field(4, ge=1)
    look_tasks: int = Field(100, ge=2, description="tasks of each look during training")
    look_trials: int = Field(2, ge=1)
    agents: tuple[str, ...] | None = Field(None, description="whose success counts; default: everybody's mean")
    measure: str = Field("success", description="what is to improve: success, score, or one of the metrics")
    metrics: tuple[str, ...] = Field((), description="exact measures of small games, e.g. exploitability")
    controls: dict[str, ControlPart] = {}


class Recipe(_Part):
    """A run, whole."""

    name: str
    description: str = ""
    env: EnvPart
    policies: dict[str, PolicyPart]
    team: dict[str, str] = Field(description="agent -> policy; `*` stands for every other agent")
    warm_start: WarmStartPart | None = None
    reward: str | None = None
    credit: str = "grpo()"
    learn: LearnPart = LearnPart()
    train: TrainPart = TrainPart()
    evaluation: EvaluationPart = EvaluationPart()
    seeds: tuple[int, ...] = (0,)

    @field_validator("seeds", mode="before")
    @classmethod
    def _count(cls, value: Any) -> Any:
        """`seeds: 5` means seeds 0 to 4."""
        return tuple(range(value)) if isinstance(value, int) and not isinstance(value, bool) else value

    @field_validator("credit", "reward")
    @classmethod
    def _is_signal(cls, value: str | None) -> str | None:
        import palaestra.credit
        import palaestra.rewards  # noqa: F401  their signals must be registered

        if value is not None:
            try:
                parse(value)
            except ExpressionError as error:
                raise ValueError(str(error)) from error
        return value

    @model_validator(mode="after")
    def _team_names_policies(self) -> Recipe:
        for agent, policy in self.team.items():
            if policy not in self.policies:
                raise ValueError(f"team.{agent}: no policy {policy!r}{nearest(policy, self.policies)}")
        if not self.seeds:
            raise ValueError("seeds: give at least one seed")
        measures = ("success", "score", *self.evaluation.metrics)
        if self.evaluation.measure not in measures:
            raise ValueError(
                f"evaluation.measure: {self.evaluation.measure!r}{nearest(self.evaluation.measure, measures)}"
            )
        return self

    def dump(self) -> str:
        """The resolved recipe as YAML, which `load` reads back."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def names() -> list[str]:
    """Recipes that ship with the package."""
    files = resources.files("palaestra.recipes").iterdir()
    return sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml"))


def load(source: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """A shipped recipe by name, or a file, with overrides such as `train.iterations=20`.

    Raises:
        RecipeError: the file, a field, a type or a name is wrong; the message names the field and the fix.
    """
    text, where = _read(source)
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise RecipeError(f"{where}: not YAML ({str(error).splitlines()[0]})") from error
    if not isinstance(data, dict):
        raise RecipeError(f"{where}: a recipe is a mapping of fields{nearest('', Recipe.model_fields)}")
    for override in overrides:
        _override(data, override)
    return validate(data, where)


def validate(data: dict[str, Any], where: str = "recipe") -> Recipe:
    """A recipe from plain data."""
    try:
        return Recipe.model_validate(data)
    except ValidationError as error:
        raise RecipeError(f"{where}: {_sentence(error.errors()[0])}") from error


def override(recipe: Recipe, changes: dict[str, Any]) -> Recipe:
    """A recipe with some fields replaced; nested mappings are merged, null takes a seat, policy or control away."""
    data = _merge(recipe.model_dump(mode="json"), changes)
    for names in (data["team"], data["policies"], data["evaluation"]["controls"]):
        for name in [name for name, value in names.items() if value is None]:
            del names[name]
    return validate(data, recipe.name)


def _merge(base: Any, changes: Any) -> Any:
    if not (isinstance(base, dict) and isinstance(changes, dict)):
        return changes
    return base | {key: _merge(base.get(key), value) for key, value in changes.items()}


def _read(source: str | Path) -> tuple[str, str]:
    path = Path(source)
    if path.suffix in (".yaml", ".yml"):
        try:
            return path.read_text(), str(path)
        except (OSError, UnicodeDecodeError) as error:
            raise RecipeError(f"{path}: cannot be read ({error})") from error
    if str(source) not in names():
        raise RecipeError(f"no recipe {str(source)!r}{nearest(str(source), names())}; or give a .yaml file")
    return resources.files("palaestra.recipes").joinpath(f"{source}.yaml").read_text(), f"recipe {source}"


def _override(data: dict[str, Any], text: str) -> None:
    field, equals, value = text.partition("=")
    if not equals or not field:
        raise RecipeError(f"override {text!r}: write field=value, e.g. train.iterations=20")
    *parents, last = field.split(".")
    target: Any = data
    for parent in parents:
        target = target.setdefault(parent, {}) if isinstance(target, dict) else None
        if target is None:
            raise RecipeError(f"override {text!r}: {parent!r} has no fields of its own")
    if not isinstance(target, dict):
        raise RecipeError(f"override {text!r}: {'.'.join(parents)} has no fields of its own")
    try:
        target[last] = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise RecipeError(f"override {text!r}: the value is not YAML ({str(error).splitlines()[0]})") from error


def _sentence(error: Any) -> str:
    """One pydantic error as: field, what was found, the fix."""
    field = ".".join(str(part) for part in error["loc"])
    found = error.get("input")
    match error["type"]:
        case "extra_forbidden":
            known = _fields(error["loc"][:-1])
            close = difflib.get_close_matches(str(error["loc"][-1]), known, n=1, cutoff=0.0) if known else []
            return f"{field}: unknown field" + (
                f"; did you mean {close[0]!r}? fields here: {', '.join(known)}" if close else ""
            )
        case "missing":
            return f"{field}: this field is required"
        case "value_error":
            return (f"{field}: " if field else "") + str(error["ctx"]["error"])
    return f"{field}: {error['msg'][0].lower()}{error['msg'][1:]}, found {found!r} ({type(found).__name__})"


def _fields(location: Sequence[str | int]) -> list[str]:
    """Names of the fields of the part of a recipe at this place."""
    model: Any = Recipe
    for part in location:
        if isinstance(model, type) and issubclass(model, BaseModel):
            info = model.model_fields.get(str(part))
            model = _inner(info.annotation) if info else None
    return list(model.model_fields) if isinstance(model, type) and issubclass(model, BaseModel) else []


def _inner(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, types.UnionType):
        annotation = next((a for a in get_args(annotation) if a is not type(None)), None)
    if get_origin(annotation) is dict:
        return get_args(annotation)[1]  # the next part of the location is the key
    return annotation
