"""Recipe text: everything that a signal prints is read back, and nothing else runs."""

from __future__ import annotations

import pickle
import random
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.algebra.parse import MAX_LENGTH, parse
from palaestra.algebra.signals import (
    REGISTRY,
    Signal,
    absolute,
    centre,
    clip,
    col,
    count,
    cumulative,
    fill_missing,
    highest,
    is_in,
    is_missing,
    leave_one_out,
    lit,
    lowest,
    mean,
    per_token,
    per_turn,
    quantile,
    rank,
    register,
    shift,
    short,
    sign,
    standardise,
    std,
    total,
    walk,
    where,
)
from palaestra.algebra.turns import Turns
from palaestra.credit import gigpo, grpo, return_to_go
from palaestra.errors import ExpressionError, InputError
from palaestra.testing.signal import sample_turns

numbers = st.one_of(st.integers(-3, 3).map(float), st.sampled_from([0.5, -0.25, 1e-6, 1e16, 0.1]), st.booleans())
leaves = st.one_of(
    st.sampled_from(["reward", "valid", "my column", "it's"]).map(col),
    numbers.map(lit),
    st.just(is_in("agent", ("a", "b"))),
)
keys = st.sampled_from(["group", (), ("group", "agent"), ("episode",), "row"])


def bigger(inner: st.SearchStrategy[Signal]) -> st.SearchStrategy[Signal]:
    infix = st.sampled_from(["+", "-", "*", "/", "**", "&", "|", "<", "<=", ">", ">=", "==", "!="])

    def operate(symbol: str, a: Signal, b: Signal) -> Signal:
        functions: dict[str, Any] = {
            "+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "/": lambda: a / b, "**": lambda: a**b,
            "&": lambda: a & b, "|": lambda: a | b, "<": lambda: a < b, "<=": lambda: a <= b, ">": lambda: a > b,
            ">=": lambda: a >= b, "==": lambda: a == b, "!=": lambda: a != b,
        }  # fmt: skip
        try:
            return functions[symbol]()
        except ExpressionError:  # two constants that cannot be computed: 1 / 0
            return a

    statistic = st.builds(
        lambda f, x, over, unit, mask: f(x, over=over, unit=unit, where=mask),
        st.sampled_from([mean, total, count, std, lowest, highest, standardise, centre, leave_one_out]),
        inner,
        st.one_of(keys, inner.map(lambda key: ("group", key))),
        st.sampled_from(["row", "episode", "unique"]),
        st.one_of(st.none(), inner),
    )
    return st.one_of(
        st.builds(operate, infix, inner, inner),
        st.builds(operate, infix, inner, inner),
        inner.map(lambda x: -x),
        inner.map(lambda x: ~x),
        st.builds(where, inner, inner, st.one_of(st.none(), inner)),
        st.builds(clip, inner, low=st.one_of(st.none(), st.integers(-2, 0)), high=st.sampled_from([None, 0.5])),
        st.builds(fill_missing, inner, inner),
        st.builds(lambda f, x: f(x), st.sampled_from([absolute, sign, is_missing, per_turn, per_token]), inner),
        st.builds(lambda x, n, fill: shift(x, n=n, fill=fill), inner, st.integers(-2, 2), st.sampled_from([None, 0.0])),
        st.builds(
            lambda x, g, r, e: cumulative(x, gamma=g, reverse=r, exclusive=e),
            inner,
            st.just(0.9),
            st.booleans(),
            st.booleans(),
        ),
        st.builds(lambda x, q: quantile(x, q=q, over="group"), inner, st.sampled_from([0, 0.8])),
        st.builds(lambda x, ties: rank(x, over="group", ties=ties), inner, st.sampled_from(["min", "ordinal"])),
        statistic,
    )


trees = st.recursive(leaves, bigger, max_leaves=12)


@settings(max_examples=400, deadline=None)
@given(trees)
def test_what_a_signal_prints_is_read_back(signal: Signal) -> None:
    assert parse(str(signal)).text == signal.text


def test_signs_bind_less_than_powers() -> None:
    for signal in (lit(-2.0) ** "reward", (-col("reward")) ** 2, -(col("reward") ** 2), (~col("valid")) ** 2):
        assert parse(str(signal)).text == signal.text
    found = parse("(-2.0) ** reward").evaluate(Turns({"reward": [2.0, 3.0]}))
    assert np.asarray(found).tolist() == [4, -8]


def test_every_registered_signal_is_read_back() -> None:
    for name in ("grpo", "gigpo(gamma=0.9)", "mars(rewards='asym_clip', limit=2)", "dr_mas", "rloo(flavour='verl')"):
        signal = parse(name)
        assert parse(str(signal)).text == signal.text
        assert signal.label is not None
        assert parse(signal.label).text == signal.text


def test_text_means_what_python_means() -> None:
    turns = Turns({"reward": [2.0, -3.0], "other": [0.5, 4.0], "valid": [True, False], "agent": ["solver", "b"]})
    reward, other = np.array([2.0, -3.0]), np.array([0.5, 4.0])
    for text, expected in {
        "reward + col('other') * 2": reward + other * 2,
        "-reward ** 2": -(reward**2),
        "(-reward) ** 2": reward**2,
        "2 ** -1 * reward": 0.5 * reward,
        "reward - (1 - 2) - 3": reward + 1 - 3,
        "reward / 4 / 2": reward / 4 / 2,
        "'reward' + 1": reward + 1,
        "-'reward'": -reward,
        "max(reward, over=())": np.full(2, 2.0),
        "min(reward, over=[])": np.full(2, -3.0),
        "where(valid and not (reward < 0), 1, -1)": np.array([1.0, -1.0]),
        "where(~valid or reward > 10, 1, -1)": np.array([-1.0, 1.0]),
        "(0 < reward) & (reward <= 2)": np.array([True, False]),
        "clip(reward, low=1 - 2, high=2 * 0.5)": np.array([1.0, -1.0]),
        "True": np.array([True, True]),
        "where(is_in('agent', 'solver'), reward, 0)": np.array([2.0, 0.0]),
        "total(reward, over=(), where=is_in(name='agent', values=('solver', 'b')))": np.full(2, -1.0),
        "1e-3 * 1_000": np.ones(2),
    }.items():
        found = parse(text, columns=["other"]).evaluate(turns)
        assert np.allclose(np.asarray(found, float), expected.astype(float)), text


def test_names_are_signals_columns_of_the_schema_or_given_columns() -> None:
    assert parse("grpo").text == grpo().text == parse("grpo()").text
    assert parse("reward").text == "col('reward')"
    assert parse("quality", columns=["quality"]).text == "col('quality')"
    assert parse("agentwise").text == parse("dr_mas").text
    assert parse("mean(reward, over=(group, agent))").text == mean("reward", over=("group", "agent")).text
    assert parse(" \n gigpo(gamma=0.9, weight=2) \n").text == gigpo(gamma=0.9, weight=2).text
    assert parse("shift(reward, n=-1)").text == shift("reward", n=-1).text


def test_a_users_signal_can_be_registered() -> None:
    @register()
    def my_bonus(size: float = 1.0) -> Signal:
        """A bonus."""
        return return_to_go(gamma=0.5) * size

    try:
        signal = parse("0.5 * my_bonus(size=2)")
        assert signal.text == (0.5 * my_bonus(2)).text
        with pytest.raises(ExpressionError, match="my_bonus"):
            parse("my_bonuss()")
    finally:
        REGISTRY.remove("my_bonus")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("grpoo()", r"unknown function 'grpoo'; did you mean.*'grpo'"),
        ("gipgo", r"unknown name 'gipgo'; did you mean 'gigpo'"),
        ("rewrad + 1", r"'rewrad' in 'rewrad \+ 1': unknown name 'rewrad'; did you mean 'reward'"),
        ("quality", "unknown name 'quality'"),
        (
            "gigpo(gama=0.9)",
            r"unexpected keyword argument 'gama'; it is gigpo\(reward: SignalLike = reward, \*, gamma: float = 0.95",
        ),
        ("mean(reward)", r"missing a required argument: 'over'; it is mean\("),
        ("mean(reward, over=group, unit='rows')", r"unit='rows' is not one of .*did you mean 'row'"),
        ("grpo(flavour='very')", r"flavour 'very' is unknown; did you mean 'verl'"),
        ("grpo(flavour=reward)", "flavour"),
        ("mars(rewards='men')", "did you mean 'mean'"),
        ("a < b < c", r"write chained comparisons as \(a < b\) & \(b < c\)"),
        ("gigpo(0.9)", "gigpo: the first argument is the reward, 0.9 is none; write gamma=0.9"),
        ("clip(reward, -1, 1)", r"too many positional arguments; it is clip\(x: SignalLike, \*, low"),
        ("clip(reward, low='low', high=1)", "could not convert"),
        ("shift(reward, n=1.5)", "integer"),
        ("shift(reward, n=reward)", "integer"),
        ("1 / 0", "division by zero"),
        ("(0 - 8) ** 0.5", "is not a signal"),
        ("1e999", "not finite"),
        ("9" * 400, "too large"),
        ("reward +", "cannot read 'reward \\+': invalid syntax at column"),
        ("", "cannot read ''"),
        ("credit: grpo", "cannot read"),
        ("x = 1", "cannot read"),
        ("reward; reward", "cannot read"),
        ("reward\nreward", "cannot read"),
        ("\x00", "cannot read"),
        ("(1, 2)", "is not a signal"),
        ("None", "is not a signal"),
    ],
)
def test_wrong_text_is_one_line_that_names_the_fix(text: str, message: str) -> None:
    with pytest.raises(ExpressionError, match=message) as caught:
        parse(text)
    assert isinstance(caught.value, InputError)
    assert caught.value.exit_code == 2


DANGEROUS = [
    "__import__('os').system('true')",
    "__import__",
    "().__class__.__bases__[0].__subclasses__()",
    "reward.__class__",
    "col('reward').evaluate",
    "col.__globals__",
    "getattr(reward, 'text')",
    "eval('1')",
    "exec('1')",
    "open('/etc/passwd')",
    "print(1)",
    "lambda: 1",
    "(lambda: 1)()",
    "[x for x in (1, 2)]",
    "{x for x in (1, 2)}",
    "{x: 1 for x in (1, 2)}",
    "sum(x for x in (1, 2))",
    "f'{reward}'",
    "f'{().__class__}'",
    "col(f'{1}')",
    "b'bytes'",
    "reward if valid else 0",
    "(x := 1)",
    "await reward",
    "(yield)",
    "reward[0]",
    "reward[0:1]",
    "{'a': 1}",
    "{1, 2}",
    "*reward",
    "mean(*reward, over=group)",
    "mean(**{'x': 1})",
    "mean(reward, **{'over': 'group'})",
    "...",
    "1j",
    "reward @ reward",
    "reward % 2",
    "reward // 2",
    "reward << 2",
    "reward ^ valid",
    "reward is None",
    "reward in (1, 2)",
    "grpo()()",
    "grpo().label",
    "'a'.join(('b',))",
    "9**9**9**9",
    "(1,) * 999999999",
    "(1,) + (2,)",
    "'a' * 10 ** 10 * 'b'.x",
    "mean(reward, over='group').__init__.__globals__",
    "+reward",
]


@pytest.mark.parametrize("text", DANGEROUS)
def test_nothing_but_signals_is_understood(text: str) -> None:
    started = time.process_time()
    with pytest.raises(ExpressionError):
        parse(text)
    assert time.process_time() - started < 1


def test_a_power_of_constants_is_computed_as_floats() -> None:
    with pytest.raises(ExpressionError, match="out of range"):
        parse("9**9**9")
    with pytest.raises(ExpressionError):
        parse("*".join(["9" * 4000] * 2))


@pytest.mark.parametrize(
    "text",
    [
        "(" * 300 + "reward" + ")" * 300,
        "-" * 9000 + "reward",
        "~" * 9000 + "valid",
        "not " * 2400 + "valid",
        "reward ** " * 900 + "reward",
        "+".join(["reward"] * 1400),
        "absolute(" * 900 + "reward" + ")" * 900,
        "[" * 5000,
    ],
)
def test_deep_nesting_is_an_error_not_a_crash(text: str) -> None:
    assert len(text) <= MAX_LENGTH
    with pytest.raises(ExpressionError, match=r"nested too deeply|too many nested parentheses"):
        parse(text)


def test_how_long_a_text_may_be_and_how_much_of_it_is_shown() -> None:
    parse("reward".ljust(MAX_LENGTH))
    with pytest.raises(ExpressionError, match=f"expression of {MAX_LENGTH + 1} characters"):
        parse("reward".ljust(MAX_LENGTH + 1))
    for length, end in ((100, "x'"), (101, "x…'")):
        with pytest.raises(ExpressionError, match=f"'{'x' * 99}{end}: "):
            parse("x" * length)


def test_huge_text_is_refused_before_it_is_read() -> None:
    with pytest.raises(ExpressionError, match="expression of 1000000 characters; the limit is 20000"):
        parse("+" * 1_000_000)


def test_garbage_never_raises_anything_else() -> None:
    source = random.Random(0)
    pieces = [
        "reward",
        "grpo",
        "(",
        ")",
        "+",
        "**",
        ",",
        "=",
        "'",
        "over",
        "group",
        "[",
        "]",
        "1",
        ".",
        "lambda",
        ":",
        " ",
        "~",
        "\n",
        "\\",
        "#",
        "é",
    ]
    turns = sample_turns(np.random.default_rng(0), groups=(2,))
    understood = 0
    for _ in range(3000):
        text = "".join(source.choices(pieces, k=source.randint(1, 12)))
        try:
            parse(text).evaluate(turns)
            understood += 1
        except InputError:
            pass
    assert understood > 50


def test_nesting_costs_by_depth_not_by_the_length_of_the_text() -> None:
    """Each level repeats its input six times: 8 levels are 1.7 million times the column."""
    turns = Turns({"reward": [1.0, 2.0, 4.0]})
    for depth in (8, 12):
        nested = parse("minmax(" * depth + "reward" + ")" * depth)
        assert len(list(walk(nested))) < 10 * depth
        assert nested.size > 6**depth
        assert nested.needs() == {"reward"}
        np.testing.assert_allclose(nested.evaluate(turns), [0, 1 / 3, 1])
        assert parse(nested.label or "").digest == nested.digest
        assert short(nested) == nested.label
        assert len(str(nested)) < 10_000
        assert len(nested.explain(turns)) < 100_000
        assert sum(nested.contributions(turns).values()) == pytest.approx(1)


def test_sums_of_sums_are_named_not_spelled_out() -> None:
    x = col("reward")
    for _ in range(60):
        x = x + x
    assert x.size == 2**61 - 1
    assert len(str(x)) < 100
    assert np.asarray(x.evaluate(Turns({"reward": [1.0]}))).tolist() == [2.0**60]


def test_structure_decides_what_is_evaluated_once() -> None:
    one, other = parse("mean(reward, over='group', where=valid)"), mean("reward", over="group", where="valid")
    assert one.digest == other.digest
    assert hash(one) == hash(other)
    for changed in (mean("reward", over="group"), mean("reward", over=("group",), where="valid", unit="episode")):
        assert changed.digest != one.digest
    assert lit(True).digest != lit(1.0).digest
    assert pickle.loads(pickle.dumps(one)).digest == one.digest
