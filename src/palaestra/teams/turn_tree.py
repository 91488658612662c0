"""`turn_tree`: a tree of conversations that grows from partial conversations that went well.

    turn_tree(8, 3)      eight expansions, each of which plays three conversations to their end

Optima's tree over turns ([81], arXiv 2410.08115). The first expansion begins at the start of the episode, each later
one at a partial conversation that is drawn by its value. The env is one of single turns that can be restored.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from palaestra.envs.facts import facts_of
from palaestra.envs.protocol import Action, Env, EnvFactory, Observation, StepResult
from palaestra.errors import EnvError, InputError
from palaestra.evaluation.consistency import sequence_similarity
from palaestra.play.monte_carlo import Restartable

DRAWS = 22
"""Number of the stream from which expansions and later chance are drawn."""


@dataclass
class TurnNode:
    """Data of a node of a tree of conversations: utterances so far, who acts next, its children, its mean return.

    Attributes:
        name: "0" for the empty one, "0.2.1" for the first child of the second child of it.
        agent, seen, snapshot: who acts next, what it sees, and the env at that moment; None at a leaf.
        said: the last utterance. talk: all utterances, one per line.
        value, rollouts: mean return of the rollouts through this node, and their number.
        expanded: whether an expansion began here.
    """

    name: str
    agent: str | None = None
    seen: Observation | None = None
    snapshot: Any = None
    said: str = ""
    talk: str = ""
    value: float = 0.0
    rollouts: int = 0
    expanded: bool = False
    children: list[TurnNode] = field(default_factory=list)

    def add(self, value: float) -> None:
        """Update the running mean with the return of a rollout."""
        self.rollouts += 1
        self.value += (value - self.value) / self.rollouts


@functools.lru_cache(maxsize=2**14)
def edit_distance(a: str, b: str) -> float:
    """Edit distance of two texts from 0 to 1, as a share of the longer one's length; recent results are cached."""
    return 1 - sequence_similarity(a, b)


def softmax_chances(values: Sequence[float], *, most: int = 10) -> np.ndarray:
    """Probability of each node to be expanded: softmax over the `most` largest values, else 0; float64[nodes].

    >>> softmax_chances([0.9, 0.5, 0.1]).round(4)
    array([0.4718, 0.3162, 0.212 ])
    """
    value = np.asarray(values, float)
    best = np.argsort(-value, kind="stable")[:most]
    chance = np.zeros(len(value))
    chance[best] = np.exp(value[best] - value[best].max())
    return chance / chance.sum()  # type: ignore[no-any-return]


def expandable(root: TurnNode, *, apart: float = 0.25) -> list[TurnNode]:
    """List of nodes from which to expand a conversation tree: inner ones, unlike those that were expanded.

    Left out: leaves, parents of leaves, and conversations whose edit distance to one that was expanded, as a share of
    the longer one's length, is below `apart`.
    """
    nodes, at = [root], 0
    while at < len(nodes):
        nodes += nodes[at].children
        at += 1
    before = [node.talk for node in nodes if node.expanded]
    inner = [node for node in nodes[1:] if node.children and all(child.children for child in node.children)]
    return [node for node in inner if all(edit_distance(node.talk, each) >= apart for each in before)]


class TurnTree:
    """Env wrapper (of an env factory): a tree of conversations, `expansions` times `rollouts` of them from one node.

    The node is chosen anew for every expansion.

    Each is played to its end.

    The seats of `ann` are `ann-1`, …, one for each conversation of an expansion. An answer that nearly equals that of a
    sibling (edit distance below `same`) is merged with it: the row has that sibling's node, and the conversation goes
    on from there. Later chance is drawn anew after every answer. Where no node may be expanded, the start is, again. An
    env whose `split` is "test" is played once from beginning to end, by the first seats.

    The values by which nodes are drawn are mean returns of the env, of all its agents. A reward that a recipe computes
    from the table has its node values by `backup(..., method="rollouts")`.

    Success: more than half of the conversations succeed.

    facts: those of the env; node; parent; leaf, whether the conversation ended there.

    Args:
        env: makes the env. expansions, rollouts: see above.
        seats: copies of each agent, at least `rollouts` (default), for phases that share a team.
        same, apart: normalised edit distances, see `expandable`.
        most: so many nodes with the highest values are drawn from.

    Raises:
        InputError: an option is out of range, or the env cannot be restored.
        EnvError: when it is played, several agents act at once.
    """

    def __init__(
        self,
        env: EnvFactory,
        expansions: int = 8,
        rollouts: int = 3,
        *,
        seats: int | None = None,
        same: float = 0.1,
        apart: float = 0.25,
        most: int = 10,
    ) -> None:
        self.env: Env = env()
        seats = rollouts if seats is None else seats
        if min(expansions, rollouts, most) < 1 or seats < rollouts or not 0 <= same <= 1 or not 0 <= apart <= 1:
            raise InputError(
                f"turn_tree: {expansions=}, {rollouts=}, {most=} must be at least 1, {seats=} at least the rollouts, "
                f"{same=} and {apart=} from 0 to 1"
            )
        if not isinstance(self.env, Restartable):
            raise InputError(f"turn_tree: {type(self.env).__name__} cannot be restored: no snapshot() and restore()")
        held_out = getattr(self.env, "split", "") == "test"
        self.expansions, self.rollouts = (1, 1) if held_out else (expansions, rollouts)
        self.same, self.apart, self.most = same, apart, most
        self.agents: tuple[str, ...] = tuple(f"{name}-{k}" for name in self.env.agents for k in range(1, seats + 1))
        self.facts: dict[str, Any] = {**facts_of(self.env), "node": str, "parent": str, "leaf": bool}
        self.task = ""
        self._at: dict[str, TurnNode] = {}

    def reset(self, seed: int) -> Mapping[str, Observation]:
        """Begin the first expansion, from the start."""
        seen = self.env.reset(seed)
        self.task, self._rng = self.env.task, np.random.default_rng([seed, DRAWS])
        self._root, self._left = self._node("0", seen), self.expansions
        self._truncated, self._won = False, list[bool]()
        return self._expand(self._root)

    def step(self, actions: Mapping[str, Action]) -> StepResult:
        """Take a turn in every conversation; when all are over, begin the next expansion."""
        if actions.keys() != self._at.keys():
            due = sorted(self._at)
            raise EnvError(f"actions of {sorted(actions)} were given, but the agents to act are {due}")
        rewards: dict[str, float | None] = {}
        info: dict[str, Any] = {}
        onward: dict[str, TurnNode] = {}
        for seat, node in self._at.items():
            number = seat.rpartition("-")[2]
            assert node.agent is not None
            self.env.restore(node.snapshot, seed=int(self._rng.integers(2**63)))  # type: ignore[attr-defined]
            result = self.env.step({node.agent: actions[seat]})
            child = self._child(node, actions[seat], result.observations)
            told = {key: _own(value, node.agent) for key, value in result.info.items()}
            won = told.pop("success", None)
            self._won += [] if won is None else [bool(won)]
            told |= {"node": child.name, "parent": node.name, "leaf": child.agent is None}
            for key, value in told.items():
                info.setdefault(key, {})[seat] = value
            rewards[seat] = result.rewards.get(node.agent, 0.0)
            path = self._paths[number]
            path.append(child)
            self._returns[number] += sum(each or 0.0 for each in result.rewards.values()) / len(self.env.agents)
            self._truncated |= result.truncated
            if child.agent is None:
                for each in path:
                    each.add(self._returns[number])
            else:
                onward[f"{child.agent}-{number}"] = child
        self._at = onward
        seen = {seat: node.seen for seat, node in onward.items() if node.seen is not None} or self._next()
        over, cut = not seen, self._truncated
        if over and self._won:
            info["success"] = 2 * sum(self._won) > len(self._won)
        return StepResult(seen, rewards, terminated=over and not cut, truncated=over and cut, info=info)

    def _next(self) -> dict[str, Observation]:
        """The next expansion; nothing if there was the last."""
        if not self._left:
            return {}
        found = expandable(self._root, apart=self.apart)
        if not found:
            return self._expand(self._root)
        chances = softmax_chances([node.value for node in found], most=self.most)
        return self._expand(found[int(self._rng.choice(len(found), p=chances))])

    def _expand(self, node: TurnNode) -> dict[str, Observation]:
        self._left -= 1
        node.expanded = True
        self._paths = {str(k): self._way(node) for k in range(1, self.rollouts + 1)}
        self._returns = dict.fromkeys(self._paths, 0.0)
        self._at = {f"{node.agent}-{k}": node for k in self._paths}
        assert node.seen is not None
        return dict.fromkeys(self._at, node.seen)

    def _way(self, node: TurnNode) -> list[TurnNode]:
        """The nodes from the root to this one."""
        way = [self._root]
        for number in node.name.split(".")[1:]:
            way.append(way[-1].children[int(number) - 1])
        return way

    def _child(self, node: TurnNode, action: Action, seen: Mapping[str, Observation]) -> TurnNode:
        """The node that an answer leads to: a sibling that says nearly the same, or a new one."""
        said = _text(node, action)
        for child in node.children:
            if (child.agent is None) == (not seen) and edit_distance(child.said, said) < self.same:
                return child
        made = self._node(f"{node.name}.{len(node.children) + 1}", seen)
        made.said, made.talk = said, f"{node.talk}\n{said}" if node.talk else said
        node.children.append(made)
        return made

    def _node(self, name: str, seen: Mapping[str, Observation]) -> TurnNode:
        if len(seen) > 1:
            raise EnvError(f"turn_tree: {sorted(seen)} act at once; a tree needs an env of single turns")
        for agent, each in seen.items():
            return TurnNode(name, agent, each, self.env.snapshot())  # type: ignore[attr-defined]
        return TurnNode(name)


def _own(value: Any, agent: str) -> Any:
    """What the env told of one agent's turn."""
    return value.get(agent) if isinstance(value, Mapping) else value


def _text(node: TurnNode, action: Action) -> str:
    """What was said, in words where it was chosen by its number."""
    number = node.seen.index(action) if node.seen is not None and node.seen.choices is not None else None
    return str(action) if number is None else str(node.seen.choices[number])  # type: ignore[index, union-attr]


def turn_tree(env: EnvFactory, expansions: int = 8, rollouts: int = 3, **options: Any) -> EnvFactory:
    """Env factory from another, `env`: an episode is a tree of its conversations; options of `TurnTree`, checked."""
    factory = functools.partial(TurnTree, env, expansions, rollouts, **options)
    factory()
    return factory
