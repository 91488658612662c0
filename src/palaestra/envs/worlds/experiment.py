"""`Experiment`: a scientist chooses experiments, then predicts (BoxingGym).

The models and the oracle of what an experiment teaches are in `worlds.exact.design`. Scripted play: `greedy`, `fitted`
and `reader`. Left out: designs outside the grid.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from palaestra.envs.protocol import Observation
from palaestra.envs.registry import ENVS
from palaestra.envs.worlds.exact.design import (
    MODELS,
    DesignModel,
    ParticleBelief,
    gains,
    prior,
    standardise_error,
)
from palaestra.envs.worlds.native import Chosen, NativeEnv
from palaestra.errors import InputError, nearest


@dataclass
class _ExperimentState:
    truth: np.ndarray
    belief: ParticleBelief
    asked: list[int]  # designs that will be asked about
    done: list[tuple[int | None, float]] = field(default_factory=list)  # None: no experiment was named
    answers: list[float | None] = field(default_factory=list)
    regret: list[float] = field(default_factory=list)
    said: str | None = None  # the explanation, once it was given
    standardised: list[float] = field(default_factory=list)


@ENVS.register("native/experiment")
class Experiment(NativeEnv):
    """Experimental design env: `scientist`'s experiments pay nats gained on the truth, predictions minus their error.

    Each of `experiments` experiments pays the nats by which the truth became more probable.

    That reward, log p(y | θ*) - log p(y | data), has the expected information gain as its mean. Questions then ask for
    the mean outcome of designs, in free text; a prediction pays minus its error in standard deviations of the prior's
    predictions. In the end info has `posterior_sd`, `regret` (per experiment: best gain minus the chosen one's, if
    `regret`), `errors` (of predictions, in the same unit) and `standardised`: the same errors in standard deviations of
    what the best constant predictor gets wrong, above its mean.

    With a `novice`, the scientist first explains what it found, in `words` words at most, and the novice answers the
    questions from that explanation alone; the scientist earns what the novice does.
    """

    agents: tuple[str, ...] = ("scientist",)
    facts = dict.fromkeys(("posterior_sd", "errors", "regret", "standardised"), list[float])

    def __init__(
        self,
        model: str = "death_process",
        *,
        experiments: int = 5,
        questions: int = 0,
        particles: int = 500,
        regret: bool = False,
        novice: bool = False,
        words: int = 300,
    ) -> None:
        """Set up the laboratory.

        Args:
            model: a name in `worlds.exact.design.MODELS`.
            experiments: how many are run.
            questions: how many are asked afterwards.
            particles: of the belief that rewards and regret are computed from.
            regret: also compute what the best design would have taught (exact or 300 x 200 draws per design).
            novice: whether another agent answers the questions.
            words: of an explanation.
        """
        if model not in MODELS:
            raise InputError(f"Experiment: no model {model!r}{nearest(model, MODELS)}")
        if min(experiments, questions) < 0 or experiments + questions < 1 or particles < 1:
            raise InputError(
                f"Experiment: experiments={experiments} and questions={questions} must be at least 0, one of them 1, "
                f"and particles={particles} at least 1"
            )
        self.name, self.model = model, MODELS[model]()
        self.experiments, self.questions, self.regret = experiments, questions, regret
        self.prior = prior(self.model, particles)
        self.moves = tuple("try " + " ".join(f"{x:g}" for x in design) for design in self.model.designs)
        means = np.array([self.model.mean(self.prior.theta, design) for design in self.model.designs])
        self.unit = float(max(means.std(axis=1).mean(), 1e-9))
        self.null = np.abs(means - means.mean())
        self.agents = ("scientist", "novice") if novice else ("scientist",)
        self.words = words

    def begin(self) -> tuple[str, _ExperimentState]:
        """Draw the truth (one of the particles) and the questions."""
        truth = int(self.rng.integers(len(self.prior.theta)))
        asked = [int(number) for number in self.rng.integers(len(self.moves), size=self.questions)]
        return f"experiment:{self.name}:{truth}", _ExperimentState(self.prior.theta[truth], self.prior, asked)

    def look(self) -> dict[str, Observation]:
        """All experiments so far with their outcomes; as numbers, posterior means and SDs, and how many are left."""
        state = self.state
        past = "".join(" | nothing" if n is None else f" | {self.moves[n]}: {y:.3g}" for n, y in state.done)
        if len(state.done) < self.experiments:
            left = self.experiments - len(state.done)
            mean = state.belief.weights @ state.belief.theta
            array = np.concatenate([[left], mean, state.belief.sd]).astype(np.float32)
            return {"scientist": Observation(f"{self.name} {left} left{past}", self.moves, array=array)}
        answers = self.agents[-1]
        if answers == "novice" and state.said is None:
            return {"scientist": Observation(f"{self.name}{past}\nExplain it to a novice in {self.words} words.")}
        past = past if answers == "scientist" else f" | {state.said}"
        if len(state.answers) < self.questions:
            move = self.moves[state.asked[len(state.answers)]]
            text = f"{self.name}{past}\nWhat is the mean outcome of `{move}`? Answer with a number."
            return {answers: Observation(text)}
        return {}

    def play(self, chosen: Chosen) -> tuple[dict[str, float], dict[str, Any]]:
        """Run an experiment (an invalid one gives no data), or score a prediction."""
        state = self.state
        ((agent, action),) = chosen.items()
        info: dict[str, Any] = {}
        if len(state.done) < self.experiments:
            reward = self._experiment(action)
        elif agent == "scientist" and len(self.agents) > 1:
            state.said, reward = " ".join(str(action).split()[: self.words]), 0.0
        else:
            answer = _number(action)
            info["valid"] = {agent: answer is not None}
            design = self.model.designs[state.asked[len(state.answers)]]
            truth = float(self.model.mean(state.truth, design))
            guess = self.prior.predict(self.model, design) if answer is None else answer
            error = min(abs(guess - truth) / self.unit, 10.0)
            state.answers.append(error)
            state.standardised.append(float(standardise_error(np.array(abs(guess - truth)), self.null)))
            reward = -error
        if not self.look():
            info |= {"posterior_sd": state.belief.sd.tolist(), "errors": list(state.answers)}
            info["standardised"] = list(state.standardised)
            info |= {"regret": list(state.regret)} if self.regret else {}
        return dict.fromkeys(self.agents, reward), info

    def _experiment(self, action: int | None) -> float:
        state = self.state
        if self.regret:
            every = gains(self.model, state.belief)
            state.regret.append(float(every.max() - (0.0 if action is None else every[action])))
        if action is None:
            state.done.append((None, float("nan")))
            return 0.0
        design = self.model.designs[action]
        y = float(self.model.simulate(state.truth[None], design, self.rng)[0])
        given = float(self.model.loglik(np.array(y), state.truth, design))
        likelihood = np.exp(self.model.loglik(np.array(y), state.belief.theta, design))
        expected = float(state.belief.weights @ likelihood)
        state.belief = state.belief.update(self.model, design, y)
        state.done.append((action, y))
        return given - float(np.log(max(expected, 1e-300)))


def _number(action: str | None) -> float | None:
    try:
        value = float(str(action))
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def believed(model: DesignModel, name: str, text: str, particles: int) -> ParticleBelief:
    """Posterior `ParticleBelief` of a `DesignModel`, `particles` draws, after experiments that an env text lists."""
    belief = prior(model, particles)
    for design, y in re.findall(r"\| try ([-\d. e]+): ([-\d.e+]+)", text.removeprefix(name)):
        belief = belief.update(model, np.array(design.split(), float), float(y))
    return belief


def greedy(model: str = "death_process", particles: int = 100) -> Callable[[Any], Any]:
    """Makes a policy function (request -> action): experiments of most information gain, predicts posterior means.

    For the scientist.
    """
    world = MODELS[model]()

    @functools.lru_cache(4096)
    def best(text: str) -> int:
        return int(gains(world, believed(world, model, text, particles)).argmax())

    def play(request: Any) -> Any:
        seen = request.observation
        if seen.choices is not None:
            return best(seen.text.partition(" left")[2])
        return _answer(world, believed(world, model, seen.text, particles), seen.text)

    return play


def fitted(model: str = "death_process", particles: int = 100) -> Callable[[Any], Any]:
    """Makes a policy function (request -> action): experiments as `greedy`, explains to a novice by posterior means.

    For the scientist.
    """
    world, plain = MODELS[model](), greedy(model, particles)

    def play(request: Any) -> Any:
        seen = request.observation
        if "Explain it" not in seen.text:
            return plain(request)
        belief = believed(world, model, seen.text, particles)
        return " ".join(f"{x:.4g}" for x in belief.weights @ belief.theta)

    return play


def reader(model: str = "death_process", particles: int = 100) -> Callable[[Any], Any]:
    """Makes a policy function (request -> text): predicts from the parameters in the explanation, else from the prior.

    For the novice.
    """
    world = MODELS[model]()

    def play(request: Any) -> Any:
        text = request.observation.text
        told = re.findall(r"-?\d[\d.e+-]*", text.partition("\n")[0].partition(" | ")[2])
        theta = np.array([told], float) if told else prior(world, particles).theta
        return _answer(world, ParticleBelief(theta, np.full(len(theta), 1 / len(theta))), text)

    return play


def _answer(model: DesignModel, belief: ParticleBelief, text: str) -> str:
    design = np.array(text.rpartition("`try ")[2].partition("`")[0].split(), float)
    return f"{belief.predict(model, design):.6g}"
