"""Histories under five real chat templates: what was sampled stays, what is new is the template's, all else is said."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AddedToken, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from palaestra.agents import LMPolicy, Request, Team
from palaestra.agents.conversation import BROKEN, PREFIXES, Style, end_of_turn, prompts, read, render, sequences
from palaestra.agents.policy import PreviousTurn
from palaestra.envs.protocol import Observation, StepResult
from palaestra.errors import InputError
from palaestra.play.rollout import rollout

TEMPLATES = Path(__file__).parent / "templates"
QWEN = ("<|im_start|>", "<|im_end|>", "<|endoftext|>"), ("<tool_call>", "</tool_call>", "<think>", "</think>")
KINDS: dict[str, tuple[tuple[str, ...], tuple[str, ...], str]] = {  # special marks, other marks, end of an answer
    "qwen2.5": (*QWEN, "<|im_end|>"),
    "qwen3": (*QWEN, "<|im_end|>"),
    "phi3": (("<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>"), (), "<|end|>"),
    "mistral": (("<s>", "</s>"), ("[INST]", "[/INST]"), "</s>"),
    "zephyr": (("<s>", "</s>", "<|endoftext|>"), (), "</s>"),
}
SPOKEN = ("qwen2.5", "qwen3")
"""Those that know tools."""
TEXT = "The old mill grinds 37 sacks a day, and 12 more.\n\nWhat is 3 * 4? <think>\nhm\n</think>\n\n yes no ok "
SEARCH = {
    "type": "function",
    "function": {"name": "search", "description": "Look up.", "parameters": {"type": "object"}},
}


@functools.cache
def tokenizer(kind: str) -> PreTrainedTokenizerFast:
    """A byte-level BPE for a line of text, with the marks and the template of a model family."""
    special, other, end = KINDS[kind]
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(
        [TEXT] * 3, trainers.BpeTrainer(vocab_size=340, initial_alphabet=alphabet, show_progress=False)
    )
    made = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token=special[0], eos_token=end, pad_token=special[-1])
    made.add_special_tokens({"additional_special_tokens": [AddedToken(mark, special=True) for mark in special]})
    made.add_tokens([AddedToken(mark, special=False) for mark in other])
    made.chat_template = (TEMPLATES / f"{kind}.jinja").read_text()
    return made


def firsts(kind: str, observations: list[Observation]) -> list[np.ndarray]:
    """What a policy with this tokenizer makes of observations by themselves."""
    policy = object.__new__(LMPolicy)  # no model is needed
    policy.tokenizer, policy.prompt_template, policy._style = tokenizer(kind), "{text}", Style()
    return policy.prompt_ids(observations)


def follow(
    kind: str, observation: Observation, past: PreviousTurn | None, *, history: str = "append"
) -> tuple[np.ndarray, str]:
    made = tokenizer(kind)
    request = Request(observation, "a", np.random.default_rng(0), past)
    (found,) = prompts(made, [request], firsts(kind, [observation]), ends=[made.eos_token_id], history=history)
    return found.ids, found.prefix


LETTERS = st.text(st.sampled_from("abc yes\n 0123*é{}<>\"'漢🙂\t."), max_size=12)
PIECES = st.one_of(LETTERS, st.sampled_from(["<think>\nhm\n</think>\n\nok", " yes", "ok ", "3 * 4", "\n"]))
ANSWERS = st.tuples(PIECES, st.sampled_from(["end", "end", "cut", "other"]), st.booleans(), st.integers(0, 2**32 - 1))


def sample(kind: str, answer: tuple[str, str, bool, int]) -> np.ndarray:
    """Tokens as a model may sample them: a text as it is usually cut or letter by letter, or anything; ended or not."""
    text, ending, usual, seed = answer
    made = tokenizer(kind)
    rng = np.random.default_rng(seed)
    if usual:
        ids = made(text, add_special_tokens=False)["input_ids"]
    elif seed % 2:
        ids = [i for letter in text for i in made(letter, add_special_tokens=False)["input_ids"]]
    else:
        plain = [i for i in range(len(made)) if i not in made.all_special_ids]
        ids = rng.choice(plain, rng.integers(1, 6)).tolist()
    ends = {"end": [made.eos_token_id], "other": [made.pad_token_id], "cut": []}[ending]
    return np.array([*ids, *ends] or [made.eos_token_id], np.int32)


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
def test_what_was_sampled_stays_and_all_else_is_the_templates(kind: str, data: st.DataObject) -> None:
    made = tokenizer(kind)
    told: list[Mapping[str, Any]] = [{"role": "user", "content": data.draw(LETTERS)}]
    if kind not in ("mistral",) and data.draw(st.booleans()):
        told.insert(0, {"role": "system", "content": "Be brief."})
    tools = (SEARCH,) if kind in SPOKEN and data.draw(st.booleans()) else ()
    past, rows, marked = None, [], list(told)
    for turn in range(data.draw(st.integers(2, 4))):
        observation = Observation("", messages=tuple(told), tools=tools)
        ids, prefix = follow(kind, observation, past)
        whole = firsts(kind, [observation])[0]
        action = sample(kind, data.draw(ANSWERS))
        rows.append({"group": 0, "episode": 0, "agent": "a", "turn": turn, "prompt_ids": ids, "action_ids": action})

        assert prefix in PREFIXES
        assert (prefix == "first") == (past is None)
        if past is not None:
            before = np.concatenate([past.prompt_ids, past.action_ids])
            assert np.array_equal(ids[: len(before)], before), "a token of an earlier turn was changed"
            texts = [made.decode(each, skip_special_tokens=False) for each in (ids, whole)]
            expected = (
                "extends" if np.array_equal(ids, whole) else "retokenised" if texts[0] == texts[1] else "rewritten"
            )
            assert prefix == expected
            rendered, said = follow(kind, observation, past, history="render")
            assert np.array_equal(rendered, whole)
            assert said == prefix
        # Loss falls on action_ids. With them taken out, what is left is the template of a conversation without answers.
        frame = pl.DataFrame(rows, schema_overrides={"prompt_ids": pl.List(pl.Int32), "action_ids": pl.List(pl.Int32)})
        (joined,) = sequences(frame).to_dicts()
        trained = np.array(joined["mask"])
        assert trained.sum() == sum(len(row["action_ids"]) for row in rows)
        assert joined["turns"] == turn + 1
        assert np.array(joined["ids"])[trained].tolist() == [i for row in rows for i in row["action_ids"].tolist()]
        without = made.decode(np.array(joined["ids"])[~trained].tolist(), skip_special_tokens=False)
        asked = render(made, Observation("", messages=tuple(marked), tools=tools))
        written = asked.replace("[[said]]" + made.eos_token, "").replace("[[said and cut]]", "")
        assert without == written, "a token that nobody sampled is not what the template writes"

        text = made.decode(action.tolist(), skip_special_tokens=True).strip()
        role = data.draw(st.sampled_from(["user", "tool"])) if kind in SPOKEN else "user"
        news = [{"role": role, "content": data.draw(LETTERS)}]
        told += [{"role": "assistant", "content": text}, *news]
        ended = action[-1] == made.eos_token_id
        marked += [{"role": "assistant", "content": "[[said]]" if ended else "[[said and cut]]"}, *news]
        past = PreviousTurn(observation, ids, action)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_said_as_the_template_writes_it_extends(kind: str) -> None:
    first = Observation("", messages=({"role": "user", "content": "Hm?"},))
    ids, _ = follow(kind, first, None)
    action = np.array([*tokenizer(kind)("ok", add_special_tokens=False)["input_ids"], tokenizer(kind).eos_token_id])
    then = Observation(
        "", messages=(*first.messages, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "So"})
    )
    assert follow(kind, then, PreviousTurn(first, ids, action))[1] == "extends"


def after(kind: str, said: str, content: str | None = None, role: str = "user", ids: list[int] | None = None) -> str:
    """How the second prompt continues the first, if this was sampled."""
    made = tokenizer(kind)
    first = Observation("", messages=({"role": "user", "content": "Hm?"},))
    sampled = made(said, add_special_tokens=False)["input_ids"] if ids is None else ids
    past = PreviousTurn(first, follow(kind, first, None)[0], np.array([*sampled, made.eos_token_id], np.int32))
    answer = {"role": "assistant", "content": said.strip() if content is None else content}
    return follow(kind, Observation("", messages=(*first.messages, answer, {"role": role, "content": "So"})), past)[1]


def test_each_violation_is_named() -> None:
    made = tokenizer("qwen3")
    letters = [i for letter in "yes" for i in made(letter, add_special_tokens=False)["input_ids"]]
    assert len(letters) > len(made("yes", add_special_tokens=False)["input_ids"])
    assert after("qwen3", "yes", ids=letters) == "retokenised"
    assert after("qwen3", " yes") == "rewritten"  # the env gives back what it read, without white space
    thought = "<think>\nhm\n</think>\n\nyes"
    assert after("qwen3", thought) == "rewritten"  # this template strips the thinking once a user has spoken
    assert after("qwen3", thought, role="tool") == "extends"  # … but not while tools answer
    assert after("qwen2.5", thought) == "extends"
    assert after("qwen2.5", "yes", content="no") == "rewritten"
    assert "extends" not in BROKEN
    assert "first" not in BROKEN


def test_an_env_that_changes_what_came_before_begins_anew() -> None:
    first = Observation("", messages=({"role": "user", "content": "Hm?"},))
    past = PreviousTurn(first, follow("phi3", first, None)[0], np.array([300, 301], np.int32))
    news = ({"role": "assistant", "content": "x"}, {"role": "user", "content": "So"})
    for messages in (({"role": "user", "content": "Ha!"}, *news), news[1:], first.messages):
        now = Observation("", messages=messages)
        ids, prefix = follow("phi3", now, past)
        assert prefix == "anew"
        assert np.array_equal(ids, firsts("phi3", [now])[0])
    assert follow("qwen3", Observation("", messages=(*first.messages, *news), tools=(SEARCH,)), past)[1] == "anew"


def test_schemas_reach_the_template() -> None:
    told = Observation("", messages=({"role": "user", "content": "Hm?"},), tools=(SEARCH,))
    assert '"name": "search"' in render(tokenizer("qwen2.5"), told)


def test_what_a_template_refuses_or_leaves_out_is_said() -> None:
    two = ({"role": "user", "content": "a"}, {"role": "user", "content": "b"})
    with pytest.raises(InputError, match=r"refuses a conversation of user, user: .*alternate"):
        render(tokenizer("mistral"), Observation("", messages=two))
    for kind in ("phi3", "zephyr"):
        with pytest.raises(
            InputError, match="leaves out what 'tool' says, without a word: let the env say it as 'user'"
        ):
            render(tokenizer(kind), Observation("", messages=(two[0], {"role": "tool", "content": "42"})))

    with pytest.raises(InputError, match="leaves out the tools, without a word"):
        render(tokenizer("zephyr"), Observation("", messages=two[:1], tools=(SEARCH,)))


def calling(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    function = {"name": "search", "arguments": arguments}
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "x", "type": "function", "function": function}]}
    return {"role": "user", "content": "a"}, call, {"role": "tool", "content": "42", "tool_call_id": "x"}


def test_a_template_may_write_calls_without_what_is_said_beside_them() -> None:
    """As Llama 3's does; what an assistant says by itself it writes."""
    kind = copy.deepcopy(tokenizer("qwen2.5"))
    kind.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{{ m.tool_calls[0].function | tojson if m.tool_calls else m.content }}<|im_end|>{% endfor %}"
    )
    said = {"role": "assistant", "content": "yes"}
    for messages in (calling({"query": "mill"}), (calling({})[0], said), calling({})):
        assert render(kind, Observation("", messages=messages))


def test_half_a_character_in_a_call_costs_no_other_prompt() -> None:
    told = Observation("", messages=calling({"query": "mill \ud83d"}), tools=(SEARCH,))
    for kind in SPOKEN:
        text = render(tokenizer(kind), told)
        assert "mill ?" in text
        assert tokenizer(kind)([text])["input_ids"]


def test_what_is_in_the_text_may_look_like_the_mark() -> None:
    assert after("qwen2.5", "yes [[answer]] no") == "extends"


class Echo:
    """Three rounds of talk: says back what it was told, and shows the whole conversation."""

    agents = ("a",)
    task = "talk"

    def reset(self, seed: int) -> Mapping[str, Observation]:
        self.told: list[Mapping[str, Any]] = [{"role": "user", "content": f"Round {seed % 3}?"}]
        return self.look()

    def look(self) -> Mapping[str, Observation]:
        return {"a": Observation(str(len(self.told)), messages=tuple(self.told))}

    def step(self, actions: Mapping[str, Any]) -> StepResult:
        self.told += [{"role": "assistant", "content": actions["a"]}, {"role": "user", "content": "And?"}]
        over = len(self.told) > 6
        return StepResult({} if over else self.look(), {"a": 1.0}, terminated=over)


@pytest.mark.parametrize("kind", ["qwen3", "mistral"])
def test_a_rollout_samples_stores_and_scores_the_same_tokens(kind: str, tmp_path: Path) -> None:
    made = tokenizer(kind)
    config = LlamaConfig(
        vocab_size=len(made), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=512, eos_token_id=made.eos_token_id,
        pad_token_id=made.pad_token_id,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = LlamaForCausalLM(config)
    policy = LMPolicy(model, made, max_new_tokens=6)
    turns = rollout(Echo, Team(a=policy), groups=3, group_size=2, seed=0)
    assert turns["error"].null_count() == len(turns) == 18
    assert not turns.broken_prefixes().any()
    assert (turns["prefix"] == "first").to_list() == [True, False, False] * 6
    assert set(turns["prefix"]) <= set(PREFIXES) - {"anew"}
    assert read(turns["messages"][2]).messages[0]["content"].startswith("Round")
    joined = sequences(turns.frame)
    assert joined.height == 6
    assert joined["turns"].to_list() == [3] * 6
    scored = policy.score(turns.frame)
    assert scored.mask.sum(1).tolist() == turns["action_ids"].list.len().to_list()
    for ids, mask, rows in zip(joined["ids"], joined["mask"], range(0, 18, 3), strict=True):
        with torch.inference_mode():  # the whole conversation in one pass, as somebody else's trainer would read it
            logits = model(torch.tensor([ids.to_list()])).logits[0].log_softmax(-1)
        chosen = logits[:-1].gather(1, torch.tensor(ids.to_list())[1:, None])[:, 0].numpy()
        stored = np.concatenate(turns["logprobs"][rows : rows + 3].to_list())
        assert chosen[np.array(mask.to_list())[1:]] == pytest.approx(stored, abs=1e-4)
        seen = np.concatenate(
            [row[m].detach() for row, m in zip(scored.logprobs, scored.mask, strict=True)][rows : rows + 3]
        )
        assert seen == pytest.approx(stored, abs=1e-4)
    policy.save(tmp_path / "kept")
    assert LMPolicy.load(tmp_path / "kept").history == "append"
    with pytest.raises(InputError, match="history is 'apend'; did you mean 'append'"):
        LMPolicy(model, made, history="apend")


@pytest.mark.parametrize("kind", KINDS)
def test_the_token_that_ends_a_turn_is_the_templates(kind: str) -> None:
    made = tokenizer(kind)
    assert made.convert_ids_to_tokens(end_of_turn(made)) == KINDS[kind][2]


THINKLESS = Style("Answer in one word.", {"enable_thinking": False})


def test_a_history_grows_under_a_system_prompt_and_variables_of_the_template() -> None:
    made = tokenizer("qwen3")
    user, reply = {"role": "user", "content": "3 * 4?"}, {"role": "assistant", "content": "12"}
    first, then = Observation("", messages=(user,)), Observation("", messages=(user, reply, user))
    ids = [
        np.array(made(render(made, each, THINKLESS), add_special_tokens=False)["input_ids"], np.int32)
        for each in (first, then)
    ]
    shown = made.decode(ids[0])
    assert shown.startswith("<|im_start|>system\nAnswer in one word.<|im_end|>\n<|im_start|>user\n3 * 4?")
    assert shown.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    said = np.array(made("12<|im_end|>", add_special_tokens=False)["input_ids"], np.int32)
    past = PreviousTurn(first, ids[0], said)
    (found,) = prompts(
        made, [Request(then, "a", np.random.default_rng(0), past)], [ids[1]], ends=[made.eos_token_id],
        history="append", style=THINKLESS,
    )  # fmt: skip
    text = made.decode(found.ids)
    assert text.startswith(made.decode(np.concatenate([ids[0], said])))
    assert text.endswith("<|im_start|>user\n3 * 4?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert text.count("Answer in one word.") == 1


def test_an_envs_system_message_goes_behind_the_policys() -> None:
    messages = ({"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hm?"})
    text = render(tokenizer("qwen3"), Observation("", messages=messages), THINKLESS)
    assert text.startswith("<|im_start|>system\nAnswer in one word.\n\nBe kind.<|im_end|>\n")
    assert text.count("<|im_start|>system") == 1
