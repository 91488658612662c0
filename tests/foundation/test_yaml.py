"""A key that stands twice is an error that names it and its lines, whichever loader reads."""

from __future__ import annotations

from itertools import pairwise

import pytest
import yaml

from palaestra.foundation.yaml import read


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize(
    ("text", "key", "lines"),
    [
        ("a: 1\nb: 2\na: 3\n", "'a'", (1, 3)),
        ("a:\n  x: {k: 1, k: 1}\n", "'k'", (2, 2)),
        ("- b: 1\n- {c: 1,\n   'c': 2}\n", "'c'", (2, 3)),
        ("1: a\ntrue: b\n", "True", (1, 2)),
    ],
)
def test_keys_stand_once(text: str, key: str, lines: tuple[int, int], fast: bool) -> None:
    with pytest.raises(yaml.YAMLError) as caught:
        read(text, fast=fast)
    assert caught.value.problem == f"key {key} stands twice, in lines {lines[0]} and {lines[1]}; keep one"
    assert caught.value.problem_mark.line == lines[1] - 1


def bomb(names: str) -> str:
    """Nine aliases of the one before, for each name."""
    return f"{names[0]}: &{names[0]} [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in pairwise(names)
    )


BLOWN_UP = "stand for more than 100,000 nodes"


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (bomb("abcdefghi"), BLOWN_UP),
        (bomb("abcdefgh"), BLOWN_UP),
        ("a: &a [1, *a]", "an alias contains itself"),
    ],
)
def test_a_small_text_is_not_blown_up(text: str, problem: str, fast: bool) -> None:
    with pytest.raises(yaml.YAMLError) as caught:
        read(text, fast=fast)
    assert problem in caught.value.problem


@pytest.mark.parametrize("fast", [False, True])
def test_all_else_is_as_the_safe_loader_reads_it(fast: bool) -> None:
    text = "base: &b {x: 1, y: [2, null]}\nmore: {<<: *b, x: 5}\nday: 2020-01-02\n"
    assert read(text, fast=fast) == yaml.safe_load(text)
    assert read(text, fast=fast)["more"]["x"] == 5
    with pytest.raises(yaml.YAMLError):
        read("!!python/object/apply:os.system [true]", fast=fast)
