"""YAML in which a key that stands twice is an error, not a silent loss of what the first one said."""

from __future__ import annotations

from typing import Any

import yaml


class _Once:
    """What a loader becomes when it is strict about keys."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """As the safe loader does it, after a look at the keys; `<<` may still bring what is replaced here."""
        seen: dict[Any, Any] = {}
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                continue
            name = self.construct_object(key, deep=True)  # type: ignore[attr-defined]
            try:
                first = seen.setdefault(name, key)
            except TypeError:  # no key of a mapping; the loader says so itself
                continue
            if first is not key:
                lines = f"in lines {first.start_mark.line + 1} and {key.start_mark.line + 1}"
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {name!r} stands twice, {lines}; keep one", key.start_mark
                )
        return super().construct_mapping(node, deep=deep)  # type: ignore[misc]


class _Strict(_Once, yaml.SafeLoader):
    pass


class _Fast(_Once, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    pass


def read(text: str, *, fast: bool = False) -> Any:
    """Plain data from a YAML text. fast: by libyaml where it is there; for long files of our own.

    Raises:
        yaml.YAMLError: it is not YAML, makes objects, or has a key twice; names the line.

    >>> read("a: 1\\nb: {c: 2}")
    {'a': 1, 'b': {'c': 2}}
    """
    return yaml.load(text, Loader=_Fast if fast else _Strict)
