"""Writes docs/recipes.md and the JSON schema of recipes from the models: `python tools/recipes.py`."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

from palaestra.foundation.registry import load_object
from palaestra.runs.config import (
    AttackPart,
    ControlPart,
    EnvPart,
    EvaluationPart,
    LearnPart,
    PlayPart,
    PolicyPart,
    ScorerPart,
    TrainPart,
    TunePart,
    WarmStartPart,
)
from palaestra.runs.field_docs import meanings, schema
from palaestra.runs.policies import NEEDED, POLICIES, TAKES
from palaestra.runs.recipe import Recipe
from palaestra.runs.scripts import SCRIPTS, parameters

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "recipes.md"
SCHEMA = ROOT / "src" / "palaestra" / "runs" / "recipes" / "recipe.schema.json"
PARTS = {
    "": Recipe, "env": EnvPart, "policies.NAME": PolicyPart, "warm_start": WarmStartPart, "learn": LearnPart,
    "train": TrainPart, "play": PlayPart, "evaluation": EvaluationPart, "evaluation.controls.NAME": ControlPart,
    "evaluation.attacks.NAME": AttackPart, "evaluation.scorers.NAME": ScorerPart, "tune": TunePart,
}  # fmt: skip

HEAD = """# Recipes

<!-- Written by tools/recipes.py from the models; change descriptions there. -->

A recipe is a YAML file that says what is played, by whom, how credit is given and how the result is proved. It is
checked before anything is played; a field that is wrong is named, with the nearest right one.

```
palaestra recipes                          # those that ship
palaestra recipes corridor > mine.yaml     # one to start from
palaestra recipes mine.yaml --explain      # every field of it, with what it means and its default
palaestra recipes --schema > recipe.schema.json
palaestra train mine.yaml train.iterations=20 learn.lr=0.05
```

With the first line `# yaml-language-server: $schema=recipe.schema.json` an editor completes and checks fields while
you type. On the command line any field is replaced by `field=value`, the value as in YAML. A recipe that names code of
yours asks for `--trust`: [a recipe is code](security.md). It holds no secrets: a key is an environment variable,
of which the recipe has the name.
"""

TEACHER = """## Teachers of your own

`script` names a factory: a function from `options` to play. Play is a function from a `Request` to an action: an index
or one of the legal actions where there are choices, else a text. What is random draws from `request.rng`, so that runs
repeat. A factory with a parameter `seed` gets the run's, unless `options` says one.

```python
>>> from palaestra.agents.policy import Request
>>> def cautious(folds: float = 0.5):                      # script: "my_module:cautious", options: {folds: 0.8}
...     def play(request: Request):
...         legal = request.observation.legal              # () where any text will do
...         return legal[0] if request.rng.random() < folds else legal[-1]
...     return play
>>> from palaestra.runs.scripts import SCRIPTS
>>> SCRIPTS.add("cautious", cautious)                     # or by name, without --trust, from a plugin
>>> from palaestra.runs.recipe import load
>>> load("kuhn-selfplay", ["warm_start={script: cautious, options: {folds: 0.8}}"]).warm_start.options
{'folds': 0.8}
>>> SCRIPTS.remove("cautious")

```
"""

TABLES = """## Tables for `palaestra evaluate`

A CSV, TSV, JSONL or Parquet file with these columns is read as it is; more columns are kept; what is missing is null.

| column | means |
| --- | --- |
| `task` | what was to be done; systems are compared on the same tasks. Needed |
| `success` | was it done: true or false, 1 or 0. One of success, score and reward is needed |
| `score`, `reward` | how well, a number, larger is better; `score.NAME` for several, chosen with `--score NAME` |
| `system` | who did it; else `model`, `agent`, `policy`, `run_name` and their like, or `--system COLUMN` |
| `run` | seed or repetition of a training; intervals are clustered by it, too |
| `error` | why an episode failed for reasons of its own; see `--errors` |
| `tokens_in`, `tokens_out`, `cost`, `seconds` | what it took |
| `episode`, `group` | number or name, in a table with a row per turn; without `episode` a row is an episode |
| `turn`, `agent` | in such a table: place within the episode, and who acted |
| any other | for `--cluster COLUMN`: what tasks have in common |

```
task,model,success,tokens_out
gcd-1,before,false,112
gcd-1,after,true,96
```
"""


def page() -> str:
    """The page, whole."""
    parts = [HEAD]
    for name, model in PARTS.items():
        parts.append(
            f"## {f'`{name}`' if name else 'Fields'}\n\n{inspect.cleandoc(model.__doc__ or '')}\n\n{table(model)}"
        )
        if name == "policies.NAME":
            parts += ["## Kinds of policies\n", *map(kind, POLICIES)]
        if name == "warm_start":
            parts += [scripts(), TEACHER]
    return "\n".join([*parts, TABLES])


def table(model: type) -> str:
    """The fields of a part."""
    rows = ["| field | takes | default | means |", "| --- | --- | --- | --- |"]
    for name, takes, default, meaning in meanings(model):
        shown = "needed" if default is None else "see there" if default == "…" else f"`{default}`"
        cells = (f"`{name}`", takes, shown, meaning)
        rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(rows) + "\n"


def kind(name: str) -> str:
    """A kind of policy and its options."""
    said = f"**`{name}`**: {inspect.cleandoc(POLICIES[name].__doc__ or '')}"
    if name not in TAKES:
        return f"{said}\n"
    function, fixed, given, accepts = TAKES[name]
    made = [load_object(each, name) for each in (function, *accepts)]
    taken = parameters(made[0], given, fixed, made[1:])
    options = ", ".join(f"`{each.name}`" if each.default is each.empty else f"`{each.name}: {each.default!r}`"
                        for each in taken.values())  # fmt: skip
    owners = {"tiny": "LMPolicy", "lm": "LMPolicy", "served": "ServedPolicy"}
    owner = load_object(f"palaestra.agents:{owners[name]}", name) if name in owners else made[0]
    about = [inspect.getdoc(each) for each in ([owner] if owner is made[0] else [made[0], owner])]
    needed = f"`{NEEDED[name]}`, " if name in NEEDED else ""
    quoted = "\n>\n".join("\n".join(f"> {line}".rstrip() for line in str(text).splitlines()) for text in about)
    return f"{said} Options: {needed}{options}.\n\n{quoted}\n"


def scripts() -> str:
    """Scripted play that ships."""
    return "Scripts that ship: " + ", ".join(f"`{SCRIPTS.signature(name)}`" for name in SCRIPTS) + ".\n"


def files() -> dict[Path, str]:
    """What this writes, by path."""
    return {PAGE: page(), SCHEMA: json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"}


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOT))
