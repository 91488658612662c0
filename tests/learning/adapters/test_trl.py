"""Reward signals as TRL's reward functions and credit signals in its trainer, trained for two steps on a tiny Llama."""

from __future__ import annotations

import dataclasses
import sys
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from palaestra.agents import ScriptedPolicy, Team
from palaestra.agents.tiny import build
from palaestra.algebra.signals import Signal, as_signal, centre, col, mean, per_token, where
from palaestra.algebra.turns import Turns
from palaestra.credit import dr_mas, grpo
from palaestra.envs.protocol import Observation, StepResult
from palaestra.errors import ExpressionError, InputError, MissingColumnError, MissingExtraError
from palaestra.learning.adapters.trl import SignalCredit, reward_function
from palaestra.learning.adapters.trl_rollout import EnvRollout, environment
from palaestra.play.rollout import rollout

LENGTH = as_signal(pl.col("action").str.len_chars())


def test_a_reward_signal_is_a_reward_function() -> None:
    wanted = where(col("answer") > 0, LENGTH * col("answer"))
    reward = reward_function(wanted, columns={"answer": "scale"}, name="length")
    assert reward.__name__ == "length"
    assert reward(prompts=["p", "p", "q"], completions=["abc", "", "ab"], scale=[1, 2, 0], extra=[{}, {}, {}]) == [
        3.0,
        0.0,
        None,
    ]


def test_conversations_are_their_text_and_a_prompt_is_a_group() -> None:
    asked, other = [{"role": "user", "content": "p"}], [{"role": "user", "content": "q"}]
    said = [[{"role": "assistant", "content": text}] for text in ("a", "abc", "ab")]
    reward = reward_function(LENGTH - mean(LENGTH, over="group"))
    assert reward(prompts=[asked, asked, other], completions=said, trainer_state=object()) == [-1.0, 1.0, 0.0]


def test_bad_rewards_are_named() -> None:
    with pytest.raises(MissingColumnError, match=r"'answer' is missing.*'solution'"):
        reward_function(col("answer"))(prompts=["p"], completions=["c"], solution=["s"])
    with pytest.raises(ExpressionError, match="per_turn"):
        reward_function(col("ids"))(prompts=["p"], completions=["c"], ids=[[1, 2]])


def test_without_trl_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from palaestra.learning.adapters import trl as ours

    monkeypatch.setitem(sys.modules, "trl", None)
    monkeypatch.delitem(vars(ours), "SignalGRPOTrainer", raising=False)
    with pytest.raises(MissingExtraError, match=r"palaestra\[trl\]"):
        _ = ours.SignalGRPOTrainer


PROMPTS = ["one two", "three four", "five six", "seven eight"]


def train(tmp_path: Path, credit: Signal, rewards: Any = None, **options: Any) -> Any:
    """Two steps of 2 prompts times 4; keeps what TRL had computed, what was given back, and how far weights moved."""
    trl, datasets = pytest.importorskip("trl"), pytest.importorskip("datasets")
    torch = pytest.importorskip("torch")

    class Before(trl.GRPOTrainer):  # type: ignore[misc, name-defined]
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            output = super()._generate_and_score_completions(inputs)
            self.theirs.append(output["advantages"].clone())
            return output

    class After(SignalCredit, Before):
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            output = super()._generate_and_score_completions(inputs)
            self.ours.append({**output, "table": self.credit_table, "logged": list(self._logs["advantages"])})
            return output

    After.theirs, After.ours = [], []
    model, tokenizer = build(PROMPTS, hidden=32, layers=1, heads=2)
    tokenizer.padding_side = "left"
    before = [p.detach().clone() for p in model.parameters()]
    config = trl.GRPOConfig(
        output_dir=str(tmp_path), max_steps=2, per_device_train_batch_size=8, num_generations=4, learning_rate=1e-2,
        max_completion_length=6, report_to=[], use_cpu=True, save_strategy="no", logging_steps=1, disable_tqdm=True,
        bf16=False, gradient_checkpointing=False, beta=0.0, seed=3,
    )  # fmt: skip
    data = datasets.Dataset.from_dict({"prompt": PROMPTS, "level": [0, 1, 0, 1]})
    trainer = After(
        model, rewards or [reward_function(LENGTH / 10, name="length")], config, data, processing_class=tokenizer,
        credit=credit, **options,
    )  # fmt: skip
    trainer.train()
    trainer.moved = max(float((p.detach() - q).abs().max()) for p, q in zip(model.parameters(), before, strict=True))
    assert len(trainer.ours) == 2
    assert all(bool(torch.isfinite(p).all()) for p in model.parameters())
    return trainer


def test_trls_own_credit_as_a_signal_trains_on_the_same_advantages(tmp_path: Path) -> None:
    trainer = train(tmp_path, grpo(flavour="trl"))
    for ours, theirs in zip(trainer.ours, trainer.theirs, strict=True):
        assert float(theirs.abs().max()) > 0.1
        np.testing.assert_allclose(ours["advantages"], theirs, atol=1e-5)
        np.testing.assert_allclose(ours["logged"][-8:], ours["advantages"], atol=1e-6)
    assert trainer.moved > 1e-4


def test_credit_can_use_each_reward_and_columns_of_the_data_set(tmp_path: Path) -> None:
    even = reward_function(as_signal(pl.col("action").str.len_chars() % 2), name="even")
    credit = centre("length", over="stratum") + 0.5 * centre("even", over="group")
    trainer = train(tmp_path, credit, [reward_function(LENGTH / 10, name="length"), even], columns={"stratum": "level"})
    turns = trainer.ours[0]["table"]
    assert set(turns["stratum"].to_list()) <= {0, 1}
    frame = turns.frame.with_columns(
        expected=pl.col("length") - pl.col("length").mean().over("stratum")
        + 0.5 * (pl.col("even") - pl.col("even").mean().over("group")),
        total=pl.col("length") + pl.col("even"),
    )  # fmt: skip
    np.testing.assert_allclose(trainer.ours[0]["advantages"], frame["expected"], atol=1e-6)
    np.testing.assert_allclose(frame["reward"], frame["total"], atol=1e-6)
    assert not np.allclose(trainer.ours[0]["advantages"], trainer.theirs[0], atol=1e-2)
    assert trainer.moved > 1e-4


def test_credit_may_be_one_value_per_token(tmp_path: Path) -> None:
    trainer = train(tmp_path, per_token(grpo(flavour="trl"), like="action_ids"))
    for ours, theirs in zip(trainer.ours, trainer.theirs, strict=True):
        assert ours["advantages"].shape == ours["completion_ids"].shape
        np.testing.assert_allclose(ours["advantages"], theirs[:, None] * ours["completion_mask"], atol=1e-5)
    assert trainer.moved > 1e-4


class Process:
    """What TRL computed for the second of two processes, with two rows each."""

    def __init__(self) -> None:
        self.accelerator = SimpleNamespace(process_index=1)
        self._logs = {"advantages": deque([9.0, 0.0, 0.0, 0.0, 0.0])}

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        return {"advantages": torch.zeros(2), "completion_ids": torch.zeros(2, 3)}


class Whole:
    """TRL's rewards of two prompts, two completions each, from two functions that weigh 1 and ½."""

    def __init__(self) -> None:
        self.reward_weights = torch.tensor([1.0, 0.5])
        self.reward_func_names, self.num_generations, self.num_generations_eval = ["one", "two"], 2, 4
        self.model = SimpleNamespace(training=True)

    def _calculate_rewards(self, *_: Any) -> torch.Tensor:
        nan = float("nan")
        return torch.tensor([[1.0, 4.0], [nan, 1.0], [nan, nan], [2.0, nan]])


def test_rewards_are_weighted_and_missing_where_no_function_scored() -> None:
    made: Any = type("Mine", (SignalCredit, Whole), {})(credit=centre("two", over="group") + col("level"))
    rows = [{"level": level} for level in (3, 4, 5, 6)]
    made._calculate_rewards(rows, ["p", "p", "q", "q"], ["a", "b", "c", "d"], [[1], [1, 2], [3], [4]])
    found = made.credit_table
    assert found["reward"].to_list() == [3.0, 0.5, None, 2.0]
    assert found["two"].to_list() == [4.0, 1.0, None, None]
    assert (found["group"].to_list(), found["level"].to_list()) == ([0, 0, 1, 1], [3, 4, 5, 6])
    assert found["action_ids"].to_list() == [[1], [1, 2], [3], [4]]
    made.model.training = False
    made._calculate_rewards(rows, ["p"] * 4, ["a", "b", "c", "d"], [[1]] * 4)
    assert made.credit_table["group"].to_list() == [0] * 4


class Second(SignalCredit, Process):
    """What is trained on there."""

    def told(self) -> tuple[list[Any], list[float]]:
        found = self._generate_and_score_completions([{}, {}])["advantages"].tolist()
        assert self._logs["advantages"].popleft() == 9, "of an earlier step"
        return found, list(self._logs["advantages"])


def test_a_process_takes_its_own_rows_and_logs_those_of_all() -> None:
    base = {"reward": [1.0, 2.0, 3.0, 4.0], "action_ids": [[1], [1, 2], [1, 2, 3], [1]]}
    whole, tokens = Second(credit=col("reward")), Second(credit=per_token("reward", like="action_ids"))
    for trainer in (whole, tokens):
        trainer.credit_table = Turns(base)
    assert whole.told() == ([3, 4], [1, 2, 3, 4])
    assert tokens.told() == ([[3, 3, 3], [4, 0, 0]], [1, 2, 3, 4])
    turns = Second(credit=col("reward"))
    turns.credit_table, turns.credit_rows = Turns({"reward": [1.0, 2.0, 3.0, 5.0, 4.0]}), 4
    turns.credit_spans = [(0, 0, 1), (1, 1, 2), (2, 0, 1), (2, 2, 1), (3, 0, 3)]
    assert turns.told() == ([[3, 0, 5], [4, 4, 4]], [1, 2, 4, 4])


def test_the_trainer_is_made_once() -> None:
    trl = pytest.importorskip("trl")
    from palaestra.learning.adapters.trl import SignalGRPOTrainer
    from palaestra.learning.adapters.trl import SignalGRPOTrainer as again

    assert SignalGRPOTrainer is again
    assert issubclass(SignalGRPOTrainer, SignalCredit)
    assert issubclass(SignalGRPOTrainer, trl.GRPOTrainer)


# -- our envs in TRL's trainer ----------------------------------------------------------------------------------------


class Steps:
    """Two agents speak in turns, four times in all; whoever says a digit gets 1."""

    agents: tuple[str, ...] = ("first", "second")
    task = "steps"

    def reset(self, seed: int) -> Any:
        self.at, self.seed = 0, seed
        return {"first": Observation(f"start {seed}")}

    def step(self, actions: Any) -> StepResult:
        ((agent, said),) = actions.items()
        self.at += 1
        seen = {self.agents[self.at % 2]: Observation(f"turn {self.at}")} if self.at < 4 else {}
        paid = float(any(sign.isdigit() for sign in said))
        return StepResult(seen, {agent: paid}, terminated=self.at == 4, info={"valid": {agent: bool(said)}})


def test_an_env_is_played_and_its_turns_get_their_own_credit(tmp_path: Path) -> None:
    trl, torch = pytest.importorskip("trl"), pytest.importorskip("torch")
    pytest.importorskip("datasets")
    played = EnvRollout(Steps, per_turn=3)

    class Kept(SignalCredit, trl.GRPOTrainer):  # type: ignore[misc, name-defined]
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            output = super()._generate_and_score_completions(inputs)
            self.kept.append((output, self.credit_table, self.credit_spans))
            return output

    Kept.kept = []
    model, tokenizer = build(["start 0 1 2 turn 1 2 3"], hidden=32, layers=1, heads=2)
    tokenizer.padding_side = "left"
    before = [p.detach().clone() for p in model.parameters()]
    config = trl.GRPOConfig(
        output_dir=str(tmp_path), max_steps=2, per_device_train_batch_size=8, num_generations=4, learning_rate=1e-2,
        max_completion_length=40, report_to=[], use_cpu=True, save_strategy="no", logging_steps=1, disable_tqdm=True,
        bf16=False, gradient_checkpointing=False, beta=0.0, seed=3,
    )  # fmt: skip
    credit = dr_mas() + centre("reward", over=("group", "state"))
    trainer = Kept(
        model, [played.reward], config, played.data_set(range(4)), processing_class=tokenizer, rollout_func=played,
        credit=credit,
    )  # fmt: skip
    trainer.train()
    assert any(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert len(Kept.kept) == 2
    for output, table, spans in Kept.kept:
        assert len(table) == 8 * 4
        assert table.frame.group_by("agent").len()["len"].to_list() == [16, 16]
        assert table["group"].n_unique() == 2
        digits = table["action"].str.contains(r"\d").cast(pl.Float64)
        assert table["reward"].equals(digits.alias("reward")), "each turn has its own"
        assert table.frame.filter(turn=0)["observation"].n_unique() <= 2
        expected = np.zeros(tuple(output["completion_ids"].shape))
        for (row, start, length), value in zip(spans, credit.evaluate(table), strict=True):  # type: ignore[arg-type]
            expected[row, start : start + length] = value
        np.testing.assert_allclose(output["advantages"].numpy(), expected, rtol=1e-5, atol=1e-6)
        assert (output["tool_mask"] * output["completion_mask"]).sum() == sum(length for _, _, length in spans)
    assert np.abs(expected).max() > 0


def test_an_env_is_a_tool_and_what_trl_cannot_hold_is_named() -> None:
    game = environment(Steps)()
    assert (game.reset(), game.reset(seed=3)) == ("start 0", "start 3")
    assert [game.act("4"), game.act("x"), game.act("5"), game.act("6")] == [
        "turn 1",
        "turn 2",
        "turn 3",
        "the game is over",
    ]
    assert game.get_reward() == 1.5
    with pytest.raises(ValueError, match="over"):
        game.act("7")

    class Both(Steps):
        def reset(self, seed: int) -> Any:
            return {agent: Observation("now") for agent in self.agents}

    with pytest.raises(InputError, match=r"first, second act at once.*verl"):
        environment(Both)().reset()
    with pytest.raises(InputError, match=r"no seed; make the data set with EnvRollout.data_set"):
        EnvRollout(Steps)([[{"role": "user", "content": "hello"}]], SimpleNamespace(processing_class=None))


class Letters:
    """A tokenizer of letters: 0 fills up, 1 ends."""

    pad_token_id, eos_token_id, chat_template = 0, 1, None

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        return {"input_ids": [*([2] * add_special_tokens), *map(ord, text)]}

    def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        return "".join(chr(each) for each in ids if each > 1)


class Marked(Letters):
    """Letters under a chat template that ends turns with 3, which is not the eos token."""

    chat_template = "{{ messages }}"
    added_tokens_decoder = {1: SimpleNamespace(special=True), 3: SimpleNamespace(special=True)}

    def __call__(self, text: str, add_special_tokens: bool = True, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": list(map(ord, text))}

    def apply_chat_template(self, messages: list[dict[str, Any]], *, tokenize: bool = True, **_: Any) -> Any:
        text = "".join(f"{message['content']}\x03\n" for message in messages)
        return {"input_ids": list(map(ord, text))} if tokenize else text


class Speaker:
    """A model that says what is written; keeps what it was asked with."""

    def __init__(self, *said: list[str]) -> None:
        self.said, self.asked, self.training = list(said), list[Any](), True

    def eval(self) -> None:
        self.training = False

    def train(self, mode: bool) -> None:
        self.training = mode

    def generate(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **how: Any) -> torch.Tensor:
        assert not self.training
        how = vars(how["generation_config"]) if "generation_config" in how else how
        self.how = how
        self.asked.append((input_ids.tolist(), attention_mask.tolist(), how["max_new_tokens"]))
        said = [list(map(ord, text.replace("|", "\x01"))) for text in self.said.pop(0)]
        return torch.cat([input_ids, torch.tensor([row + [0] * (max(map(len, said)) - len(row)) for row in said])], 1)


def spoken(
    model: Speaker, limit: int, prompts: list[int], tokenizer: Letters | None = None, env: Any = Steps,
    of_trainer: Mapping[str, Any] = MappingProxyType({}), **options: Any,
) -> dict[str, Any]:  # fmt: skip
    trainer = SimpleNamespace(
        processing_class=tokenizer or Letters(), max_completion_length=limit, temperature=1.0, model=model,
        accelerator=SimpleNamespace(device="cpu", unwrap_model=lambda each: each), **of_trainer,
    )  # fmt: skip
    found = EnvRollout(env, **options)([[{"seed": seed}] for seed in prompts], trainer)
    assert model.training
    return found


def test_turns_of_a_conversation_are_said_and_masked_until_there_is_no_room() -> None:
    model = Speaker(["4|", "ab"], ["c|", "5xyz"])
    found = spoken(model, 10, [3, 12], per_turn=7)
    first, second, turn = (list(map(ord, text)) for text in ("start 3", "start 12", "turn 1"))
    said = [[ord("4"), 1], [ord("a"), ord("b")]]
    assert model.asked == [
        ([[0, *first], second], [[0] + [1] * 7, [1] * 8], 7),
        ([[0, *first, *said[0], *turn], [*second, *said[1], *turn]], [[0] + [1] * 15, [1] * 16], 2),  # 10 - 8
    ]
    assert found["prompt_ids"] == [first, second]
    assert found["completion_ids"] == [[*said[0], *turn, ord("c"), 1], [*said[1], *turn, ord("5"), ord("x")]]
    assert found["env_mask"] == [[1, 1, 0, 0, 0, 0, 0, 0, 1, 1]] * 2
    keys = ("agent", "turn", "action", "reward", "start", "length")
    assert [[tuple(turn[key] for key in keys) for turn in turns] for turns in found["turns"]] == [
        [("first", 0, "4", 1.0, 0, 2), ("second", 1, "c", 0.0, 8, 2)],
        [("first", 0, "ab", 0.0, 0, 2), ("second", 1, "5x", 1.0, 8, 2)],
    ]
    full = spoken(Speaker(["4|"]), 8, [3])  # the question fills what is left, so it is cut off again
    assert (full["completion_ids"], full["env_mask"], len(full["turns"][0])) == ([[ord("4"), 1]], [[1, 1]], 1)
    assert len(spoken(Speaker(["4"]), 99, [3], longest=1)["turns"][0]) == 1


def test_an_answer_ends_as_the_chat_template_ends_a_turn() -> None:
    found = spoken(Speaker(["4\x03yz"]), 99, [3], Marked(), longest=1)
    assert found["completion_ids"] == [[ord("4"), 3]]


class Roles(Letters):
    """Letters under a template with a default system message, as Qwen 2.5 has one, and with marks around messages."""

    chat_template = "{{ messages }} {% if enable_thinking %}"
    added_tokens_decoder = {1: SimpleNamespace(special=True)}

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": list(map(ord, text))}

    def convert_ids_to_tokens(self, number: int) -> str:
        return chr(number)

    def apply_chat_template(
        self, messages: list[dict[str, Any]], *, tokenize: bool = True, add_generation_prompt: bool = False,
        tools: Any = None, enable_thinking: bool = True, **_: Any,
    ) -> Any:  # fmt: skip
        said = messages if messages[0]["role"] == "system" else [{"role": "system", "content": "Qwen"}, *messages]
        text = "".join(f"<{each['role'][0]}>{each['content']}\x01\n" for each in said)
        text += ("<a>" if enable_thinking else "<a>!") * add_generation_prompt
        return {"input_ids": list(map(ord, text))} if tokenize else text


class Talks(Steps):
    """The same with observations that hold the conversation, as those of tools do."""

    agents = ("first",)

    def reset(self, seed: int) -> Any:
        self.at, self.said = 0, [{"role": "system", "content": "Count"}, {"role": "user", "content": "start"}]
        return {"first": Observation("start", messages=tuple(self.said))}

    def step(self, actions: Any) -> StepResult:
        self.at += 1
        self.said += [{"role": "assistant", "content": "?"}, {"role": "user", "content": f"turn {self.at}"}]
        seen = {"first": Observation("", messages=tuple(self.said))} if self.at < 3 else {}
        return StepResult(seen, {"first": 1.0}, terminated=self.at == 3)


@pytest.mark.parametrize(("env", "system"), [(Steps, "Qwen"), (Talks, "Count")])
def test_a_later_turn_adds_what_the_template_writes_behind_the_answer(env: Any, system: str) -> None:
    found = spoken(Speaker(["4|"], ["cut"], ["5|"]), 99, [0], Roles(), env, longest=3)
    prompt, completion = ("".join(map(chr, found[name][0])) for name in ("prompt_ids", "completion_ids"))
    start = "start" if env is Talks else "start 0"
    assert prompt == f"<s>{system}\x01\n<u>{start}\x01\n<a>"
    assert completion == "4\x01\n<u>turn 1\x01\n<a>cut\x01\n<u>turn 2\x01\n<a>5\x01"
    said = "".join(sign for sign, mask in zip(completion, found["env_mask"][0], strict=True) if mask)
    assert said == "4\x01cut5\x01"


class Seats(Steps):
    """Two agents that are told their own task, in a system message."""

    def reset(self, seed: int) -> Any:
        self.at = 0
        return {"first": self.told("first", "start")}

    def step(self, actions: Any) -> StepResult:
        self.at += 1
        return StepResult({"second": self.told("second", "go on")} if self.at < 2 else {}, terminated=self.at == 2)

    def told(self, agent: str, text: str) -> Observation:
        return Observation("", messages=({"role": "system", "content": agent}, {"role": "user", "content": text}))


def test_the_system_message_of_a_later_agent_is_the_head_of_what_it_is_asked() -> None:
    found = spoken(Speaker(["4|"], ["5|"]), 99, [0], Roles(), Seats)
    prompt, completion = ("".join(map(chr, found[name][0])) for name in ("prompt_ids", "completion_ids"))
    assert prompt == "<s>first\x01\n<u>start\x01\n<a>"
    assert completion == "4\x01\n<u>second\n\ngo on\x01\n<a>5\x01"


def test_the_trainer_s_own_settings_are_sampled_with() -> None:
    transformers = pytest.importorskip("transformers")
    model = Speaker(["4|"])
    config = transformers.GenerationConfig(top_k=3, top_p=0.5, max_new_tokens=99, temperature=0.3)
    set_ = {"generation_config": config, "chat_template_kwargs": {"enable_thinking": False}}
    found = spoken(model, 7, [0], Roles(), of_trainer=set_, longest=1)
    assert "".join(map(chr, found["prompt_ids"][0])).endswith("<a>!")
    assert [model.how[name] for name in ("top_k", "top_p", "max_new_tokens", "temperature")] == [3, 0.5, 7, 1.0]
    assert config.max_new_tokens == 99, "the trainer's is not changed"


class Late(Steps):
    """`second` pays before its first turn; then it is `first` that nobody scores, and at last `second`."""

    paid = ({"first": 1.0, "second": -1.0}, {"first": None, "second": 0.5}, {"first": 0.0, "second": None}, {})

    def step(self, actions: Any) -> StepResult:
        return dataclasses.replace(super().step(actions), rewards=self.paid[self.at - 1])


def test_a_turn_is_paid_what_a_rollout_pays_it() -> None:
    """Rewards before an agent's first turn go to that turn, and a later None takes nothing away."""
    team = Team(dict.fromkeys(Late.agents, ScriptedPolicy(lambda _: "x", name="same")))
    played = rollout(Late, team, groups=1).frame["reward"].to_list()
    (turns,) = spoken(Speaker(["x|"], ["x|"], ["x|"], ["x|"]), 99, [3], env=Late)["turns"]
    assert [turn["reward"] for turn in turns] == played == [1.0, -0.5, 0.0, 0.0]


def test_an_episode_is_paid_the_mean_of_what_its_agents_got() -> None:
    paid = [[("a", 1.0), ("b", 0.5), ("a", 2.0)], [("a", None), ("b", 2.0)], [("a", None)]]
    turns = [[{"agent": agent, "reward": reward} for agent, reward in episode] for episode in paid]
    assert EnvRollout(Steps).reward(turns) == [1.75, 2.0, None]
