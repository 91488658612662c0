"""Search with a scorer: a beam of partial episodes, a tree, and ranking a long list by windows.

Envs that are searched can be gone back to (`snapshot`, `restore`; see `palaestra.play.monte_carlo`) and have one agent.
A scorer sees a row per candidate: `prompt`, what was shown, and `response`, what would be done. A policy that searches
when it acts is `palaestra.judges.planning`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
import polars as pl

from palaestra.agents.policy import Policy, Request
from palaestra.envs.protocol import EnvFactory, Observation
from palaestra.errors import EnvError, InputError
from palaestra.judges.protocol import Scorer
from palaestra.play.monte_carlo import Restartable


def scores(scorer: Scorer, shown: Sequence[str], done: Sequence[str]) -> np.ndarray:
    """Array of a `Scorer`'s scores of prompts `shown`, responses `done`, float64[candidates]; -inf if it gives none."""
    found = scorer.score(pl.DataFrame({"prompt": list(shown), "response": list(done)})).cast(pl.Float64)
    return np.array(found.fill_nan(None).fill_null(-np.inf).to_numpy(), float)


def text_of(action: Any, seen: Observation) -> str:
    """Text of an action for a scorer: the action, or the choice in `seen` (an `Observation`) whose number it is."""
    if isinstance(action, str) or seen.choices is None:
        return str(action)
    return seen.choices[int(action)]


# -- a beam ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FoundEpisode:
    """Data of an episode that a search found: actions, score, success, number of scored candidates, states.

    Its actions, their cumulative score, whether the env says that it succeeded, how many candidates were scored, and
    what was seen before each action (`Observation.key`).
    """

    actions: tuple[str, ...]
    score: float
    success: bool | None
    scored: int
    states: tuple[int, ...]


@dataclass
class _Partial:
    snapshot: Any
    seen: Observation | None
    agent: str
    actions: tuple[str, ...] = ()
    score: float = 0.0
    success: bool | None = None
    states: tuple[int, ...] = ()


def reward_beam(
    env: EnvFactory,
    policy: Policy,
    scorer: Scorer,
    *,
    width: int = 5,
    candidates: int = 10,
    seed: int = 0,
    rng: np.random.Generator | None = None,
    limit: int = 100,
) -> FoundEpisode:
    """Beam search by `policy` over partial episodes of an env factory's env, by `scorer` sums: a `FoundEpisode`; [43].

    UI-Genie, arXiv 2505.21496.

    Of `candidates` actions of each, the `width` of the largest cumulative score go on; at the end the one of the
    largest. width=1 is greedy.

    Equal candidates of one partial episode are one. An episode that ended keeps its place and its score.

    Raises:
        InputError: width, candidates or limit is below 1.
        EnvError: the env cannot be gone back to, or has several agents.
    """
    rng = np.random.default_rng(seed) if rng is None else rng
    made, agent, seen = _begin(env, seed, "reward_beam")
    return beam_from(made, agent, seen, policy, scorer, width=width, candidates=candidates, rng=rng, limit=limit)


def beam_from(
    made: Any,
    agent: str,
    seen: Observation,
    policy: Policy,
    scorer: Scorer,
    *,
    width: int,
    candidates: int,
    rng: np.random.Generator,
    limit: int,
    redraw: bool = False,
) -> FoundEpisode:
    """As `reward_beam`, a `FoundEpisode` of `width`, up to `limit` turns, of env object `made` at `Observation` `seen`.

    The env has moved on to there.

    redraw: chance that is to come is drawn anew, so that it is not foreseen.
    """
    if min(width, candidates, limit) < 1:
        raise InputError(f"reward_beam: {width=}, {candidates=} and {limit=} must be at least 1")
    beam, scored = [_Partial(made.snapshot(), seen, agent)], 0
    for _ in range(limit):
        live = [each for each in beam if each.seen is not None]
        if not live:
            break
        requests = [Request(each.seen, agent, rng) for each in live for _ in range(candidates)]  # type: ignore[arg-type]
        said = policy.act(requests)
        texts = [text_of(each.action, request.observation) for each, request in zip(said, requests, strict=True)]
        tried = list(dict.fromkeys((n // candidates, text) for n, text in enumerate(texts)))
        value = scores(scorer, [live[at].seen.text for at, _ in tried], [text for _, text in tried])  # type: ignore[union-attr]
        scored += len(tried)
        grown = [(live[at].score + float(each), at, text) for (at, text), each in zip(tried, value, strict=True)]
        kept = [(each.score, -1, each) for each in beam if each.seen is None]
        order = sorted([*kept, *grown], key=lambda entry: -entry[0])[:width]  # stable: of equal ones the first
        anew = rng if redraw else None
        beam = [last if at < 0 else _step(made, live[at], last, total, anew) for total, at, last in order]  # type: ignore[arg-type, misc]
    best = max(beam, key=lambda each: (each.seen is None, each.score))
    return FoundEpisode(best.actions, best.score, best.success, scored, best.states)


def _begin(env: EnvFactory, seed: int, who: str) -> tuple[Any, str, Observation]:
    made = env()
    if not isinstance(made, Restartable):
        raise EnvError(f"{who}: {type(made).__name__} cannot be gone back to: it has no snapshot() and restore()")
    seen = made.reset(seed)
    if len(seen) != 1:
        raise EnvError(f"{who}: {len(seen)} agents act at once; search needs an env with one")
    ((agent, first),) = seen.items()
    return made, agent, first


def _step(made: Any, at: _Partial, action: str, total: float, rng: np.random.Generator | None) -> _Partial:
    made.restore(at.snapshot, seed=None if rng is None else int(rng.integers(2**63)))
    result = made.step({at.agent: action})
    told = result.info.get("success")
    success = told.get(at.agent) if isinstance(told, Mapping) else told
    seen = result.observations.get(at.agent)
    states = (*at.states, at.seen.key()) if at.seen is not None else at.states
    return _Partial(made.snapshot(), seen, at.agent, (*at.actions, action), total, success, states)


# -- a tree ------------------------------------------------------------------------------------------------------------


Select = Literal["uct", "p_uct", "ucb"]


@dataclass
class _Edge:
    child: Hashable
    reward: float
    visits: int = 0
    q: float = 0.0


@dataclass
class _Node:
    snapshot: Any
    seen: Observation | None
    actions: tuple[str, ...] = ()
    edges: dict[str, _Edge] = field(default_factory=dict)
    over: bool = False


@dataclass(frozen=True)
class Tree:
    """Result data of a tree search: `table`, a row per (state, action), and the best path, its value, all rollouts.

    The columns of the table are `prompt`, `response`, `visits` and `q`.

    paths: the actions of each rollout, those in the tree and those that the policy played on.
    """

    table: pl.DataFrame
    actions: tuple[str, ...]
    value: float
    paths: tuple[tuple[str, ...], ...] = ()


class TreeSearch:
    """Callable Monte-Carlo tree search in an env with a policy: select, expand, evaluate, back up, `rollouts` times.

    Select by q + c·√(ln N)/(1 + n) ("uct"), or with the share of the policy's own samples that say an action as prior,
    q + c·p·√N/(1 + n) ("p_uct"), or by q + c·√(ln N / n) among the edges behind which something is untried ("ucb",
    Agent-R [165], arXiv 2501.11425, which skips children that ended).
    backup: the return of an edge is the largest that was met behind it ("max", right where nothing is left to chance;
    ARMAP [17], arXiv 2502.12130), or their mean ([68], arXiv 2409.09345). value: what a scorer says of the expanded
    action stands for the rest; without one the policy plays on to the end. merge: states that look the same are one,
    wherever they stand; only right where what is seen is all there is to know.

    Args:
        c: of the first rule; ARMAP has .9·√50. gamma: per step. expand: actions that are asked of the policy in a new
            state, where the env has no choices. hidden: rewards of the env are not looked at, as ARMAP plans by a
            learned score alone; of an action that ends the episode the scorer says what it is worth, too.

    Raises:
        InputError: an option is unknown or out of range, or nothing is left to search by.
    """

    def __init__(
        self,
        select: Select = "uct",
        backup: Literal["max", "mean"] = "max",
        value: Scorer | None = None,
        *,
        rollouts: int = 50,
        horizon: int = 10,
        c: float = 0.9 * 50**0.5,
        gamma: float = 0.9,
        expand: int = 5,
        merge: bool = False,
        hidden: bool = False,
    ) -> None:
        if hidden and value is None:
            raise InputError(
                "TreeSearch: hidden=True needs a scorer as value, for then no reward of the env is looked at"
            )
        if select not in get_args(Select) or backup not in ("max", "mean"):
            raise InputError(f"TreeSearch: select={select!r} is one of {get_args(Select)}, {backup=} 'max' or 'mean'")
        if min(rollouts, horizon, expand) < 1 or not (c >= 0 and 0 <= gamma <= 1):
            raise InputError(
                f"TreeSearch: {rollouts=}, {horizon=}, {expand=} must be at least 1, {c=} >= 0, {gamma=} in [0, 1]"
            )
        self.select, self.backup, self.value = select, backup, value
        self.rollouts, self.horizon, self.c, self.gamma, self.expand = rollouts, horizon, c, gamma, expand
        self.merge, self.hidden = merge, hidden

    def __call__(
        self, env: EnvFactory, policy: Policy, *, seed: int = 0, rng: np.random.Generator | None = None
    ) -> Tree:
        """Search from the start of the episode of `seed`; returns a `Tree`."""
        rng = np.random.default_rng(seed) if rng is None else rng
        return self.grow(*_begin(env, seed, "TreeSearch"), policy, rng)

    def grow(self, made: Any, agent: str, seen: Observation, policy: Policy, rng: np.random.Generator) -> Tree:
        """Search from the current state of an env, which is moved; returns a `Tree`."""
        nodes: dict[Hashable, _Node] = {}
        prior: dict[Hashable, dict[str, float]] = {}
        root = self._node(nodes, prior, made, seen, (), policy, agent, rng)
        paths: list[tuple[str, ...]] = []
        for _ in range(self.rollouts):
            path, at, rest = [], root, 0.0
            way, done = [root], []
            for depth in range(self.horizon):
                node = nodes[at]
                if node.seen is None:
                    break
                untried = [action for action in node.actions if action not in node.edges]
                if untried:
                    action = untried[int(rng.integers(len(untried)))]
                    done.append(action)
                    at, rest = self._expand(
                        nodes, prior, made, at, action, policy, agent, rng, self.horizon - depth - 1, done
                    )
                    path.append(node.edges[action])
                    way.append(at)
                    break
                done.append(self._choose(node, prior[at], nodes))
                edge = node.edges[done[-1]]
                path.append(edge)
                at = edge.child
                way.append(at)
            for each in map(nodes.__getitem__, reversed(way)):
                each.over = each.seen is None or (
                    len(each.edges) == len(each.actions) and all(nodes[edge.child].over for edge in each.edges.values())
                )
            paths.append(tuple(done))
            for edge in reversed(path):
                rest = edge.reward + self.gamma * rest
                edge.visits += 1
                mean = edge.q + (rest - edge.q) / edge.visits
                edge.q = mean if self.backup == "mean" or edge.visits == 1 else max(edge.q, rest)
        return replace(self._told(nodes, root), paths=tuple(paths))

    def _node(self, nodes: Any, prior: Any, made: Any, seen: Observation | None, way: Hashable, policy: Policy,
              agent: str, rng: np.random.Generator) -> Hashable:  # fmt: skip
        key: Hashable = seen.key() if self.merge and seen is not None else way
        if key not in nodes:
            actions: tuple[str, ...] = ()
            prior[key] = {}
            if seen is not None:
                legal = None if seen.choices is None else tuple(seen.legal)
                said = []
                if legal is None or self.select == "p_uct":
                    said = [
                        text_of(each.action, seen) for each in policy.act([Request(seen, agent, rng)] * self.expand)
                    ]
                actions = legal or tuple(dict.fromkeys(said))
                prior[key] = {action: (said.count(action) + 1) / (len(said) + len(actions)) for action in actions}
            nodes[key] = _Node(made.snapshot(), seen, actions)
        return key

    def _expand(self, nodes: Any, prior: Any, made: Any, at: Hashable, action: str, policy: Policy, agent: str,
                rng: np.random.Generator, left: int, done: list[str]) -> tuple[Hashable, float]:  # fmt: skip
        node = nodes[at]
        made.restore(node.snapshot, seed=int(rng.integers(2**63)))
        result = made.step({agent: action})
        seen = result.observations.get(agent)
        child = self._node(nodes, prior, made, seen, (at, action), policy, agent, rng)
        paid = float(result.rewards.get(agent) or 0.0)
        if self.hidden and self.value is not None:  # nothing follows the end, so its score is what the action pays
            paid = 0.0 if seen is not None else float(scores(self.value, [node.seen.text], [action])[0])
        node.edges[action] = _Edge(child, paid)
        if self.value is not None:
            return child, float(scores(self.value, [node.seen.text], [action])[0]) if seen is not None else 0.0
        rest, factor = 0.0, 1.0
        for _ in range(left):
            if seen is None:
                break
            said = policy.act([Request(seen, agent, rng)])[0].action
            done.append(text_of(said, seen))
            result = made.step({agent: said})
            rest += factor * float(result.rewards.get(agent) or 0.0)
            seen, factor = result.observations.get(agent), factor * self.gamma
        return child, rest

    def _choose(self, node: _Node, prior: Mapping[str, float], nodes: Mapping[Hashable, _Node]) -> str:
        visits = sum(edge.visits for edge in node.edges.values())
        among = list(node.edges)
        if self.select == "ucb":
            among = [action for action in among if not nodes[node.edges[action].child].over] or among

        def worth(action: str) -> float:
            edge = node.edges[action]
            if self.select == "ucb":
                return edge.q + self.c * float(np.sqrt(np.log(max(visits, 1)) / max(edge.visits, 1)))
            if self.select == "uct":
                return edge.q + self.c * float(np.sqrt(np.log(max(visits, 1)))) / (1 + edge.visits)
            return edge.q + self.c * prior[action] * float(np.sqrt(visits)) / (1 + edge.visits)

        return max(among, key=worth)

    def _told(self, nodes: Mapping[Hashable, _Node], root: Hashable) -> Tree:
        rows = [
            (node.seen.text, action, edge.visits, edge.q)
            for node in nodes.values()
            if node.seen is not None
            for action, edge in node.edges.items()
        ]
        actions: list[str] = []
        at = root
        while nodes[at].edges and len(actions) < self.horizon:
            action, edge = max(nodes[at].edges.items(), key=lambda entry: entry[1].q)
            actions.append(action)
            at = edge.child
        schema = {"prompt": pl.String, "response": pl.String, "visits": pl.Int64, "q": pl.Float64}
        table = pl.DataFrame(rows, schema=schema, orient="row")
        best = max((edge.q for edge in nodes[root].edges.values()), default=0.0)
        return Tree(table, tuple(actions), best)


# -- a list ------------------------------------------------------------------------------------------------------------


def listwise(
    order: Sequence[int],
    judge: Callable[[list[int]], Sequence[int]],
    window: int = 20,
    step: int = 10,
    *,
    cover_head: bool = True,
) -> list[int]:
    """List: `order` reranked by function `judge` of `window` items at a time, from the end to the front by `step`.

    judge: from some items to the same items, the best first; an answer that is no permutation leaves the window as it
    is. What is best travels to the front by at most `window - step` places a call. cover_head: a last window begins at
    the front, where the steps would leave a rest.

    Raises:
        InputError: not 1 <= step <= window.

    >>> listwise([3, 1, 4, 0, 2], sorted, window=3, step=2)
    [0, 1, 3, 2, 4]
    """
    if not 1 <= step <= window:
        raise InputError(f"listwise: 1 <= step={step} <= window={window} is needed")
    ranked = list(order)
    starts = list(range(max(len(ranked) - window, 0), -1, -step))
    if cover_head and starts[-1] != 0:
        starts.append(0)
    for start in starts:
        part = ranked[start : start + window]
        found = list(judge(list(part)))
        if sorted(found) == sorted(part):
            ranked[start : start + window] = found
    return ranked
