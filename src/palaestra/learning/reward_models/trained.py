"""From a file to a reward model in a folder: what `palaestra fit-reward` does."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from palaestra.errors import InputError, nearest
from palaestra.foundation.files import plain, write_json
from palaestra.foundation.progress import Report
from palaestra.foundation.registry import read_call
from palaestra.learning.reward_models.data import Labels
from palaestra.learning.reward_models.files import read_counted
from palaestra.learning.reward_models.fitting import RANKINGS
from palaestra.learning.reward_models.held_out_scores import explained
from palaestra.learning.reward_models.held_out_scores import held_out as accuracy
from palaestra.learning.reward_models.reward_model import REWARD_MODELS, SETTINGS

UNREAD = "that the model cannot read, or of weight 0"


def fit_reward(
    pairs: str | Path,
    out: str | Path,
    model: str | None = None,
    *,
    features: str | None = None,
    rows: str | Path | None = None,
    target: Sequence[str] = (),
    margin: str | None = None,
    weight: str | None = None,
    key: str | None = None,
    pairing: str | None = None,
    held_out: float = 0.1,
    seed: int = 0,
    progress: bool | Report = False,
    **options: Any,
) -> dict[str, Any]:
    """Train a reward model on a file of pairs or labels, write it into the folder `out`, and return a report (dict).

    It is the function of the command `palaestra fit-reward`.
    pairs: see `learning.reward_models.files`; a table of rows, if a pairing makes the pairs. model: `head(layers=2)`,
    `sequence("PATH")` …; default: `head()` if features are named, else a tiny `sequence()`. options: those of the
    model's `fit` (loss, epochs, lr, …); None: its default. The
    same call again goes on after an interruption.

    Returns:
        What it learned from, how many rows were left out and why, metrics of the fit, accuracy on held-out pairs
        (unknown if none can be compared), R² of labels; also in `fit.json`.

    Raises:
        InputError: the file holds nothing of the kind, the folder a model already, or an option is unknown.
    """
    text = model or ("head()" if features else "sequence()")
    name, values, given = read_call(text, REWARD_MODELS.example)
    if features is not None and not values and "features" not in given:
        shown = [f"features={features!r}", *(f"{key_}={value!r}" for key_, value in given.items())]
        text = f"{name}({', '.join(shown)})"
    made, folder = REWARD_MODELS.build(text), Path(out)
    if (folder / SETTINGS).exists():
        raise InputError(f"{folder}: holds a model already: remove it, or name another folder")
    if stands := [each for each in (folder, *folder.parents) if each.is_file()]:
        raise InputError(f"--out {folder}: {stands[0]} is a file; name a folder")
    takes = inspect.signature(made.fit).parameters
    asked = {name: value for name, value in options.items() if value not in (None, 0.0)}
    for name in asked:
        if name not in takes and name != "every":
            raise InputError(f"fit-reward: {text} has no {name}{nearest(name, takes)}")
    data, left_out = read_counted(
        pairs, rows=rows, features=features, target=target, margin=margin, weight=weight, key=key, pairing=pairing
    )
    if isinstance(data, Labels) and asked.get("centre"):
        raise InputError("fit-reward: centre is for pairs, and here are labels; leave it out")
    if isinstance(data, Labels) and weight and asked.get("loss") in RANKINGS:
        raise InputError(f"fit-reward: loss={asked['loss']!r} orders inside groups, without weights; leave weight out")
    if not len(data) and left_out:
        reasons = ", ".join(f"{count} {reason}" for reason, count in left_out.items())
        raise InputError(f"{pairs}: nothing to learn from: every row is left out ({reasons})")
    learned, other = data.split(held_out, seed)
    where = folder / "checkpoints"
    asked = {name: value for name, value in asked.items() if name in takes}
    fit = made.fit(learned, seed=seed, checkpoints=where, progress=progress, **asked)
    if isinstance(other, Labels) and asked.get("loss") == "distill":
        other = replace(other, value=other.value[:, 0])  # the labels; the teacher only teaches
    several = isinstance(other, Labels) and other.value.ndim > 1
    right = None if several else accuracy(made, other).to_dict()
    used = int(fit.pop("rows", len(learned)))
    tested = len(other) if isinstance(other, Labels) or right is None else right["n"]
    if unread := len(learned) - used + len(other) - tested:
        left_out[UNREAD] = unread
    found = {
        "model": text,
        "learned": {
            "what": "labels" if isinstance(data, Labels) else "pairs",
            "rows": used,
            "held_out": tested,
            "keys": len(other) if other.key is None else len(set(other.key.tolist())),
            "left_out": left_out,
        },
        "fit": fit,
        "accuracy": right,
        "explained": explained(made, other) if isinstance(other, Labels) else None,
    }
    made.save(folder)
    write_json(folder / "fit.json", found)
    shutil.rmtree(where, ignore_errors=True)
    result: dict[str, Any] = plain(found)
    return result
