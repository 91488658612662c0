"""No key gets into a recipe, so none gets into recipe.yaml, environment.json or a page."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from palaestra.errors import RecipeError
from palaestra.runs.config import PolicyPart
from palaestra.runs.recipe import Recipe, load, names, validate
from palaestra.runs.secrets import refuse_secrets

PLAIN: dict[str, Any] = {
    "name": "plain",
    "env": {"make": "native/corridor"},
    "policies": {"one": {"kind": "chat", "options": {"model": "m"}}},
    "team": {"*": "one"},
}
SECRET = "s3cret-hunter2-XYZ99"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (f"policies.one.options.api_key={SECRET}", "policies.one.options.api_key: a secret"),
        (f"policies.one.options.base_url=https://me:{SECRET}@host/v1", "policies.one.options.base_url: a name and"),
        (f"policies.one.options.base_url=https://{SECRET}@host/v1", "policies.one.options.base_url: a name and"),
        (f"policies.one.options.headers={{Authorization: {SECRET}}}", "policies.one.options.headers.Authorization: a"),
        (f"policies.one.options.hf_token={SECRET}", "policies.one.options.hf_token: a secret"),
        (f"env.options.db_password={SECRET}", "env.options.db_password: a secret"),
        (f"env.options.where=sk-{SECRET}", "env.options.where: what looks like a key"),
        (f"description=run with sk-proj-{SECRET}", "description: what looks like a key"),
        (f"learn.options.list=[1, 'Bearer {SECRET}']", "learn.options.list: what looks like a key"),
        (f"stages=judge('x', api_key='{SECRET}')", "stages: what looks like a key"),
        (f"evaluation.controls.c.train.env.options.token={SECRET}", "evaluation.controls.c.train.env.options.token: a"),
    ],
)
def test_a_secret_is_refused_and_not_repeated(change: str, field: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(PLAIN))
    with pytest.raises(RecipeError) as caught:
        load(path, [change])
    message = str(caught.value)
    assert message.startswith(f"{path}: {field}"), message
    assert "api_key_env" in message
    assert SECRET not in message
    assert "\n" not in message


def test_neither_does_python_make_one() -> None:
    """pydantic repeats what it was given unless it is told not to."""
    data = copy.deepcopy(PLAIN)
    data["policies"]["one"]["options"]["api_key"] = SECRET
    for make in (
        lambda: Recipe.model_validate(data),
        lambda: PolicyPart(kind="chat", options={"model": "m", "api_key": SECRET}),
        lambda: PolicyPart(kind=[SECRET], options={"model": "m"}),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValidationError) as caught:
            make()
        assert SECRET not in str(caught.value)


def test_what_is_no_secret_may_be_said() -> None:
    refuse_secrets(
        {
            "api_key_env": "MY_KEY", "max_new_tokens": 6, "key": "door", "api_key": None, "tokens": "all", "token": 3,
            "base_url": "http://localhost:8000/v1?a=b@c", "text": "risk-averse-agent-2024-large, me@example.org",
        }
    )  # fmt: skip
    for name in names():
        assert load(name)


def test_duplicate_keys_are_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(PLAIN) + "env: {make: native/market}\n")
    with pytest.raises(RecipeError, match=r"mine\.yaml: not YAML: line \d+: key 'env' stands twice, in lines 1 and"):
        load(path)
    path.write_text(yaml.safe_dump(PLAIN))
    with pytest.raises(RecipeError, match="key 'a' stands twice"):
        load(path, ["env.options={a: 1, a: 2}"])


@pytest.mark.parametrize("name", ["../../x", "a/b", "..", ".hidden", "a\u2028b", "a\nb", "a\\b", ""])
def test_names_are_file_names(name: str) -> None:
    with pytest.raises(RecipeError, match="name: a name becomes a folder"):
        validate(PLAIN | {"name": name})
