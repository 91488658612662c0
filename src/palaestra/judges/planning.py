"""Policies that search when they act: what a recipe's `evaluation.controls.NAME.search` names, around a trained policy.

A search does not learn and tells no log-probabilities; its turn has the tokens and the cost of all that was asked for
it, the judge's too. `best_of` only asks again. `beam` and `tree` try actions in the env itself, so they need one that
can be gone back to and has one agent; chance that is to come is drawn anew whenever they try, so nobody sees ahead.
Left out: windows over a list (`search.listwise`), which choose nothing in an env.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Protocol

import numpy as np

from palaestra.agents import Team
from palaestra.agents.policy import Decision, Learnable, Policy, Request
from palaestra.envs.protocol import Action, Env, EnvFactory, Observation, StepResult
from palaestra.errors import EnvError, InputError, PolicyError
from palaestra.foundation.registry import Registry, load_object
from palaestra.judges.critics import PolicyCritic, with_thinking
from palaestra.judges.judged import Asker
from palaestra.judges.metering import Meter
from palaestra.judges.protocol import Scorer
from palaestra.judges.refine import refine
from palaestra.judges.scorers import build
from palaestra.judges.search import Select, TreeSearch, beam_from, scores, text_of
from palaestra.play.monte_carlo import Restartable

Critic = Callable[[str, str, str], str]
"""(question, thinking, answer) to a new thinking."""


class Around(Protocol):
    """Protocol of a function (policy, meter) -> policy that searches before it acts; the meter counts scorer calls."""

    def __call__(self, policy: Policy, meter: Meter) -> Policy:
        """The policy that searches."""


@dataclass(frozen=True)
class Search:
    """Data of a way to choose actions by search with a policy: its wrapper, scorer and critic, for use in a recipe.

    scorer: what chooses, None where the env's reward does. tries: it tries actions in the
    env, which must be `foresight`'s. critic: what rewrites thinking, if anything does.
    """

    around: Around
    scorer: Scorer | None = None
    tries: bool = False
    critic: Critic | None = None

    @property
    def asks(self) -> tuple[str, ...]:
        """Policies of a recipe that its scorer and its critic need."""
        return tuple(name for each in (self.scorer, self.critic) for name in getattr(each, "asks", ()))

    def bind(self, find: Callable[[str], Asker]) -> None:
        """Find the recipe's policies that scorer and critic name with `find`, and ask those from now on."""
        for each in (self.scorer, self.critic):
            if getattr(each, "asks", ()):
                each.bind(find)  # type: ignore[union-attr]


SEARCHES: Registry[Search] = Registry(
    "search", home=("palaestra.judges.planning",), example="best_of('reward_model(\"rm\")', n=4)"
)
"""What `evaluation.controls.NAME.search` may name."""


@SEARCHES.register()
def best_of(scorer: str | Scorer, n: int = 4) -> Search:
    """Makes a `Search`: of n answers of the policy it takes the one best by `scorer`; the first of equal ones."""
    made = build(scorer)
    if n < 2:
        raise InputError(f"best_of: n={n} must be at least 2")
    return Search(lambda policy, meter: BestOf(policy, made, n, name=f"{policy.name} best of {n}", meter=meter), made)


@SEARCHES.register()
def beam(scorer: str | Scorer, *, width: int = 5, candidates: int = 10, limit: int = 100) -> Search:
    """Makes a `Search`: plans by beam search in the env, `width` partial episodes best by cumulative `scorer` score."""
    made = build(scorer)
    if min(width, candidates, limit) < 1:
        raise InputError(f"beam: {width=}, {candidates=} and {limit=} must be at least 1")

    def search(env: Any, request: Request, policy: Policy) -> list[tuple[int, str]]:
        found = beam_from(
            env, request.agent, request.observation, policy, made,
            width=width, candidates=candidates, rng=request.rng, limit=limit, redraw=True,
        )  # fmt: skip
        return list(zip(found.states, found.actions, strict=True))

    return Search(functools.partial(_Planner, search, f"beam of {width}"), made, tries=True)


@SEARCHES.register()
def tree(
    scorer: str | Scorer | None = None,
    *,
    select: Select = "uct",
    backup: Literal["max", "mean"] = "mean",
    rollouts: int = 50,
    horizon: int = 10,
    c: float = 1.4,
    gamma: float = 1.0,
    expand: int = 5,
    hidden: bool = False,
) -> Search:
    """Makes a `Search`: Monte-Carlo tree search before every action, by the env's reward in rollouts, or a scorer.

    Options as in `search.TreeSearch`. Without a scorer the search sees rewards of the env, which the policy does not:
    it says what planning in a perfect model would add. With one it still adds them up; hidden=True goes by the scorer
    alone.
    """
    made = None if scorer is None else build(scorer)
    grown = TreeSearch(
        select, backup, made, rollouts=rollouts, horizon=horizon, c=c, gamma=gamma, expand=expand, hidden=hidden
    )

    def search(env: Any, request: Request, policy: Policy) -> list[tuple[int, str]]:
        found = grown.grow(env, request.agent, request.observation, policy, request.rng)
        return [(request.observation.key(), found.actions[0])]

    return Search(functools.partial(_Planner, search, f"tree of {rollouts}"), made, tries=True)


@SEARCHES.register()
def refined(critic: str | Critic, scorer: str | Scorer | None = None, rounds: int = 3) -> Search:
    """Makes a `Search`: a critic rewrites an answer's thinking `rounds` times; the best by a scorer, or last ([105]).

    critic: the name of a policy of the recipe, which is asked for a better thinking; or (question, thinking, answer) to
    a new thinking, or `module:function` of that. The policy that answers reads it below the question. Thinking is what
    stands before the last `</think>`, else the whole answer.
    """
    if rounds < 1:
        raise InputError(f"refined: rounds={rounds} must be at least 1")
    made = None if scorer is None else build(scorer)
    rewrite: Critic = critic  # type: ignore[assignment]
    if isinstance(critic, str):
        rewrite = load_object(critic, "critic") if ":" in critic else PolicyCritic(critic)
    return Search(lambda policy, meter: Refining(policy, rewrite, made, rounds, meter), made, critic=rewrite)


# -- policies ----------------------------------------------------------------------------------------------------------


class BestOf:
    """Policy wrapper that asks a policy `n` times and takes the answer that `scorer` scores highest; ties: the first.

    Step-level Q [68], planning by a learned reward [17] [183]. meter: counts what the scorer asks.

    Raises:
        InputError: n is below 1.
    """

    def __init__(
        self, policy: Policy, scorer: Scorer, n: int = 3, *, name: str | None = None, meter: Meter | None = None
    ) -> None:
        if n < 1:
            raise InputError(f"BestOf: n={n} must be at least 1")
        self.policy, self.scorer, self.n = policy, scorer, n
        self.name, self.meter = name or f"best_of_{n}", Meter() if meter is None else meter
        self.waits = waits(policy)

    def act(self, requests: Sequence[Request]) -> list[Decision]:
        """The best of n answers to each request, by the scorer."""
        asked = [request for request in requests for _ in range(self.n)]
        said, before = self.policy.act(asked), self.meter.totals()
        texts = [text_of(each.action, request.observation) for each, request in zip(said, asked, strict=True)]
        value = scores(self.scorer, [request.observation.text for request in asked], texts)
        value[[each.error is not None for each in said]] = -np.inf
        best = value.reshape(-1, self.n).argmax(axis=1)
        judged = _shared(before, self.meter.totals(), len(requests))
        return [
            _taking(said[row * self.n + at], said[row * self.n : (row + 1) * self.n], judged[row])
            for row, at in enumerate(best.tolist())
        ]


class Refining:
    """Policy wrapper that answers `rounds` times, a critic rewriting its thinking: last or best by `scorer` ([105]).

    As `judges.refine`.
    """

    def __init__(self, policy: Policy, critic: Critic, scorer: Scorer | None, rounds: int, meter: Meter) -> None:
        self.policy, self.critic, self.scorer, self.rounds, self.meter = policy, critic, scorer, rounds, meter
        self.name, self.waits = f"{policy.name} refined", waits(policy)

    def act(self, requests: Sequence[Request]) -> list[Decision]:
        """The answers to requests after all rounds of refinement."""
        return [self._one(request) for request in requests]

    def _one(self, request: Request) -> Decision:
        said: list[Decision] = []
        before = self.meter.totals()

        def answer(question: str, thinking: str | None) -> tuple[str, str]:
            seen = request.observation if thinking is None else with_thinking(request.observation, thinking)
            said.append(self.policy.act([Request(seen, request.agent, request.rng)])[0])
            found = text_of(said[-1].action, seen)
            return found.rpartition("</think>")[0] or found, found

        def best_by(question: str, found: str) -> float:
            return float(scores(self.scorer, [question], [found])[0])  # type: ignore[arg-type]

        judged = None if self.scorer is None else best_by
        found = refine(answer, self.critic, request.observation.text, rounds=self.rounds, best_by=judged)
        at = len(said) - 1 if judged is None else found.answers.index(found.answer)
        return _taking(said[at], said, _shared(before, self.meter.totals(), 1)[0])


class _Planner:
    """A policy that tries actions in the env before it acts, and goes back to where it was.

    It follows what it found as long as it sees what it saw when it tried; then it searches again.
    """

    def __init__(
        self, search: Callable[[Any, Request, Policy], list[tuple[int, str]]], what: str, policy: Policy, meter: Meter
    ) -> None:
        self.search, self.policy, self.meter = search, policy, meter
        self.name, self.waits = f"{policy.name} {what}", waits(policy)

    def act(self, requests: Sequence[Request]) -> list[Decision]:
        """One search, or none, per request."""
        return [self._one(request) for request in requests]

    def _one(self, request: Request) -> Decision:
        seen = request.observation
        if not isinstance(seen, Foreseen):
            raise EnvError(f"{self.name}: this env was not made by `foresight`, so nothing can be tried in it")
        world = seen.world
        if world.found and world.found[0][0] == seen.key():
            return _taking(Decision(world.found.pop(0)[1]), [], (0, 0.0))
        counter, before, stands = _Counter(self.policy), self.meter.totals(), world.env.snapshot()
        try:
            world.found = self.search(world.env, request, counter)
        except PolicyError as error:
            return Decision("", error=str(error))
        finally:
            world.env.restore(stands)
        return _taking(Decision(world.found.pop(0)[1]), counter.said, _shared(before, self.meter.totals(), 1)[0])


class _Counter:
    """A policy whose decisions are remembered for what they took."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.name = policy, policy.name
        self.said: list[Decision] = []

    def act(self, requests: Sequence[Request]) -> list[Decision]:
        """The policy's; one that failed among them stops the search."""
        found = self.policy.act(requests)
        self.said += [Decision(0, tokens_in=_read(each), tokens_out=_wrote(each), cost=each.cost) for each in found]
        for each in found:
            if each.error:
                raise PolicyError(f"{self.name} failed while it searched: {each.error}")
        return found


def waits(policy: Policy) -> bool:
    """Whether a `Policy` waits for something outside (endpoint, person): its `waits`, else whether it cannot learn."""
    return bool(getattr(policy, "waits", not isinstance(policy, Learnable)))


def _read(said: Decision) -> int | None:
    return said.tokens_in if said.tokens_in is not None or said.prompt_ids is None else len(said.prompt_ids)


def _wrote(said: Decision) -> int | None:
    return said.tokens_out if said.tokens_out is not None or said.action_ids is None else len(said.action_ids)


def _shared(before: Mapping[str, Any], after: Mapping[str, Any], parts: int) -> list[tuple[int, float]]:
    """Tokens and cost that a scorer's policies took in between, per request."""
    tokens, cost = after["tokens"] - before["tokens"], after["cost"] - before["cost"]
    return [(tokens // parts + (row < tokens % parts), cost / parts) for row in range(parts)]


def _taking(chosen: Decision, said: Sequence[Decision], judged: tuple[int, float]) -> Decision:
    """The chosen decision with the cost of all candidates. A judge's tokens count as read."""
    tokens, cost = judged
    read = [known for each in said if (known := _read(each)) is not None]
    wrote = [known for each in said if (known := _wrote(each)) is not None]
    paid = [each.cost for each in said if each.cost is not None]
    return Decision(
        chosen.action,
        error=chosen.error,
        tokens_in=sum(read) + tokens if read or tokens or not said else None,
        tokens_out=sum(wrote) if wrote or not said else None,
        cost=sum(paid) + cost if paid or cost else None,
    )


# -- env and team ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Foreseen(Observation):
    """Data: an observation that also carries a handle of its env, `world`, for a `Search` only."""

    world: Any = field(default=None, compare=False, repr=False)


class Foresight:
    """Env wrapper whose observations carry the env itself, so that a search can try actions from its current state."""

    def __init__(self, env: Env) -> None:
        self.env, self.agents, self.task = env, env.agents, env.task
        self.facts = getattr(env, "facts", {})
        self.found: list[tuple[int, str]] = []

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Begin the episode of `seed`."""
        seen, self.found, self.task = self.env.reset(seed), [], self.env.task
        return self._told(seen)

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Take the actions."""
        result = self.env.step(actions)
        return replace(result, observations=self._told(result.observations))

    def _told(self, seen: Mapping[str, Observation]) -> dict[str, Observation]:
        return {
            agent: Foreseen(**{each.name: getattr(one, each.name) for each in fields(Observation)}, world=self)
            for agent, one in seen.items()
        }


def foresight(env: EnvFactory) -> Env:
    """Makes an env, from a one-agent env factory, in which a search may try actions; EnvError without snapshot/restore.

    Raises:
        EnvError: it cannot be gone back to, or has several agents.
    """
    made = env()
    if not isinstance(made, Restartable):
        raise EnvError(f"{type(made).__name__} cannot be gone back to: it has no snapshot() and restore()")
    if len(made.agents) != 1:
        raise EnvError(f"{len(made.agents)} agents act in {type(made).__name__}; trying needs an env with one")
    return Foresight(made)


class Searching(Team):
    """`Team` some of whose policies search before they act; its weights are those of the original team.

    searches: by the name of a policy. meter: of what scorers ask.
    """

    def __init__(self, team: Team, searches: Mapping[str, Search], meter: Meter | None = None) -> None:
        meter = Meter() if meter is None else meter
        made = {
            name: searches[name].around(policy, meter) if name in searches else policy
            for name, policy in team.policies.items()
        }
        super().__init__({agent: made[policy.name] for agent, policy in team.items()})
        self.team = team

    @property
    def learnable(self) -> dict[str, Learnable]:
        """Learnable policies of the original team."""
        return self.team.learnable
