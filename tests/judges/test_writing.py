"""Programs written by an endpoint, over real HTTP: what is refused and why, and what the endpoint is told."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import numpy as np
import pytest
from tests.chat_endpoint import ChatEndpoint, completion, reply

from palaestra.agents import ChatPolicy
from palaestra.algebra.turns import Turns
from palaestra.errors import PolicyError
from palaestra.judges.programs import RewardProgram
from palaestra.judges.prompts import Brief, NameMap, describe
from palaestra.judges.writer import asking
from palaestra.judges.writing import check, design, read_code, write, write_factors

SAMPLE = Turns(
    {
        "episode": [0, 0, 0, 1, 1],
        "turn": [0, 1, 2, 0, 1],
        "agent": ["a"] * 5,
        "distance": [5.0, 4.0, 4.0, 3.0, 2.0],
        "lava": [False, False, True, False, False],
    }
)
TEMPLATE = RewardProgram("", "reward", ("distance", "lava"))
RIGHT = """def reward(turn, memory):
    before = memory.get("distance", turn["distance"])
    memory["distance"] = turn["distance"]
    return -1.0 if turn["lava"] else before - turn["distance"]"""
ANSWERS = [
    "```python\ndef reward(turn:\n    return 1\n```",
    "```python\ndef reward(turn):\n    return turn['dist'] - 1\n```",
    "```python\ndef reward(turn):\n    return 1.0\n```",
    f"The distance should fall.\n```python\n{RIGHT}\n```",
]


COUNTING = {
    "a global": "seen = []\ndef reward(turn):\n    seen.append(1)\n    return len(seen)",
    "a global statement": "n = 0\ndef reward(turn):\n    global n\n    n += 1\n    return n + turn['distance']",
    "a default": "def reward(turn, seen=[]):\n    seen.append(1)\n    return len(seen)",
    "an attribute": "def reward(turn):\n    reward.n += 1\n    return reward.n\nreward.n = 0",
    "a closure": "def make():\n    n = [0]\n    def f():\n        n[0] += 1\n        return n[0]\n    return f\n"
    "tick = make()\ndef reward(turn): return tick()",
    "a generator": "import itertools\ntick = itertools.count()\ndef reward(turn): return next(tick)",
    "a class": "class Tally:\n    n = 0\ndef reward(turn):\n    Tally.n += 1\n    return Tally.n",
    "every other call": "n = [0]\ndef reward(turn):\n    n[0] += 1\n    return n[0] % 2",
    "what was seen before": "seen = set()\ndef reward(turn):\n    new = turn['distance'] not in seen\n"
    "    seen.add(turn['distance'])\n    return float(new)",
    "beside a memory": "seen = []\ndef reward(turn, memory):\n    seen.append(1)\n    return len(seen)",
    "a cache": "import functools\n@functools.cache\ndef first():\n    return [0]\n"
    "def reward(turn):\n    first()[0] += 1\n    return first()[0]",
}


@pytest.mark.parametrize("where", list(COUNTING))
def test_a_program_that_counts_its_calls_beside_its_memory_counts_nothing(where: str) -> None:
    """Else it would score the order of the table; what it wants to keep belongs into the memory."""
    program = RewardProgram(COUNTING[where], "reward", ("distance", "lava"))
    scores = program.score(SAMPLE)[0]
    other = Turns(SAMPLE.frame[[3, 4, 0, 1, 2]])
    np.testing.assert_array_equal(program.score(other)[0], scores[[3, 4, 0, 1, 2]])
    np.testing.assert_array_equal(program.score(Turns(SAMPLE.frame[[3, 4]]))[0], scores[[3, 4]])
    assert (scores[3] == scores[4]) == (where != "a global statement")  # this one pays the distance, too


def test_what_lasts_in_the_memory_is_fine() -> None:
    assert check(RewardProgram(RIGHT, "reward", ("distance", "lava")), SAMPLE) == []


class Scripted(ChatEndpoint):
    """An endpoint that gives its answers in order."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[str] = []

    def behave(self, handler: BaseHTTPRequestHandler, body: dict) -> None:
        with self.lock:
            text = self.answers.pop(0) if self.answers else None
        reply(handler, completion(text, usage=False))

    def ask(self):
        return asking(ChatPolicy("m", base_url=self.url, api_key_env=None, retries=0, wait=0.001))


@pytest.fixture
def endpoint() -> Iterator[Scripted]:
    scripted = Scripted()
    yield scripted
    scripted.close()


def test_three_refusals_with_their_reasons_and_an_acceptance(endpoint: Scripted) -> None:
    """The card of [34]: syntax error, unknown column, constant reward, right."""
    endpoint.answers = list(ANSWERS)
    brief = Brief("walk to the exit, around the lava", describe(SAMPLE, ["distance", "lava"]))
    program, attempts = write(endpoint.ask(), brief.text2reward(), TEMPLATE, SAMPLE)
    assert [[issue.kind for issue in attempt.issues] for attempt in attempts] == [
        ["syntax"], ["unknown column"], ["constant"], [],
    ]  # fmt: skip
    assert program is not None
    np.testing.assert_array_equal(program.score(SAMPLE)[0], [0, 1, -1, 0, 1])
    first, second, third, fourth = endpoint.prompts
    assert "    distance: float  # from 2.0 to 5.0" in first
    assert "- syntax: line 1: syntax error:" in second
    assert "- unknown column: line 2: the turn has no 'dist'; did you mean 'distance'?" in third
    assert "def reward(turn):\n    return 1.0" in fourth
    assert "every turn of the sample gets 1.0; nothing can be learned from it" in fourth


def test_an_endpoint_that_never_gets_it_right_ends_the_loop(endpoint: Scripted) -> None:
    endpoint.answers = ["no idea"] * 3
    program, attempts = write(endpoint.ask(), "?", TEMPLATE, SAMPLE, attempts=3)
    assert program is None
    assert len(attempts) == 3
    endpoint.answers = ["no idea"] * 2
    rounds = design(endpoint.ask(), "?", TEMPLATE, SAMPLE, lambda program: (0.0, ""), attempts=2)
    assert [each.program for each in rounds] == [None]


def test_an_endpoint_that_fails_says_so(endpoint: Scripted) -> None:
    with pytest.raises(PolicyError, match="m: UnusableAnswerError: the answer has no text"):
        write(endpoint.ask(), "?", TEMPLATE, SAMPLE)


def test_what_training_came_to_is_told_and_the_best_round_is_known(endpoint: Scripted) -> None:
    endpoint.answers = [ANSWERS[3], ANSWERS[3].replace("-1.0 if", "-9.0 if"), ANSWERS[2], ANSWERS[3]]
    trained = []

    def train(program: RewardProgram) -> tuple[float, str]:
        trained.append(program.source)
        return float(len(trained) == 2), f"fell into lava {3 - len(trained)} times"

    rounds = design(endpoint.ask(), "Write.", TEMPLATE, SAMPLE, train, rounds=3)
    assert [len(each.attempts) for each in rounds] == [1, 1, 2]
    best = max(rounds, key=lambda each: each.score)
    assert best.program is not None
    assert "-9.0" in best.program.source
    assert "the trained agent did this:\nfell into lava 2 times\nImprove it." in endpoint.prompts[1]
    assert "the trained agent did this:\nfell into lava 1 times" in endpoint.prompts[2]


def test_factors_are_proposed_merged_and_repaired(endpoint: Scripted) -> None:
    """The code-writing half of [51] LaRe."""
    good = "def evaluation_func(turn): return [turn['distance'], float(turn['lava'])]"
    endpoint.answers = [good] * 5 + ["def evaluation_func(turn): return [turn['distance']] * (1 + turn['lava'])", good]
    prompt = Brief("walk", describe(SAMPLE, ["distance", "lava"])).factors()
    template = RewardProgram("", "evaluation_func", ("distance", "lava"))
    program, attempts = write_factors(endpoint.ask(), prompt, template, SAMPLE)
    assert program is not None
    assert [str(issue) for issue in attempts[0].issues] == ["result: lists of [1, 2] values; always return as many"]
    assert len(endpoint.prompts) == 7
    assert endpoint.prompts[5].count("Candidate ") == 5


def test_general_names_are_translated(endpoint: Scripted) -> None:
    names = NameMap({"distance_to_exit": "distance", "in_lava": "lava"})
    endpoint.answers = ["def compute_dense_reward(turn):\n    return -turn['distance_to_exit'] - 9 * turn['in_lava']"]
    template = RewardProgram("", "compute_dense_reward", ("distance", "lava"))
    program, _ = write(endpoint.ask(), "?", template, SAMPLE, specific=names.to_specific)
    assert program is not None
    np.testing.assert_array_equal(program.score(SAMPLE)[0], [-5, -4, -13, -3, -2])
    assert "distance_to_exit" in names.to_general(program.source)


# -- checks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "kind", "what"),
    [
        ("import os", "language", "line 2: import of 'os' is not allowed"),
        ("return turn['distnace']", "unknown column", "the turn has no 'distnace'; did you mean 'distance'"),
        ("return 1 / (turn['distance'] - 4)", "error", "row 1 of the sample: ZeroDivisionError"),
        ("return float('nan')", "result", "row 0 of the sample: result: NaN or infinite"),
        ("return 'good'", "result", "returned str"),
        ("return id(turn)", "error", "NameError"),
        ("return hash(object)", "language", "'object' is not allowed"),
        ("return None", "constant", "every turn of the sample gets None"),
        ("import numpy as np\n return np.random.rand()", "error", "AttributeError"),
        ("return hash(lambda: 0) % 1000003 + turn['distance']", "non-deterministic", "row 0 of the sample got"),
    ],
)
def test_what_is_refused(body: str, kind: str, what: str) -> None:
    issues = check(RewardProgram(f"def reward(turn):\n {body}", columns=("distance",)), SAMPLE)
    assert [issue.kind for issue in issues] == [kind], issues
    assert what in issues[0].what


def test_audits_see_the_values() -> None:
    def farmable(turns: Turns, values: np.ndarray) -> str | None:
        return f"earns {values.sum():g} for standing still" if values.sum() > 0 else None

    program = RewardProgram("def reward(turn): return turn['distance']", columns=("distance",))
    assert [str(issue) for issue in check(program, SAMPLE, audits=[farmable])] == ["audit: earns 18 for standing still"]


def test_both_functions_are_checked() -> None:
    source = "def dense(turn): return turn['distance']\ndef sparse(turn): return 1"
    program = RewardProgram(source, columns=("distance",))
    assert [issue.kind for issue in check(program, SAMPLE, functions=("dense", "sparse"))] == ["constant"]


def test_code_is_found_in_answers() -> None:
    assert read_code("x = 1") == "x = 1"
    assert read_code("```\nold\n```\nbetter:\n```py\nnew\n```") == "new"
