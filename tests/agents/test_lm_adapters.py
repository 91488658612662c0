"""Several adapters over one base."""

from __future__ import annotations

import gc
import json
import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from peft import AutoPeftModelForCausalLM
from tests.agents.models import LORA, gpt2, qwen, rows_of

from palaestra.agents import LMPolicy, Team
from palaestra.agents.backends import loading
from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import Observation
from palaestra.errors import InputError
from palaestra.learning import PolicyGradient, checkpoints


def test_an_own_adapter_is_loaded_on_its_base(tmp_path: Path, requests, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    gpt2().save("base")
    policy = LMPolicy.from_pretrained("base", lora=LORA, max_new_tokens=4)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.3)
    policy.save("runs/adapter")
    there = tmp_path / "elsewhere"
    there.mkdir()
    monkeypatch.chdir(there)
    said = [d.action_ids.tolist() for d in policy.act(requests())]
    adapter = tmp_path / "runs" / "adapter"
    for loaded in (LMPolicy.from_pretrained(adapter, max_new_tokens=4), LMPolicy.load("../runs/adapter")):
        assert [d.action_ids.tolist() for d in loaded.act(requests())] == said
        assert len(loaded.parameters()) == len(policy.parameters())
    model = AutoPeftModelForCausalLM.from_pretrained(adapter)
    prompt = torch.from_numpy(policy.prompt_ids([Observation("bet")])[0].astype(np.int64))[None]
    torch.testing.assert_close(model(prompt).logits, policy.model(prompt).logits)
    with pytest.raises(InputError, match="is an adapter already: leave lora= out"):
        LMPolicy.from_pretrained(adapter, lora=LORA)

    config = json.loads((adapter / "adapter_config.json").read_text())
    for written, found in (("base", True), ("../base", True), ("./nowhere", False), ("/nowhere", False)):
        (adapter / "adapter_config.json").write_text(json.dumps(config | {"base_model_name_or_path": written}))
        if found:
            assert [d.action_ids.tolist() for d in LMPolicy.load(adapter).act(requests())] == said
        else:
            with pytest.raises(InputError, match=f"base '{written}' of the adapter {adapter} is not there"):
                LMPolicy.load(adapter)


def pair(folder: Path, **options) -> tuple[LMPolicy, LMPolicy]:
    made = [LMPolicy.from_pretrained(folder, name=name, max_new_tokens=4, **options) for name in ("solver", "checker")]
    return made[0], made[1]


def frozen_ids(policy: LMPolicy) -> dict[str, int]:
    return {name: id(p) for name, p in policy.model.named_parameters() if not p.requires_grad}


def turns_of(policies, requests) -> Turns:
    frames = []
    for policy in policies:
        decisions = policy.act(requests())
        frames.append(
            rows_of(decisions).with_columns(
                policy=pl.lit(policy.name),
                logprobs=pl.Series([d.logprobs.tolist() for d in decisions], dtype=pl.List(pl.Float32)),
                advantage=pl.Series([1.0, -1.0] * (len(decisions) // 2)),
            )
        )
    return Turns(pl.concat(frames))


@pytest.mark.parametrize("dtype", ["float32", "bf16"])
def test_roles_with_adapters_share_their_base_and_nothing_else(dtype: str, tmp_path: Path, requests) -> None:
    lora = {"r": 2, "target_modules": ["q_proj", "down_proj"]}
    solver, checker = pair(qwen(tmp_path / "base"), lora=lora, dtype=dtype)
    assert frozen_ids(solver) == frozen_ids(checker)
    assert {p.dtype for p in solver.parameters()} == {torch.float32}
    assert not {id(p) for p in solver.parameters()} & {id(p) for p in checker.parameters()}
    base = {name: p.clone() for name, p in solver.model.named_parameters() if not p.requires_grad}
    before = {name: p.clone() for name, p in checker.state_dict().items()}
    said = [d.action_ids.tolist() for d in checker.act(requests())]

    learner = PolicyGradient(Team(solver=solver), "surrogate(), kl(.1)", lr=0.05)
    reference = learner.references["solver"]
    assert frozen_ids(checker).items() <= {name: id(p) for name, p in reference.model.named_parameters()}.items()
    learner.update(turns_of([solver], requests))
    learner.update(turns_of([solver], requests))
    assert all(torch.equal(p, base[name]) for name, p in solver.model.named_parameters() if name in base)
    assert all(torch.equal(p, before[name]) for name, p in checker.state_dict().items())
    assert [d.action_ids.tolist() for d in checker.act(requests())] == said
    assert any(not torch.equal(p, before[name]) for name, p in solver.state_dict().items())

    both = PolicyGradient(Team(solver=solver, checker=checker))
    owned = {name: {id(p) for p in group.param_groups[0]["params"]} for name, group in both.optimisers.items()}
    assert owned == {each.name: {id(p) for p in each.parameters()} for each in (solver, checker)}


def test_adapters_over_one_base_are_stored_and_go_on(tmp_path: Path, requests) -> None:
    lora = {"r": 2, "target_modules": ["q_proj", "lm_head"]}
    team = Team({each.name: each for each in pair(qwen(tmp_path / "base"), lora=lora)})
    learner = PolicyGradient(team, "surrogate(), kl(.1)", lr=0.05)
    turns = turns_of(team.trainable, requests)
    learner.update(turns)
    checkpoints.save(tmp_path / "checkpoints", 1, {"team": team.state_dict(), "learner": learner.state()})
    team.save(tmp_path / "team")
    loaded = Team.load(tmp_path / "team")
    solver, checker = loaded.trainable
    assert frozen_ids(solver) == frozen_ids(checker) == frozen_ids(team["solver"])
    for name in team:
        assert [d.action for d in loaded[name].act(requests())] == [d.action for d in team[name].act(requests())]

    again = Team({each.name: each for each in pair(tmp_path / "base", lora=lora)})
    resumed = PolicyGradient(again, "surrogate(), kl(.1)", lr=0.05)
    state = checkpoints.load(checkpoints.path_of(tmp_path / "checkpoints", 1))
    again.load_state_dict(state["team"])
    resumed.restore(state["learner"])
    learner.update(turns)
    resumed.update(turns)
    for name, policy in team.learnable.items():
        for key, tensor in policy.state_dict().items():
            assert torch.equal(tensor, again.learnable[name].state_dict()[key])


@pytest.mark.parametrize("options", [{"bias": "all"}, {"init_lora_weights": "pissa"}])
def test_adapters_that_change_their_base_have_one_of_their_own(options, tmp_path: Path) -> None:
    lora = {"r": 2, "target_modules": ["q_proj"]}
    one, _ = pair(qwen(tmp_path), lora=lora)
    weights = {name: p.clone() for name, p in one.model.named_parameters()}
    other = LMPolicy.from_pretrained(tmp_path, lora=lora | options)
    assert not set(frozen_ids(one).values()) & {id(p) for p in other.model.parameters()}
    assert all(torch.equal(p, weights[name]) for name, p in one.model.named_parameters())


def test_a_base_that_was_written_anew_or_that_nobody_holds_is_loaded_again(tmp_path: Path) -> None:
    lora = {"r": 2, "target_modules": ["q_proj"]}
    one = LMPolicy.from_pretrained(qwen(tmp_path), lora=lora)
    file = tmp_path / "model.safetensors"
    os.utime(file, ns=(0, 0))
    assert not set(frozen_ids(one).values()) & set(frozen_ids(LMPolicy.from_pretrained(tmp_path, lora=lora)).values())
    del one
    gc.collect()
    assert not loading._BASES
