"""[180] ReSeek (arXiv 2510.00568): what judging a search result earns decides from which odds on it is accepted.

The world `verdict`: texts come with a cue; a cue's texts are useful with a known chance p. A table that learns from the
reward by the recipe `world` accepts from p = 0.6 on with the published penalties, from 0.5 on with equal ones. Left
out: rerankers, FictionalHot; the use searches made-up facts, where a rejected text leaves the context.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from palaestra.algebra.parse import parse
from palaestra.algebra.turns import Turns
from palaestra.envs.roles.search import SearchEnv
from palaestra_atlas.reproductions import Outcome, exact, reproduction, train_arms

if TYPE_CHECKING:
    from palaestra.runs.inline import TrainingResult

TEXT = {
    "published": 'reseek_reward("judge", "relevance")',
    "equal": 'reseek_reward("judge", "relevance", accepted=-0.3)',
}
CREDIT = 'centre(return_to_go(gamma=1.0), over=("group", "turn"))'
USED = 'reseek_reward("judge", "relevance", answer=col("reward"))'
WORLD: dict[str, Any] = {
    "env": {"make": "native/verdict"},
    "credit": 'centre("reward", over="state")',
    "train": {"iterations": 60, "groups": 224, "group_size": 1},
}


def expected(reward: str, useful: float) -> np.ndarray:
    """float64[2]: what no and yes earn in expectation, exactly, where a text is of use with this chance."""
    cases = {"judge": [0, 0, 1, 1], "relevance": [0.1, 0.9, 0.1, 0.9], "episode": range(4), "turn": [0] * 4}
    table = np.asarray(parse(reward).evaluate(Turns(cases))).reshape(2, 2)
    return np.asarray(table @ [1 - useful, useful])


@exact
def verdicts() -> None:
    """What a verdict earns; accepting pays from p = 0.6 on, and from 0.5 on with equal penalties."""
    judged = Turns({"judge": [1, 1, 0, 0, None], "relevance": [0.9, 0.7, 0.7, 0.9, 0.9], "episode": range(5)})
    np.testing.assert_allclose(np.asarray(parse(TEXT["published"]).evaluate(judged)), [0.3, -0.6, 0.3, -0.3, 0])
    for useful, reject, accept in ((0.5, 0, -0.15), (0.6, -0.06, -0.06), (0.7, -0.12, 0.03)):
        np.testing.assert_allclose(expected(TEXT["published"], useful), [reject, accept], atol=1e-12)
    assert np.diff(expected(TEXT["equal"], 0.5)) == 0


@exact
def relevance_is_of_the_answer() -> None:
    """A text's worth is the reranker's score of it with the right answer, not with the question."""
    asked: list[tuple[str, str]] = []

    def rerank(text: str, gold: str) -> float:
        asked.append((text, gold))
        return 0.8

    env = SearchEnv(2, noise=0.0, rerank=rerank)
    env.reset(0)
    env.step({"seeker": f"search {env.state.wanted}"})
    info = env.step({"seeker": "yes"}).info
    assert asked == [(env.state.found, env.state.facts[env.state.wanted])]
    assert (info["judge"], info["relevance"]) == (1, 0.8)
    judged = Turns({"judge": [1, 0], "relevance": [0.8, 0.8], "episode": [0, 1]})
    np.testing.assert_allclose(
        np.asarray(parse('reseek_reward("judge", "relevance", match=1.0, rejected=-2.0)').evaluate(judged)), [1, -2]
    )


@exact
def the_answer_is_paid() -> None:
    """On the last turn, beside the verdicts before it."""
    episode = {"episode": [0] * 3, "turn": range(3), "judge": [None, 1, None], "relevance": [None, 1.0, None]}
    turns = Turns(episode | {"agent": ["a"] * 3, "reward": [0.0, 0.0, 1.0]})
    np.testing.assert_allclose(np.asarray(parse(USED).evaluate(turns)), [0, 0.3, 1])
    two = {key: [*values, *values] for key, values in episode.items()} | {
        "episode": [0] * 3 + [1] * 3,
        "group": [0] * 6,
    }
    paid = Turns({**two, "turn": [0, 1, 2] * 2, "agent": ["a"] * 6, "reward": [0, 0.3, 1, 0, 0.3, 0]})
    np.testing.assert_allclose(np.asarray(parse(CREDIT).evaluate(paid)), [0.5] * 3 + [-0.5] * 3)


@exact
def no_means_another_search() -> None:
    """After a no nothing but a search is legal, until the searches are used up; after a yes both are."""
    env = SearchEnv(2, noise=0.0, searches=2, choices=True)
    wanted = env.reset(0) and env.state.wanted
    assert kinds(env) == {"search"}
    for words, next_ones in (("no", {"search"}), ("no", {"answer"})):
        env.step({"seeker": f"search {wanted}"})
        assert kinds(env) == {"yes", "no"}
        env.step({"seeker": words})
        assert kinds(env) == next_ones
    env.reset(0)
    env.step({"seeker": f"search {wanted}"})
    env.step({"seeker": "yes"})
    assert kinds(env) == {"search", "answer"}
    assert env.step({"seeker": f"answer {env.state.facts[wanted]}"}).rewards == {"seeker": 1.0}


@exact
def rejected_texts_leave() -> None:
    """A text that was judged useless is in no later prompt, one that was accepted is."""
    env = SearchEnv(2, noise=0.0, rejected="dropped")
    for verdict in ("no", "yes"):
        env.reset(0)
        env.step({"seeker": f"search {env.state.wanted}"})
        later = env.step({"seeker": verdict}).observations["seeker"].text
        assert (env.state.found in later) == (verdict == "yes")


@exact
def names_are_invented() -> None:
    """No fact of one episode is one of another, so that nothing is known before it is looked up."""
    env, seen = SearchEnv(2), set[tuple[str, str]]()
    for seed in range(20):
        env.reset(seed)
        assert not seen & set(env.state.facts.items())
        seen |= set(env.state.facts.items())


def kinds(env: SearchEnv) -> set[str]:
    """What kinds of moves are legal now."""
    return {move.split()[0] for move in env.look()["seeker"].legal or ()}


def accepted(learned: TrainingResult) -> dict[str, float]:
    """The smallest chance whose texts are accepted more often than not; 1 if none are."""
    turns = learned.play(groups=280).frame.group_by("chance").agg(pl.col("judge").mean())
    smallest = turns.filter(pl.col("judge") > 0.5)["chance"].min()
    return {"smallest": 1.0 if smallest is None else float(smallest)}  # type: ignore[arg-type]


@reproduction(
    180,
    claim="With penalties 0.6 for accepting what is useless and 0.3 for rejecting what is useful, the judge that is "
    "learned accepts from a chance of 0.6 on.",
    baseline="equal penalties of 0.3",
    criterion="the smallest accepted chance lies in (0.55, 0.65] in every seed, and "
    "at most at 0.55 with equal penalties (held on both fresh blocks of two seeds tried)",
    seeds=(0, 1, 2),
    slow=True,
)
def measure(seeds: Sequence[int]) -> Outcome:
    """What is learned."""
    measured: dict[str, float] = {}
    arms = train_arms("world", {name: {**WORLD, "reward": text} for name, text in TEXT.items()}, seeds, accepted)
    for name in TEXT:
        smallest = arms.values[name]["smallest"]
        measured |= {f"smallest_{name}_min": float(smallest.min()), f"smallest_{name}_max": float(smallest.max())}
    learned = measured["smallest_published_min"] > 0.55 and measured["smallest_published_max"] <= 0.65
    return Outcome(measured, learned and measured["smallest_equal_max"] <= 0.55)
