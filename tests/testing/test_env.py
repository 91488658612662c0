"""One sound env, and one broken env for each promise: `check_env` must name what is broken."""

# ruff: noqa: NPY002

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from palaestra.envs.protocol import Action, Observation, StepResult
from palaestra.errors import EnvError
from palaestra.testing.env import _check_halves, check_env


class Race:
    """Two agents step at once, by 1 or by 2 (not twice running); the first at the goal wins. The seed sets the goal."""

    agents: Any = ("ann", "bob")
    task = ""

    def reset(self, seed: int) -> Mapping[str, Observation]:
        self.rng = np.random.default_rng(seed)
        self.goal = int(self.rng.integers(3, 9))
        self.task = f"race:{self.goal}"
        self.at = dict.fromkeys(self.agents, 0)
        self.tired = dict.fromkeys(self.agents, False)
        return self.observe()

    def observe(self) -> dict[str, Observation]:
        self.seen = {
            agent: Observation(
                text=f"goal {self.goal}, {self.at}",
                choices=("walk", "run"),
                mask=np.array([True, not self.tired[agent]]),
                array=np.array([self.goal, *self.at.values()], dtype=np.float32),
            )
            for agent in self.agents
        }
        return dict(self.seen)

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        if actions.keys() != self.seen.keys():
            raise EnvError("wrong agents")
        chosen = {agent: self.seen[agent].index(action) for agent, action in actions.items()}
        for agent, action in chosen.items():
            self.at[agent] += 1 + (action or 0)
            self.tired[agent] = action == 1
        over = max(self.at.values()) >= self.goal
        rewards = {agent: float(place >= self.goal) for agent, place in self.at.items()}
        info: dict[str, Any] = {"valid": {agent: action is not None for agent, action in chosen.items()}}
        if over:
            info["success"] = {agent: reward > 0 for agent, reward in rewards.items()}
        return StepResult({} if over else self.observe(), rewards, over, info=info)


def test_a_sound_env_passes():
    check_env(Race)


class IgnoresTheSeed(Race):
    def reset(self, seed):
        return super().reset(0)


class PlaysOtherTasksInEvaluation(Race):
    def reset(self, seed: int) -> Any:
        super().reset(seed)
        self.goal = 3 + seed % 3 + 3 * (seed >> 30 & 1)
        self.task = f"race:{self.goal}"
        return self.observe()


class DrawsFromNowhere(Race):
    def reset(self, seed):
        return super().reset(int(np.random.default_rng().integers(1000)))


class RemembersTheLastGame(Race):
    games = 0

    def reset(self, seed):
        self.games += 1
        return super().reset(seed + self.games)


class SharesStateBetweenInstances(Race):
    at: Any = {"ann": 0, "bob": 0}

    def reset(self, seed):
        mine = self.at
        super().reset(seed)
        self.at = mine
        self.at.update(ann=0, bob=0)
        return self.observe()


class SeedsTheWorld(Race):
    def reset(self, seed):
        random.seed(seed)
        return super().reset(seed)


class SeedsNumPysWorld(Race):
    def step(self, actions):
        np.random.random()
        return super().step(actions)


class CallsAllTasksAlike(Race):
    def reset(self, seed):
        observations = super().reset(seed)
        self.task = "race"
        return observations


class NamesNoTask(Race):
    def reset(self, seed):
        observations = super().reset(seed)
        self.task = None
        return observations


class ObservesAStranger(Race):
    def observe(self):
        return {**super().observe(), "eve": Observation("who am I?")}


class RewardsAStranger(Race):
    def step(self, actions):
        result = super().step(actions)
        return StepResult(result.observations, {"eve": 1.0}, result.terminated, info=result.info)


class RewardsNaN(Race):
    def step(self, actions):
        result = super().step(actions)
        return StepResult(result.observations, {"ann": float("nan")}, result.terminated, info=result.info)


class TellsSomethingElse(Race):
    facts = {"far": int}

    def step(self, actions):
        result = super().step(actions)
        return StepResult(result.observations, result.rewards, result.terminated, info={"far": "very"})


class TakesAColumn(Race):
    def step(self, actions):
        result = super().step(actions)
        return StepResult(result.observations, result.rewards, result.terminated, info={"cost": 1})


class DeclaresAColumn(Race):
    facts = {"reward": float}


class NeverEnds(Race):
    def reset(self, seed):
        observations = super().reset(seed)
        self.goal = 10**9
        return observations


class EndsWithoutSayingSo(Race):
    def step(self, actions):
        result = super().step(actions)
        return StepResult(result.observations, result.rewards, False, info=result.info)


class GoesOnAfterTheEnd(Race):
    def step(self, actions):
        result = super().step(actions)
        return StepResult(result.observations, result.rewards, True, info=result.info)


class IsOverAtOnce(Race):
    def reset(self, seed):
        super().reset(seed)
        return {}


class MasksTheWrongNumber(Race):
    def observe(self):
        return {agent: Observation("", ("walk", "run"), np.ones(3, dtype=bool)) for agent in self.agents}


class MasksWithNumbers(Race):
    def observe(self):
        return {agent: Observation("", ("walk", "run"), np.ones(2)) for agent in self.agents}


class ForbidsEverything(Race):
    def observe(self):
        return {agent: Observation("", ("walk", "run"), np.zeros(2, dtype=bool)) for agent in self.agents}


class NamesTwoActionsAlike(Race):
    def observe(self):
        return {agent: Observation("", ("Walk", "Walk")) for agent in self.agents}


class ShowsDoubles(Race):
    def observe(self):
        return {agent: Observation("", ("walk", "run"), array=np.zeros(2)) for agent in self.agents}


class ShowsInfinity(Race):
    def observe(self):
        array = np.array([np.inf], dtype=np.float32)
        return {agent: Observation("", ("walk", "run"), array=array) for agent in self.agents}


class MasksFreeText(Race):
    def observe(self):
        return {agent: Observation("", None, np.ones(2, dtype=bool)) for agent in self.agents}


class RaisesOnIllegalActions(Race):
    def step(self, actions):
        return super().step({agent: ("walk", "run").index(str(action)) for agent, action in actions.items()})


class AcceptsIllegalActions(Race):
    def step(self, actions):
        result = super().step(actions)
        info = {key: value for key, value in result.info.items() if key != "valid"}
        return StepResult(result.observations, result.rewards, result.terminated, info=info)


class IgnoresItsOwnMask(Race):
    def step(self, actions):
        result = super().step(actions)
        valid = {
            agent: self.at[agent] > 0 and str(action) in ("0", "1", "walk", "run") for agent, action in actions.items()
        }
        return StepResult(result.observations, result.rewards, result.terminated, info={"valid": valid})


class RejectsLegalActions(Race):
    def step(self, actions):
        result = super().step(actions)
        info = {**result.info, "valid": dict.fromkeys(actions, False)}
        return StepResult(result.observations, result.rewards, result.terminated, info=info)


class JudgesOthers(Race):
    def step(self, actions):
        result = super().step(actions)
        info = {**result.info, "valid": {"eve": True}}
        return StepResult(result.observations, result.rewards, result.terminated, info=info)


class SucceedsByHalf(Race):
    def step(self, actions):
        result = super().step(actions)
        return StepResult(
            result.observations, result.rewards, result.terminated, info={"valid": result.info["valid"], "success": 0.5}
        )


class ReturnsATuple(Race):
    def step(self, actions):
        result = super().step(actions)
        return result.observations, result.rewards, result.terminated, False, {}


class HasAListOfAgents(Race):
    agents = ["ann", "bob"]


class HasTwins(Race):
    agents = ("ann", "ann")


class HasNoAgents:
    task = ""

    def reset(self, seed):
        return {}

    def step(self, actions):
        return StepResult({})


BROKEN = {
    PlaysOtherTasksInEvaluation: "none is in both",
    IgnoresTheSeed: r"seeds \[.*\] all give the same episode",
    DrawsFromNowhere: "seed ., played .*: step 0 differs",
    RemembersTheLastGame: "seed ., played twice in one env: step 0 differs",
    SharesStateBetweenInstances: "seed .*, played in another env while a third one plays: step",
    SeedsTheWorld: "global random generator",
    SeedsNumPysWorld: "global random generator",
    CallsAllTasksAlike: "seeds 0 and .* both have the task 'race', but do not start alike",
    NamesNoTask: "env.task is None",
    ObservesAStranger: "seed 0, reset: agent 'eve' is observed, but the agents are",
    RewardsAStranger: "seed 0, step 1: 'eve' is rewarded",
    RewardsNaN: "seed 0, step 1: the reward of 'ann' is nan",
    TellsSomethingElse: "seed 0, step 1: the fact 'far' is 'very', a str; int was declared",
    TakesAColumn: "seed 0, step 1: info.'cost'. has the name of a column",
    DeclaresAColumn: "seed 0, step 1: DeclaresAColumn: the fact 'reward' has the name of a column",
    NeverEnds: "seed 0: the episode is not over after 60 steps",
    EndsWithoutSayingSo: "terminated=False, truncated=False, but 0 agents are observed",
    GoesOnAfterTheEnd: "terminated=True, truncated=False, but 2 agents are observed",
    IsOverAtOnce: "seed 0, reset: nobody is observed",
    MasksTheWrongNumber: r"agent 'ann': mask is bool\[3\] for 2 choices",
    MasksWithNumbers: r"mask is float64\[2\] for 2 choices",
    ForbidsEverything: "agent 'ann': no action is legal",
    NamesTwoActionsAlike: "two choices are called 'Walk'",
    ShowsDoubles: "array is not float32",
    ShowsInfinity: "not finite",
    MasksFreeText: "there is a mask, but there are no choices",
    RaisesOnIllegalActions: "illegal action 2 of 'ann': step raised ValueError",
    AcceptsIllegalActions: "illegal action 2 of 'ann': it is not reported as valid=False",
    IgnoresItsOwnMask: "illegal action 'masked' of 'ann': it is not reported as valid=False",
    RejectsLegalActions: "the legal action .* of 'ann' is called invalid",
    JudgesOthers: r"info\['valid'\] is \{'eve': True\}, but \['ann', 'bob'\] acted",
    SucceedsByHalf: r"info\['success'\] must be a bool",
    ReturnsATuple: "step returned tuple, expected palaestra.envs.StepResult",
    HasAListOfAgents: "env.agents is .*; it must be a tuple",
    HasTwins: "env.agents is .*; it must be a tuple of different names",
    HasNoAgents: "HasNoAgents lacks one of: agents, task, reset, step",
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda kind: kind.__name__)
def test_a_broken_env_is_caught_and_the_break_is_named(broken):
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with pytest.raises(AssertionError, match=BROKEN[broken]) as caught:
            check_env(broken, max_steps=60, seeds=range(6))
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
    assert not re.search(r"\n", str(caught.value)), "one sentence"


def test_a_factory_that_cannot_be_pickled_is_caught():
    with pytest.raises(AssertionError, match="cannot be pickled"):
        check_env(lambda: Race())


def test_what_is_not_promised_can_be_left_out():
    check_env(IgnoresTheSeed, varied=False)
    check_env(RaisesOnIllegalActions, illegal=False)


class Echo:
    """Free text: say the word."""

    agents = ("parrot",)
    task = ""

    def reset(self, seed: int) -> Mapping[str, Observation]:
        self.word = ("polly", "cracker", "hello")[seed % 3]
        self.task = f"echo:{self.word}"
        return {"parrot": Observation(f"say {self.word}")}

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        said = actions["parrot"]
        valid = isinstance(said, str) and said.isalpha()
        return StepResult({}, {"parrot": float(said == self.word)}, True, info={"valid": {"parrot": valid}})


class EchoOfNumbers(Echo):
    def step(self, actions: Mapping[str, Action]) -> StepResult:
        result = super().step(actions)
        return StepResult({}, result.rewards, True)


def test_free_text_may_be_anything_but_a_number():
    check_env(Echo)
    with pytest.raises(AssertionError, match="illegal action 0 of 'parrot'"):
        check_env(EchoOfNumbers)


def test_legal_play_can_be_given_for_free_text():
    check_env(Echo, play=lambda seen, rng: seen.text.split()[1])
    with pytest.raises(AssertionError, match=r"the legal action '\?' of 'parrot' is called invalid"):
        check_env(Echo, play=lambda seen, rng: "?")


class InHalves:
    """Its first sixteen resets, and then its next, have so many starts each; none is in both."""

    agents: Any = ("ann",)

    def __init__(self, starts: int) -> None:
        self.starts, self.resets = starts, 0

    def reset(self, seed: int) -> Mapping[str, Observation]:
        half, number = divmod(self.resets, 16)
        self.resets += 1
        return {"ann": Observation(f"half {half}, start {number % self.starts}")}


def test_eight_starts_of_sixteen_seeds_should_be_in_both_halves_and_nine_need_not() -> None:
    few: Any = InHalves(8)
    with pytest.raises(AssertionError, match="16 seeds of training give 8 different starts"):
        _check_halves(few)
    many: Any = InHalves(9)
    _check_halves(many)
