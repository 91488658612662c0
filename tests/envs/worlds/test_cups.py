"""The cups: pages of swaps make a permutation, and a chain of readers of one page each follows it."""

from __future__ import annotations

import numpy as np
import pytest

from palaestra.agents import ScriptedPolicy, Team
from palaestra.envs import make
from palaestra.envs.worlds.cups import FILLER, Cups, follow
from palaestra.errors import InputError
from palaestra.play.rollout import rollout
from palaestra.runs.scripts import make as make_script
from palaestra.teams import WORKFLOWS


def solved(workflow: str, pages: int = 4, **options: object) -> list[bool]:
    name, _, rest = workflow.partition(" ")
    tasks = make("native/cups", pages=pages, swaps=2)
    env = WORKFLOWS.find(name)(tasks, pages, reads="part") if rest else WORKFLOWS.find(name)(tasks)
    script = ScriptedPolicy(make_script("cups", {**options}))
    turns = rollout(env, Team(dict.fromkeys(env().agents, script)), groups=60, seed=3)
    return turns.frame.unique(["group", "episode"])["success"].to_list()


def test_the_answer_is_where_the_product_of_the_swaps_takes_the_ball() -> None:
    env = Cups(cups=6, pages=5, swaps=3)
    for seed in range(20):
        task = env.draw(seed)
        words = task.question.replace("/", " ").split()
        places = np.arange(6)  # which cup's content stands where
        for swap in (word for word in words[1:] if word not in FILLER):
            one, other = (env.cups.index(cup) for cup in swap)
            places[[one, other]] = places[[other, one]]
        assert task.answer == env.cups[list(places).index(env.cups.index(words[0]))]
        assert len(task.parts) == 5
        assert " / ".join(task.parts) == task.question
        assert task.score(f"a b {task.answer}") == 1
        assert task.score(f"{task.answer} z") == 0
    assert follow("a", []) == "a"


def test_who_makes_no_mistake_is_right_as_a_chain_alone_and_with_notes() -> None:
    assert all(solved("chain parts"))
    assert all(solved("single"))
    assert all(solved("single", notes=True))


def test_six_links_are_right_as_often_as_all_of_their_mistakes_allow() -> None:
    """A link errs into each cup alike: right with (1 + 4 · (.8)^n) / 5 after n of them."""
    share = np.mean(solved("chain parts", accuracy=0.8))
    assert abs(share - (1 + 4 * 0.8**4) / 5) < 0.19  # three standard errors of 60
    assert np.mean(solved("single", accuracy=0.8)) > share


def test_readers_of_parts_need_a_part_each() -> None:
    env = WORKFLOWS.find("chain")(make("native/cups", pages=3), 4, reads="part")()
    with pytest.raises(InputError, match="the question has 3 parts for 4 roles"):
        env.reset(0)
    with pytest.raises(InputError, match="reads='parts'; did you mean 'part'"):
        WORKFLOWS.find("single")(make("native/cups"), reads="parts")


def test_a_reader_sees_its_own_page_and_what_it_heard() -> None:
    env = WORKFLOWS.find("chain")(make("native/cups", pages=3), 3, reads="part")()
    first = env.reset(5)["link-1"].text
    second = env.step({"link-1": "b"}).observations["link-2"].text
    assert first == env.inner.current.parts[0]
    assert second == f"{env.inner.current.parts[1]} | b"


@pytest.mark.parametrize("options", [{"cups": 2}, {"pages": 0}, {"swaps": 0}, {"filler": -1}])
def test_what_cannot_be_played_is_refused(options: dict[str, int]) -> None:
    with pytest.raises(InputError, match="Cups: "):
        Cups(**options)
