"""Training in phases: credit, reward, stages, objective, env and groups change between iterations.

There is one trainer, one checkpoint format and one journal of metrics. When a phase begins, the trainer takes its
parts; policies, the moments of their optimisers, stages and the number of updates go on. A checkpoint notes which phase
is on and since when, so a run that was killed in any phase goes on bit for bit. Left out: play ahead (`lag`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from palaestra.algebra.signals import Signal
from palaestra.envs.protocol import EnvFactory
from palaestra.learning.alarms import Line
from palaestra.learning.learner import PolicyGradient
from palaestra.learning.protocol import LearnedPolicy, Learner
from palaestra.learning.stages.stage import Remembering, Stage, Stages
from palaestra.learning.tables import TableLearner
from palaestra.learning.trainer import Trainer

if TYPE_CHECKING:
    from palaestra.agents import Team

HEADS = 2
"""Key of the random streams of new parameters, beside minibatches (0) and stages (1)."""


class Ending(Protocol):
    """Protocol of an end of a training phase: called (metrics, round) -> whether it is over; `found` -> text why."""

    def __call__(self, lines: Sequence[Line], round: int) -> bool:
        """Whether the phase is over, after the metrics `lines` of it. round: how often its cycle has begun."""

    def found(self, lines: Sequence[Line]) -> str:
        """Text of the condition and the measured value."""


@dataclass(frozen=True)
class TrainingPhase:
    """Data: settings of one phase of a `PhasedTrainer`: credit, reward, stages, learner, env and how it ends.

    Attributes:
        name: in the metrics of each of its iterations, as `phase`.
        ends: when it is over; None: it lasts as long as the run.
        credit, reward, stages, groups, group_size, incomplete: as of `Trainer`.
        learner: makes the learner; phases with one and the same function share the learner.
        env: makes another env than that of the trainer; None: the same.
    """

    name: str
    ends: Ending | None
    credit: Signal
    reward: Signal | Mapping[str, Signal] | None
    stages: tuple[str, ...]
    groups: int
    group_size: int
    learner: Callable[[Team], Learner]
    incomplete: Any = "drop"
    env: EnvFactory | None = None

    def settings(self) -> list[Any]:
        """Settings that must not change on resume."""
        reward = str(dict(self.reward) if isinstance(self.reward, Mapping) else self.reward)
        return [self.name, self.groups, self.group_size, str(self.credit), reward, list(self.stages), self.incomplete]


@dataclass
class _Pool:
    """Stages of all phases, each made once: a stage that a phase leaves out is found again as it was."""

    seed: int
    made: dict[tuple[str, int], Stage] = field(default_factory=dict)

    def of(self, texts: Sequence[str]) -> Stages:
        """The stages of a phase; the n-th of one text is the n-th of that text in every phase."""
        stages = Stages(texts, seed=self.seed)
        for number, (key, made) in enumerate(zip(_numbered(texts), stages.made)):
            stages.made[number] = self.made.setdefault(key, made)
        return stages

    def state(self, without: Sequence[str]) -> dict[tuple[str, int], Any]:
        """States of the stages that a phase with these does not have."""
        others = self.made.keys() - set(_numbered(without))
        return {key: each.state_dict() for key in sorted(others) if isinstance(each := self.made[key], Remembering)}


class PhasedTrainer(Trainer):
    """Trainer that goes through phases, each with its own credit, reward, stages, learner or env.

    Args:
        env, team, learner: as of `Trainer`; the learner is that of the first phase.
        phases: what changes. steps: in which order they come, each with its round: (number of the phase, round).
        endless: the steps go on as long as the run. Otherwise the run is over when the last phase is.
        should_stop, further: as of `Trainer`.

    A condition sees the metrics of the iterations of its phase up to the last one; a look at held-out tasks counts from
    the iteration after it on. A phase with other fields of `learn` gets a new learner, which takes over what it has in
    common with the one before, see `carry_over`.
    """

    def __init__(
        self,
        env: EnvFactory,
        team: Team,
        *,
        learner: Learner,
        phases: Sequence[TrainingPhase],
        steps: Sequence[tuple[int, int]],
        endless: bool = False,
        should_stop: Callable[[Sequence[Line]], bool] | None = None,
        **further: Any,
    ) -> None:
        self.phases, self.steps, self.endless = tuple(phases), tuple(steps), endless
        self.at, self.since, self.own_env = 0, 1, env
        self.learned: dict[str, LearnedPolicy] = {}
        """Every policy that has had a learner so far."""
        first = self.phases[self.steps[0][0]]
        super().__init__(
            env, team, learner=learner, credit=first.credit, groups=first.groups, group_size=first.group_size,
            should_stop=lambda lines: (should_stop is not None and should_stop(lines)) or self._over(lines), **further
        )  # fmt: skip
        self.makes, self.pool = first.learner, _Pool(self.seed)
        self._take(0, 1)

    @property
    def phase(self) -> TrainingPhase:
        """The current phase."""
        return self.phases[self.steps[self.at][0]]

    def _take(self, at: int, since: int) -> None:
        """Begin a phase."""
        before, self.at, self.since = self.reward, at, since
        phase = self.phase
        self.env = phase.env or self.own_env
        self.credit, self.reward, self.incomplete = phase.credit, phase.reward, phase.incomplete
        self.groups, self.group_size = phase.groups, phase.group_size
        self.stages = self.pool.of(phase.stages)
        if str(before) != str(self.reward):
            self.audited = since
        if phase.learner is not self.makes:
            old, self.makes = self.learner, phase.learner
            stream = np.random.SeedSequence(self.seed, spawn_key=(since, HEADS))
            with torch.random.fork_rng(devices=[]):  # parameters that a resumed run would draw otherwise
                torch.manual_seed(int(stream.generate_state(1)[0]))
                self.learner = phase.learner(self.team)
            carry_over(old, self.learner)
        self.learned.update(self.learner.policies)

    def _ended(self, lines: Sequence[Line]) -> bool:
        """Whether the phase is over after these iterations of the run."""
        own = _known([line for line in lines if line["iteration"] >= self.since])
        ends = self.phase.ends
        return bool(own) and ends is not None and ends(own, self.steps[self.at][1])

    def _over(self, lines: Sequence[Line]) -> bool:
        """Whether the run is."""
        return not self.endless and self.at == len(self.steps) - 1 and self._ended(lines)

    def _enter(self, iteration: int) -> None:
        if self.at + 1 < len(self.steps) and self._ended(self.journal.lines):
            self._take(self.at + 1, iteration)

    def _of_now(self) -> Line:
        return {"phase": self.phase.name}

    def _not_reached(self, line: Line) -> list[str]:
        """One line, at the end of the run, on a phase that did not end, and phases that did not begin."""
        lines = [*self.journal.lines, line]
        if line["iteration"] < self.iterations or self._over(lines) or (self.endless and self.steps[self.at][1] > 1):
            return []
        seen = {each["phase"] for each in lines}
        never = list(dict.fromkeys(self.phases[number].name for number, _ in self.steps))
        never = [name for name in never if name not in seen]
        ends, said = (
            self.phase.ends,
            f"phase {self.phase.name!r} did not end before iteration {self.iterations}, the last",
        )
        if ends is None and not never:
            return []
        if ends is not None and not self._ended(lines):
            said += f": {ends.found(_known([each for each in lines if each['iteration'] >= self.since]))}"
        elif not never:
            return []
        else:
            said = f"the run ended with phase {self.phase.name!r}, in iteration {self.iterations}"
        return [said + (f"; {', '.join(never)} never began: raise train.iterations" if never else "")]

    # -- what is kept -------------------------------------------------------------------------------------------------

    def _begin(self, resume: bool) -> int:
        if not resume and self.at:  # it has run before
            self._take(0, 1)
        return super()._begin(resume)

    def _state(self, iteration: int) -> dict[str, Any]:
        policies = {name: policy.state_dict() for name, policy in self.learned.items()}
        kept = {"at": self.at, "since": self.since, "stages": self.pool.state(self.phase.stages)}
        return super()._state(iteration) | {"policies": policies, "phase": kept}

    def _restore(self, state: dict[str, Any]) -> None:
        phase = state["phase"]
        for name in state["policies"].keys() - self.learned.keys():
            self.learned[name] = self.team.learnable[name]
        for name, policy in self.learned.items():
            policy.load_state_dict(state["policies"][name])
        for each in self.phases:
            self.pool.of(each.stages)
        for key, kept in phase["stages"].items():
            made = self.pool.made[key]
            assert isinstance(made, Remembering)
            made.load_state_dict(kept)
        self._take(phase["at"], phase["since"])
        super()._restore(state)

    def _settings(self) -> dict[str, Any]:
        common = {name: value for name, value in super()._settings().items() if name in ("seed", "lag")}
        return common | {"phases": [each.settings() for each in self.phases]}


def carry_over(before: Learner, now: Learner) -> None:
    """Copy optimiser state, counts and references from a learner to another one of the same team.

    Two learners by gradients, those of the other policies beside tables included, share the moments of each policy's
    optimiser, and for each term that both have (of one name, with a head of one shape) its memory and head. The
    reference of kl(), dpo() and the like is that of the learner before if it had one; otherwise it is the policy as it
    is now. A learner of the same kind takes what else it remembers by its `inherit(before)`, or its whole state if it
    has none and no gradients. All share the number of updates.
    """
    old, new = _by_gradients(before), _by_gradients(now)
    if old is not None and new is not None:
        _gradients(old, new)
    if type(before) is type(now):
        if hasattr(now, "inherit"):
            now.inherit(before)
        elif not isinstance(now, PolicyGradient | TableLearner):
            now.restore(before.state())
    with contextlib.suppress(AttributeError):  # of a learner that counts by itself
        now.updates = before.updates  # type: ignore[misc]


def _by_gradients(learner: Learner) -> PolicyGradient | None:
    if isinstance(learner, TableLearner):
        return learner.rest
    return learner if isinstance(learner, PolicyGradient) else None


def _gradients(before: PolicyGradient, now: PolicyGradient) -> None:
    common = [name for name in now.policies if name in before.policies]
    for name in common:
        for key in now.terms.keys() & before.terms.keys():
            old, new = (dict(each.modules[name].items()).get(key) for each in (before, now))
            if _shapes(old) != _shapes(new):
                continue
            now.memory[name][key] = before.memory[name][key]
            if old is not None:
                now.modules[name][key] = old
        if name in now.references and name in before.references:
            now.references[name] = before.references[name]
    for name in common if "optimisers" in before.__dict__ else ():  # made now, with the heads that are shared
        known = before.optimisers[name].state
        for parameter in now._parameters(name):
            if parameter in known:
                now.optimisers[name].state[parameter] = known[parameter]


def _shapes(module: torch.nn.Module | None) -> Any:
    return None if module is None else (type(module), {key: each.shape for key, each in module.state_dict().items()})


def _known(lines: Sequence[Line]) -> list[Line]:
    """Iterations as they were known when the last one was learned from: its look comes after that."""
    later = ("evaluation", "metrics")
    return [*lines[:-1], *({key: each for key, each in line.items() if key not in later} for line in lines[-1:])]


def _numbered(texts: Sequence[str]) -> list[tuple[str, int]]:
    return [(text, texts[:number].count(text)) for number, text in enumerate(texts)]
