# ruff: noqa: NPY002

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.installed import needs

from palaestra.envs.questions import solve
from palaestra.envs.reasoning_gym import reasoning_gym, split_of
from palaestra.errors import EnvError, InputError
from palaestra.testing.env import check_env

needs("reasoning_gym")

SMALL = {"chain_sum": {"min_terms": 2, "max_terms": 2, "max_digits": 1}}


@pytest.mark.parametrize(
    "datasets",
    [
        "chain_sum",
        "gcd, count_bits",
        ["letter_counting", "number_sorting"],
        SMALL,
        "word_ladder",  # makes its items from a list of limited size
        "pool_matrix",  # seeds NumPy's global generator
        "prime_factorization",  # its scorer raises on text
    ],
)
def test_data_sets_keep_the_protocol(datasets):
    check_env(reasoning_gym(datasets))


def questions(datasets, seeds, **options):
    env = reasoning_gym(datasets, **options)()
    return [env.reset(seed)["solver"].text for seed in seeds]


@pytest.mark.parametrize("prompt", ["raw", "short"])
def test_training_and_test_never_share_a_question(prompt):
    """290 sums of two digits, asked by two data sets in three wordings: many more seeds than questions."""
    arithmetic = {
        **SMALL,
        "basic_arithmetic": {"max_terms": 2, "max_digits": 1, "operators": ["+", "-"], "format_style": "natural",
                             "allow_negation": False, "allow_parentheses": False},
    }  # fmt: skip
    train = set(questions(arithmetic, range(3000), split="train", prompt=prompt))
    test = set(questions(arithmetic, range(3000), split="test", prompt=prompt))
    both = set(questions(arithmetic, range(3000), split="all", prompt=prompt))
    assert train
    assert test
    assert not train & test
    assert {split_of(text) for text in test} == {"test"} or prompt == "raw"
    assert both <= train | test
    assert 0.1 < len(test) / len(both) < 0.3


def test_the_sum_of_a_question_is_in_the_same_split_whoever_asks_it():
    sums = questions(SMALL, range(500), split="test", prompt="short")
    other = {"basic_arithmetic": {"max_terms": 2, "max_digits": 1, "operators": ["+", "-"], "allow_negation": False,
                                  "allow_parentheses": False}}  # fmt: skip
    assert not set(sums) & set(questions(other, range(2000), split="train", prompt="short"))


def test_equal_names_mean_equal_questions():
    env = reasoning_gym(SMALL)()
    names: dict[str, str] = {}
    for seed in range(500):
        text = env.reset(seed)["solver"].text
        assert names.setdefault(env.task, text) == text
        assert env.task.startswith("chain_sum:")
    assert len(set(names.values())) == len(names) > 100
    env.reset(0)
    assert env.task == "chain_sum:2dbf2cb317102815", "names of tasks are kept in tables: they must never change"


def test_the_mix_follows_the_weights():
    env = reasoning_gym({"chain_sum": {"weight": 3, "max_terms": 2}, "gcd": {"weight": 1}})()
    names = [env.reset(seed) and env.task.split(":")[0] for seed in range(800)]
    assert 0.70 < names.count("chain_sum") / 800 < 0.80


def test_the_score_is_the_data_sets_own():
    env = reasoning_gym("chain_sum")()
    for seed in range(20):
        env.reset(seed)
        assert env.answer is not None
        assert env.score(env.answer) == env.score(f"{env.answer}.00") == 1.0
        assert env.score(f"it is {env.answer}") == len(env.answer) / len(f"it is {env.answer}")
        assert env.score("no idea") == 0.0
        result = env.step({"solver": env.answer})
        assert (result.rewards, result.info["success"]) == ({"solver": 1.0}, True)
    env = reasoning_gym("chain_sum", threshold=0.1)()
    env.reset(0)
    assert env.step({"solver": f"it is {env.answer}"}).info["success"] is True


def test_an_answer_that_the_data_set_cannot_read_is_not_valid():
    env = reasoning_gym("prime_factorization")()
    env.reset(0)
    result = env.step({"solver": "two times three"})
    assert (result.rewards, result.info["valid"]) == ({"solver": 0.0}, {"solver": False})


def test_the_answer_is_never_shown_and_the_short_prompt_can_be_solved():
    env = reasoning_gym(["chain_sum", "spell_backward", "gcd"], prompt="short", split="test")()
    for seed in range(60):
        seen = env.reset(seed)["solver"]
        assert seen.text == env.question
        assert len(seen.text) < 60
        solution = solve(seen.text)
        assert solution is not None
        assert env.score(solution) == 1.0


def test_no_global_generator_is_used():
    random.seed(0)
    np.random.seed(0)
    before = random.random(), np.random.random()
    random.seed(0)
    np.random.seed(0)
    questions("pool_matrix", range(5))
    assert (random.random(), np.random.random()) == before


@pytest.mark.parametrize(
    ("datasets", "options", "message"),
    [
        ("chainsum", {}, "did you mean 'chain_sum'"),
        ({"chain_sum": {"max_trems": 3}}, {}, "max_trems"),
        ({"chain_sum": {"min_terms": 9}}, {}, "max_terms must be >= min_terms"),
        ({"chain_sum": {"weight": 0}}, {}, "positive"),
        ([], {}, "no data set"),
        ("chain_sum", {"split": "tset"}, "'test'"),
        ("chain_sum", {"prompt": "long"}, "raw, short"),
    ],
)
def test_wrong_settings_are_refused_with_a_reason(datasets, options, message):
    with pytest.raises(InputError, match=message):
        reasoning_gym(datasets, **options)


def test_a_split_that_does_not_exist_is_an_error_and_no_endless_loop():
    env = reasoning_gym({"count_bits": {"min_n": 5, "max_n": 5}}, split="train")()
    other = reasoning_gym({"count_bits": {"min_n": 5, "max_n": 5}}, split="test")()
    with pytest.raises(EnvError, match="none of 1000 questions"):  # noqa: PT012
        env.reset(0)
        other.reset(0)
