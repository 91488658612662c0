"""The population of a league: past selves and scripts, who meets whom, and their matches.

A member is a policy for every seat with learning off: of a past self the parameters that the learned policies had after
an iteration, of a script the script. Left out: members that are trained beside the learner, and limits of their number.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from palaestra.agents import Team
from palaestra.agents.backends.borrowing import weightless, without_weights
from palaestra.agents.policy import Learnable, Policy
from palaestra.algebra.turns import Turns
from palaestra.envs.protocol import EnvFactory
from palaestra.errors import InputError
from palaestra.learning.league.payoffs import Payoffs, sides, tally
from palaestra.learning.league.rules import Rule, Standing
from palaestra.play.executors import Executor, Plan
from palaestra.play.streams import Streams

DRAWS = 3
"""Key of the random streams of a league, beside minibatches (0), stages (1) and heads (2)."""

LATEST = "latest"
"""Name of the learner's latest parameters as an opponent."""

Seats = tuple[str, ...]


@dataclass(frozen=True)
class LeagueSettings:
    """Data: settings of a league of opponents: matchmaking rule, snapshots, matches between members, seats.

    Attributes:
        rule: who is met. text: the rule in words, for settings that must not change.
        floor: share of groups that meet a member drawn uniformly, whatever the rule says.
        every: iterations between snapshots of the learner; None: none is taken.
        matches: episodes of each pair of members, played when a member comes in; 0: none.
        seats: seats of the opponents; of several lists each group takes the next.
        per_iteration: opponents drawn for an iteration, whom its groups meet in turn; None: each group draws its own.
    """

    rule: Rule
    text: str
    floor: float
    every: int | None
    matches: int
    seats: tuple[Seats, ...]
    per_iteration: int | None = None


class League:
    """League of a training's opponents: scripts and snapshots of the learner, with a matchmaking rule and pay-offs.

    Args:
        settings: see `LeagueSettings`.
        team: whose policies learn. learned: names of those that do.
        scripts: policies without a seat in the team that are members from the beginning, by name.
        make_scripts: makes the scripts elsewhere, for workers; None: they are not sent.
        seed: of the run.

    Raises:
        InputError: a name of a script is one of a snapshot.
    """

    def __init__(
        self,
        settings: LeagueSettings,
        team: Team,
        *,
        learned: Sequence[str],
        scripts: Mapping[str, Policy] | None = None,
        make_scripts: Callable[[], Mapping[str, Policy]] | None = None,
        seed: int = 0,
    ) -> None:
        self.settings, self.team, self.learned, self.seed = settings, team, tuple(learned), seed
        self.scripts, self.make_scripts = dict(scripts or {}), make_scripts
        for name in self.scripts:
            if name.isdigit() or name == LATEST:
                raise InputError(f"opponents.scripts: {name!r} is how a past self is called; give the script another")
        agents = frozenset(team)
        lists = {frozenset(seats) for seats in settings.seats}
        mirrored = all(agents - seats in lists for seats in lists)
        self.payoffs = Payoffs(mirrored=mirrored)
        self.past: dict[str, dict[str, Policy]] = {}
        """Frozen copies of the learned policies, by the iteration after which they were taken, by name."""
        for name in self.scripts:
            self.payoffs.grow(name)
        self.recent = np.zeros((2, len(self.scripts)))
        """Since the last snapshot: points and episodes of the learner against each member."""
        self.met: dict[str, int] = {}
        """Groups of the last iteration by opponent."""
        self.turns = 0
        """Turns of matches so far."""
        self._weights: np.ndarray | None = None  # of a rule that reads pay-offs alone: they change with a snapshot

    # -- who there is -------------------------------------------------------------------------------------------------

    @property
    def members(self) -> list[str]:
        """Names of scripts, then of past selves, oldest first: "0" is the start, "40" was taken after iteration 40."""
        return self.payoffs.names

    def snapshot(self, iteration: int, env: EnvFactory, executor: Executor) -> None:
        """Add a frozen copy of the learner to the members, and play its matches against every member."""
        name = str(iteration)
        self.past[name] = self._copies(name)
        self.payoffs.grow(name)
        self.recent = np.zeros((2, len(self.members)))
        new = len(self.members) - 1
        for other in range(len(self.members)) if self.settings.matches else ():
            self._match(new, other, iteration, env, executor)
            if not self.payoffs.mirrored and other < new and self.members[other] in self.past:
                self._match(other, new, iteration, env, executor)
        self._weights = None

    def due(self, iteration: int) -> bool:
        """Whether a snapshot is taken after this iteration."""
        return self.settings.every is not None and iteration % self.settings.every == 0

    def answer(self) -> dict[str, float]:
        """Meta-strategy of the league: probabilities of past selves, by name; those without any are left out."""
        if not self.past:
            return {}
        weights = self.settings.rule.answer(self._standing())
        return {name: float(x) for name, x in zip(self.members, weights, strict=True) if x > 0}

    def as_team(self, name: str) -> Team:
        """The team with the parameters of a past self."""
        policies = {policy: self.past[name].get(policy, each) for policy, each in self.team.policies.items()}
        return Team({agent: policies[policy.name] for agent, policy in self.team.items()})

    def _copies(self, name: str) -> dict[str, Policy]:
        found: dict[str, Policy] = {}
        for policy in self.learned:
            copied: Any = self.team.learnable[policy].frozen_copy()
            copied.name = f"{policy}@{name}"
            found[policy] = copied
        return found

    def _standing(self) -> Standing:
        past = np.array([name in self.past for name in self.members], bool)
        points, games = self.recent.copy()
        if past.any():
            last = int(np.flatnonzero(past)[-1])
            sums = self.payoffs.sums
            points += (sums["won"] + sums["drawn"] / 2)[last]
            games += sums["n"][last]
        return Standing(past, self.payoffs, (points + 1) / (games + 2))

    # -- who is met ---------------------------------------------------------------------------------------------------

    def probabilities(self) -> np.ndarray:
        """Chance of each member, and of the learner's latest parameters, float64[members + 1]."""
        rule, floor, size = self.settings.rule, self.settings.floor, len(self.members)
        found = np.zeros(size + 1)
        if rule.LATEST:
            found[-1] = 1.0
        else:
            weights = self._weights if self._weights is not None else rule.draw(self._standing())
            self._weights = weights if rule.PAYOFFS else None
            found[:-1] = weights / weights.sum()
        if size:
            found *= 1 - floor
            found[:-1] += floor / size
        return found

    def play(self, env: EnvFactory, plan: Plan, executor: Executor) -> Turns:
        """Play a plan of training, each group against an opponent of its own; `opponent` is a column of the turns.

        Groups with the same opponent are played at once. Each keeps its number, size and reset seed.
        """
        lineups = self._draw(plan)
        numbers, streams = plan.numbers, Streams(plan.seed, plan.iteration, plan.stream)
        order = sorted(range(len(numbers)), key=lambda at: lineups[at])
        seeds = [plan.seed_of(group) for group in numbers]
        sorted_plan = dataclasses.replace(
            plan,
            group_size=[plan.size_of(numbers[at]) for at in order],
            env_seeds=[streams.env_seed(numbers[at]) if seeds[at] is None else seeds[at] for at in order],
        )
        latest = self._copies(LATEST) if any(member == len(self.members) for _, member in lineups) else {}
        names = [*self.members, LATEST]
        self.met, parts, start = {}, [], 0
        while start < len(order):
            lineup = lineups[order[start]]
            stop = next((at for at in range(start, len(order)) if lineups[order[at]] != lineup), len(order))
            seats, member = self.settings.seats[lineup[0]], lineup[1]
            part = sorted_plan.part(range(numbers[start], numbers[0] + stop))
            played = executor.play(env, self._seated(None, names[member], seats, latest), part).frame
            self._note(member, played, seats)
            self.met[names[member]] = self.met.get(names[member], 0) + stop - start
            parts.append(Turns(played.with_columns(opponent=pl.lit(names[member]))))
            start = stop
        own = pl.DataFrame({"group": numbers, "_own": [numbers[at] for at in order]})
        frame = Turns.concat(parts).frame
        own = own.with_columns(pl.all().cast(frame["group"].dtype))
        frame = frame.join(own, on="group", how="left", maintain_order="left").with_columns(group=pl.col("_own"))
        return Turns(frame.drop("_own").sort("group", maintain_order=True).rechunk())

    def _draw(self, plan: Plan) -> list[tuple[int, int]]:
        """Number of the list of seats and of the opponent, of each group."""
        stream = np.random.SeedSequence(self.seed, spawn_key=(plan.iteration, DRAWS))
        p = self.probabilities()
        lists, groups = len(self.settings.seats), len(plan.numbers)
        members = np.random.default_rng(stream).choice(len(p), size=self.settings.per_iteration or groups, p=p)
        if self.settings.per_iteration is not None:
            members = members[np.arange(groups) // lists % self.settings.per_iteration]
        return [((plan.iteration + at) % lists, int(member)) for at, member in enumerate(members)]

    def _note(self, member: int, played: pl.DataFrame, seats: Seats) -> None:
        if member < len(self.members):
            sums = tally(*sides(played, seats))
            self.recent[:, member] += sums["won"] + sums["drawn"] / 2, sums["n"]

    # -- teams and matches --------------------------------------------------------------------------------------------

    def _match(self, row: int, column: int, iteration: int, env: EnvFactory, executor: Executor) -> None:
        """Play the matches of a pair, the lists of seats in turn."""
        lists = self.settings.seats
        for number, seats in enumerate(lists):
            episodes = len(range(number, self.settings.matches, len(lists)))
            if not episodes:
                continue
            stream = np.random.SeedSequence(self.seed, spawn_key=(iteration, DRAWS, row, column, number))
            plan = Plan(groups=episodes, seed=int(stream.generate_state(1)[0]), iteration=iteration)
            team = self._seated(self.members[row], self.members[column], seats, {})
            played = executor.play(env, team, plan).frame
            self.turns += len(played)
            self.payoffs.add(row, column, *sides(played, seats))

    def _seated(self, row: str | None, member: str, seats: Seats, latest: Mapping[str, Policy]) -> Team:
        """A member in `seats`; in the others a past self, or the learner (None).

        Seats of fixed policies, the opponents of the proof, are filled by past selves of the one policy that learns.
        """
        fixed = all(self.team[agent].name not in self.learned for agent in seats)
        guest = self.learned[0] if fixed and len(self.learned) == 1 else ""
        sources: dict[str, tuple[str, str]] = {}
        policies: dict[str, Policy] = {}
        for agent, policy in self.team.items():
            name = member if agent in seats else row
            sources[agent] = (policy.name, "")
            policies[agent] = policy
            if name in self.scripts:
                sources[agent], policies[agent] = (name, "script"), self.scripts[name]
                continue
            own = guest if guest and agent in seats else policy.name
            if name is not None and own in self.learned:
                copies = latest if name == LATEST else self.past[name]
                sources[agent], policies[agent] = (own, name), copies[own]
        team = Team(policies)
        if self.team.maker is not None and (self.make_scripts is not None or not self.scripts):
            team.maker = functools.partial(seated_team, self.team.maker, self.make_scripts, sources)
        return team

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Past selves, pay-offs and results since the last snapshot."""
        past = {
            name: {policy: _learnable(each).state_dict() for policy, each in copies.items()}
            for name, copies in self.past.items()
        }
        return {"past": past, "payoffs": self.payoffs.state_dict(), "recent": self.recent.copy(), "turns": self.turns}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.past = {}
        for name, states in state["past"].items():
            self.past[name] = self._copies(name)
            for policy, each in states.items():
                _learnable(self.past[name][policy]).load_state_dict(each)
        self.payoffs.load_state_dict(state["payoffs"])
        self.recent, self.turns = np.array(state["recent"], float), int(state["turns"])
        self._weights = None

    def settings_dict(self) -> dict[str, Any]:
        """Settings that must not change on resume."""
        told = self.settings
        seats = [list(each) for each in told.seats]
        found = {"method": told.text, "floor": told.floor, "every": told.every, "matches": told.matches, "seats": seats}
        return found if told.per_iteration is None else found | {"per_iteration": told.per_iteration}


def seated_team(
    make_team: Callable[[], Team],
    make_scripts: Callable[[], Mapping[str, Policy]] | None,
    sources: Mapping[str, tuple[str, str]],
) -> Team:
    """Makes a league's `Team` in a worker: who sits where by `sources`, {agent: (policy, "", "script" or member)}.

    "" is the policy of the team itself, a member's name a frozen copy of it; their parameters come later.
    """
    made = whole = make_team()
    if weightless() and any(source not in ("", "script") for _, source in sources.values()):
        with without_weights(()):  # past selves compute here
            whole = make_team()
    scripts = {} if make_scripts is None else make_scripts()
    copies: dict[tuple[str, str], Policy] = {}
    found: dict[str, Policy] = {}
    for agent, (policy, source) in sources.items():
        if source == "script":
            found[agent] = scripts[policy]
        elif source == "":
            found[agent] = made.policies[policy]
        else:
            if (policy, source) not in copies:
                copied: Any = whole.learnable[policy].frozen_copy()
                copied.name = f"{policy}@{source}"
                copies[policy, source] = copied
            found[agent] = copies[policy, source]
    return Team(found)


def _learnable(policy: Policy) -> Learnable:
    assert isinstance(policy, Learnable)
    return policy
