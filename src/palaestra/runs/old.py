"""What recipes of earlier versions wrote, and what they write now."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from palaestra.algebra.registry import split_calls

OLD_FIELDS = (
    "clip", "dual_clip", "ratio", "aggregate", "constant", "kl", "kl_estimator", "entropy", "corridor",
    "corridor_smooth", "corridor_decay", "auxiliary",
)  # fmt: skip
"""Former fields of `learn`."""


def as_terms(data: Mapping[str, Any]) -> str:
    """The terms that say the same as these fields of `learn`; terms that are there stay, unless the fields name them.

    >>> as_terms({"clip": [0.2, 0.28], "kl": 0.05, "kl_estimator": "k3"})
    "surrogate(clip=(0.2, 0.28)), kl(0.05, estimator='k3')"
    >>> as_terms({"terms": ["gspo()"], "entropy": 0.01})
    'gspo(), entropy(0.01)'
    """
    given = data.get("terms") or []
    texts = split_calls(given if isinstance(given, str) else ", ".join(map(str, given)))
    kept = {text.partition("(")[0]: text for text in texts}
    found: dict[str, str] = {}
    about = {name: data[name] for name in ("clip", "dual_clip", "ratio", "aggregate", "constant") if name in data}
    if about or not kept:
        found["surrogate"] = _call("surrogate", **about)
    if data.get("kl"):
        found["kl"] = _call("kl", data["kl"], **_given(data, estimator="kl_estimator"))
    if data.get("corridor"):
        low, high = data["corridor"] if isinstance(data["corridor"], list | tuple) else (0.8, 1.2)
        also = _given(data, smooth="corridor_smooth", decay="corridor_decay")
        found["corridor"] = _call("corridor", data.get("entropy", 0.01), low=low, high=high, **also)
    elif data.get("entropy"):
        found["entropy"] = _call("entropy", data["entropy"])
    if isinstance(data.get("auxiliary"), Mapping):
        found["auxiliary"] = _call("auxiliary", **data["auxiliary"])
    elif data.get("auxiliary"):
        found["auxiliary"] = "auxiliary()"
    gone = {name for name in ("kl", "entropy", "corridor", "auxiliary") if name in data} - found.keys()
    return ", ".join(text for name, text in (kept | found).items() if name not in gone)


def _given(data: Mapping[str, Any], **names: str) -> dict[str, Any]:
    return {new: data[old] for new, old in names.items() if old in data}


def _call(name: str, *values: Any, **options: Any) -> str:
    def text(value: Any) -> str:
        return repr(tuple(value) if isinstance(value, list) else value)

    return f"{name}({', '.join([*map(text, values), *(f'{key}={text(value)}' for key, value in options.items())])})"


MOVED = {
    ("repair",): "stages",
    ("train", "concurrency"): "play.concurrency",
    ("train", "timeout"): "play.timeout",
    ("train", "retries"): "play.retries",
}
"""Fields and where they are now."""


def refuse_moved(data: Mapping[str, Any]) -> None:
    """Stop at a field that is elsewhere now.

    Raises:
        ValueError: says what to write.
    """
    for place, now in MOVED.items():
        inner: Any = data
        for part in place:
            inner = inner.get(part) if isinstance(inner, dict) else None
        if inner is not None:
            raise ValueError(f"{'.'.join(place)} is {now} now: write {now}: {inner}")


MODULES = {
    "palaestra.envs.native": "palaestra.envs.worlds",
    "palaestra.workflows": "palaestra.teams",
    "palaestra.integrations": "palaestra.learning.adapters",
    "palaestra.theory": "palaestra.envs.worlds.exact",
    "palaestra.audits": "palaestra.evaluation.audits",
    "palaestra.turns": "palaestra.algebra.turns",
}
"""Modules and where they are now."""


def refuse_gone_modules(data: Any, field: str = "") -> None:
    """Stop at a module of this package that is elsewhere now, before anybody is asked to trust it.

    Raises:
        ValueError: says what to write.
    """
    if isinstance(data, Mapping):
        for key, value in data.items():
            refuse_gone_modules(value, f"{field}.{key}" if field else str(key))
    elif isinstance(data, list | tuple):
        for each in data:
            refuse_gone_modules(each, field)
    elif isinstance(data, str) and (match := _GONE.search(data)):
        now = MODULES[match["module"]] + match["rest"]
        raise ValueError(f"{field}: {match[0]} is {now} now: write {field}: {data.replace(match[0], now)}")


_GONE = re.compile(rf"(?<![\w.])(?P<module>{'|'.join(map(re.escape, MODULES))})(?P<rest>\b[\w.]*:\w+)")
