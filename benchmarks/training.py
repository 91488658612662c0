"""What a trained completion costs: a small Llama here and in TRL's `GRPOTrainer`, on the same task.

A Llama of two layers, 64 wide (86,336 parameters), with a tokenizer of 32 words, reads four words and may say 16; the
reward is the share of one word in what it said. Each step plays 4 prompts 8 times and learns from the 32 completions.
Both sides start from the same parameters, and have the same batch, learning rate (1e-3), loss and optimiser.

Time is CPU time of one thread, from the first step on, at the moment a step's rewards are known; a reward counts as
reached when the mean of five steps is that high. Each side has a process of its own, warmed up; they take turns, seed
by seed; medians over seeds. TRL gets its fastest settings: no gradient checkpoints, no logs, no saves, float32.

Ours is measured on both ways through a model: the short one (`agents/backends/llama.py`: Llamas, Mistrals and Qwens in
float32, adapters included) and Hugging Face's modules, which everything else takes; `generic.py` measures more models.

TRL's learning rate falls to 0 over the 100 steps by default, ours stays. Therefore both are compared as they come and
with the other's schedule. Without TRL (the extra `bench`) only ours is measured.

Then what TRL has no room for: two roles with parameters of their own, who go on from each other's words in episodes of
one to four turns, so that groups are unequal, with credit by turn (GiGPO). As many episodes are played at once; the
measure is what one completion costs, beside the single role's.

Run: python benchmarks/training.py
"""

# ruff: noqa: E402
from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS", "ARROW_NUM_THREADS"):
    os.environ[name] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import contextlib
import copy
import functools
import importlib.metadata
import importlib.util
import json
import platform
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from statistics import median
from time import process_time
from typing import Any, Literal

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from palaestra import LMPolicy, PolicyGradient, Signal, Team
from palaestra.agents.backends.modules import Generic
from palaestra.credit import gigpo, grpo
from palaestra.envs import Action, Observation, StepResult
from palaestra.envs.tasks import Task, TaskEnv
from palaestra.play.rollout import rollout

SEEDS, STEPS, GROUPS, GROUP_SIZE, ANSWER, RATE = 5, 100, 4, 8, 16, 1e-3
GOAL, WINDOW = 0.85, 5
MOST_SHARE = 0.7
MOST_SECONDS, MOST_COMPLETIONS = 6.0, 3_200
LUCK = 1.1
"""With one schedule on both sides, completions differ by the draw alone."""
MOST_FOR_ROLES = 1.25
MOST_GENERIC = 1.7
HAS_TRL = importlib.util.find_spec("trl") is not None

ANIMALS = """
ant bee cat cow dog eel elk emu fox gnu hen hog jay kid kit koi lark mole mule newt owl pig ram rat seal swan toad vole
wolf wren
"""
WORDS = ANIMALS.split()
WANTED = "owl"
PROMPTS = [" ".join(np.random.default_rng(i).choice(WORDS, 4)) for i in range(64)]

Schedule = Literal["constant", "linear"]


# -- the task ---------------------------------------------------------------------------------------------------------


def share(text: str) -> float:
    """How much of what was said is the wanted word."""
    words = text.split()
    return words.count(WANTED) / len(words) if words else 0.0


class Prompts(TaskEnv):
    """One of the prompts, one completion."""

    def draw(self, seed: int) -> Task:
        """The prompt of a seed."""
        prompt = PROMPTS[seed // 2 % len(PROMPTS)]
        return Task(prompt, prompt, share)


class Rounds:
    """Writer and editor speak in turns, twice at most, each from the last four words on; each gets its own share.

    What ends by itself is final; only an answer that was cut off goes on to the other. So episodes have one to four
    turns, and no two groups have the same number of them.
    """

    agents = ("writer", "editor")
    task = ""

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """The writer sees the prompt."""
        self.task, self.turn = PROMPTS[seed // 2 % len(PROMPTS)], 0
        return {"writer": Observation(self.task)}

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Score what was said and pass its end on."""
        ((agent, said),) = actions.items()
        words, self.turn = str(said).split(), self.turn + 1
        reward = {agent: share(str(said))}
        if len(words) < ANSWER or self.turn == 4:
            return StepResult({}, reward, terminated=True)
        return StepResult({self.agents[self.turn % 2]: Observation(" ".join(words[-4:]))}, reward)


@functools.cache
def tokenizer() -> Any:
    """A word, a token; with padding and end 32 of them."""
    vocabulary = {word: i for i, word in enumerate(["<pad>", "<end>", *WORDS])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", eos_token="<end>", padding_side="left")


@functools.cache
def initial(seed: int) -> Any:
    """The model before training; both sides copy it."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer()),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        pad_token_id=tokenizer().pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer().eos_token_id,
    )
    return LlamaForCausalLM(config)


# -- both sides -------------------------------------------------------------------------------------------------------


@dataclass
class Run:
    """Per step: CPU seconds until its rewards were known, mean reward, completions so far. seconds: the whole run."""

    cpu: list[float] = field(default_factory=list)
    reward: list[float] = field(default_factory=list)
    completions: list[int] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def smooth(self) -> np.ndarray:
        """Mean reward over the last `WINDOW` steps, from step `WINDOW` on."""
        return np.convolve(self.reward, np.full(WINDOW, 1 / WINDOW), "valid")

    def reached(self) -> tuple[float, float]:
        """CPU seconds and completions to `GOAL`; infinite if it was never reached."""
        high = np.flatnonzero(self.smooth >= GOAL)
        at = int(high[0]) + WINDOW - 1 if len(high) else None
        return (np.inf, np.inf) if at is None else (self.cpu[at], self.completions[at])


def play_and_learn(env: Any, team: Team, learner: PolicyGradient, credit: Signal, seed: int) -> Run:
    """The whole loop: play, credit, learn."""
    run, completions = Run(), 0
    began = process_time()
    for iteration in range(STEPS):
        turns = rollout(env, team, groups=GROUPS, group_size=GROUP_SIZE, seed=seed, iteration=iteration, timeout=None)
        completions += len(turns)
        run.cpu.append(process_time() - began)
        run.reward.append(float(turns["reward"].mean()))  # type: ignore[arg-type]
        run.completions.append(completions)
        learner.update(turns.with_column(advantage=credit))
    run.seconds = process_time() - began
    return run


def policy_of(seed: int, name: str) -> LMPolicy:
    return LMPolicy(copy.deepcopy(initial(seed)), tokenizer(), name=name, max_new_tokens=ANSWER)


def ours(seed: int, schedule: Schedule, generic: bool = False) -> Run:
    policy = policy_of(seed, "solver")
    if generic:  # the way of every other model: 16 bits, windows, other architectures
        policy.forward = Generic(policy.model)
    team = Team(solver=policy)
    learner = PolicyGradient(team, lr=RATE, schedule=schedule, updates=STEPS)
    credit = grpo(flavour="trl")
    return play_and_learn(Prompts, team, learner, credit, seed)


def ours_two_roles(seed: int) -> Run:
    team = Team({role: policy_of(seed + i, role) for i, role in enumerate(Rounds.agents)})
    learner = PolicyGradient(team, lr=RATE)
    return play_and_learn(Rounds, team, learner, gigpo(gamma=0.9), seed)


def trl(seed: int, schedule: Schedule) -> Run:
    import transformers
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    run, began = Run(), 0.0

    def reward(completions: list[str], **_: Any) -> list[float]:
        rewards = [share(text) for text in completions]
        run.cpu.append(process_time() - began)
        run.reward.append(float(np.mean(rewards)))
        run.completions.append(len(run.cpu) * len(rewards))
        return rewards

    with tempfile.TemporaryDirectory() as directory:
        config = GRPOConfig(
            output_dir=directory,
            seed=seed,
            max_steps=STEPS,
            per_device_train_batch_size=GROUPS * GROUP_SIZE,
            num_generations=GROUP_SIZE,
            max_completion_length=ANSWER,
            learning_rate=RATE,
            lr_scheduler_type=schedule,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            dataloader_pin_memory=False,
            logging_strategy="no",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        trainer = GRPOTrainer(
            copy.deepcopy(initial(seed)),
            reward,
            args=config,
            train_dataset=Dataset.from_dict({"prompt": PROMPTS}),
            processing_class=tokenizer(),
        )
        trainer.remove_callback(transformers.PrinterCallback)
        began = process_time()
        trainer.train()
        run.seconds = process_time() - began
    return run


# -- measuring --------------------------------------------------------------------------------------------------------

SIDES: dict[str, Callable[[int], Run]] = {
    "Palaestra, rate constant (its default)": functools.partial(ours, schedule="constant"),
    "TRL, rate falls (its default)": functools.partial(trl, schedule="linear"),
    "TRL, rate constant": functools.partial(trl, schedule="constant"),
    "Palaestra, rate falls": functools.partial(ours, schedule="linear"),
    "Palaestra, generic path": functools.partial(ours, schedule="constant", generic=True),
    "two roles, unequal groups, GiGPO": ours_two_roles,
}
OURS, THEIRS, THEIRS_CONSTANT, OURS_FALLING, GENERIC, ROLES = SIDES


def measure(console: Console) -> dict[str, list[Run]]:
    """Every side once per seed, a process for each, only one of which works at a time."""
    runs: dict[str, list[Run]] = {label: [] for label in SIDES if HAS_TRL or "TRL" not in label}
    pipe = subprocess.PIPE
    with contextlib.ExitStack() as stack:
        workers = {
            label: stack.enter_context(
                subprocess.Popen([sys.executable, __file__, label], stdin=pipe, stdout=pipe, text=True)
            )
            for label in runs
        }
        for seed in range(-1, SEEDS):  # the first is for warming up
            for label, worker in workers.items():
                assert worker.stdin is not None
                assert worker.stdout is not None
                print(seed, file=worker.stdin, flush=True)
                run = Run(**json.loads(worker.stdout.readline()))
                if seed >= 0:
                    runs[label].append(run)
                    console.print(f"seed {seed}  {label}: {run.seconds:.2f} CPU-s", style="dim")
    return runs


def work(label: str) -> None:
    """The other end of `measure`: a run for every seed that comes in; a negative one is over after three steps."""
    global STEPS
    whole, results = STEPS, sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        for line in sys.stdin:
            STEPS = whole if int(line) >= 0 else 3
            print(json.dumps(asdict(SIDES[label](abs(int(line))))), file=results, flush=True)


def number(value: float, digits: int = 2) -> str:
    return f"{value:,.{digits}f}" if np.isfinite(value) else "not reached"


def beside_trl(console: Console, runs: Mapping[str, list[Run]]) -> list[tuple[str, bool]]:
    table = Table(title=f"The share of one word, {STEPS} steps of {GROUPS * GROUP_SIZE} completions, {SEEDS} seeds")
    table.add_column("side")
    for heading in ("completions", "CPU-s", "reward at end", f"CPU-s to {GOAL}", f"completions to {GOAL}"):
        table.add_column(heading, justify="right")
    found = {}
    for label, of_label in runs.items():
        if label == ROLES:
            continue
        seconds, completions = (median(run.reached()[i] for run in of_label) for i in range(2))
        found[label] = seconds, completions
        table.add_row(
            label,
            f"{median(run.completions[-1] for run in of_label):,}",
            number(median(run.seconds for run in of_label)),
            number(median(float(run.smooth[-1]) for run in of_label)),
            number(seconds),
            number(completions, 0),
        )
    console.print(table)
    seconds, completions = found[OURS]
    verdicts = [
        (
            f"reward {GOAL} after {completions:,.0f} completions and {seconds:.2f} CPU-s,"
            f" at most {MOST_COMPLETIONS:,} and {MOST_SECONDS:.0f}",
            seconds <= MOST_SECONDS and completions <= MOST_COMPLETIONS,
        )
    ]
    cost = found[GENERIC][0] / found[OURS][0]
    verdicts.append(
        (f"generic path: {cost:.2f} of the fast path's CPU-s to {GOAL}, at most {MOST_GENERIC}", cost <= MOST_GENERIC)
    )
    if not HAS_TRL:
        console.print("Beside TRL: not measured, it is not installed (`make bench` does that).")
        return verdicts

    for text, other, most in (("as they come", THEIRS, 1.0), ("both with a constant rate", THEIRS_CONSTANT, LUCK)):
        cost, needed = found[OURS][0] / found[other][0], found[OURS][1] / found[other][1]
        verdicts += [
            (f"{text}: {cost:.2f} of TRL's CPU-s to {GOAL}, at most {MOST_SHARE}", cost <= MOST_SHARE),
            (f"{text}: {needed:.2f} of TRL's completions to {GOAL}, at most {most}", needed <= most),
        ]
    cost = found[GENERIC][0] / found[THEIRS_CONSTANT][0]
    verdicts.append((f"generic path: {cost:.2f} of TRL's CPU-s to {GOAL}, at most 1", cost <= 1))
    return verdicts


def beyond(console: Console, runs: Mapping[str, list[Run]]) -> list[tuple[str, bool]]:
    """Two roles, unequal groups, credit by turn."""
    table = Table(title="What a completion costs")
    table.add_column("training")
    for heading in ("completions", "CPU-s", "CPU-ms per completion", "reward at end"):
        table.add_column(heading, justify="right")
    costs = []
    for label, of_label in (("one role, equal groups, GRPO", runs[OURS]), (ROLES, runs[ROLES])):
        costs.append([1e3 * run.seconds / run.completions[-1] for run in of_label])
        table.add_row(
            label,
            f"{median(run.completions[-1] for run in of_label):,}",
            number(median(run.seconds for run in of_label)),
            number(median(costs[-1])),
            number(median(float(run.smooth[-1]) for run in of_label)),
        )
    console.print(table)
    ratio = median(costs[1]) / median(costs[0])
    return [(f"{ROLES}: {ratio:.2f} of the cost per completion, at most {MOST_FOR_ROLES}", ratio <= MOST_FOR_ROLES)]


def main() -> int:
    """Measure, print, and say whether the criteria hold: 0 if they all do."""
    console = Console(width=130)
    packages = ["torch", "transformers", "polars", *(["trl"] if HAS_TRL else [])]
    versions = " · ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    size = sum(parameter.numel() for parameter in initial(0).parameters())
    console.print(f"Python {platform.python_version()} · {versions} · CPU time of one thread · {size:,} parameters")
    runs = measure(console)
    verdicts = beside_trl(console, runs) + beyond(console, runs)
    for text, holds in verdicts:
        console.print(f"{'PASS' if holds else 'FAIL'}  {text}")
    return 0 if all(holds for _, holds in verdicts) else 1


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    if len(sys.argv) > 1:
        work(sys.argv[1])
    else:
        sys.exit(main())
