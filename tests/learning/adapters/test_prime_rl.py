"""Credit by turn on the nodes of traces; with traces that stand in. With verifiers' own: `test_verifiers_v1`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from palaestra.algebra.signals import centre, col, where
from palaestra.credit import dr_mas, gigpo
from palaestra.errors import ExpressionError, InputError, MissingColumnError
from palaestra.learning.adapters.prime_rl import assign, to_turns


def trace(agent: str, *turns: dict[str, Any], tokens: int = 2, trainable: bool = True, ok: bool = True) -> Any:
    """A conversation: of each turn a question, and an answer of `tokens` behind one that asks for it."""
    nodes: list[Any] = []
    for turn in turns:
        parent = len(nodes) - 1 if nodes else None
        for sampled, words in ((False, f"to {agent}, {turn['turn']}"), (True, turn.pop("said", "x"))):
            mask = [False, *([True] * tokens)] if sampled else [False] * 3
            message = SimpleNamespace(content=words)
            nodes.append(SimpleNamespace(message=message, parent=parent, sampled=sampled, mask=mask, advantages=None))
            parent = len(nodes) - 1
    told = [{"agent": agent, "seed": 5, "valid": True, "success": None, "truncated": False} | turn for turn in turns]
    name = SimpleNamespace(name=agent, trainable=trainable)
    return SimpleNamespace(id=f"of {agent}", agent=name, ok=ok, errors=[], nodes=nodes, info={"palaestra": told})


def episode(*traces: Any, seed: int = 5, errors: tuple[Any, ...] = ()) -> Any:
    task = SimpleNamespace(data=SimpleNamespace(seed=seed, name=f"task {seed}"))
    env = SimpleNamespace(id="my_game")
    ok = not errors and all(each.ok for each in traces)
    return SimpleNamespace(id="e", env=env, task=task, ok=ok, errors=list(errors), traces=list(traces))


def turn(number: int, reward: float | None, state: int = 1, **more: Any) -> dict[str, Any]:
    return {"turn": number, "reward": reward, "state": str(state), **more}


def advantages(episode: Any) -> list[list[list[float] | None]]:
    return [[node.advantages for node in each.nodes if node.sampled] for each in episode.traces]


def test_the_table_has_a_row_for_each_turn_in_the_order_of_play() -> None:
    large = 2**64 - 1
    first = episode(trace("b", turn(1, 2.0, said="two"), tokens=3), trace("a", turn(0, None, large, valid=False)))
    turns = to_turns([first, episode(trace("a", turn(0, 4.0)), seed=6), episode(trace("a", turn(0, 8.0)))])
    assert turns.frame.select("group", "episode", "turn", "agent", "reward", "state", "valid").rows() == [
        (0, 0, 0, "a", None, large, False), (0, 0, 1, "b", 2.0, 1, True),
        (1, 0, 0, "a", 4.0, 1, True), (0, 1, 0, "a", 8.0, 1, True),
    ]  # fmt: skip
    assert turns.frame.select("task", "seed", "observation", "action", "tokens_out", "error").row(1) == (
        "task 5", 5, "to b, 1", "two", 3, None,
    )  # fmt: skip
    assert to_turns([]).frame.height == 0


def test_credit_of_a_turn_is_on_the_tokens_that_were_sampled_in_it() -> None:
    one = episode(trace("a", turn(0, 1.0), turn(1, 0.0, 2)), trace("b", turn(0, 5.0), tokens=1))
    two = episode(trace("a", turn(0, 3.0), turn(1, 8.0, 2), tokens=1), trace("b", turn(0, 7.0), tokens=3))
    assign([one, two], "centre('reward', over=('group', 'agent', 'turn'))")
    assert advantages(one) == [[[-1.0, -1.0], [-4.0, -4.0]], [[-1.0]]]
    assert advantages(two) == [[[1.0], [4.0]], [[1.0, 1.0, 1.0]]]
    asked = [node.advantages for each in one.traces for node in each.nodes if not node.sampled]
    assert asked == [None] * 3, "what was not sampled is not credited"
    for node in (node for each in one.traces for node in each.nodes if node.sampled):
        assert all(type(value) is float for value in node.advantages)


def test_credit_is_text_or_a_signal_and_is_what_it_is_on_the_table() -> None:
    rng = np.random.default_rng(0)

    def group() -> list[Any]:
        rewards = rng.normal(size=(4, 2, 3)).tolist()
        return [
            episode(*(trace(a, *(turn(n, r, n % 2) for n, r in enumerate(own))) for a, own in zip("ab", each)))
            for each in rewards
        ]

    for credit in ("gigpo('reward')", gigpo("reward"), dr_mas() + centre("reward", over=("group", "state"))):
        played = group()
        signal = gigpo("reward") if isinstance(credit, str) else credit
        expected = signal.evaluate(to_turns(played))
        assign(played, credit)
        rows = to_turns(played).frame.with_columns(value=np.asarray(expected))
        for number, each in enumerate(played):
            for which, agent in enumerate("ab"):
                own = rows.filter(episode=number, agent=agent).sort("turn")["value"].to_list()
                assert advantages(each)[which] == [[value] * 2 for value in own]
        assert np.ptp(expected) > 0.1


def test_a_turn_of_several_messages_is_one_row_and_has_one_credit() -> None:
    """A harness with tools asks its model more than once for a turn."""
    busy = trace("a", turn(0, 3.0, said="look"), turn(0, 3.0, said="go"))
    both = [episode(busy), episode(trace("a", turn(0, 1.0)))]
    turns = to_turns(both)
    assert turns.frame.select("episode", "reward", "action", "tokens_out").rows() == [
        (0, 3.0, "go", 4),
        (1, 1.0, "x", 2),
    ]
    assign(both, centre("reward", over="group"))
    assert advantages(both[0]) == [[[1.0, 1.0], [1.0, 1.0]]]


def test_who_is_not_trained_is_compared_with_and_not_credited() -> None:
    both = [episode(trace("a", turn(0, 1.0))), episode(trace("a", turn(0, 3.0), trainable=False))]
    assign(both, centre("reward", over="group"))
    assert [advantages(each) for each in both] == [[[[-1.0, -1.0]]], [[None]]]


def test_an_episode_that_failed_is_told_and_neither_credited_nor_compared_with() -> None:
    error = SimpleNamespace(type="ProviderError", message="upstream 500:\nout of order")
    broken = trace("b", ok=False)
    broken.errors = [error]
    failed = episode(trace("a", turn(0, None)), broken)
    nothing = episode(errors=(SimpleNamespace(type="EnvError", message="no"),))
    played = [episode(trace("a", turn(0, 1.0))), failed, nothing, episode(trace("a", turn(0, 3.0)))]
    assert to_turns(played).frame.select("episode", "agent", "reward", "error").rows() == [
        (0, "a", 1.0, None), (1, "a", None, "ProviderError: upstream 500: out of order"),
        (2, None, None, "EnvError: no"), (3, "a", 3.0, None),
    ]  # fmt: skip
    assign(played, centre("reward", over="group"))
    assert [advantages(each) for each in played] == [[[[-1.0, -1.0]]], [[None], []], [], [[[1.0, 1.0]]]]
    assign([failed], "reward")


def test_what_is_missing_is_not_trained() -> None:
    one = episode(trace("a", turn(0, 2.0), turn(1, None)))
    assign([one], "reward")
    assert advantages(one) == [[[2.0, 2.0], [0.0, 0.0]]]
    assign([one], where(col("turn") > 5, 1.0))
    assert advantages(one) == [[[0.0, 0.0], [0.0, 0.0]]]


def test_what_cannot_be_is_named() -> None:
    with pytest.raises(MissingColumnError, match=r"assign: col\('cost'\) .*: no column 'cost'; known: action, agent"):
        assign([episode(trace("a", turn(0, 1.0)))], col("cost") + 1)
    with pytest.raises(ExpressionError, match=r"unknown function 'gipgo'; did you mean 'gigpo'"):
        assign([], "gipgo()")
    foreign = trace("a", turn(0, 1.0))
    foreign.info = {}
    with pytest.raises(InputError, match=r"trace of a of 'a': info\['palaestra'\] tells 0 turns of 1 sampled messages"):
        assign([episode(foreign)], "reward")
    without = episode(trace("a", turn(0, 1.0)))
    del without.task.data.seed
    with pytest.raises(InputError, match="episode e was not played by `plugin`: its task has no seed"):
        to_turns([without])
    with pytest.raises(InputError, match="no trace has tokens; let the client be of type 'train'"):
        assign([episode(trace("a", turn(0, 1.0), tokens=0))], "reward")
