"""Teams of language models with the chat templates of real families: what a workflow says becomes tokens and learns."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.agents.test_conversation import tokenizer
from transformers import Qwen3Config, Qwen3ForCausalLM

from palaestra.agents import LMPolicy, Team
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.learning import PolicyGradient, demonstrations
from palaestra.play.rollout import rollout
from palaestra.runs.policies import Demonstrator
from palaestra.teams import workflows


class Sums(TaskEnv):
    def draw(self, seed: int) -> Task:
        a, b = seed % 10, seed // 10 % 10
        return Task(f"{a}+{b}", f"{a} + {b} =", lambda text: float(int(text) == a + b), str(a + b))


def toy(kind: str, **options: object) -> LMPolicy:
    """Qwen3's architecture at toy width, under the chat template of a family."""
    tokens = tokenizer(kind)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = Qwen3Config(
            vocab_size=len(tokens), hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=1, head_dim=16, max_position_embeddings=8192,
        )  # fmt: skip
        return LMPolicy(Qwen3ForCausalLM(config), tokens, max_new_tokens=6, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["qwen2.5", "qwen3", "phi3", "zephyr", "mistral"])
def test_a_debate_of_models_is_told_goes_on_and_learns(kind: str) -> None:
    policy = toy(kind)
    team = Team(dict.fromkeys(("debater-1", "debater-2"), policy))
    turns = rollout(workflows.debate(Sums, 2, rounds=2), team, groups=2, group_size=2, seed=0)
    frame = turns.frame
    assert frame["error"].null_count() == frame.height == 16
    assert set(frame.filter(frame["round"] == 0)["prefix"]) == {"first"}
    assert set(frame.filter(frame["round"] == 1)["prefix"]) <= {"extends", "retokenised", "rewritten"}, "not anew"
    for row in frame.iter_rows(named=True):
        prompt = policy.tokenizer.decode(row["prompt_ids"])
        assert f"You are {row['agent']}, one of 2 debaters" in prompt
        assert "End your reply with this line" in prompt
        assert ("Round 2 of 2." in prompt) == (row["round"] == 1)
    before = [p.detach().clone() for p in policy.parameters()]
    learner = PolicyGradient(team, lr=1e-2)
    learner.update(turns.with_column(advantage=np.linspace(-1, 1, 16)))
    assert any(not torch.equal(old, new) for old, new in zip(before, policy.parameters(), strict=True))


def test_a_limit_is_in_tokens_of_the_model_that_reads() -> None:
    policy = toy("qwen3")
    env = workflows.debate(Sums, 2, rounds=2, longest=5)()
    env.reset(43)
    seen = env.step({"debater-1": "The old mill grinds 37 sacks a day.", "debater-2": "7"}).observations["debater-2"]
    tokens = policy.tokenizer("The old mill grinds 37 sacks a day.", add_special_tokens=False)["input_ids"]
    (prompt,) = policy.prompt_ids([seen])
    shown = policy.tokenizer.decode(prompt)
    assert f"[{len(tokens) - 5} tokens left out]" in shown
    assert policy.tokenizer.decode(tokens[:5]) + "\n[" in shown
    result = env.step({"debater-1": "7", "debater-2": "7"})
    assert list(result.info["heard_cut"]["debater-2"]) == [len(tokens) - 5]


def test_who_learns_from_scripts_reads_what_it_will_read_in_play() -> None:
    policy = toy("qwen3")
    made = workflows.plan_act_check(Sums, rounds=1)
    seats = made().agents
    script = Demonstrator(lambda request: "ok" if request.agent == "checker" else "7", name="s", conversations=True)
    examples = demonstrations(rollout(made, Team(dict.fromkeys(seats, script)), groups=3, group_size=1, seed=0),
                              Team(dict.fromkeys(seats, policy)))[policy.name]  # fmt: skip
    prompts = {tuple(ids) for ids in examples["prompt_ids"]}
    played = rollout(made, Team(dict.fromkeys(seats, policy)), groups=3, group_size=1, seed=0).frame
    first = {tuple(ids) for ids in played.filter(played["agent"].cast(str) == "planner")["prompt_ids"]}
    assert first <= prompts, "the planner reads nobody, so it reads the same"
