"""verl: our envs and team procedures as agent loops, with the data set and the reward that belong to them. verl 0.9.1.

    # loops.yaml, actor_rollout_ref.rollout.agent.agent_loop_config_path=loops.yaml
    - name: solver_checker
      _target_: palaestra.learning.adapters.verl_loop.EnvLoop
      env: reasoning_gym/chain_sum
      options: {max_digits: 1}
      workflow: pipeline(improvement=0.5)

Every turn of every agent is a sample of its own (`trainer.use_v1`, verl's default): its prompt is what the agent saw
and nothing else, so agents do not read each other's prompts. What the turn was stands in its extra fields: `agent`,
`turn`, `state`, `episode`, `turn_reward`, `valid`, `success`. verl gives all samples of a session the reward of the
last one; the credit by agent, turn and state that this is for is `verl.register_trainer`.

Left out: images, tools of verl's own, and one sample for a whole conversation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import polars as pl

from palaestra import envs
from palaestra.envs.protocol import EnvFactory, Observation
from palaestra.errors import InputError, missing_extra
from palaestra.foundation.files import atomic_write
from palaestra.foundation.registry import read_call
from palaestra.play.validation import begin, step
from palaestra.teams import WORKFLOWS

LONGEST = 64
"""Turns after which an episode is cut off."""


def factory(
    env: str,
    options: Mapping[str, Any] | None = None,
    workflow: str | Mapping[str, Any] | None = None,
    workflow_options: Mapping[str, Any] | None = None,
) -> EnvFactory:
    """Env factory made from an env's name and options, wrapped by the workflow if given, as in a recipe's `env:`.

    workflow: a call, as `debate(3)`, or a graph written out. workflow_options: more options of it.

    Raises:
        InputError: a name or an option is unknown.
        ExpressionError: the workflow is no call.
    """
    made = envs.make(env, **dict(options or {}))
    if workflow is None:
        return made
    name, values, own = read_call(workflow) if isinstance(workflow, str) else ("graph", [], dict(workflow))
    team = WORKFLOWS.find(name)
    try:
        return team(made, *values, **own, **dict(workflow_options or {}))
    except TypeError as error:
        raise InputError(f"workflow {name!r}: {error}") from error


def data_set(path: str | Path, loop: str, made: EnvFactory, seeds: Iterable[int]) -> Path:
    """Write verl's `data.train_files`, a Parquet file of a row per seed of an env of factory `made`; returns the path.

    loop: name of the agent that plays them.

    The prompt is the first observation. verl reads it for length and logs; the loop plays the seed.
    """
    rows: list[dict[str, Any]] = []
    for seed in seeds:
        _, task, seen = begin(None, made, seed)
        rows.append(
            {
                "data_source": task,
                "prompt": _messages(seen[0][1]),
                "agent_name": loop,
                "reward_model": {"style": "env", "ground_truth": ""},
                "extra_info": {"index": len(rows), "seed": seed, "task": task},
            }
        )
    if not rows:
        raise InputError("data_set: no seeds; give at least one")
    path = Path(path)
    with atomic_write(path) as temporary:
        pl.DataFrame(rows).write_parquet(temporary)
    return path


class EnvPlay:
    """Mixin for verl's `AgentLoopBase` that plays an episode of the env named `env`, all agents the model in training.

    `EnvLoop` is this in front of verl's `AgentLoopBase`, made when it is first asked for, so that this module needs no
    verl.
    """

    def __init__(
        self,
        *args: Any,
        env: str,
        options: Mapping[str, Any] | None = None,
        workflow: str | Mapping[str, Any] | None = None,
        workflow_options: Mapping[str, Any] | None = None,
        longest: int = LONGEST,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.verl: Any = self  # what verl's class below brings: tokenizer, server, configuration
        self.made = factory(env, options, workflow, workflow_options)
        self.longest = longest

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> list[Any]:
        """Play one episode; returns a sample for each turn, in the order of play.

        Raises:
            InputError: the row of the data set has no seed.
            EnvError, RewardError: the env broke its protocol.
        """
        info = row.get("extra_info")
        if not isinstance(info, Mapping) or "seed" not in info:
            raise InputError("EnvLoop: the data set has no extra_info.seed; write it with verl_loop.data_set")
        env, _, seen = begin(None, self.made, int(info["seed"]))
        episode = f"{row.get('uid', uuid4().hex)}_{row.get('session_id', 0)}"
        turns: list[Any] = []
        last: dict[str, Any] = {}
        income: dict[str, float | None] = {}  # since an agent's last turn, or before its first one, as in `rollout`
        turn = 0
        while seen and turn < self.longest:
            acted = await asyncio.gather(*(self._ask(observation, sampling_params) for _, observation, _ in seen))
            for (agent, observation, _), (output, _) in zip(seen, acted, strict=True):
                output.extra_fields |= {
                    "agent": agent,
                    "turn": turn,
                    "state": str(observation.key()),
                    "episode": episode,
                    "turn_reward": 0.0,
                    "valid": True,
                    "success": None,
                    "reward_extra_info": {},
                }
                turns.append(output)
                if agent in last:
                    income.pop(agent, None)  # its turn before has it
                last[agent] = output
            outcome = step(env, {agent: text for (agent, _, _), (_, text) in zip(seen, acted, strict=True)})
            for agent, valid in outcome.valid.items():
                last[agent].extra_fields["valid"] = valid
            for agent, reward in outcome.rewards.items():
                earned = income.setdefault(agent, None)
                income[agent] = earned if reward is None else (earned or 0.0) + reward
            for agent, output in last.items():
                output.extra_fields["turn_reward"] = income.get(agent, 0.0)
            seen, turn, success = outcome.seen, turn + 1, outcome.success
        for output in turns:
            own = success.get(output.extra_fields["agent"]) if isinstance(success, dict) else success
            output.extra_fields["success"] = own
            output.num_turns = len(turns)
        # verl wants a number for the session, of which it makes metrics and a GRPO that nobody asks for here
        paid: dict[str, float] = {}
        for output in turns:
            if (reward := output.extra_fields["turn_reward"]) is not None:
                paid[output.extra_fields["agent"]] = paid.get(output.extra_fields["agent"], 0.0) + reward
        turns[-1].reward_score = sum(paid.values()) / len(paid) if paid else 0.0  # the agents' mean return
        return turns

    async def _ask(self, observation: Observation, sampling_params: dict[str, Any]) -> tuple[Any, str]:
        from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput

        prompt = await self.verl.ct_build_initial_tokens(_messages(observation))
        said = await self.verl.server_manager.generate(
            request_id=uuid4().hex, prompt_ids=prompt, sampling_params=sampling_params
        )
        ids = list(said.token_ids)[: self.verl.rollout_config.response_length]
        output = AgentLoopOutput(
            prompt_ids=prompt,
            response_ids=ids,
            response_mask=[1] * len(ids),
            response_logprobs=list(said.log_probs)[: len(ids)] if said.log_probs else None,
            metrics=AgentLoopMetrics(),
            extra_fields=dict(said.extra_fields),
        )
        return output, self.verl.tokenizer.decode(ids, skip_special_tokens=True).strip()


def _messages(observation: Observation) -> list[dict[str, str]]:
    given = observation.conversation()
    return [{"role": message["role"], "content": message["content"]} for message in given]


def __getattr__(name: str) -> Any:
    if name != "EnvLoop":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from verl.experimental.agent_loop.agent_loop import AgentLoopBase
    except ImportError as error:
        raise missing_extra("verl.experimental.agent_loop", "verl") from error
    made = type(name, (EnvPlay, AgentLoopBase), {"__doc__": EnvPlay.__doc__, "__module__": __name__})
    return globals().setdefault(name, made)
