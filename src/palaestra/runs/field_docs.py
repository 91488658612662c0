"""Descriptions of a recipe's fields: for `recipes --explain`, for editors (JSON schema), for docs/recipes.md."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from palaestra.runs.recipe import Recipe


class Meaning(NamedTuple):
    """Documentation data of one recipe field: name, type, default as YAML (None: required), and meaning."""

    name: str
    type: str
    default: str | None
    meaning: str


def meanings(model: type[BaseModel] = Recipe) -> list[Meaning]:
    """List of `Meaning`, one for each field of a recipe's section class; default: the whole `Recipe`.

    >>> from palaestra.runs.config import PlayPart
    >>> meanings(PlayPart)[2]
    Meaning(name='concurrency', type='integer', default='256', meaning='episodes at once')
    """
    return [
        Meaning(name, _type(field), _default(field), " ".join((field.description or "").split()))
        for name, field in model.model_fields.items()
    ]


def schema() -> dict[str, Any]:
    """JSON schema of recipes as a dict, with which editors complete and check them."""
    made = Recipe.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | made | {"title": "Palaestra recipe"}


def explain(recipe: Recipe) -> str:
    """YAML text of a recipe with every field and a comment on each; it can be read back as the same recipe."""
    return "\n".join(_lines(recipe, "")) + "\n"


def _lines(part: BaseModel, indent: str) -> Iterator[str]:
    given = part.model_dump(mode="json")
    for name, type_, default, meaning in meanings(type(part)):
        value = getattr(part, name)
        says = "required" if default is None else "has defaults" if default == "…" else f"default: {default}"
        yield f"{indent}# {meaning} ({type_}; {says})"
        parts = value if isinstance(value, dict) else {}
        if isinstance(value, BaseModel):
            yield f"{indent}{name}:"
            yield from _lines(value, indent + "  ")
        elif parts and all(isinstance(each, BaseModel) for each in parts.values()):
            yield f"{indent}{name}:"
            for key, each in parts.items():
                yield f"{indent}  {_flow(key)}:"
                yield from _lines(each, indent + "    ")
        else:
            yield f"{indent}{name}: {_flow(given[name])}"


def _flow(value: Any) -> str:
    """Plain data as YAML on one line."""
    if isinstance(value, str) and "\n" in value:
        return json.dumps(value, ensure_ascii=False)
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**9, sort_keys=False)
    return text.removesuffix("...\n").strip()


def _default(field: FieldInfo) -> str | None:
    if field.default is PydanticUndefined:
        return None
    if isinstance(field.default, BaseModel):
        return "…"
    return _flow(list(field.default) if isinstance(field.default, tuple) else field.default)


def _type(field: FieldInfo) -> str:
    return " or ".join(_words(field.annotation))


def _words(annotation: Any) -> list[str]:
    """The alternatives that a type stands for, as people say them."""
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return [word for each in inside for word in _words(each)]
    if origin is Literal:
        return [str(each) for each in inside]
    if origin is tuple:
        return [f"list of {_words(inside[0])[0]}s"]
    if origin is dict:
        of = _words(inside[1])[0]
        return ["mapping" if of == "anything" else f"{of} by name"]
    known = {str: "text", float: "number", int: "integer", type(None): "null", Any: "anything"}
    return [known.get(annotation, "fields")]
