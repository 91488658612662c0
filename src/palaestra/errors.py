"""Exceptions, by the boundary at which an error occurred.

Every error that a user can cause says what was found, where, what was expected and the nearest valid name.
A bad *episode* never raises: it is rows of `Turns` with `error` set. These classes are for what has to stop.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PalaestraError(Exception):
    """Base class of all errors that palaestra raises on purpose; the command exits with `exit_code`.

    It prints the error's text.
    """

    exit_code = 1


class InputError(PalaestraError):
    """Raised for unusable input of the user: a recipe, an expression, a file, a column. Exit code 2."""

    exit_code = 2


class RecipeError(InputError):
    """Raised for a wrong key, type or value in a recipe; the message names the field and the fix."""


class ExpressionError(InputError):
    """Raised if a signal's text cannot be parsed, or names something that is not registered."""


class SchemaError(InputError):
    """Raised for a table with an unknown version, a wrong type or a missing column."""


class MissingColumnError(SchemaError):
    """Raised if a table lacks a column that a signal or function needs."""


class MissingExtraError(InputError):
    """Raised if an optional dependency is not installed."""


class EnvError(PalaestraError):
    """Raised if an environment breaks its protocol."""


class PolicyError(PalaestraError):
    """Raised if a policy breaks its protocol, or an endpoint fails for good."""


class RewardError(PalaestraError):
    """Raised if a reward is not finite, or if a reward program fails on every row."""


class LearnerError(PalaestraError):
    """Raised if an update cannot be made, for example because an advantage, a loss or a gradient is not finite."""


class RankError(PalaestraError):
    """Raised if a process (rank) of a learner on several devices failed and the others stopped; names the rank."""


class StorageError(PalaestraError):
    """Raised if a file cannot be written, or not read completely."""


class DamagedFileError(StorageError, InputError):
    """Raised if a file that the user named is missing, incomplete or of another kind. Exit code 2."""

    exit_code = 2


def nearest(name: str, known: Iterable[str], kind: str = "") -> str:
    """End of an error message, as text, with the nearest known names: `"; did you mean 'gigpo'?"`, or a list of them.

    >>> nearest("gipgo", ["grpo", "gigpo"])
    "; did you mean 'gigpo' or 'grpo'?"
    """
    names = sorted(set(known))
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        return "; did you mean " + " or ".join(repr(c) for c in close) + "?"
    if len(names) <= _MOST:
        return "; known: " + ", ".join(names) if names else ""
    some = ", ".join(difflib.get_close_matches(name, names, n=6, cutoff=0.0))
    kind = kind or getattr(known, "kind", "")  # a registry has one
    rest = f"`palaestra names {kind}` lists all {len(names)}" if kind else f"there are {len(names)}"
    return f"; nearest: {some} ({rest})"


def need_columns(who: object, columns: Iterable[str], names: Iterable[str]) -> None:
    """Raises MissingColumnError, with `who` in its message, unless all `names` are in `columns`.

    Raises:
        MissingColumnError: says for whom the first of them is missing, and the nearest that is there.
    """
    there = list(columns)
    for name in names:
        if name not in there:
            raise MissingColumnError(f"{who}: no column {name!r}{nearest(name, there)}")


_MOST = 30
"""More names than this are not printed one by one."""


def missing_extra(package: str, extra: str) -> MissingExtraError:
    """Returns (does not raise) the MissingExtraError for an absent optional dependency, with its install command."""
    return MissingExtraError(f"{package} is not installed: pip install 'palaestra[{extra}]'")
