"""Recipes: a YAML file that says what is played, by whom, how credit is given and how the result is proved.

A recipe is validated before anything runs. Every field can be overridden on the command line, `train.iterations=20`.
"""

from __future__ import annotations

import importlib
import re
import textwrap
import types
from collections.abc import Iterable, Sequence
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import yaml
from pydantic import (
    BaseModel,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from palaestra.algebra.parse import parse
from palaestra.errors import ExpressionError, RecipeError, nearest
from palaestra.foundation.registry import read_call
from palaestra.foundation.yaml import read as read_yaml
from palaestra.learning.stages.stage import build as build_stages
from palaestra.learning.trackers import TRACKERS
from palaestra.runs.config import (
    EnvPart,
    EvaluationPart,
    LearnPart,
    PlayPart,
    PolicyPart,
    Section,
    Seeds,
    Texts,
    TrainPart,
    TunePart,
    WarmStartPart,
    calls,
    checked,
    is_only_read,
    looked_up,
    to_be_made,
)
from palaestra.runs.opponents import OpponentsPart
from palaestra.runs.phases import Phase, phases_of
from palaestra.runs.phases import read as read_phases
from palaestra.runs.scripts import naming
from palaestra.runs.trust import code_in, refuse


class Recipe(Section):
    """Pydantic model of a whole recipe: env, policies, team, reward, stages, credit, learner, evaluation and seeds."""

    name: str = Field(description="of the run, and of its folder under runs/")
    description: str = Field("", description="what it trains and proves, for `palaestra recipes` and the report")
    imports: Texts = Field((), description="your modules that register signals, envs or scripts; asks for --trust")
    env: EnvPart = Field(description="what is played")
    policies: dict[str, PolicyPart] = Field(description="who can play, by name")
    team: dict[str, str] = Field(description="agent -> policy; `*` stands for every other agent")
    opponents: OpponentsPart | None = Field(
        None,
        description="who fills the other seats in training: past selves and scripts by a method, or the method alone: "
        "psro(nash); null: nobody but the team, see docs/games.md",
    )
    warm_start: WarmStartPart | None = Field(None, description="imitation of scripted play before training")
    reward: str | dict[str, str] | None = Field(
        None,
        description="replaces the env's reward: a signal, or signals by name, whose sum is the reward; each stays in "
        "the table as r_<name>",
    )
    stages: Texts = Field(
        (), description="what stands between play and learning, in order: critic(), replay(k=1), module:name(…)"
    )
    credit: str = Field("grpo()", description="the advantage of every turn: a signal, see docs/credit.md")
    learn: LearnPart = Field(LearnPart(), description="how an advantage moves a policy")
    train: TrainPart = Field(TrainPart(), description="how much is played, and how often the team is evaluated")
    phases: tuple[dict[str, Any], ...] = Field(
        (),
        description="fields that change between iterations: a list of {name, until, and env, reward, stages, credit, "
        "learn or train as far as they differ}, and of {alternate: [phases], repeat: n}; see docs/phases.md",
    )
    play: PlayPart = Field(PlayPart(), description="how play is spread")
    evaluation: EvaluationPart = Field(EvaluationPart(), description="how the difference is proved")
    tune: TunePart | None = Field(
        None, description="search for settings before training, for the team and every trained control alike"
    )
    track: Texts = Field(
        (), description="who else is told the metrics: tensorboard, wandb(project='x'), mlflow, module:name(…)"
    )
    seeds: Seeds = Field((0,), description="independent trainings: a list, or their number (5 is 0 to 4)")

    @field_validator("name")
    @classmethod
    def _is_a_file_name(cls, value: str) -> str:
        if not re.fullmatch(r"[\w][\w .+-]*", value):
            raise ValueError(f"a name becomes a folder: letters, digits, spaces and _ . + -, found {value!r}")
        return value

    @field_validator("seeds", mode="before")
    @classmethod
    def _count(cls, value: Any) -> Any:
        """`seeds: 5` means seeds 0 to 4."""
        return tuple(range(value)) if isinstance(value, int) and not isinstance(value, bool) else value

    @field_validator("imports", mode="before")
    @classmethod
    def _one_or_several(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else () if value is None else value

    @field_validator("stages", "track", mode="before")
    @classmethod
    def _calls(cls, value: Any) -> Any:
        return calls(value)

    @field_validator("stages")
    @classmethod
    def _are_stages(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        looked_up(build_stages, to_be_made(value, info), info)
        return value

    @field_validator("track")
    @classmethod
    def _are_trackers(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        for text in value:
            if ":" not in (name := checked(read_call, text)[0]):
                looked_up(TRACKERS.find, name, info)
        return value

    @field_validator("credit", "reward")
    @classmethod
    def _is_signal(cls, value: str | dict[str, str] | None, info: ValidationInfo) -> str | dict[str, str] | None:
        if value == {}:
            raise ValueError("no components; give a signal, or signals by name")
        for name, text in value.items() if isinstance(value, dict) else [("", value)]:
            if not re.fullmatch(r"\w*", name):
                raise ValueError(f"component {name!r}: name it with letters, digits and _; its column is r_<name>")
            try:
                if text is not None and not is_only_read(info):
                    parse(text)
            except ExpressionError as error:
                raise ValueError(f"{name}: {error}" if name else str(error)) from error
        return value

    @model_validator(mode="after")
    def _names_what_exists(self) -> Recipe:
        for agent, policy in self.team.items():
            if policy not in self.policies:
                raise ValueError(f"team.{agent}: no policy {policy!r}{nearest(policy, self.policies)}")
        for name, control in self.evaluation.controls.items():
            field = f"evaluation.controls.{name}"
            if name in ("before", "after") or not re.fullmatch(r"[\w-]+", name):
                raise ValueError(f"{field}: a name of letters, digits, _ and -, other than before and after, is needed")
            for policy in control.policies or ():
                if policy not in self.policies:
                    raise ValueError(f"{field}.policies: no policy {policy!r}{nearest(policy, self.policies)}")
        for name in self.evaluation.attacks:
            if not re.fullmatch(r"[\w-]+", name):
                raise ValueError(f"evaluation.attacks.{name}: a name of letters, digits, _ and - is needed")
        if self.opponents is not None:
            checked(lambda part: part.check_names(self.policies, self.team), self.opponents)
            if self.train.lag:
                raise ValueError("opponents: who is met depends on the iteration before: write train.lag: 0")
        if not self.seeds or min(self.seeds) < 0 or len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds: give at least one seed, each once and none below 0, found {list(self.seeds)}")
        measures = ("success", "score", *self.evaluation.metrics)
        measure = self.evaluation.measure
        if measure not in measures:
            raise ValueError(f"evaluation.measure: unknown measure {measure!r}{nearest(measure, measures)}")
        return self

    @model_validator(mode="after")
    def _has_phases_that_work(self, info: ValidationInfo) -> Recipe:
        phases = phases_of(checked(read_phases, self.phases))
        for phase in phases:
            checked(lambda each: self._check_phase(each, info.context), phase)
        if phases and self.train.lag:
            raise ValueError("phases: what is played ahead may be of another phase: write train.lag: 0")
        if phases and self.learn.devices != "one":
            raise ValueError("phases: each has a learner of its own, in one process: write learn.devices: one")
        return self

    def _check_phase(self, phase: Phase, context: Any) -> None:
        if phase.ends is not None:
            with naming(f"{phase.place}.until"):
                phase.ends.check(self.policies)
        self.in_phase(phase, context)

    def in_phase(self, phase: Phase, context: Any = None) -> Recipe:
        """The recipe as it is in a phase: validated as a whole, without controls, search and phases.

        Raises:
            RecipeError: names the phase and the field.
        """
        data = alone(self).model_copy(update={"phases": (), "tune": None}).model_dump(mode="json")
        data = _merge(data, dict(phase.changes))
        if "reward" in phase.changes:  # not merged: components that it does not name are no part of it
            data["reward"] = phase.changes["reward"]
        try:
            return type(self).model_validate(data, context=context)
        except ValidationError as error:
            raise RecipeError(f"{phase.place}.{_fault_of(error)}") from error

    @classmethod
    def load(cls, source: str | Path, overrides: Sequence[str] = (), *, trust: bool = False) -> Recipe:
        """Load a shipped recipe by name, or a file; `trust` runs the code that a file names. See docs/security.md.

        Raises:
            RecipeError: something is wrong in it, or it names code and is not trusted.
        """
        return load(source, overrides, trust=trust)

    def dump(self) -> str:
        """YAML text of the resolved recipe, which `load` reads back."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def names() -> list[str]:
    """Sorted list of the names of the recipes that ship with the package."""
    files = resources.files("palaestra.runs.recipes").iterdir()
    return sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml"))


def load(source: str | Path, overrides: Sequence[str] = (), *, trust: bool = False) -> Recipe:
    """Load a `Recipe` from a shipped one's name or a YAML file, with overrides such as `train.iterations=20`.

    trust: run the code that a file names (`module:name`, `imports`); what overrides name is the caller's own.

    Raises:
        RecipeError: the file, a field, a type or a name is wrong; the message names the field and the fix. Or the file
            names code and is not trusted; nothing was imported.
    """
    data, where, shipped = _data(source, overrides)
    if not (trust or shipped):
        refuse(data, where, typed=typed(overrides))
    return validate(data, where, trust=True)


def look(source: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Load a `Recipe` from a name or file for reading only: none of the modules that it names are imported.

    Names are checked where that takes no code but this package's: not those from a file's own modules, and none without
    torch.
    """
    data, where, shipped = _data(source, overrides)
    unchecked = not shipped and bool(code_in(data))
    return _validated(data, where, only_read=unchecked or find_spec("torch") is None)


def validate(data: dict[str, Any], where: str = "recipe", *, trust: bool = False) -> Recipe:
    """Make a `Recipe` from a nested dict, importing its `imports`; outside code is refused without `trust`."""
    if not trust:
        refuse(data, where)
    modules = data.get("imports")
    modules = [modules] if isinstance(modules, str) else modules
    import_modules(modules if isinstance(modules, list | tuple) else ())  # their signals may be named further down
    return _validated(data, where, only_read=False)


def _validated(data: dict[str, Any], where: str, *, only_read: bool) -> Recipe:
    """only_read: import nothing; names may be from modules that are not imported."""
    try:
        return Recipe.model_validate(data, context={"only_read": only_read})
    except ValidationError as error:
        raise RecipeError(f"{where}: {_fault_of(error)}") from error


def _fault_of(error: ValidationError) -> str:
    """The first fault: a field that is missing often is one that is misspelt, and the wrong name says more."""
    return _sentence(min(error.errors(), key=lambda each: each["type"] != "extra_forbidden"))


def _data(source: str | Path, overrides: Sequence[str]) -> tuple[dict[str, Any], str, bool]:
    """The plain data, where it is from, and whether that is this package."""
    text, where, shipped = _read(source)
    try:
        data = read_yaml(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise RecipeError(f"{where}: not YAML: {_fault(error)}") from error
    if not isinstance(data, dict):
        found = "an empty file" if data is None else type(data).__name__
        raise RecipeError(f"{where}: a recipe is a mapping of fields, found {found}{nearest('', Recipe.model_fields)}")
    for override in overrides:
        _override(data, override)
    return data, where, shipped


def typed(overrides: Sequence[str]) -> dict[str, Any]:
    """Parse override texts such as `train.iterations=20` into one nested dict, values read as YAML.

    Raises:
        RecipeError: one is not FIELD=VALUE, or its value is not YAML.
    """
    typed: dict[str, Any] = {}
    for override in overrides:
        _override(typed, override)
    return typed


def import_modules(modules: Iterable[Any]) -> None:
    """Import the modules of these names, a recipe's `imports`, in this process; RecipeError if one cannot be."""
    for module in modules:
        try:
            importlib.import_module(str(module))
        except Exception as error:  # whatever a module does
            why = f"imports: cannot import {module!r} ({type(error).__name__}: {error}){_in_this_folder(error)}"
            raise RecipeError(why) from error


def _in_this_folder(error: Exception) -> str:
    """The cure for a module that is not found although it lies in the current folder."""
    name = error.name if isinstance(error, ModuleNotFoundError) and error.name else ""
    if Path(f"{name}.py").is_file() or (name and Path(name, "__init__.py").is_file()):
        return f"; {name} lies in this folder, which is on Python's path with --trust only: read it, then add --trust"
    return ""


def override(recipe: Recipe, changes: dict[str, Any], where: str = "") -> Recipe:
    """A new `Recipe` with the nested dict `changes` merged into its fields; null takes a seat or a policy away."""
    data = _merge(recipe.model_dump(mode="json"), changes)
    for field in ("team", "policies"):
        if isinstance(data[field], dict):
            data[field] = {name: value for name, value in data[field].items() if value is not None}
    return validate(data, where or recipe.name, trust=True)  # the recipe is, and so are the caller's changes


def alone(recipe: Recipe) -> Recipe:
    """A copy of the recipe without its controls and attacks."""
    none: dict[str, Any] = {"controls": {}, "attacks": {}}
    return recipe.model_copy(update={"evaluation": recipe.evaluation.model_copy(update=none)})


def _merge(base: Any, changes: Any) -> Any:
    if not (isinstance(base, dict) and isinstance(changes, dict)) or "kind" in changes:
        return changes  # a policy of another kind takes none of the old one's options
    return base | {key: _merge(base.get(key), value) for key, value in changes.items()}


def _read(source: str | Path) -> tuple[str, str, bool]:
    path = Path(source)
    if path.suffix in (".yaml", ".yml"):
        try:
            return path.read_text(encoding="utf-8"), str(path), False
        except OSError as error:
            raise RecipeError(f"{path}: cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise RecipeError(f"{path}: cannot be read: {error}") from error
    if str(source) not in names():
        raise RecipeError(f"no recipe {str(source)!r}{nearest(str(source), names())} (or give a .yaml file)")
    text = resources.files("palaestra.runs.recipes").joinpath(f"{source}.yaml").read_text(encoding="utf-8")
    return text, f"recipe {source}", True


def _fault(error: Exception) -> str:
    """Error of a piece of YAML, and its place, on one line."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    said = str(problem or error or type(error).__name__).splitlines()[0]
    hint = "; brackets of a call are written (...) there" if "but got '['" in said else ""
    return (f"line {mark.line + 1}: " if mark else "") + said + hint


EXPRESSIONS = ("stages", "reward", "credit", "track")
"""Fields of text that is no YAML: what an override says is taken as it is, but for lists, mappings and null."""


def _override(data: dict[str, Any], text: str) -> None:
    field, equals, value = text.partition("=")
    *parents, last = field.split(".")
    if not equals or not all((*parents, last)):
        raise RecipeError(f"override {text!r}: write field=value, e.g. train.iterations=20")
    target: Any = data
    for number, parent in enumerate(parents, start=1):
        if target.get(parent) is None:
            target[parent] = {}
        target = target[parent]
        if not isinstance(target, dict):
            raise RecipeError(f"override {text!r}: {'.'.join(parents[:number])} has no fields of its own")
    if not parents and last in EXPRESSIONS and value[:1] not in ("", "[", "{") and value != "null":
        target[last] = value  # its quotes, colons and braces are its own
        return
    try:
        target[last] = read_yaml(value)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise RecipeError(f"override {text!r}: the value is not YAML: {_fault(error)}; put it in quotes") from error


def _sentence(error: Any) -> str:
    """One pydantic error as: field, what was expected and found, the fix."""
    place, annotation = _place(error["loc"])
    field = ".".join(place)
    found = error.get("input")
    match error["type"]:
        case "extra_forbidden":
            known = annotation.model_fields
            return f"{field}: unknown field{nearest(place[-1], known)} (fields here: {', '.join(known)})"
        case "missing":
            return f"{field}: this field is required"
        case "value_error":
            said = str(error["ctx"]["error"])
            inside = said.startswith(".")  # a field of this part, whose name goes on with it
            return f"{field}{said}".removeprefix(".") if inside or not field else f"{field}: {said}"
        case "model_type" | "model_attributes_type" | "dict_type":
            expected = "expected a mapping of fields"
        case "literal_error":
            return f"{field}: no {found!r} here{nearest(str(found), map(str, get_args(annotation)))}"
        case _ if len(place) < len(error["loc"]):  # one of several types
            expected = f"expected {annotation}"
        case _:
            expected = error["msg"].replace("Input should be", "expected").replace("a valid tuple", "a list")
    return f"{field}: {expected}, found {textwrap.shorten(repr(found), 80)} ({type(found).__name__})"


def _place(location: Sequence[str | int]) -> tuple[list[str], Any]:
    """A place in a recipe as names, and what is expected there, or whose fields these are.

    pydantic goes on with the names of types where a field may be one of several; those are left out.
    """
    place: list[str] = []
    expected: Any = Recipe
    for part in location:
        annotation = _optional(expected)
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            info = annotation.model_fields.get(str(part))
            expected = info.annotation if info else annotation
        elif get_origin(annotation) is dict:
            expected = get_args(annotation)[1]
        elif get_origin(annotation) in (Union, types.UnionType):
            break
        place.append(str(part))
    return place, _optional(expected)


def _optional(annotation: Any) -> Any:
    """`X` of `X | None`."""
    if get_origin(annotation) in (Union, types.UnionType):
        some = [each for each in get_args(annotation) if each is not type(None)]
        return some[0] if len(some) == 1 else annotation
    return annotation
