"""Episodes with help: at some turns a text stands before what is seen, or another action is done than was chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from palaestra.envs.facts import facts_of
from palaestra.envs.protocol import Action, Env, EnvFactory, Observation, StepResult
from palaestra.errors import InputError


@dataclass(frozen=True)
class Help:
    """Data of the help for a player at one turn: a text added to the observation, a replacing action, or both."""

    text: str | None = None
    action: str | None = None


@dataclass(frozen=True)
class HelpedEpisode:
    """Data of an episode to play with help: the env's `seed`, and {number of the turn: `Help`}."""

    seed: int
    help: Mapping[int, Help]


class Helped:
    """Env wrapper (of an env factory) that adds hints or replaces actions: reset(k) plays `episodes[k]`.

    facts: those of the env; help, the text that was shown; done_for, whether the action was put in; done_action, what
    was done instead; done_id, its number among the choices.

    Raises:
        InputError: when it is played, an action that is put in is none of the choices; names it.
    """

    def __init__(self, env: EnvFactory, episodes: Sequence[HelpedEpisode]) -> None:
        self.env: Env = env()
        self.agents, self.task = self.env.agents, ""
        told = {"help": str, "done_for": bool, "done_action": str, "done_id": int}
        self.facts: dict[str, Any] = {**facts_of(self.env), **told}
        self.episodes = episodes

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Begin episode `seed` of the list."""
        self._help, self._turn = self.episodes[seed].help, 0
        seen = self.env.reset(self.episodes[seed].seed)
        self.task = self.env.task
        return self._show(seen)

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Take the actions, or the helping action instead where there is one."""
        given = self._help.get(self._turn, Help())
        told: dict[str, Any] = {"help": given.text, "done_for": given.action is not None}
        if given.action is not None:
            chosen = {agent: self._seen[agent] for agent in actions if self._seen[agent].choices}
            numbers: dict[str, Any] = {agent: seen.index(given.action) for agent, seen in chosen.items()}
            if None in numbers.values():
                raise InputError(f"the action {given.action!r} that helps is no legal action here")
            actions = {**dict.fromkeys(actions, given.action), **numbers}
            told |= {"done_action": given.action, "done_id": numbers or None}
        result = self.env.step(actions)
        self._turn += 1
        return replace(result, observations=self._show(result.observations), info={**result.info, **told})

    def _show(self, seen: Mapping[str, Observation]) -> Mapping[str, Observation]:
        self._seen = seen
        text = self._help.get(self._turn, Help()).text
        return (
            seen if text is None else {who: replace(each, text=f"{text}\n\n{each.text}") for who, each in seen.items()}
        )


class Numbered:
    """Env wrapper (of an env factory) with the fact `choice_id`, the index of each agent's action in its choices."""

    def __init__(self, env: EnvFactory) -> None:
        self.env: Env = env()
        self.agents, self.task = self.env.agents, ""
        self.facts: dict[str, Any] = {**facts_of(self.env), "choice_id": int}

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Begin the episode."""
        self._seen = self.env.reset(seed)
        self.task = self.env.task
        return self._seen

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Take the actions."""
        ids = {agent: self._seen[agent].index(said) for agent, said in actions.items() if self._seen[agent].choices}
        result = self.env.step(actions)
        self._seen = result.observations
        return replace(result, info={**result.info, "choice_id": ids})
