"""TRL: our envs played by `GRPOTrainer`, as its `rollout_func`, or as tools by its `environment_factory`. TRL 1.16.0.

    played = EnvRollout(envs.make("native/maze"))
    SignalGRPOTrainer(model, [played.reward], config, played.data_set(range(512)), rollout_func=played, credit=gigpo())

TRL's sample is a conversation: one row of tokens for all turns of an episode, with a mask on what the env said. So each
agent reads all that was said before, and agents that act at once are refused. Credit still goes by agent, turn and
state: `SignalCredit` makes a table with a row per turn of what is handed over here, and puts each turn's value on the
turn's own tokens.

Left out: vLLM (the trainer's own model generates, batched over the episodes), images, and models that are spread over
devices while they generate.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from palaestra.agents.conversation import Style, behind_answer, continues, end_of_turn
from palaestra.envs.conversations import without_system
from palaestra.envs.protocol import EnvFactory, Observation
from palaestra.errors import InputError, missing_extra
from palaestra.play.validation import Seen, begin, step

TURN = ("agent", "turn", "state", "observation", "action", "reward", "valid", "success")
"""What is said of each turn, beside `start` and `length` of its tokens."""


@dataclass
class _Episode:
    """One conversation while it is held.

    messages: what was said, of all agents, as the chat template gets it. before: what each agent saw last.
    income: what each agent received since its last turn, which it is for, as in `rollout`; or before its first one.
    """

    env: Any
    seen: list[Seen]
    prompt: list[int]
    tokens: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    turns: list[dict[str, Any]] = field(default_factory=list)
    messages: list[Mapping[str, Any]] = field(default_factory=list)
    before: dict[str, Observation] = field(default_factory=dict)
    income: dict[str, float | None] = field(default_factory=dict)

    def hear(self, tokenizer: Any, ends: Sequence[int], style: Style) -> None:
        """The env speaks; at first it is the prompt, later what the template writes behind the last answer."""
        agent, observation = _alone(self.seen)
        plain = getattr(tokenizer, "chat_template", None) is None
        earlier, self.before[agent] = self.before.get(agent), observation
        said = [] if plain else list(observation.conversation())
        if not self.turns:
            self.messages = said
            self.prompt = _ids(tokenizer, observation, style)
            return
        if earlier is not None and continues(observation, earlier):
            said = said[len(earlier.messages or ()) + 1 :]
        else:  # no template takes a system message in the middle
            said = list(without_system(said))
        place = len(self.messages)
        self.messages += [{"role": "assistant", "content": self.turns[-1]["action"]}, *said]
        if plain:
            ids = _ids(tokenizer, observation, style)
        else:
            talk = Observation("", messages=tuple(self.messages), tools=observation.tools)
            ids = behind_answer(tokenizer, talk, place, self.tokens[-1], ends, style).tolist()
        self.tokens += ids
        self.mask += [0] * len(ids)

    def say(self, ids: Sequence[int], text: str) -> None:
        """The model speaks, and the env goes on."""
        ((agent, observation, _),) = self.seen
        if any(turn["agent"] == agent for turn in self.turns):
            self.income.pop(agent, None)  # its turn before has it
        made = {"agent": agent, "turn": len(self.turns), "state": observation.key(), "observation": observation.text}
        made |= {"action": text, "reward": 0.0, "valid": True, "success": None}
        self.turns.append(made | {"start": len(self.tokens), "length": len(ids)})
        self.tokens += ids
        self.mask += [1] * len(ids)
        outcome = step(self.env, {agent: text})
        for name, reward in outcome.rewards.items():
            earned = self.income.setdefault(name, None)
            self.income[name] = earned if reward is None else (earned or 0.0) + reward
        for name, turn in {turn["agent"]: turn for turn in self.turns}.items():
            turn["reward"] = self.income.get(name, 0.0)
        for turn in self.turns if outcome.success is not None else ():
            each = outcome.success
            turn["success"] = each.get(turn["agent"]) if isinstance(each, dict) else each
        self.turns[-1]["valid"] = outcome.valid.get(agent, True)
        self.seen = outcome.seen


class EnvRollout:
    """TRL rollout function (`rollout_func=`) of an env factory: plays an episode per prompt of its `data_set`.

    All episodes are played in parallel.
    made: the env's factory. per_turn: most tokens of a turn; default: what is left of `max_completion_length`, at which
    an episode ends. longest: most turns.
    """

    def __init__(self, made: EnvFactory, *, per_turn: int | None = None, longest: int = 64) -> None:
        self.made, self.per_turn, self.longest = made, per_turn, longest
        self.__name__ = "EnvRollout"

    def data_set(self, seeds: Iterable[int]) -> Any:
        """TRL's `train_dataset`: a row per seed, with the env's first observation as prompt.

        Raises:
            MissingExtraError: `datasets` is not installed.
        """
        try:
            from datasets import Dataset
        except ImportError as error:
            raise missing_extra("datasets", "trl") from error
        rows = []
        for seed in seeds:
            _, task, seen = begin(None, self.made, seed)
            rows.append({"prompt": [{"role": "user", "content": _alone(seen)[1].text, "seed": seed}], "task": task})
        return Dataset.from_list(rows)

    def reward(self, turns: Sequence[Sequence[dict[str, Any]]], **_: Any) -> list[float | None]:
        """TRL reward function for `reward_funcs=`: the mean of the agents' returns; None if none was scored."""
        found: list[float | None] = []
        for episode in turns:
            of: dict[str, float] = {}
            for turn in episode:
                if turn["reward"] is not None:
                    of[turn["agent"]] = of.get(turn["agent"], 0.0) + turn["reward"]
            found.append(sum(of.values()) / len(of) if of else None)
        return found

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        """Play the prompts' episodes; returns token ids, the mask of sampled tokens, and the turns."""
        tokenizer = trainer.processing_class
        style = Style(arguments=getattr(trainer, "chat_template_kwargs", None) or {})
        episodes = []
        for prompt in prompts:
            env, _, seen = begin(None, self.made, _seed(prompt))
            episodes.append(_Episode(env, seen, []))
        ends = sorted({tokenizer.eos_token_id, end_of_turn(tokenizer, style)})
        for _ in range(self.longest):
            alive = [e for e in episodes if e.seen]
            for episode in alive:
                episode.hear(tokenizer, ends, style)
            alive = [e for e in alive if len(e.tokens) < trainer.max_completion_length]
            if not alive:
                break
            for episode, ids in zip(alive, self._generate(alive, trainer, ends), strict=True):
                episode.say(ids, tokenizer.decode(ids, skip_special_tokens=True).strip())
        limit = trainer.max_completion_length
        for episode in episodes:  # a question that nobody answers any more teaches nothing
            last = episode.turns[-1]
            end = min(last["start"] + last["length"], limit)
            del episode.tokens[end:], episode.mask[end:]
        return {
            "prompt_ids": [episode.prompt for episode in episodes],
            "completion_ids": [episode.tokens for episode in episodes],
            "logprobs": None,
            "env_mask": [episode.mask for episode in episodes],
            "turns": [episode.turns for episode in episodes],
        }

    def _generate(self, alive: Sequence[_Episode], trainer: Any, ends: list[int]) -> list[list[int]]:
        import torch

        tokenizer = trainer.processing_class
        heard = [episode.prompt + episode.tokens for episode in alive]
        room = trainer.max_completion_length - min(len(episode.tokens) for episode in alive)
        width = max(map(len, heard))
        device = trainer.accelerator.device
        ids = torch.tensor([[tokenizer.pad_token_id] * (width - len(row)) + row for row in heard], device=device)
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in heard], device=device)
        model = trainer.accelerator.unwrap_model(trainer.model)
        training = model.training
        options: dict[str, Any] = {
            "do_sample": True, "temperature": trainer.temperature, "max_new_tokens": min(room, self.per_turn or room),
            "pad_token_id": tokenizer.pad_token_id, "eos_token_id": ends,
        }  # fmt: skip
        if (config := copy.deepcopy(getattr(trainer, "generation_config", None))) is not None:
            config.update(**options)  # the trainer's top_k, top_p and the like, not those that came with the model
            options = {"generation_config": config}
        model.eval()
        with torch.no_grad():
            said = model.generate(input_ids=ids, attention_mask=mask, **options)
        model.train(training)
        found = []
        for episode, row in zip(alive, said[:, width:].tolist(), strict=True):
            row = row[: trainer.max_completion_length - len(episode.tokens)]
            end = next((place for place, token in enumerate(row) if token in ends), len(row))
            found.append(row[: end + 1])
        return found


def environment(made: EnvFactory) -> Callable[[], Any]:
    """Makes the `environment_factory=` for TRL of an env factory: returns a class with `reset` and one tool, `act`.

    The data set needs a column `seed`. `get_reward` is what the agents got, the mean over them.
    """

    class TrlEpisode:
        """One episode."""

        def reset(self, seed: int = 0, **_: Any) -> str:
            self._env, _task, self._seen = begin(None, made, int(seed))
            self._rewards: dict[str, float] = {}
            return _alone(self._seen)[1].text

        def act(self, action: str) -> str:
            """Take a turn in the game.

            Args:
                action: What to do or say, in the words of the game.

            Returns:
                What is seen after it.
            """
            if not self._seen:
                raise ValueError("the game is over")
            outcome = step(self._env, {_alone(self._seen)[0]: action})
            for agent, reward in outcome.rewards.items():
                self._rewards[agent] = self._rewards.get(agent, 0.0) + (reward or 0.0)
            self._seen = outcome.seen
            return _alone(self._seen)[1].text if self._seen else "the game is over"

        def get_reward(self) -> float:
            return sum(self._rewards.values()) / len(self._rewards) if self._rewards else 0.0

    return TrlEpisode


def _alone(seen: Sequence[Seen]) -> tuple[str, Observation]:
    if len(seen) != 1:
        raise InputError(
            f"{', '.join(agent for agent, _, _ in seen)} act at once: in TRL's one conversation they would read each "
            "other; train them with palaestra, or with verl, where every turn is a sample of its own"
        )
    return seen[0][0], seen[0][1]


def _seed(prompt: Any) -> int:
    try:
        return int(prompt[-1]["seed"])
    except (KeyError, TypeError, IndexError) as error:
        raise InputError("EnvRollout: a prompt has no seed; make the data set with EnvRollout.data_set") from error


def _ids(tokenizer: Any, observation: Observation, style: Style) -> list[int]:
    """The observation as the first messages of a conversation, and the words with which an answer begins."""
    if getattr(tokenizer, "chat_template", None) is None:
        return list(tokenizer(observation.text, add_special_tokens=False)["input_ids"])
    made = tokenizer.apply_chat_template(
        [dict(each) for each in observation.conversation()],
        tools=[dict(tool) for tool in observation.tools] or None,
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        **style.arguments,
    )
    return list(made["input_ids"])
