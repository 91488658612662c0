"""A service that speaks the verbs of hosted trainers becomes a learner by one adapter, and trains a team."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from palaestra.agents import ScriptedPolicy, Team
from palaestra.agents.policy import Decision, Request
from palaestra.algebra.turns import Turns
from palaestra.credit import agent_return, centre
from palaestra.envs.protocol import Observation, StepResult
from palaestra.learning import Learner, Trainer
from palaestra.learning.protocol import VERBS
from palaestra.play.executors import Local


class Service:
    """Elsewhere: a softmax per prompt, one token an answer. It has weights, gradients and checkpoints."""

    def __init__(self) -> None:
        self.weights, self.gradient = np.zeros((4, 3)), np.zeros((4, 3))
        self.checkpoints: dict[str, np.ndarray] = {}
        self.asked: list[str] = []

    def sample(self, prompts: list[int], uniforms: list[float]) -> list[tuple[int, float]]:
        p = _softmax(self.weights[prompts])
        ids = (p.cumsum(1) > np.array(uniforms)[:, None]).argmax(1)
        return [(int(i), float(np.log(row[i]))) for i, row in zip(ids, p)]

    def forward_backward(self, data: list[dict[str, Any]]) -> dict[str, float]:
        self.asked.append("forward_backward")
        loss = 0.0
        for row in data:
            prompt, (token,) = row["prompt_ids"][0], row["action_ids"]
            p = _softmax(self.weights[prompt])
            ratio = p[token] / np.exp(row["logprobs"][0])
            self.gradient[prompt] -= ratio * row["advantage"] * (np.eye(3)[token] - p) / len(data)
            loss -= float(ratio * row["advantage"]) / len(data)
        return {"loss": loss, "rows": len(data)}

    def optim_step(self, lr: float) -> None:
        self.asked.append("optim_step")
        self.weights -= lr * self.gradient
        self.gradient[:] = 0

    def save_state(self) -> str:
        name = f"hosted://run/{len(self.checkpoints)}"
        self.checkpoints[name] = self.weights.copy()
        return name

    def load_state(self, name: str) -> None:
        self.weights = self.checkpoints[name].copy()


def _softmax(logits: np.ndarray) -> np.ndarray:
    p = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(p / p.sum(-1, keepdims=True))


class HostedPolicy:
    """Asks the service; nothing of it is here."""

    def __init__(self, service: Service, name: str = "hosted") -> None:
        self.service, self.name = service, name

    def act(self, requests: list[Request]) -> list[Decision]:
        prompts = [int(request.observation.text) for request in requests]
        said = self.service.sample(prompts, [request.rng.random() for request in requests])
        return [
            Decision(token, *(np.array([x], np.int32) for x in (prompt, token)), np.array([logp], np.float32))
            for prompt, (token, logp) in zip(prompts, said)
        ]

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class Hosted:
    """The adapter of `palaestra.learning.protocol`."""

    def __init__(self, policy: HostedPolicy, *, lr: float) -> None:
        self.service, self.lr, self.updates = policy.service, lr, 0
        self.policies = {policy.name: policy}

    def needs(self) -> set[str]:
        return set()

    def forward_backward(self, turns: Turns, *, advantage: str = "advantage") -> dict[str, Any]:
        found = {}
        for name in self.policies:
            rows = turns.frame.filter(turns["policy"].cast(str) == name).drop_nulls(advantage)
            data = rows.select("prompt_ids", "action_ids", "logprobs", advantage=advantage).to_dicts()
            said = self.service.forward_backward(data)
            found[name] = {"entropy": None, "kl": None, "zero_credit": None, **said}
        return found

    def optim_step(self) -> None:
        self.service.optim_step(lr=self.lr)
        self.updates += 1

    def update(self, turns: Turns, *, advantage: str = "advantage", rng: Any = None) -> dict[str, Any]:
        metrics = self.forward_backward(turns, advantage=advantage)
        self.optim_step()
        return metrics

    def state(self) -> dict[str, Any]:
        return {"updates": self.updates, "name": self.service.save_state()}

    def restore(self, state: dict[str, Any]) -> None:
        self.updates = state["updates"]
        self.service.load_state(state["name"])


class Copying:
    """Say the digit that you see; the other looks on."""

    agents = ("asked", "witness")
    task = "copy"

    def reset(self, seed: int) -> dict[str, Observation]:
        self.digit = int(np.random.default_rng(seed).integers(3))
        return {"asked": Observation(str(self.digit), choices=("0", "1", "2"))}

    def step(self, actions: Any) -> StepResult:
        if "asked" in actions:
            self.right = actions["asked"] == self.digit
            return StepResult({"witness": Observation("well?", choices=("hm",))}, {"asked": float(self.right)})
        return StepResult({}, {"witness": 0.0}, terminated=True, info={"success": self.right})


def trainer(service: Service, directory: Path, iterations: int) -> Trainer:
    policy = HostedPolicy(service)
    team = Team(asked=policy, witness=ScriptedPolicy(lambda request: 0, name="witness"))
    return Trainer(
        Copying, team, credit=centre(agent_return(), over=("agent", "state")), learner=Hosted(policy, lr=3.0),
        executor=Local(timeout=None), iterations=iterations, groups=8, group_size=8, directory=directory,
        checkpoint_every=5,
    )  # fmt: skip


def test_a_hosted_service_trains_a_team_and_resumes(tmp_path: Path) -> None:
    service = Service()
    whole = trainer(service, tmp_path / "whole", 20)
    assert isinstance(whole.learner, Learner)
    assert all(hasattr(whole.learner, verb) for verb in VERBS)
    lines = whole.run()
    assert service.asked == ["forward_backward", "optim_step"] * 20
    assert lines[0]["success"] < 0.6
    assert lines[-1]["success"] > 0.9

    again = Service()
    trainer(again, tmp_path / "stopped", 10).run()
    kept = copy.deepcopy(again.checkpoints)  # what the service remembers when the process here is gone
    resumed = Service()
    resumed.checkpoints = kept
    more = trainer(resumed, tmp_path / "stopped", 20)
    more.run(resume=True)
    assert more.learner.updates == 20
    assert resumed.asked == ["forward_backward", "optim_step"] * 10
    assert resumed.weights == pytest.approx(service.weights, abs=0)
