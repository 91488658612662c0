"""Programs that try to get more of Python and NumPy than they are offered. The screen or the offer stops each."""

from __future__ import annotations

import sys
import textwrap
import types

import numpy as np
import pytest

from palaestra.envs.sandbox import MODULES, CallOutcome, run_program
from palaestra.envs.sandbox.offers import NUMPY, arrays, offer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="nothing untrusted runs elsewhere")


def attack(body: str) -> CallOutcome:
    return run_program("def reward():\n" + textwrap.indent(body, "    "), "reward")


SCREENED = {
    "subclasses": "return ().__class__.__base__.__subclasses__()",
    "subclasses, by pattern matching": "match ():\n    case object(__class__=c): return c",
    "subclasses, in wide letters": "return ().__cl\uff41ss__",
    "text format": "return len('{0.__class__}'.format(()))",
    "text format_map": "return len('{a.__class__}'.format_map({}))",
    "formatter": "import string\nreturn string.Formatter().format('{0.__class__}', 1)",
    "generator's frame": "g = (x for x in [1])\nreturn g.gi_frame.f_back.f_globals",
    "traceback's frame": "try: 1 / 0\nexcept ZeroDivisionError as e: return e.__traceback__.tb_frame",
    "exec": "exec('import os')",
    "eval": "return eval('1 + 1')",
    "compile": "return compile('1', 'x', 'eval')",
    "import by name": "return __import__('os')",
    "import of os": "import os\nreturn 1",
    "import from os": "from os import path\nreturn 1",
    "import of pickle": "import pickle\nreturn 1",
    "import of ctypes": "import ctypes\nreturn 1",
    "import of a neighbour": "from . import worker\nreturn 1",
    "import of everything": "from math import *\nreturn 1",
    "globals": "return globals()",
    "getattr": "return getattr(1, 'real')",
    "builtins by name": "return __builtins__",
    "global statement": "global __builtins__\nreturn 1",
    "type with three arguments": "return type('X', (), {})",
    "numpy's files": "import numpy as np\nreturn np.zeros(3).tofile('x')",
    "numpy's own ctypes": "import numpy as np\nreturn np.zeros(3).ctypes.data",
    "an array's bytes as another type": "import numpy as np\nreturn np.zeros(1).view('O')",
    "an array's bytes as another type, by pattern matching": "match 1:\n    case int(view=v): return v",
    "a field of an array as another type": "import numpy as np\nreturn np.zeros(1).getfield('O')",
    "an array that is freed under its views": "import numpy as np\na = np.zeros(9)\na.resize(1, refcheck=False)",
    "an array that is written against its flags": "import numpy as np\nnp.zeros(1).setflags(write=True)",
    "an array over any memory": "import numpy as np\nreturn np.lib.stride_tricks.as_strided(np.zeros(1), (9,))",
    "an array of a text's bytes": "import numpy as np\nreturn np.frombuffer(b'12345678')",
    "an array of an address": "class A:\n    __array_interface__ = {'data': (1, False)}\nreturn 1",
    "a pickle of an array": "import numpy as np\nreturn np.zeros(1).dump('x')",
    "a text that is evaluated by typing": "import typing\nreturn typing.get_args(list['1'])[0]._evaluate({}, {}, 0)",
    "a text that is evaluated by functools": "import functools\nreturn functools.singledispatch(lambda x: x)",
    "attributes named by a text": "from functools import update_wrapper\nreturn 1",
    "async code": "async def f(): pass\nreturn f().cr_frame",
    "a module's own name, set": "global __name__\nreturn 1",
    "a class's own name": "return int.__name__",
    "open": "return open('/etc/passwd')",
    "nested too deeply": "return " + "(" * 5000 + ")" * 5000,
    "null byte": "return '\0'",
    "too long": "return 1 #" + "x" * 60_000,
}
HIDDEN = {
    "numpy's library by name": ("from numpy import lib\nreturn lib._npyio_impl.os.getpid()", "ImportError"),
    "numpy's core by name": ("from numpy import _core\nreturn 1", "ImportError"),
    "a module behind another name": ("from numpy import lib as math\nreturn 1", "ImportError"),
    "numpy's generators": ("from numpy import random\nreturn 1", "ImportError"),
    "the scanner of json": ("from json import scanner\nreturn scanner.re.enum.sys.maxsize", "ImportError"),
    "the decoder of json": ("from json import decoder\nreturn 1", "ImportError"),
    "the parser of re": ("from re import _parser\nreturn 1", "ImportError"),
    "classes of collections": ("from collections import abc\nreturn 1", "ImportError"),
    "operators of fractions": ("from fractions import operator\nreturn 1", "ImportError"),
    "numpy's manual": ("import numpy as np\nreturn np.info(print)", "AttributeError"),
    "numpy's own tests": ("import numpy as np\nreturn np.test()", "AttributeError"),
    "an object at an address": (
        "import numpy as np\nreturn np.ndarray(1, dtype='O', buffer=np.array([1]))[0]",
        "TypeError: np.ndarray can only be used with isinstance",
    ),
    "a class of arrays": (
        "import numpy as np\nclass A(np.ndarray): pass\nreturn A(1, dtype='O', buffer=np.array([1]))[0]",
        "TypeError: np.ndarray can only be used with isinstance",
    ),
    "a record of bytes": ("import numpy as np\nreturn np.void(b'12345678')", "AttributeError"),
    "numpy's saving": ("import numpy as np\nreturn np.save('x', np.zeros(1))", "AttributeError"),
    "numpy's types by name": ("import numpy as np\nreturn np.dtype('O')", "AttributeError"),
    "functions of any objects": ("import numpy as np\nreturn np.frompyfunc(print, 1, 1)", "AttributeError"),
    "module of a module": ("import statistics\nreturn statistics.sys", "AttributeError"),
    "os of collections": ("import collections\nreturn collections._sys", "AttributeError"),
    "loading by numpy": ("import numpy as np\nreturn np.load('x', allow_pickle=True)", "AttributeError"),
    "numpy's library": ("import numpy as np\nreturn np.lib.npyio", "AttributeError"),
    "a name that was left out": ("return memoryview", "screen: line 2: 'memoryview' is not allowed"),
    "unknown builtin": ("return aiter", "NameError"),
}


@pytest.mark.parametrize("name", list(SCREENED))
def test_the_screen_refuses(name: str) -> None:
    outcome = attack(SCREENED[name])
    assert outcome.error is not None
    assert outcome.error.startswith("screen: line "), outcome


def test_a_program_may_read_its_name_and_is_imported() -> None:
    program = "def f(): return 1\nif __name__ == '__main__':\n    f = None"
    assert run_program(program, "f").value == 1.0
    assert run_program(program.replace("==", "="), "f").error


def test_a_program_may_count_in_decimals() -> None:
    assert attack("from decimal import Decimal\nreturn float(Decimal('0.1') * 3 == Decimal('0.3'))").value == 1.0


@pytest.mark.parametrize("name", list(HIDDEN))
def test_what_is_not_offered_is_not_there(name: str) -> None:
    body, expected = HIDDEN[name]
    outcome = attack(body)
    assert outcome.error is not None
    assert expected in outcome.error


MADE_OF_BYTES = (
    "np.array(raw, dtype='V8').astype([('a', 'O')])", "np.array(raw, dtype=[('a', 'O')])",
    "np.array([raw], dtype='O')", "np.zeros(1, dtype={'names': ['a', 'b'], 'formats': ['O', 'i8'], 'offsets': [0, 0]})",
    "np.zeros(1, dtype=('i8', 'O'))", "np.zeros(1, dtype=('V8', [('a', 'O')]))",
    "np.zeros(1, dtype='V8').dtype.type(raw)", "np.fromiter([raw], dtype='O')",
    "np.array(1).astype('V8').astype('O')", "np.array([1]).data.cast('B').cast('O')",
    "np.copyto(np.empty(1, dtype='O'), np.array([1]))", "np.unpackbits(np.array([1], np.uint8)).astype('O')",
)  # fmt: skip


@pytest.mark.parametrize("make", MADE_OF_BYTES)
def test_no_bytes_become_an_object(make: str) -> None:
    """An address of -1 crashes whoever takes it for an object."""
    outcome = attack(f"import numpy as np\nraw = b'\\xff' * 8\nreturn len(str({make}))")
    assert outcome.error is None or not outcome.error.startswith(("died", "screen")), outcome


def test_numpy_s_copy_has_no_files_no_memory_and_no_modules() -> None:
    offered = vars(arrays(np))
    assert not offered.keys() & {
        "DataSource", "ctypeslib", "char", "core", "ctypes", "dtype", "from_dlpack", "frombuffer", "fromfile",
        "fromregex", "fromstring", "frompyfunc", "genfromtxt", "lib", "load", "loadtxt", "ma", "matrix", "memmap",
        "nditer", "object_", "random", "rec", "recarray", "resize", "save", "savetxt", "savez", "test", "testing",
        "ufunc", "void",
    }  # fmt: skip
    assert offered["ndarray"] is not np.ndarray
    assert [name for name, value in offered.items() if isinstance(value, types.ModuleType)] == ["linalg"]
    assert set(NUMPY.split()) - offered.keys() <= {"matvec", "vecmat"}, "names that NumPy 2.2 added are left out"


def test_no_copy_holds_a_module() -> None:
    for name in MODULES:
        copy = vars(offer([name])[name])
        held = {each for each, value in copy.items() if isinstance(value, types.ModuleType)} - {"linalg"}
        assert len(copy) > 5
        assert not held, name
