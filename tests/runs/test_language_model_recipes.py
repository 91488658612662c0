"""Settings of language models that recipes reach: learning rates of pretrained models, AdamW."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from tests.runs.test_saved_teams import LM

from palaestra.agents import LMPolicy, Team
from palaestra.errors import InputError, RecipeError
from palaestra.learning import PolicyGradient
from palaestra.runs import build
from palaestra.runs.recipe import Recipe, validate
from palaestra.runs.seed import run_seed

CHAT = {"hidden": 16, "layers": 1, "heads": 2, "chat": True}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base") / "model"
    LMPolicy.tiny(["see red", "la mi so"], max_new_tokens=2, **CHAT).save(folder)
    return folder


TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'system' and strict %}{{ raise_exception('no system role') }}{% endif %}"
    "<|answer|>{{ m.role }}\n{{ m.content }}<|end|>{% endfor %}<|answer|>assistant\n"
    "{% if not enable_thinking %}<think></think>{% endif %}"
)


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose chat template has a switch."""
    folder = tmp_path_factory.mktemp("thinker") / "model"
    policy = LMPolicy.tiny(["see red", "la mi so"], max_new_tokens=2, **CHAT)
    policy.tokenizer.chat_template = TEMPLATE
    policy.save(folder)
    return folder


def recipe(options: dict[str, Any], kind: str = "lm", **fields: Any) -> Recipe:
    changed = {**LM, "learn": {}, "policies": {**LM["policies"], "guide": {"kind": kind, "options": options}}}  # type: ignore[dict-item]
    return validate(changed | fields, trust=True)


def learner(made: Recipe) -> PolicyGradient:
    setup = build.resolve(made)
    found = setup.learner(setup.team(0, []))
    assert isinstance(found, PolicyGradient)
    return found


def test_a_pretrained_model_is_trained_gently_unless_one_says_so(base: Path) -> None:
    options = {"model": str(base), "max_new_tokens": 2}
    with warnings.catch_warnings(action="error", category=UserWarning):
        assert learner(recipe(options)).lr == {"guide": 1e-5}
        assert learner(recipe(options, learn={"lr": 2e-5})).lr == {"guide": 2e-5}
        adapters = options | {"lora": {"r": 2, "target_modules": ["q_proj"]}}
        assert learner(recipe(adapters)).lr == {"guide": 1e-5}
        assert learner(recipe(adapters, learn={"lr": 1e-3})).lr == {"guide": 1e-3}
        assert learner(recipe(CHAT, kind="tiny", learn={"lr": 1e-2})).lr == {"guide": 1e-2}
    assert learner(recipe(CHAT, kind="tiny")).lr == {"guide": 1e-3}
    with pytest.warns(UserWarning, match=r"policy 'guide': lr=0.0001 is large for full fine-tuning of a pretrained"):
        assert learner(recipe(options, learn={"lr": {"guide": 1e-4}})).lr == {"guide": 1e-4}


def test_where_weights_come_from_outlives_copies_and_folders(base: Path, tmp_path: Path) -> None:
    policy = LMPolicy.from_pretrained(base)
    policy.save(tmp_path / "a")
    LMPolicy.tiny(**CHAT).save(tmp_path / "b")
    found = [policy, policy.twin(), policy.frozen_copy(), LMPolicy.load(tmp_path / "a"), LMPolicy.load(tmp_path / "b")]
    assert [each.pretrained for each in found] == ["whole", "whole", "whole", "whole", None]


def test_adamw_and_its_warmup(base: Path) -> None:
    fields = {"lr": 1e-2, "betas": [0.8, 0.95], "weight_decay": 0.1, "warmup": 3, "schedule": "linear"}
    train = {**LM["train"], "iterations": 5}  # type: ignore[dict-item]
    made = learner(recipe(CHAT, kind="tiny", learn=fields, train=train))
    (group,) = made.optimisers["guide"].param_groups
    assert (group["betas"], group["weight_decay"]) == ((0.8, 0.95), 0.1)
    taken = []
    for _ in range(6):
        made._ready["guide"] = torch.tensor(1.0)
        for each in made._parameters("guide"):
            each.grad = torch.ones_like(each)
        made.optim_step()
        taken.append(group["lr"])
    assert taken == pytest.approx([0.0025, 0.005, 0.0075, 0.01, 0.005, 0.0])


def test_a_run_with_all_of_them(base: Path, tmp_path: Path) -> None:
    fields = {"betas": [0.9, 0.95], "weight_decay": 0.01, "warmup": 1}
    run_seed(recipe({"model": str(base), "max_new_tokens": 2}, learn=fields), 0, tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert len([line for line in lines if "policies" in line]) == 2


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"betas": [0.9, 1.0]}, r"learn.betas: two numbers of at least 0 and below 1, found \[0.9, 1.0\]"),
        ({"weight_decay": -1}, "learn.weight_decay"),
        ({"warmup": -1}, "learn.warmup"),
    ],
)
def test_settings_that_cannot_be_are_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        recipe(CHAT, kind="tiny", learn=fields)
    with pytest.raises(InputError, match=next(iter(fields))):
        PolicyGradient(Team(a=LMPolicy.tiny(**CHAT)), **fields)


def test_a_warmup_that_never_ends_is_named() -> None:
    with pytest.raises(InputError, match="warmup=2 must be at least 0, and less than updates=2"):
        learner(recipe(CHAT, kind="tiny", learn={"schedule": "linear", "warmup": 2}))


@pytest.mark.parametrize(("thinking", "end"), [(True, "assistant\n"), (False, "assistant\n<think></think>")])
def test_a_run_shows_its_system_prompt_and_sets_variables_of_the_template(
    thinker: Path, tmp_path: Path, thinking: bool, end: str
) -> None:
    options = {
        "model": str(thinker), "max_new_tokens": 2, "system_prompt": "Say one word.",
        "chat_template_kwargs": {"enable_thinking": thinking},
    }  # fmt: skip
    run_seed(recipe(options), 0, tmp_path)
    turns = pl.concat([pl.read_parquet(each) for each in sorted(tmp_path.rglob("turns/*.parquet"))], how="diagonal")
    rows = turns.filter(pl.col("agent").cast(pl.String) == "guide", pl.col("prompt_ids").is_not_null())
    policy = LMPolicy.load(tmp_path / "policies" / "guide")  # the settings are stored with the weights
    assert (policy.system_prompt, policy.chat_template_kwargs) == ("Say one word.", {"enable_thinking": thinking})
    assert rows.height
    for ids, seen, messages in rows.select("prompt_ids", "observation", "messages").rows():
        shown = policy.tokenizer.decode(ids)
        (asked,) = json.loads(messages)
        assert asked["content"].startswith(
            f"{seen}\n\nThink about what to do. End your reply with a line `Action: ` and"
        )
        text = asked["content"]
        assert shown == f"<|answer|>system\nSay one word.<|end|><|answer|>user\n{text}<|end|><|answer|>{end}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chat_template_kwargs": {"enable_thinkin": False}}, "has no variable 'enable_thinkin' to set; did you mean"),
        ({"chat_template_kwargs": {"messages": []}}, "has no variable 'messages' to set"),
        ({"chat_template_kwargs": {"strict": True}, "system_prompt": "x"}, "refuses a conversation of system, user"),
    ],
)
def test_what_the_template_does_not_take_is_said_before_play(
    thinker: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        build.check(build.resolve(recipe({"model": str(thinker)} | options)), from_disk=True)
    with pytest.raises(InputError, match=message):
        build.resolve(recipe({"model": str(thinker)} | options)).team(0, [])


def test_a_model_without_a_chat_template_has_no_system_prompt() -> None:
    with pytest.raises(InputError, match="system_prompt and chat_template_kwargs need a chat template"):
        LMPolicy.tiny(system_prompt="x")
    with pytest.raises(InputError, match="chat_template_kwargs is 'x', expected names with values"):
        LMPolicy.tiny(chat_template_kwargs="x")
    with pytest.raises(InputError, match="system_prompt is 5, expected a text"):
        LMPolicy.tiny(system_prompt=5)
