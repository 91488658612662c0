"""A chat template of Gemma's kind: a mark for the end of a turn beside the eos token, and no system messages."""

from __future__ import annotations

import numpy as np
import polars as pl
from tests.agents.models import tiny
from tests.chat_endpoint import ChatEndpoint

from palaestra.agents import ChatPolicy, LMPolicy, Request, Team
from palaestra.agents.policy import Decision
from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import Observation, StepResult
from palaestra.learning.warmstart import demonstrations
from palaestra.play.rollout import rollout

TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "<start_of_turn>{{ m.role }}\n{{ m.content | trim }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)


def gemma(**options: object) -> LMPolicy:
    """A tiny model with such a template; its eos token is not what ends a turn."""
    made = LMPolicy.tiny(["bet", "pass", "which card?"], chat=True)
    made.tokenizer.add_special_tokens({"additional_special_tokens": ["<start_of_turn>", "<end_of_turn>"]})
    made.tokenizer.chat_template = TEMPLATE
    made.model.resize_token_embeddings(len(made.tokenizer))
    return LMPolicy(made.model, made.tokenizer, **options)  # type: ignore[arg-type]


def talk(role: str, number: int = 0) -> Observation:
    messages = ({"role": "user", "content": "play"}, {"role": role, "content": f"card {number}?"})
    return Observation(f"card {number}?", messages=messages)


def test_what_is_taught_ends_as_the_template_ends_a_turn() -> None:
    policy = gemma()
    end = policy.tokenizer.convert_tokens_to_ids("<end_of_turn>")
    assert end != policy.tokenizer.eos_token_id
    assert policy.encode("which card?", "bet")[1][-1] == end
    assert end in policy._ends  # and so an answer ends there, too
    assert tiny().encode("which card?", "bet")[1][-1] == tiny().tokenizer.eos_token_id


def test_a_warm_start_teaches_that_end() -> None:
    policy = gemma(name="lm")
    frame = pl.DataFrame({
        "agent": ["a"], "observation": ["which card?"], "action": ["bet"], "valid": [True], "error": [None],
    }, schema_overrides={"error": pl.String})  # fmt: skip
    rows = demonstrations(Turns(frame), Team(a=policy))["lm"]
    assert rows["action_ids"].to_list()[0][-1] == policy.tokenizer.convert_tokens_to_ids("<end_of_turn>")


def test_a_conversation_that_the_template_refuses_fails_alone() -> None:
    policy = gemma(max_new_tokens=3)
    seen = [talk("system" if number == 5 else "user", number) for number in range(16)]
    alone = Request(seen[3], "player", np.random.default_rng(3))
    decisions = policy.act([Request(each, "player", np.random.default_rng(i)) for i, each in enumerate(seen)])
    assert [i for i, each in enumerate(decisions) if each.error] == [5]
    assert decisions[5].error == (
        "InputError: the chat template refuses a conversation of user, system: System role not supported"
    )
    assert decisions[5].action_ids is None
    assert decisions[3].action_ids.tolist() == policy.act([alone])[0].action_ids.tolist()  # type: ignore[union-attr]


def test_a_template_without_system_messages_reads_the_first_one_in_the_users() -> None:
    policy = gemma(max_new_tokens=3)
    told = ({"role": "system", "content": "play"}, {"role": "user", "content": "which card?"})
    shown = policy.tokenizer.decode(policy.prompt_ids([Observation("which card?", messages=told)])[0])
    assert "user\nplay\n\nwhich card?" in shown


class Card:
    """One question; every fourth episode has a system message at a place where no template expects it."""

    agents, task = ("player",), "card"

    def reset(self, seed: int) -> dict[str, Observation]:
        return {"player": talk("system" if seed % 4 == 0 else "user", seed)}

    def step(self, actions: dict[str, str]) -> StepResult:
        return StepResult({}, {"player": 1.0}, terminated=True, info={"success": True})


def test_in_a_rollout_only_its_row_has_the_error() -> None:
    turns = rollout(Card, Team(player=gemma(max_new_tokens=3)), groups=16, group_size=1, retries=0)
    refused = turns["observation"].str.extract(r"(\d+)").cast(pl.Int64) % 4 == 0
    assert 0 < refused.sum() < 16
    assert turns["error"].is_not_null().to_list() == refused.to_list()


def test_a_chat_policy_fails_alone_too(endpoint: ChatEndpoint) -> None:
    call = {"type": "function", "id": "1", "function": {"name": "f", "arguments": {"x": object()}}}
    odd = Observation("hm", messages=({"role": "assistant", "content": "", "tool_calls": [call]},))
    chat = ChatPolicy("m", base_url=endpoint.url, api_key_env=None, retries=0)
    seen = [Observation("a"), odd, Observation("b")]
    decisions: list[Decision] = chat.act([Request(each, "p", np.random.default_rng(0)) for each in seen])
    assert [each.error is None for each in decisions] == [True, False, True]
    assert "not JSON serializable" in (decisions[1].error or "")
