"""Ordinary programs give the same value inside the sandbox as outside of it."""

from __future__ import annotations

import contextlib
import math
import re
import warnings

import pytest

from palaestra.envs.sandbox import CallOutcome, run_program, run_table

NUMPY = """
a.mean()|a.sum()|a.max()|a.min()|a.std()|a.var()|a.any()|a.all()|a.prod()|a.clip(1, 2)|a.round(1)|a.cumsum()
a.argmax()|a.argsort()|a.ptp() if 0 else np.ptp(a)|a.dot(a)|a @ a|a.astype(int)|a.reshape(3, 1).ravel()|a.flatten()
a.copy()|a.nonzero()[0]|a.searchsorted(2)|a.repeat(2)|a.take([0])|a.tolist()|a.size|a.shape|a.ndim|len(a)|a[a > 1]
a[::-1]|-a|m.T.ravel()|m.mean(axis=0)|m.sum(axis=1)|m.max(axis=1, keepdims=True).ravel()|m.diagonal()|m.trace()
(m @ m).ravel()|np.mean(a)|np.sum(a)|np.std(a)|np.var(a)|np.median(a)|np.percentile(a, 30)|np.quantile(a, .3)
np.average(a, weights=a)|np.unique([1, 1, 2])|np.unique([1, 1, 2], return_counts=True)[1]|np.sort(a)|np.argsort(-a)
np.argmin(a)|np.cumprod(a)|np.clip(a, 0, 1)|np.where(a > 1, a, 0)|np.concatenate([a, a])|np.stack([a, a]).ravel()
np.vstack([a, a])[0]|np.diff(a)|np.hstack([a, a])|np.exp(-a)|np.log(a)|np.log1p(a)|np.sqrt(a)|np.abs(-a)|np.sign(-a)
np.tanh(a)|np.sin(a)|np.power(a, 2)|np.maximum(a, 2)|np.minimum(a, 2)|np.floor(a)|np.ceil(a)|np.round(a)|np.isnan(a)
np.isfinite(a)|np.nan_to_num([np.nan])|np.nanmean([1, np.nan])|np.nansum([1, np.nan])|np.nanmax([1, np.nan])
np.nanstd([1, np.nan, 3])|np.count_nonzero(a)|np.any(a > 2)|np.all(a > 2)|np.isclose(a, a)|np.allclose(a, a)
np.array_equal(a, a)|np.zeros(2)|np.ones(2)|np.full(2, 3.)|np.eye(2)[0]|np.arange(3)|np.linspace(0, 1, 3)
np.dot(a, a)|np.outer(a, a)[0]|np.inner(a, a)|np.cross(a, a)|np.kron(a, a)|np.linalg.norm(a)|np.linalg.det(m)
np.linalg.inv(m)[0]|np.linalg.solve(m, [1, 2])|np.linalg.eigvalsh(m)|np.matmul(m, m)[0]|np.linalg.lstsq(m, [1, 2])[0]
np.linalg.svd(m)[1]|np.linalg.pinv(m)[0]|np.linalg.matrix_rank(m)|np.einsum('ij,ij', m, m)|np.histogram(a)[0]
np.bincount([0, 1, 1])|np.digitize(a, [1.5])|np.interp(1.5, a, a)|np.polyfit(a, a, 1).round(6) + 0.
np.polyval([1, 2], 3)|np.convolve(a, a)|np.correlate(a, a)|np.corrcoef(a, a)[0]|np.cov(a)|np.trapezoid(a)
np.gradient(a)|np.isin(a, [1.])|np.intersect1d(a, a)|np.union1d(a, a)|np.setdiff1d(a, [1.])|np.tile(a, 2)
np.repeat(a, 2)|np.flip(a)|np.roll(a, 1)|np.pad(a, 1)|np.argwhere(a > 1).ravel()|np.nonzero(a)[0]|np.triu(m)[0]
np.diag(m)|np.squeeze([[1.]])|np.float64(2) / 3|np.float32(.5)|np.int64(7) // 2|np.bool_(True)|float(np.pi)
float(np.e)|np.hypot(3, 4)|np.arctan2(1, 1)|np.maximum.accumulate(a)|np.add.reduce(a)|np.logical_and(a > 1, a < 3)
np.vectorize(lambda x: x + 1)(a)|np.searchsorted(a, 2)|np.meshgrid(a, a)[0][0]|np.broadcast_to(1., (2,))
np.apply_along_axis(sum, 0, m)|np.array([(1, 2)])[0]|np.finfo(float).max|len(str(a))|len(repr(a))|len(f'{a}')
len(f'{a.mean():.2f}')|len(str(a.dtype))|len(str(np.float64(1)))|a.dtype == float|isinstance(a, np.ndarray)
isinstance(1., np.ndarray)|isinstance(a[0], np.floating)|isinstance(np.int64(1), np.integer)|np.mean([])
np.array([1.]) / 0|np.array([None, 1.])[1]|np.array(['a', 'b']) == 'a'|np.array([True, False]).sum()
isinstance(np.float64(1), np.number)|np.issubdtype(a.dtype, np.floating)|np.asarray([1, 2], dtype=np.float32)
np.inf > 1
"""
PLAIN = """
Counter('aab').most_common(1)[0][1]|Counter('aab').total()|len(Counter('aab').elements and [1])
deque([1, 2]).popleft()|defaultdict(int)['x']|OrderedDict(a=1)['a']|ChainMap({'a': 1})['a']
namedtuple('P', 'x y')(1, 2).y|sum(Counter('aab').values())|statistics.mean([1, 2])|statistics.median([1, 2, 4])
statistics.stdev([1, 2, 4])|statistics.pvariance([1, 2])|statistics.mode('aab') == 'a'
statistics.quantiles([1, 2, 3])|statistics.NormalDist(0, 1).cdf(1)|statistics.fmean([1, 2])
statistics.harmonic_mean([1, 2])|statistics.linear_regression([1, 2], [3, 5]).slope
statistics.correlation([1, 2, 3], [1, 2, 4])|statistics.geometric_mean([1, 2])|list(itertools.chain([1], [2]))
list(itertools.accumulate([1, 2, 3]))|list(itertools.islice(itertools.count(), 3))
len(list(itertools.product('ab', repeat=2)))|len(list(itertools.permutations('abc')))
len(list(itertools.combinations('abc', 2)))|[len(list(g)) for _, g in itertools.groupby('aab')]
[x + y for x, y in itertools.pairwise([1, 2, 3])]|list(itertools.repeat(1, 2))
[x for x, in itertools.zip_longest([1, 2])]|list(itertools.takewhile(lambda x: x < 2, [1, 2]))
list(itertools.compress([1, 2], [0, 1]))|math.sqrt(2)|math.exp(1)|math.log(2)|math.log2(8)|math.isclose(1, 1)
math.prod([2, 3])|math.comb(4, 2)|math.gcd(4, 6)|math.tanh(1)|math.hypot(3, 4)|math.fsum([.1] * 10)|math.floor(1.5)
math.ceil(1.5)|math.pi|math.dist([0, 0], [3, 4])|math.erf(1)|math.factorial(5)|len(re.findall(r'\\d+', '1 22 333'))
re.search(r'(?P<n>\\d+)', 'a12').group('n') == '12'|len(re.sub('a', 'bb', 'aa'))|len(re.split(r'[,;]', 'a,b;c'))
bool(re.fullmatch('[a-z]+', 'abc', re.IGNORECASE))|re.compile('a+').match('aab').end()|len(re.escape('a.b'))
[m.start() for m in re.finditer('a', 'aba')]|len(string.ascii_lowercase)|'a' in string.punctuation
len(string.Template('$x!').substitute(x='ab'))|len(string.capwords('ab cd'))|'a b'.split()[1] == 'b'
'Ab'.lower() == 'ab'|len('a,b'.split(','))|'ab'.startswith('a')|'aXb'.replace('X', '').index('b')|len('  a '.strip())
'abc'.find('c')|len('x'.join('ab'))|len('\\N{BULLET}')|len('\\u00e9'.encode())|len('\\u00e9'.encode('latin-1'))
len('%.2f' % 1.5)|'a'.isalpha()|len('ab'.zfill(5))|json.loads('[1, 2]')
len(json.dumps({'a': [1, None]}, sort_keys=True))|float(fractions.Fraction('1/3'))|fractions.Fraction(.5).denominator
heapq.nlargest(2, [1, 3, 2])|heapq.heappop([1, 2])|bisect.bisect([1, 2], 1)
functools.reduce(lambda x, y: x * y, [1, 2, 3])|functools.lru_cache(lambda x: x + 1)(1)|functools.partial(pow, 2)(3)
sorted([3, 1], key=functools.cmp_to_key(lambda x, y: x - y))|len({1, 2} | {3})|sum(x for x in range(4))
max([1, 2], key=lambda x: -x)|sorted({'b': 1, 'a': 2}.values())|round(2.675, 2)|divmod(7, 2)|[*map(abs, [-1])]
[*zip([1], [2])][0]|any([0, 1])|int('7')|float('1e3')|complex(1, 2).real|bin(5).count('1')|ord('a')|hash(1)
"""
HEADER = """
import bisect, fractions, functools, heapq, itertools, json, math, re, statistics, string
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque, namedtuple
"""
ARRAYS = "import numpy as np\na = np.array([1.0, 2.0, 3.5])\nm = np.array([[2.0, 1.0], [1.0, 3.0]])\n"


def split(text: str) -> list[str]:
    """Expressions, a line or a bar apart; `|` between blanks belongs to the expression."""
    return [each for each in re.split(r"(?<! )\|(?! )|\n", text) if each]


def outside(source: str) -> object:
    """What the program returns without the sandbox, as the sandbox says it."""
    namespace: dict[str, object] = {}
    with warnings.catch_warnings(), contextlib.suppress(ImportError):
        warnings.simplefilter("ignore")
        exec(source, namespace)
        value = namespace["reward"]()  # type: ignore[operator]
    value = value.tolist() if hasattr(value, "tolist") else value
    return [float(each) for each in value] if isinstance(value, list | tuple) else float(value)


@pytest.mark.parametrize("header", [ARRAYS, HEADER], ids=["numpy", "plain"])
def test_each_call_gives_what_it_gives_outside(header: str) -> None:
    expressions = split(NUMPY if header == ARRAYS else PLAIN)
    functions = "\n".join(f" if n == {n}: return {each}" for n, each in enumerate(expressions))
    inside = run_table(f"{header}def reward(n):\n{functions}", "reward", [[n] for n in range(len(expressions))])
    wrong = {}
    for each, outcome in zip(expressions, inside, strict=True):
        expected = outside(f"{header}def reward(): return {each}")
        numbers = expected if isinstance(expected, list) else [expected]
        if not all(math.isfinite(number) for number in numbers):
            same = outcome == CallOutcome(error="result: NaN or infinite; return None where there is no score")
        else:
            same = outcome.error is None and outcome.value == pytest.approx(expected, 1e-12)
        if not same:
            wrong[each] = (outcome, expected)
    assert len(expressions) > 80
    assert not wrong


@pytest.mark.parametrize(
    ("module", "call"),
    [
        ("numpy as np", "np.array([1.0, 2.0]).mean()"),
        ("numpy as np", "np.unique([1, 1]).size"),
        ("numpy as np", "len(str(np.array([1.0])))"),
        ("collections", "collections.Counter('ab').most_common(1)[0][1]"),
    ],
)
def test_late_imports_of_a_library_are_there_when_nothing_else_is_imported(module: str, call: str) -> None:
    outcome = run_program(f"import {module}\ndef reward(): return {call}", "reward")
    assert outcome == CallOutcome(outside(f"import {module}\ndef reward(): return {call}"))


def test_warnings_of_libraries_are_not_printed() -> None:
    """They would show paths of this machine to the program's reader."""
    source = "import numpy as np\ndef reward(): return 1.0 if np.isnan(np.mean([])) else 0.0"
    assert run_program(source, "reward") == CallOutcome(1.0)


def test_an_error_of_the_sandbox_inside_a_library_is_told_from_one_of_the_program() -> None:
    source = "import subprocess\ndef reward(own):\n if own: raise PermissionError('mine')\n subprocess.run(['/bin/sh'])"
    mine, blocked = run_table(source, "reward", [[1], [0]], screened=False)
    assert mine.error == "PermissionError: mine (line 3)"
    assert blocked.error is not None
    assert blocked.error.startswith("sandbox: a library needs what is locked here: ")
    assert blocked.error.endswith(" (line 4)")
    assert (mine.blocked, blocked.blocked) == (False, True)
