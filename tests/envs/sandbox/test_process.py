"""What a program can do, what it is told when it may not, and tables of calls."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from palaestra.envs.sandbox import CallOutcome, Limits, run_program, run_table, screen
from palaestra.envs.sandbox import process as process_module
from palaestra.envs.sandbox.program import plain
from palaestra.errors import InputError

QUICK = Limits(cpu=2, wall=0.4)


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("return None", None),
        ("return True", 1.0),
        ("return 3", 3.0),
        ("return [1, None, 2.5]", [1.0, None, 2.5]),
        ("return (x for x in [1]).send(None)", 1.0),
        ("import math\n return math.hypot(3, 4)", 5.0),
        ("from collections import Counter\n return Counter('aab')['a']", 2.0),
        ("import json, re\n return json.loads(re.sub('a', '1', 'a'))", 1.0),
        ("import numpy as np\n return np.linalg.norm(np.array([3.0, 4.0]))", 5.0),
        ("import numpy as np\n return np.arange(3) / 2", [0.0, 0.5, 1.0]),
        ("return float(f'{1.25:.1f}')", 1.2),
        ("a, *b = [1, 2, 3]\n return sum(b)", 5.0),
    ],
)
def test_values(body: str, value: object) -> None:
    assert run_program(f"def reward():\n {body}", "reward") == CallOutcome(value)


@pytest.mark.parametrize("values", [[1.0, 2.0], np.array([1.0, 2.0])], ids=["list", "array"])
def test_a_result_may_have_as_many_values_as_the_limit(values: object) -> None:
    assert plain(values, 2) == [1.0, 2.0]
    with pytest.raises(TypeError, match="2 values were returned; the limit is 1"):
        plain(values, 1)


def test_classes_closures_and_helpers() -> None:
    source = """
class Tally:
    def __init__(self, start):
        self.total = start
    def add(self, x):
        self.total += x
        return self

def twice(f):
    return lambda x: f(f(x))

def reward(turn):
    print("seen", turn["gold"])
    return Tally(1).add(twice(lambda x: x + 1)(turn["gold"])).total
"""
    assert run_program(source, "reward", [{"gold": 3}]) == CallOutcome(6.0, printed="seen 3\n")


def test_problems_are_told_where_they_are() -> None:
    assert run_program("def reward(t):\n    return t['gold']", "reward", [{}]).error == "KeyError: 'gold' (line 2)"
    assert run_program("x = 1 / 0\ndef reward(): return 1", "reward").error == (
        "ZeroDivisionError: division by zero (line 1)"
    )
    assert str(screen("def reward(:", "reward")[0]) == "line 1: syntax error: invalid syntax"
    assert "there is no function 'reward' at the top level; it defines ['other']" in str(
        screen("def other(): pass", "reward")[0]
    )
    assert "reward takes 1 arguments, but is called with 2" in str(
        screen("def reward(t): pass", "reward", parameters=2)
    )
    assert not screen("def reward(t, memory=None): pass", "reward", parameters=1)
    assert not screen("def reward(*turns): pass", "reward", parameters=3)


def test_a_table_is_one_call_after_another() -> None:
    source = "def reward(x, y): return x * y"
    calls = [[i, i + 1] for i in range(7)]
    assert run_table(source, "reward", calls) == [CallOutcome(float(x * y)) for x, y in calls]
    assert run_table(source, "reward", []) == []


def test_a_table_starts_python_once(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    real = process_module.subprocess.Popen
    monkeypatch.setattr(process_module.subprocess, "Popen", lambda *a, **k: started.append(1) or real(*a, **k))
    found = run_table("def reward(x): return x", "reward", [[i] for i in range(300)])
    assert [outcome.value for outcome in found] == [*map(float, range(300))]
    assert len(started) == 1


@pytest.mark.parametrize("screened", [True, False])
def test_nothing_that_a_program_keeps_lasts_longer_than_its_key(screened: bool) -> None:
    source = "n = 0\ndef reward(x, memory):\n global n\n n += x\n return n"
    found = run_table(source, "reward", [[1]] * 5, keys=[0, 0, 1, 1, 2], screened=screened)
    assert [outcome.value for outcome in found] == [1, 2, 1, 2, 1]
    source = "n = 0\ndef reward(x):\n global n\n n += x\n return n"
    assert {outcome.value for outcome in run_table(source, "reward", [[1]] * 3, screened=screened)} == {1.0}


SLOW_AT_3 = "def reward(x):\n while x == 3: pass\n return x"


def test_a_call_that_kills_its_worker_costs_only_itself() -> None:
    found = run_table(SLOW_AT_3, "reward", [[i] for i in range(6)], limits=QUICK)
    assert [outcome.value for outcome in found] == [0.0, 1.0, 2.0, None, 4.0, 5.0]
    assert found[3].error == "time: no answer within 0.4 s"


def test_too_many_dead_workers_end_the_table() -> None:
    found = run_table(SLOW_AT_3, "reward", [[3]] * 4 + [[1]], limits=Limits(cpu=2, wall=0.2, deaths=2))
    assert [outcome.error for outcome in found] == [
        *["time: no answer within 0.2 s"] * 2,
        *["given up after 2 workers died"] * 3,
    ]


COUNT = "def reward(x, memory):\n memory['n'] = memory.get('n', 0) + x\n return memory['n']"


def test_memory_lasts_for_a_key_and_no_longer() -> None:
    found = run_table(COUNT, "reward", [[1]] * 7, keys=["a", "a", "a", "b", "b", "c", "a"])
    assert [outcome.value for outcome in found] == [1, 2, 3, 1, 2, 1, 1]


def test_a_key_dies_with_its_memory() -> None:
    source = "def reward(x, memory):\n while x == 3: pass\n return x"
    calls = [[1], [3], [1], [1], [1]]
    found = run_table(source, "reward", calls, keys=[0, 0, 0, 1, 1], limits=QUICK)
    assert [outcome.value for outcome in found] == [1.0, None, None, 1.0, 1.0]
    assert found[2].error == "not called: the worker died in this key (time: no answer within 0.4 s)"


def test_cpu_time_is_that_of_a_key_and_no_call_pays_for_those_of_others() -> None:
    """Each call is far from the limit, and all together are beyond it."""
    source = "import time\ndef reward(x, memory):\n end = time.process_time() + 0.3\n"
    source += " while time.process_time() < end: pass\n return x"
    apart, together = (
        run_table(source, "reward", [[1]] * 5, keys=keys, screened=False, limits=Limits(cpu=1, deaths=1))
        for keys in (range(5), [0] * 5)
    )
    assert [outcome.value for outcome in apart] == [1.0] * 5
    count = sum(outcome.value == 1.0 for outcome in together)
    assert 1 <= count <= 3
    killed = "killed: more than 1 s of CPU time, or more memory than the machine has"
    assert together[count].error == killed
    assert {outcome.error for outcome in together[count + 1 :]} == {
        f"not called: the worker died in this key ({killed})"
    }


def test_all_answers_together_are_limited() -> None:
    source = "def reward(x): return [x] * 100"
    found = run_table(source, "reward", [[1.5]] * 6, limits=Limits(output=2000))
    assert [outcome.value is None for outcome in found] == [False] * 3 + [True] * 3
    assert {outcome.error for outcome in found[3:]} == {"output: more than 2000 bytes of answers"}


@pytest.mark.parametrize(
    ("body", "how"), [("import sys; sys.exit(3)", "exit code 3"), ("import time; time.sleep(60)", "no answer within")]
)
def test_a_worker_that_fails_is_the_sandbox_s_own_fault(
    body: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "worker.py"
    broken.write_text(body)
    monkeypatch.setattr(process_module, "WORKER", broken)
    monkeypatch.setattr(process_module, "STARTING", 0.5)
    found = run_table("def reward(x): return x", "reward", [[1], [2]], limits=QUICK)
    assert [outcome.blocked for outcome in found] == [True, True]
    assert str(found[0].error).startswith(f"sandbox: the worker ended early: {how}")


def test_sets_of_text_have_one_order() -> None:
    source = "def reward():\n return [ord(x) for x in {'a', 'b', 'c', 'd', 'e'}]"
    assert run_program(source, "reward") == run_program(source, "reward")


def test_the_caller_is_told_of_its_own_mistakes() -> None:
    with pytest.raises(InputError, match="the arguments of call 1 are not plain values"):
        run_table("def reward(x): return 1", "reward", [[1], [{1, 2}]])
    with pytest.raises(InputError, match="the arguments of call 0 are not plain values"):
        run_program("def reward(x): return 1", "reward", [float("nan")])
    with pytest.raises(InputError, match="2 keys for 1 calls"):
        run_table("def reward(x): return 1", "reward", [[1]], keys=[1, 2])
    with pytest.raises(InputError, match=r"Limits: cpu=0.5 must be above 0, and whole"):
        Limits(cpu=0.5)  # type: ignore[arg-type]
