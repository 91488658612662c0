"""Reads YAML safely: a key that stands twice is an error, and aliases cannot blow a small text up."""

from __future__ import annotations

from typing import Any

import yaml


class _Once(yaml.constructor.SafeConstructor):
    """YAML loader that refuses duplicate keys."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """As the safe loader does it, after a look at the keys; `<<` may still bring what is replaced here."""
        seen: dict[Any, Any] = {}
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                continue
            name = self.construct_object(key, deep=True)
            try:
                first = seen.setdefault(name, key)
            except TypeError:  # no key of a mapping; the loader says so itself
                continue
            if first is not key:
                lines = f"in lines {first.start_mark.line + 1} and {key.start_mark.line + 1}"
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {name!r} stands twice, {lines}; keep one", key.start_mark
                )
        return super().construct_mapping(node, deep=deep)


class _Strict(_Once, yaml.SafeLoader):
    pass


class _Fast(_Once, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    pass


_MOST_COPIES = 100_000
"""Nodes that aliases may add to a document."""


def _refuse_blown_up(root: yaml.Node) -> None:
    """Refuse a document whose aliases stand for more nodes than `_MOST_COPIES`, or contain themselves.

    Raises:
        yaml.YAMLError: names the line of the node.
    """
    sizes: dict[int, int] = {}

    def size(node: yaml.Node) -> int:
        if id(node) in sizes:
            if not sizes[id(node)]:
                raise yaml.constructor.ConstructorError(None, None, "an alias contains itself", node.start_mark)
            return sizes[id(node)]
        sizes[id(node)] = 0
        parts = node.value if isinstance(node, yaml.CollectionNode) else ()
        inner = [each for part in parts for each in (part if isinstance(part, tuple) else (part,))]
        sizes[id(node)] = 1 + sum(map(size, inner))
        return sizes[id(node)]

    if size(root) - len(sizes) > _MOST_COPIES:
        problem = f"its aliases stand for more than {_MOST_COPIES:,} nodes; write out what is meant"
        raise yaml.constructor.ConstructorError(None, None, problem, root.start_mark)


def read(text: str, *, fast: bool = False) -> Any:
    r"""Parse a YAML text into plain data, strictly (no objects, no key twice).

    fast: by libyaml if available, for long files of our own.

    Raises:
        yaml.YAMLError: it is not YAML, makes objects, has a key twice, or has aliases that contain themselves or
            stand for more than 100,000 nodes; names the line.

    >>> read("a: 1\nb: {c: 2}")
    {'a': 1, 'b': {'c': 2}}
    """
    kind: Any = _Fast if fast else _Strict
    loader = kind(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _refuse_blown_up(node)
        return loader.construct_document(node)
    finally:
        loader.dispose()
