"""`Plan`: which episodes are to be played, and under what numbers. Everything that is drawn follows from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from palaestra.errors import InputError
from palaestra.play.streams import Stream


@dataclass(frozen=True)
class Plan:
    """Data of a rollout to play: `group_size` episodes of each of `groups`, with all seeds and labels.

    groups: how many; or which of them, as a range: they are played as they are inside the whole, with the same draws.
    group_size: episodes per group; or a number for each group that is played.
    seed, iteration, stream: determine everything that is drawn; "eval" takes reset seeds that "train" never takes.
    run: name of the training run. version: updates that the learner had made; fills the column `policy_version`.
    env_seeds: the reset seed of each group that is played, from whoever chose the tasks; None, for all or for one:
    drawn from its own stream. retries: of a failed episode; None: as many as the executor is set to.

    Raises:
        InputError: a number is out of range, or there are not as many as groups.

    >>> whole = Plan(groups=4, group_size=[2, 1, 1, 3])
    >>> part = whole.part(range(2, 4))
    >>> part.size_of(2), part.size_of(3), part.episodes
    (1, 3, 4)
    """

    groups: int | range
    group_size: int | Sequence[int] = 1
    seed: int = 0
    iteration: int = 0
    stream: Stream = "train"
    run: str | None = None
    env_seeds: Sequence[int | None] | None = None
    version: int = 0
    retries: int | None = None

    def __post_init__(self) -> None:
        numbers = self.numbers
        if not len(numbers):
            raise InputError(f"rollout: groups={self.groups}, expected at least 1")
        if numbers.step != 1 or numbers.start < 0:
            raise InputError(
                f"rollout: groups={self.groups}, expected a range of numbers from 0 on, such as range(4, 8)"
            )
        for name, given in (("group_size", self.group_size), ("env_seeds", self.env_seeds)):
            if given is not None and not isinstance(given, int) and len(given) != len(numbers):
                raise InputError(
                    f"rollout: {name} has {len(given)} numbers for groups={self.groups}; give one for each group"
                )
        sizes = [self.group_size] if isinstance(self.group_size, int) else self.group_size
        if min(sizes) < 1:
            raise InputError(f"rollout: group_size={min(sizes)}, expected at least 1")
        if self.retries is not None and self.retries < 0:
            raise InputError(f"rollout: retries={self.retries}, expected 0 or more")
        for group, seed in zip(numbers, self.env_seeds or ()):
            if seed is not None and not 0 <= seed < 2**64:
                raise InputError(f"rollout: env_seeds has {seed} for group {group}, expected 0 to 2**64 - 1")

    @property
    def numbers(self) -> range:
        """Numbers of the groups that are played."""
        return range(self.groups) if isinstance(self.groups, int) else self.groups

    @property
    def episodes(self) -> int:
        """Total number of episodes, without repetitions of failed ones."""
        return len(self.numbers) * self.group_size if isinstance(self.group_size, int) else sum(self.group_size)

    def size_of(self, group: int) -> int:
        """Number of episodes of a group."""
        return int(self.group_size if isinstance(self.group_size, int) else self.group_size[group - self.numbers.start])

    def seed_of(self, group: int) -> int | None:
        """The reset seed of a group, if one was given."""
        return None if self.env_seeds is None else self.env_seeds[group - self.numbers.start]

    def part(self, groups: range) -> Plan:
        """The plan of some of its groups; parts played anywhere and concatenated give the whole.

        Raises:
            InputError: they are not all among its groups.
        """
        first, last = self.numbers[0], self.numbers[-1]
        if not len(groups) or not (first <= groups[0] and groups[-1] <= last):
            raise InputError(f"rollout: {groups} is not a part of the groups {first} to {last}")
        cut = slice(groups[0] - first, groups[-1] - first + 1)
        return dataclasses.replace(
            self,
            groups=groups,
            group_size=self.group_size if isinstance(self.group_size, int) else self.group_size[cut],
            env_seeds=None if self.env_seeds is None else self.env_seeds[cut],
        )


def cut(plan: Plan, shards: int) -> list[Plan]:
    """List of at most `shards` plans that split a plan's groups into nearly equal parts, in order.

    >>> [part.numbers for part in cut(Plan(7), 3)]
    [range(0, 2), range(2, 4), range(4, 7)]
    """
    first, count = plan.numbers.start, len(plan.numbers)
    shards = min(shards, count)
    edges = [first + count * number // shards for number in range(shards + 1)]
    return [plan.part(range(low, high)) for low, high in pairwise(edges)]


def joined(parts: Sequence[Plan]) -> list[Plan]:
    """List of plans in which parts of one plan whose groups follow each other are one; inverse of `cut`.

    >>> first, second, _, last = cut(Plan(7, group_size=[1, 2, 3, 4, 5, 6, 7]), 4)
    >>> [(each.numbers, each.group_size) for each in joined([first, second, last])]
    [(range(0, 3), [1, 2, 3]), (range(5, 7), [6, 7])]
    """
    found: list[Plan] = []
    for part in parts:
        if not found or found[-1].numbers.stop != part.numbers.start:
            found.append(part)
            continue
        last = found.pop()
        listed: dict[str, Any] = {
            name: [*one, *other]
            for name in ("group_size", "env_seeds")
            if isinstance(one := getattr(last, name), Sequence) and isinstance(other := getattr(part, name), Sequence)
        }
        found.append(dataclasses.replace(last, groups=range(last.numbers.start, part.numbers.stop), **listed))
    return found
