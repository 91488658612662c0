from __future__ import annotations

import pytest
from tests.installed import needs

from palaestra.envs.questions import FORMS, canonical, shorten, solve

needs("reasoning_gym")

SETTINGS = {
    "chain_sum": [{}, {"allow_negation": True}],
    "products": [{}, {"allow_negation": True, "max_terms": 4}],
    "basic_arithmetic": [{}, {"format_style": "natural"}, {"allow_parentheses": False, "operators": ["+", "-"]}],
    "bitwise_arithmetic": [{}, {"difficulty": 1}, {"difficulty": 5}],
    "gcd": [{}, {"max_numbers": 4}],
    "lcm": [{}, {"max_numbers": 4}],
}
CASES = [(name, settings) for name in FORMS for settings in SETTINGS.get(name, [{}])]


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_the_solver_is_right_in_either_wording_and_the_short_one_loses_nothing(name, settings):
    from reasoning_gym.factory import create_dataset

    dataset = create_dataset(name, seed=11, **settings)
    answers: dict[str, set[str]] = {}
    for item in range(150):
        entry = dataset[item]
        short = shorten(name, entry["question"])
        assert len(short) < len(entry["question"]), "no short wording was found"
        solution = solve(short)
        assert solution is not None
        assert solution == solve(entry["question"])
        written = (entry["question"], short, short.replace(" ", "  "), short.replace(", ", ","))
        assert {canonical(each) for each in written} == {short}
        assert dataset.score_answer(solution, entry) == 1.0
        answers.setdefault(short, set()).add(solution)
    assert all(len(found) == 1 for found in answers.values())


@pytest.mark.parametrize(
    ("name", "question", "short"),
    [
        ("chain_sum", "State the final answer to the following arithmetic problem: 4 + 3 =", "4 + 3 ="),
        ("basic_arithmetic", "What is -5 * -6?", "-5 * -6 ="),
        ("spell_backward", "Spell this word backward (example: sun -> nus): Gaul", "reverse Gaul ="),
        ("chain_sum", "Something else?", "Something else?"),
        ("zebra_puzzles", "Who owns the zebra?", "Who owns the zebra?"),
    ],
)
def test_short_wordings(name, question, short):
    assert shorten(name, question) == short


@pytest.mark.parametrize("question", ["4+ 3 - -5 =", "What is 4 + 3--5?", " 4  +  3  -  -5 = "])
def test_however_a_question_is_spaced_it_is_the_data_sets_own(question):
    assert canonical(question) == "4 + 3 - -5 ="


def test_only_known_forms_are_solved():
    for text in ("", "Who?", "4 + =", "gcd =", "4 + 3", "__import__('os') ="):
        assert solve(text) is None
