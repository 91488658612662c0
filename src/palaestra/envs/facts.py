"""Facts: what an env tells of a turn beside rewards, as typed columns of the table.

An env that has `facts = {"delta": float, "evidence": list[int]}` tells them in `StepResult.info`, once for everybody
who acted in the step, or as `{agent: value}`, which stands on the latest turn of that agent. What it does not tell is
null. What is not declared stays JSON in `metadata`.

    declared      float     int     bool      str      list[float]     list[int]     list[bool]      list[str]
    column        Float64   Int64   Boolean   String   List(Float64)   List(Int64)   List(Boolean)   List(String)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from types import GenericAlias
from typing import Any

import numpy as np
import polars as pl

from palaestra.algebra.turns import SCHEMA, clean
from palaestra.errors import EnvError, InputError, nearest

Facts = Mapping[str, type]
"""Name -> type; lists are written `list[float]`."""

_LEAST, _MOST = -(2**63), 2**63 - 1


def _float(value: Any) -> float:
    if type(value) is float and math.isfinite(value):  # nearly always
        return value
    if isinstance(value, bool | np.bool_) or not isinstance(value, float | int | np.floating | np.integer):
        raise TypeError
    if not math.isfinite(value):
        raise ValueError("is not finite; an unknown number is None")
    return float(value)


def _int(value: Any) -> int:
    if type(value) is int and _LEAST <= value <= _MOST:
        return value
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise TypeError
    if not _LEAST <= int(value) <= _MOST:
        raise ValueError("does not fit into 64 bits")
    return int(value)


def _bool(value: Any) -> bool:
    if value is True or value is False:
        return value
    if not isinstance(value, np.bool_):
        raise TypeError
    return bool(value)


def _str(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return clean(value)


def _each(value: Any, read: Callable[[Any], Any]) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple | np.ndarray):
        raise TypeError
    return tuple([read(each) for each in value])


def _floats(value: Any) -> tuple[Any, ...]:  # nearly always there is nothing to read, and what a turn tells is short
    if type(value) is tuple or type(value) is list:
        for each in value:
            if type(each) is not float or not math.isfinite(each):
                break
        else:
            return tuple(value)
    return _each(value, _float)


def _ints(value: Any) -> tuple[Any, ...]:
    if type(value) is tuple or type(value) is list:
        for each in value:
            if type(each) is not int or not _LEAST <= each <= _MOST:
                break
        else:
            return tuple(value)
    return _each(value, _int)


def _bools(value: Any) -> tuple[Any, ...]:
    if type(value) is tuple or type(value) is list:
        for each in value:
            if each is not True and each is not False:
                break
        else:
            return tuple(value)
    return _each(value, _bool)


def _strs(value: Any) -> tuple[Any, ...]:
    if type(value) is tuple or type(value) is list:
        for each in value:
            if type(each) is not str or not each.isascii():
                break
        else:
            return tuple(value)
    return _each(value, _str)


_READ: dict[Any, Callable[[Any], Any]] = {
    float: _float,
    int: _int,
    bool: _bool,
    str: _str,
    list[float]: _floats,
    list[int]: _ints,
    list[bool]: _bools,
    list[str]: _strs,
}
_PLAIN: dict[Any, Any] = {float: pl.Float64, int: pl.Int64, bool: pl.Boolean, str: pl.String}
DTYPES: dict[Any, Any] = {**_PLAIN, **{GenericAlias(list, kind): pl.List(dtype) for kind, dtype in _PLAIN.items()}}
"""What a declared type becomes."""


def facts_of(env: Any) -> dict[str, type]:
    """Declared facts (extra columns) of an env or env factory, {name: type}; a factory is called if its class has none.

    Raises:
        InputError: what is declared is no mapping of names to types that a column can have, or takes a column's name.
        Exception: whatever the factory raises.

    >>> from palaestra.envs.roles import SimulatedUser
    >>> facts_of(SimulatedUser)["emotion"]
    <class 'float'>
    """
    made = hasattr(env, "reset") and not isinstance(env, type)
    declared = getattr(env, "facts", None)
    if not made and not isinstance(declared, Mapping):
        env = env()
        declared = getattr(env, "facts", None)
    if declared is None:
        return {}
    name = getattr(env, "__name__", type(env).__name__)
    if not isinstance(declared, Mapping):
        raise InputError(f"{name}: facts is {declared!r}, expected a mapping of names to types")
    for fact, kind in declared.items():
        if fact in SCHEMA:
            raise InputError(f"{name}: the fact {fact!r} has the name of a column of every table; choose another")
        if not isinstance(fact, str) or fact in ("valid", "success") or not fact.isidentifier():
            raise InputError(f"{name}: a fact cannot be called {fact!r}; it is a column's name, such as 'delta'")
        if kind not in DTYPES:
            raise InputError(f"{name}: the fact {fact!r} is a {_name(kind)}; a column can hold {_KINDS}")
    return dict(declared)


def with_types(facts: Mapping[str, Any] | None) -> dict[str, type]:
    """Declared facts with type names replaced by types: {"x": "list[float]"} becomes {"x": list[float]}.

    Raises:
        InputError: a column cannot have such a type.

    >>> with_types({"x": "float", "y": list[int]})
    {'x': <class 'float'>, 'y': list[int]}
    """
    types = {_name(kind): kind for kind in DTYPES}
    for fact, kind in (facts or {}).items():
        if isinstance(kind, str) and kind not in types:
            raise InputError(f"facts: {fact!r} is {kind!r}{nearest(kind, types)}")
    return {fact: types[kind] if isinstance(kind, str) else kind for fact, kind in (facts or {}).items()}


def read_facts(
    info: Mapping[str, Any], facts: Facts, acted: Iterable[str], agents: Collection[str]
) -> dict[str, dict[str, Any]]:
    """Facts of one step from its `info`, {agent: {fact: value}}, of those who `acted`, converted to declared types.

    Raises:
        EnvError: a value has another type than declared, or is told of somebody who is not among the agents.
    """
    told: dict[str, dict[str, Any]] = {agent: {} for agent in acted}
    known = set(agents)
    for name, kind in facts.items():
        value = info.get(name)
        if value is None:
            continue
        if type(value) is dict or isinstance(value, Mapping):  # the first is asked for speed
            read = _READ[kind]
            if value.keys() != told.keys():
                for agent in value:
                    if agent not in known:
                        raise EnvError(f"the fact {name!r} is told of {agent!r}, but the env's agents are {agents}")
                    told.setdefault(agent, {})
            try:
                for agent, each in value.items():
                    if each is not None:
                        told[agent][name] = read(each)
            except (TypeError, ValueError):
                read_fact(name, each, kind)  # says what is wrong with it
        else:
            value = read_fact(name, value, kind)
            for agent in acted:
                told[agent][name] = value
    return told


def read_fact(name: str, value: Any, kind: type) -> Any:
    """Value of the fact `name` converted to its declared type `kind`; raises EnvError if it does not fit.

    Raises:
        EnvError: it is something else; names fact, found and expected type.
    """
    try:
        return _READ[kind](value)
    except TypeError:
        found = type(value).__name__
        if isinstance(value, list | tuple):
            found += f" of {', '.join(sorted({type(each).__name__ for each in value}))}"
        raise EnvError(f"the fact {name!r} is {_short(value)}, a {found}; {_name(kind)} was declared") from None
    except ValueError as error:
        raise EnvError(f"the fact {name!r} is {_short(value)}, which {error}") from None


def _name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and kind in _PLAIN else str(kind)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "…"


_KINDS = ", ".join(map(_name, DTYPES))
