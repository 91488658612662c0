"""MAPPO on simple_spread beside BenchMARL's: env steps per second, and returns after equally many steps.

Both sides play mpe2's simple_spread_v3 with 25 cycles and numbered actions: 32 episodes (800 env steps) an iteration;
one network of two tanh layers of 64 in every seat and a critic of that shape that sees all; Adam, 1e-3; four passes in
minibatches of 200 env steps; gamma .99, lambda .95, clip .2, entropy .01, gradients of norm 1 at most. They differ in
what makes each of them what it is: ours has a critic of its own, with returns scaled and 40 steps of 512 rows, and
advantages standardised over the batch; BenchMARL's critic learns in the minibatches of the policy, unscaled.

BenchMARL 1.5 gives all its envs the same seed. Here mpe2 draws starts from it, so the 32 episodes of a batch would all
begin alike; by default each env gets a seed of its own, and `--same-starts` leaves it as it comes.

Time is CPU time of one thread, from one batch to the next, without evaluation; the median of iterations. Each side has
a process of its own for each seed, and they take turns. Returns are means over agents; of the held-out episodes, which
are the same for both and played with sampled actions by the same loop, and of the last training episodes.

BenchMARL is not a dependency: `pip install --no-deps --target FOLDER benchmarl 'torchrl==0.11.1' 'tensordict==0.11.0'
hydra-core omegaconf 'antlr4-python3-runtime==4.9.3' pyvers importlib_metadata zipp cloudpickle orjson tqdm gym`, and
FOLDER on PYTHONPATH. Without it only ours is measured.

Run: python benchmarks/benchmarl.py [--iterations 40] [--seeds 3] [--same-starts]
"""

# ruff: noqa: E402
from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ[name] = "1"

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import types
import warnings
from collections.abc import Callable, Mapping
from statistics import median
from time import process_time
from typing import Any

sys.path = [folder for folder in sys.path if folder not in ("", os.path.dirname(os.path.abspath(__file__)))]
# this script has the name of the package that it measures

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

EPISODES, CYCLES, AGENTS = 32, 25, 3
HIDDEN, RATE, EPOCHS, MINIBATCH = (64, 64), 1e-3, 4, 200
GAMMA, LAM, CLIP, ENTROPY = 0.99, 0.95, 0.2, 0.01
HELD_OUT, FIRST_SEED, LAST = 200, 10**6, 5
HAS_BENCHMARL = all(importlib.util.find_spec(package) for package in ("benchmarl", "torchrl"))

Logits = Callable[[np.ndarray], torch.Tensor]
"""float32[rows, features] -> logits [rows, actions]."""


def held_out(logits: Logits) -> float:
    """Mean return per agent of the held-out episodes, actions sampled."""
    from mpe2 import simple_spread_v3

    envs = [simple_spread_v3.parallel_env(max_cycles=CYCLES) for _ in range(HELD_OUT)]
    agents = envs[0].possible_agents
    seen = [env.reset(seed=FIRST_SEED + i)[0] for i, env in enumerate(envs)]
    draws, total = torch.Generator().manual_seed(0), 0.0
    for _ in range(CYCLES):
        rows = np.array([each[agent] for each in seen for agent in agents], np.float32)
        with torch.no_grad():
            drawn = torch.multinomial(logits(rows).softmax(-1), 1, generator=draws).reshape(HELD_OUT, AGENTS).tolist()
        results = [env.step(dict(zip(agents, chosen))) for env, chosen in zip(envs, drawn)]
        seen = [result[0] for result in results]
        total += sum(sum(result[1].values()) for result in results)
    return total / HELD_OUT / AGENTS


def ours(iterations: int, seed: int, same: bool) -> dict[str, Any]:
    """Train here; times at which batches were done, their returns, and the return of the held-out episodes."""
    import palaestra as pa
    from palaestra.agents.mlp import MLPPolicy
    from palaestra.algebra.parse import parse
    from palaestra.learning.trainer import Trainer

    env = pa.envs.pettingzoo("mpe.simple_spread_v3", max_cycles=CYCLES)
    policy = MLPPolicy(18, 5, hidden=HIDDEN, seed=seed)
    team = pa.Team(dict.fromkeys(env().agents, policy))
    terms = [f"surrogate(clip={CLIP})", f"entropy({ENTROPY})"]
    learner = pa.PolicyGradient(team, terms, lr=RATE, epochs=EPOCHS, minibatch=MINIBATCH * AGENTS)
    times, returns = [], []

    def done(iteration: int, turns: Any) -> None:
        times.append(process_time())
        returns.append(float(turns["reward"].sum()) / EPISODES / AGENTS)

    Trainer(
        env,
        team,
        credit=parse(f"standardise(gae(gamma={GAMMA}, lam={LAM}), over=())"),
        learner=learner,
        stages=[f"central_critic(gamma={GAMMA}, lam={LAM}, hidden={[*HIDDEN]}, lr={RATE})"],
        iterations=iterations,
        groups=EPISODES,
        group_size=1,
        seed=seed,
        on_turns=done,
    ).run()
    return {
        "times": times,
        "returns": returns,
        "held_out": held_out(lambda rows: policy.module(torch.from_numpy(rows))),
    }


def theirs(iterations: int, seed: int, same: bool) -> dict[str, Any]:
    """Train with BenchMARL; the same three."""
    from mpe2 import simple_spread_v3

    tasks: Any = types.ModuleType("pettingzoo.utils.all_modules")  # PettingZoo's own list wants Atari and no mpe2
    tasks.all_environments = {"mpe/simple_spread_v3": simple_spread_v3}
    sys.modules[tasks.__name__] = tasks
    from benchmarl.algorithms import MappoConfig
    from benchmarl.environments import PettingZooTask
    from benchmarl.experiment import Callback, Experiment, ExperimentConfig
    from benchmarl.models import MlpConfig
    from tensordict import TensorDict

    times: list[float] = []
    returns: list[float] = []
    starts: list[int] = []

    class Watch(Callback):  # type: ignore[misc]
        """Notes when a batch was learned from, and what it was worth."""

        def __reduce__(self) -> tuple[Any, ...]:
            """Experiments pickle their callbacks, and this one is of no use to a later process."""
            return str, ("watch",)

        def on_batch_collected(self, batch: Any) -> None:
            worth, over = batch["next", "agent", "episode_reward"].mean(-2), batch["next", "done"]
            returns.append(float(worth[over].mean()))
            starts.append(len(batch["agent", "observation"][:, 0].flatten(1).unique(dim=0)))

        def on_train_end(self, training_td: Any, group: str) -> None:
            times.append(process_time())

    task = PettingZooTask.SIMPLE_SPREAD.get_from_yaml()
    task.config.update(max_cycles=CYCLES)
    options: Any = ExperimentConfig.get_from_yaml()
    for name, value in {
        "prefer_continuous_actions": False,
        "gamma": GAMMA,
        "lr": RATE,
        "adam_eps": 1e-8,
        "clip_grad_val": 1.0,
        "on_policy_collected_frames_per_batch": EPISODES * CYCLES,
        "on_policy_n_envs_per_worker": EPISODES,
        "on_policy_n_minibatch_iters": EPOCHS,
        "on_policy_minibatch_size": MINIBATCH,
        "max_n_frames": EPISODES * CYCLES * iterations,
        "evaluation": False,
        "render": False,
        "loggers": [],
        "create_json": False,
        "save_folder": tempfile.mkdtemp(),
    }.items():
        setattr(options, name, value)
    method: Any = MappoConfig.get_from_yaml()
    method.entropy_coef, method.lmbda, method.clip_epsilon = ENTROPY, LAM, CLIP
    network: Any = MlpConfig.get_from_yaml()
    network.num_cells = [*HIDDEN]
    experiment = Experiment(
        task=task,
        algorithm_config=method,
        model_config=network,
        critic_model_config=network,
        seed=seed,
        config=options,
        callbacks=[Watch()],
    )
    if not same:  # the envs of a batch get one seed after the other
        experiment.collector.set_seed(1000 * seed + 1)
        experiment.collector.reset()
    experiment.run()
    actor = experiment.group_policies["agent"]

    def logits(rows: np.ndarray) -> torch.Tensor:
        seen = torch.from_numpy(rows).reshape(-1, AGENTS, rows.shape[1])
        read = actor.module[0](TensorDict({"agent": {"observation": seen}}, batch_size=[len(seen)]))
        found: torch.Tensor = read["agent", "logits"].flatten(0, 1)
        return found

    return {"times": times, "returns": returns, "held_out": held_out(logits), "starts": min(starts)}


SIDES: Mapping[str, Callable[[int, int, bool], dict[str, Any]]] = {"ours": ours, "BenchMARL": theirs}


def apart(side: str, iterations: int, seed: int, same: bool) -> dict[str, Any]:
    """A side in a process of its own."""
    command = [sys.executable, "-W", "ignore", __file__, "--side", side, "--iterations", str(iterations)]
    command += ["--seed", str(seed), *(["--same-starts"] if same else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{side}, seed {seed}:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def interval(values: list[float]) -> tuple[float, float]:
    """Mean and half width of the 95 % interval of Student's t."""
    from scipy import stats

    if len(values) < 2:
        return values[0], float("inf")
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5
    return float(np.mean(values)), float(half)


def main() -> int:
    """Measure, print, and say whether the criteria hold: 0 if they all do."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--same-starts", action="store_true")
    parser.add_argument("--side", choices=SIDES)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.side:
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        print(json.dumps(SIDES[given.side](given.iterations, given.seed, given.same_starts)))
        return 0
    console = Console(width=120)
    if importlib.util.find_spec("mpe2") is None:
        console.print("mpe2 is not installed: pip install 'palaestra[marl]'")
        return 0
    sides = [side for side in SIDES if side == "ours" or HAS_BENCHMARL]
    found: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
    for seed in range(given.first, given.first + given.seeds):
        for side in sides:
            found[side].append(apart(side, given.iterations, seed, given.same_starts))
            said = found[side][-1]
            pace = EPISODES * CYCLES / median(np.diff(said["times"]).tolist())
            console.print(f"{side}, seed {seed}: {pace:.0f} steps/s, held out {said['held_out']:.2f}")
    steps = given.iterations * EPISODES * CYCLES
    table = Table(f"MAPPO, {steps:,} env steps", "steps per CPU-s", "first 5 iterations", "last 5", "held out, 95 %")
    pace, worth = {}, {}
    for side, runs in found.items():
        pace[side] = EPISODES * CYCLES / median([float(np.median(np.diff(run["times"]))) for run in runs])
        first, last = (
            float(np.mean([run["returns"][part] for run in runs])) for part in (slice(LAST), slice(-LAST, None))
        )
        worth[side] = interval([run["held_out"] for run in runs])
        mean, half = worth[side]
        table.add_row(side, f"{pace[side]:.0f}", f"{first:.2f}", f"{last:.2f}", f"{mean:.2f} ± {half:.2f}")
    console.print(table)
    if not HAS_BENCHMARL:
        console.print("BenchMARL is not installed; see the head of this script")
        return 0
    console.print(f"BenchMARL's {EPISODES} episodes of a batch began in {found['BenchMARL'][0]['starts']} states")
    ratio, gap = pace["ours"] / pace["BenchMARL"], worth["ours"][0] - worth["BenchMARL"][0]
    verdicts = [
        (f"{ratio:.2f} times as many steps per CPU-second, at least 1", ratio >= 1),
        (f"held-out return higher by {gap:.2f}, at least -{worth['BenchMARL'][1]:.2f}", gap >= -worth["BenchMARL"][1]),
    ]
    for text, holds in verdicts:
        console.print(f"{'PASS' if holds else 'FAIL'}  {text}")
    return 0 if all(holds for _, holds in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
