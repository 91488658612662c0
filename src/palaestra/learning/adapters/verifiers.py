"""verifiers: our envs and team procedures as environments, for prime-rl and whoever else loads them. verifiers 0.1.14.

    vf.load_environment("palaestra.learning.adapters.verifiers", env="native/maze", episodes=512)

Each turn's prompt is what its agent saw and nothing else, so a team's agents do not read each other; what was sampled
in it is a step of the trajectory, whose `reward` is what the turn earned and whose `extras` say `agent`, `turn`,
`state`, `valid`. The rollout's reward is what the agents got, the mean over them.

For verifiers 0.4 and today's prime-rl there is `verifiers_v1`. Left out: agents that act at once, which has no place in
one conversation at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from palaestra.envs.protocol import EnvFactory, Observation
from palaestra.errors import InputError, MissingExtraError
from palaestra.learning.adapters.verl_loop import factory
from palaestra.play.validation import CheckedStep, Seen, begin, step

LONGEST = 64
"""Turns after which an episode is cut off."""


def load_environment(
    env: str,
    *,
    options: Mapping[str, Any] | None = None,
    workflow: str | Mapping[str, Any] | None = None,
    workflow_options: Mapping[str, Any] | None = None,
    episodes: int = 256,
    seed: int = 0,
    longest: int = LONGEST,
) -> Any:
    """Returns a `vf.MultiTurnEnv` of the named env on `episodes` seeds; the entry point of `vf.load_environment`.

    Names and options are those of a recipe's `env:`; workflow_options are more options of the workflow.

    Raises:
        InputError: a name or an option is unknown, or agents act at once.
        ExpressionError: the workflow is no call.
        MissingExtraError: verifiers is not installed.
    """
    made = factory(env, options, workflow, workflow_options)
    return environment(made, range(seed, seed + episodes), longest=longest, env_id=env)


def environment(made: EnvFactory, seeds: Iterable[int], *, longest: int = LONGEST, env_id: str = "palaestra") -> Any:
    """Returns a new `vf.MultiTurnEnv` that plays the env of factory `made`, with a data set of one row per seed.

    Raises:
        InputError: there is no seed, or agents act at once at the start.
        MissingExtraError: verifiers or `datasets` is not installed.
    """
    try:
        import verifiers as vf
        from datasets import Dataset

        multi_turn = vf.MultiTurnEnv
    except (ImportError, AttributeError) as error:
        raise MissingExtraError("verifiers 0.1 is not installed: pip install verifiers==0.1.14") from error
    rows = []
    for seed in seeds:
        _, task, seen = begin(None, made, seed)
        rows.append({"prompt": _messages(_alone(seen)[1]), "info": {"seed": seed, "name": task}})
    if not rows:
        raise InputError("environment: no seeds; give at least one")

    class VerifiersEnv(multi_turn):  # type: ignore[misc, valid-type]
        """Plays an episode turn by turn."""

        async def setup_state(self, state: Any) -> None:
            """Begin the episode of the row's seed."""
            game, _task, seen = begin(None, made, int(state["info"]["seed"]))
            state["game"], state["seen"] = game, seen
            state["paid"] = {}

        async def get_prompt_messages(self, state: Any) -> Any:
            """Messages of the agent whose turn it is."""
            return _messages(_alone(state["seen"])[1])

        async def add_trajectory_step(self, state: Any, trajectory_step: Any) -> None:
            """Act, and say of the step whose it was and what it earned."""
            agent, observation = _alone(state["seen"])
            words = "".join(_words(message) for message in trajectory_step["completion"])
            turn = len(state["trajectory"])
            trajectory_step["reward"] = 0.0
            trajectory_step["extras"] |= {"agent": agent, "turn": turn, "state": str(observation.key()), "valid": True}
            await super().add_trajectory_step(state, trajectory_step)
            outcome = step(state["game"], {agent: words.strip()})
            _pay(state, outcome)
            trajectory_step["extras"]["valid"] = outcome.valid.get(agent, True)
            state["seen"] = outcome.seen

        async def env_response(self, messages: Any, state: Any, **_: Any) -> Any:
            """Asked by nobody: prompts are made above."""
            return []

        async def render_completion(self, state: Any) -> None:
            """Messages of all turns, for logs; each turn's own prompt is in the trajectory."""
            told: list[Any] = []
            for number, each in enumerate(state["trajectory"]):
                told += [*(each["prompt"] if number else ()), *each["completion"]]
            state["completion"] = told

        @vf.stop
        async def game_over(self, state: Any) -> bool:
            """Nobody acts any more."""
            return not state["seen"]

    async def earned(state: Any, **_: Any) -> float:
        paid = state.get("paid") or {}
        return sum(paid.values()) / len(paid) if paid else 0.0

    rubric = vf.Rubric(funcs=[earned], weights=[1.0])
    return VerifiersEnv(dataset=Dataset.from_list(rows), rubric=rubric, max_turns=longest, env_id=env_id)


def _pay(state: Any, outcome: CheckedStep) -> None:
    """Credit an agent's reward to its last step."""
    for agent, reward in outcome.rewards.items():
        if reward is None:
            continue
        state["paid"][agent] = state["paid"].get(agent, 0.0) + reward
        for each in reversed(state["trajectory"]):
            if each["extras"]["agent"] == agent:
                each["reward"] += reward
                break


def _alone(seen: list[Seen]) -> tuple[str, Observation]:
    if len(seen) != 1:
        raise InputError(
            f"{', '.join(agent for agent, _, _ in seen)} act at once, which verifiers has no place for; train them "
            "with palaestra, or with verl through verl_loop"
        )
    return seen[0][0], seen[0][1]


def _messages(observation: Observation) -> list[dict[str, str]]:
    given = observation.conversation()
    return [{"role": message["role"], "content": message["content"]} for message in given]


def _words(message: Any) -> str:
    content = message.get("content") if isinstance(message, Mapping) else getattr(message, "content", "")
    return content if isinstance(content, str) else ""
