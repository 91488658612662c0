"""Exceptions, by the boundary at which an error occurred.

Every error that a user can cause says what was found, where, what was expected and the nearest valid name.
A bad *episode* never raises: it is rows of `Turns` with `error` set. These classes are for what has to stop.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PalaestraError(Exception):
    """Base of everything raised on purpose. The command line prints its text and exits with `exit_code`."""

    exit_code = 1


class InputError(PalaestraError):
    """Unusable input of the user: a recipe, an expression, a file, a column. Exit code 2."""

    exit_code = 2


class RecipeError(InputError):
    """A recipe has a wrong key, type or value; the message names the field and the fix."""


class ExpressionError(InputError):
    """The text of a signal cannot be parsed, or names something that is not registered."""


class SchemaError(InputError):
    """A table has an unknown version, a wrong type or lacks a column."""


class MissingColumnError(SchemaError):
    """A signal needs a column that the table does not have."""


class MissingExtraError(InputError):
    """An optional dependency is not installed."""


class EnvError(PalaestraError):
    """An environment broke its protocol."""


class PolicyError(PalaestraError):
    """A policy broke its protocol, or an endpoint failed for good."""


class RewardError(PalaestraError):
    """A reward is not finite."""


class LearnerError(PalaestraError):
    """An update cannot be made: an advantage, a loss or a gradient is not finite."""


class RankError(PalaestraError):
    """A process of a learner on several devices is gone or failed, and the others stopped; names it."""


class StorageError(PalaestraError):
    """A file could not be written or read whole."""


class DamagedFileError(StorageError, InputError):
    """A file that the user named cannot be read: it is not there, not whole, or something else. Exit code 2."""

    exit_code = 2


def nearest(name: str, known: Iterable[str], kind: str = "") -> str:
    """`"; did you mean 'gigpo'?"`, or the known names if none is near (few of many), ready to end a message.

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
    """All of `names` are columns of a table.

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
    """The one clear line for an absent optional dependency."""
    return MissingExtraError(f"{package} is not installed: pip install 'palaestra[{extra}]'")
