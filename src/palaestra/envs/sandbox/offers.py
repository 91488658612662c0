"""Modules offered to screened programs: copies that hold only functions that compute.

NumPy's copy is a list of what is allowed, because NumPy has many ways to read memory and files. No listed function, and
no method that the screen lets pass, makes an array of a given address or reads the same bytes as another type.
"""

from __future__ import annotations

import contextlib
import importlib
import types
from typing import Any

HIDDEN = {
    "Formatter",
    "ForwardRef",
    "get_type_hints",
    "singledispatch",
    "singledispatchmethod",
    "update_wrapper",
    "wraps",
}
"""Names of other modules that are left out: they take names, or evaluate text."""
NUMPY = """
abs absolute acos acosh add all allclose amax amin angle any append apply_along_axis apply_over_axes arange arccos
arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin argpartition argsort argwhere around array array2string
array_equal array_equiv array_repr array_split array_str asarray ascontiguousarray asin asinh astype atan atan2 atanh
atleast_1d atleast_2d atleast_3d average bartlett base_repr binary_repr bincount bitwise_and bitwise_count
bitwise_invert bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor blackman block
broadcast_arrays broadcast_shapes broadcast_to can_cast cbrt ceil choose clip column_stack common_type compress concat
concatenate conj conjugate convolve copy copysign copyto corrcoef correlate cos cosh count_nonzero cov cross cumprod
cumsum cumulative_prod cumulative_sum deg2rad degrees delete diag diag_indices diag_indices_from diagflat diagonal diff
digitize divide divmod dot dsplit dstack ediff1d einsum empty empty_like equal errstate exp exp2 expand_dims expm1
extract eye fabs fill_diagonal finfo fix flatnonzero flip fliplr flipud float_power floor floor_divide fmax fmin fmod
format_float_positional format_float_scientific frexp fromfunction fromiter full full_like gcd geomspace
get_printoptions geterr gradient greater greater_equal hamming hanning heaviside histogram histogram2d
histogram_bin_edges histogramdd hsplit hstack hypot i0 identity iinfo imag indices inner insert interp intersect1d
invert isclose iscomplex iscomplexobj isdtype isfinite isin isinf isnan isneginf isposinf isreal isrealobj isscalar
issubdtype iterable ix_ kaiser kron lcm ldexp left_shift less less_equal lexsort linspace log log10 log1p log2
logaddexp logaddexp2 logical_and logical_not logical_or logical_xor logspace matmul matrix_transpose matvec max maximum
mean median meshgrid min min_scalar_type minimum mod modf moveaxis multiply nan_to_num nanargmax nanargmin nancumprod
nancumsum nanmax nanmean nanmedian nanmin nanpercentile nanprod nanquantile nanstd nansum nanvar ndim negative
nextafter nonzero not_equal ones ones_like outer packbits pad partition percentile permute_dims piecewise place poly
polyadd polyder polydiv polyfit polyint polymul polysub polyval positive pow power printoptions prod promote_types ptp
put put_along_axis putmask quantile rad2deg radians ravel ravel_multi_index real real_if_close reciprocal remainder
repeat reshape result_type right_shift rint roll rollaxis roots rot90 round row_stack searchsorted select
set_printoptions setdiff1d seterr setxor1d shape sign signbit sin sinc sinh size sort sort_complex spacing split sqrt
square squeeze stack std subtract sum swapaxes take take_along_axis tan tanh tensordot tile trace transpose trapezoid
tri tril tril_indices tril_indices_from trim_zeros triu triu_indices triu_indices_from true_divide trunc union1d unique
unique_all unique_counts unique_inverse unique_values unpackbits unravel_index unstack unwrap vander var vdot vecdot
vecmat vectorize vsplit vstack where zeros zeros_like

bool bool_ complex128 complex64 complexfloating double float16 float32 float64 floating generic half inexact int16
int32 int64 int8 int_ integer intc intp long longlong number short signedinteger single ubyte uint uint16 uint32 uint64
uint8 unsignedinteger

False_ True_ e euler_gamma inf nan newaxis pi
"""
LINALG = """
LinAlgError cholesky cond det eig eigh eigvals eigvalsh inv lstsq matrix_norm matrix_power matrix_rank multi_dot norm
pinv qr slogdet solve svd svdvals vector_norm
"""
IMPORTED_LATER = {"collections": ("heapq",), "functools": ("weakref",), "numpy": ("numpy.ma",)}
"""What functions of a module import when they are called, which is too late once files cannot be opened."""


def offer(names: list[str]) -> dict[str, types.ModuleType]:
    """Restricted copies of the named modules for a sandboxed program, {name: module}; missing ones are left out."""
    importlib.import_module("unicodedata")  # needed to compile "\\N{BULLET}"
    offered = {}
    for name in names:
        with contextlib.suppress(ImportError):
            module = importlib.import_module(name)
            offered[name] = arrays(module) if name == "numpy" else public(module)
            for later in IMPORTED_LATER.get(name, ()):
                importlib.import_module(later)
    return offered


def public(module: types.ModuleType) -> types.ModuleType:
    """A copy of a module with its public names only, without the modules that it imports (no `statistics.sys`)."""
    names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    return _copy(module, [each for each in names if each not in HIDDEN and not each.startswith("__")])


def arrays(numpy: Any) -> types.ModuleType:
    """Copy of the module `numpy`, given, with the allowed functions, types and constants (`NUMPY`, `LINALG`) only."""
    copy = _copy(numpy, NUMPY.split())
    vars(copy).update(linalg=_copy(numpy.linalg, LINALG.split()), ndarray=_stand_in(numpy.ndarray))
    return copy


def _copy(module: types.ModuleType, names: list[str]) -> types.ModuleType:
    """It has another name, for `from numpy import lib` looks for a loaded `numpy.lib` where `numpy` has no `lib`."""
    copy = types.ModuleType(f"sandboxed {module.__name__}")
    for name in names:
        if name in vars(module) and not isinstance(value := vars(module)[name], types.ModuleType):
            setattr(copy, name, value)
    return copy


def _stand_in(array: type) -> type:
    """A class for `isinstance` alone: the real one makes arrays of any type of any memory."""

    class OnlyForIsinstance(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, array)

    class ndarray(metaclass=OnlyForIsinstance):
        def __new__(cls, *arguments: Any, **options: Any) -> ndarray:
            raise TypeError("np.ndarray can only be used with isinstance; make arrays with np.array or np.zeros")

    return ndarray
