"""A pretrained model from a folder or hub: what is asked for is checked first, weights that learn are held in float32.

An update of 1e-5 of a weight is lost in 16 bits, or grows to the next number that there is; so `dtype` is the type of
weights that do not learn (below adapters), and of the arithmetic on a GPU if it is bfloat16. Below adapters weights are
loaded once: policies on the same base (folder or id, dtype, device) hold the same tensors, each with modules and
adapters of its own, so that none has to be switched. Left out: quantisation, models spread over devices, code that a
hub brings (`trust_remote_code`).
"""

from __future__ import annotations

import copy
import dataclasses
import os
import threading
import warnings
import weakref
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch

from palaestra.errors import InputError, missing_extra, nearest
from palaestra.foundation.files import read_object

_TYPES = {
    "float32": torch.float32,
    "fp32": torch.float32,
    "bfloat16": torch.bfloat16,
    "bf16": torch.bfloat16,
    "float16": torch.float16,
    "fp16": torch.float16,
}
_LORA_WORDS = {"rank": "r", "alpha": "lora_alpha", "dropout": "lora_dropout", "modules": "target_modules"}
HALF = (torch.float16, torch.bfloat16)


class LoadingPlan(NamedTuple):
    """Data of what to load for a model (base, adapter, LoRA, device, types), checked without weights.

    base: folder or hub id of the weights. adapter: folder or id of an adapter on them. config: of the base. compute:
    the type of the arithmetic, if not that of the weights.
    """

    base: str
    adapter: str | None
    lora: Mapping[str, Any] | None
    device: torch.device
    dtype: torch.dtype
    config: Any
    compute: torch.dtype | None = None


def plan(
    path: str | Path,
    lora: Mapping[str, Any] | None,
    device: str | torch.device,
    dtype: str | torch.dtype,
    compute: str | torch.dtype | None = None,
) -> LoadingPlan:
    """Checked `LoadingPlan` of a model at `path` without its weights; InputError if it cannot work, warns of memory."""
    try:
        from transformers import AutoConfig
        from transformers.utils.peft_utils import find_adapter_config_file
    except ImportError:
        raise missing_extra("transformers", "train") from None
    where, kind = device_of(device), dtype_of(dtype)
    if lora is not None:
        check_lora(lora)
    source = str(Path(path).absolute()) if Path(path).is_dir() else str(path)  # a base is still found from elsewhere
    adapter = None
    try:
        found = find_adapter_config_file(source)
        if found is not None:
            adapter, source = source, _base(Path(found))
        config = AutoConfig.from_pretrained(source)
    except (OSError, ValueError, KeyError) as error:
        raise load_error(path, error) from error
    if adapter is not None and lora is not None:
        raise InputError(f"LMPolicy: {str(path)!r} is an adapter already: leave lora= out, and it goes on learning")
    whole = lora is None and adapter is None
    if compute is None and whole and where.type != "cpu" and kind is torch.bfloat16:
        compute = kind
    made = LoadingPlan(source, adapter, lora, where, kind, config, compute_of(compute))
    _say_memory(made)
    return made


def tokenizer_of(made: LoadingPlan) -> Any:
    """Loads the Hugging Face tokenizer of a `LoadingPlan`; InputError if it cannot be loaded."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(made.adapter or made.base)
    except (OSError, ValueError) as error:
        raise load_error(made.base, error) from error


def load(made: LoadingPlan) -> tuple[Any, Any]:
    """Loads (model, tokenizer) of a `LoadingPlan` onto its device; on "meta" the model has shapes, but no weights."""
    tokenizer = tokenizer_of(made)
    if made.device.type == "meta":
        return _shapes(made), tokenizer
    if made.lora is None and made.adapter is None:
        return _weights(made, torch.float32), tokenizer
    if not _leaves_its_base_alone(made):
        return _adapted(_weights(made, made.dtype), made).to(made.device), tokenizer
    base = _base_of(made)
    tensors = {id(each): each for each in (*base.parameters(), *base.buffers())}
    model = _adapted(copy.deepcopy(base, tensors), made).to(made.device)
    weakref.finalize(model, _let_go, base)
    return model, tokenizer


_ONE_AT_A_TIME = threading.Lock()
"""transformers makes a model of no device for a moment by what all threads share, so two at a time leave one empty."""


def _shapes(made: LoadingPlan) -> Any:
    """The model without weights, with the generation config of its folder, which names end tokens."""
    from transformers import AutoModelForCausalLM, GenerationConfig

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(made.config).float()
        with suppress(OSError):  # it has none
            model.generation_config = GenerationConfig.from_pretrained(made.base)
        if made.lora is None and made.adapter is None:
            return model
        from peft import get_peft_model

        return get_peft_model(model, _lora_config(made))


def _weights(made: LoadingPlan, dtype: torch.dtype) -> Any:
    from transformers import AutoModelForCausalLM

    try:
        with _ONE_AT_A_TIME:
            model = AutoModelForCausalLM.from_pretrained(made.base, dtype=dtype)
    except (OSError, ValueError) as error:
        raise load_error(made.base, error) from error
    try:
        return model.to(made.device)
    except RuntimeError as error:
        raise InputError(f"LMPolicy: {made.base!r} does not fit on {made.device}: {_line(error)}") from error


_BASES: weakref.WeakValueDictionary[tuple[Any, ...], Any] = weakref.WeakValueDictionary()
_LOADING = threading.Lock()


def _base_of(made: LoadingPlan) -> Any:
    """The model below adapters, frozen; loaded unless a policy that lives stands on it already."""
    with _LOADING:
        if (base := _BASES.get(_key(made))) is None:
            base = _BASES[_key(made)] = _weights(made, made.dtype).requires_grad_(False)
        return base


def _key(made: LoadingPlan) -> tuple[Any, ...]:
    """Key by which two policies share a model; rewritten files are another model."""
    files = sorted(Path(made.base).glob("*.safetensors")) if Path(made.base).is_dir() else []
    stamps = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return made.base, made.dtype, made.device, tuple(stamps)


def _let_go(base: Any) -> None:
    """Nothing: that this is to be called holds the base as long as a model on it lives."""


def _leaves_its_base_alone(made: LoadingPlan) -> bool:
    """Whether adapters neither train nor begin by changing what is below them."""
    config = _lora_config(made)
    return (
        str(getattr(config, "peft_type", "")).endswith("LORA")
        and config.bias == "none"
        and config.init_lora_weights in (True, False, "gaussian", "orthogonal")
    )


def _lora_config(made: LoadingPlan) -> Any:
    try:
        from peft import LoraConfig, PeftConfig
    except ImportError:
        raise missing_extra("peft", "train") from None
    if made.adapter is not None:
        return PeftConfig.from_pretrained(made.adapter)
    try:
        return LoraConfig(task_type="CAUSAL_LM", **(made.lora or {}))
    except (TypeError, ValueError) as error:
        raise InputError(f"LMPolicy: lora: {_line(error)}") from error


def _adapted(model: Any, made: LoadingPlan) -> Any:
    from peft import PeftModel, get_peft_model

    if made.adapter is not None:
        return PeftModel.from_pretrained(model, made.adapter, is_trainable=True)
    layers = sorted({name.rpartition(".")[2] for name, each in model.named_modules() if _is_matrix(each)})
    try:
        # A LoRA that starts at the same random place for the same model; peft draws from the global generator.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return get_peft_model(model, _lora_config(made))
    except (TypeError, ValueError) as error:
        raise InputError(f"LMPolicy: lora: {_line(error)}; layers of this model: {', '.join(layers)}") from error


def _is_matrix(module: torch.nn.Module) -> bool:
    return isinstance(module, torch.nn.Linear) or type(module).__name__ == "Conv1D"


# -- what is asked for ------------------------------------------------------------------------------------------------


def dtype_of(dtype: str | torch.dtype) -> torch.dtype:
    """torch.dtype of a name such as "bf16", "bfloat16" or "torch.bfloat16", or of a dtype; InputError for others."""
    name = str(dtype).removeprefix("torch.")
    if name not in _TYPES:
        raise InputError(f"LMPolicy: dtype is {str(dtype)!r}{nearest(name, _TYPES)}")
    return _TYPES[name]


def compute_of(compute: str | torch.dtype | None) -> torch.dtype | None:
    """torch.dtype of the arithmetic: bfloat16, or None for float32; InputError for float16 and unknown ones."""
    found = None if compute is None else dtype_of(compute)
    if found is torch.float16:
        raise InputError("LMPolicy: compute is 'float16', in which gradients vanish: take 'bf16', or leave it out")
    return None if found is torch.float32 else found


def device_of(device: str | torch.device) -> torch.device:
    """torch.device of a name; InputError for a device that cannot be used here."""
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise InputError(f"LMPolicy: device is {device!r}: {_line(error)}") from error
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        there = torch.cuda.device_count()
        built = "" if torch.version.cuda else ", and this torch was built without CUDA"
        raise InputError(f"LMPolicy: device is {device!r}, but there are {there} CUDA devices here{built}; use 'cpu'")
    try:
        torch.empty(1, device=found)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InputError(f"LMPolicy: device is {device!r}, which cannot be used here: {_line(error)}") from error
    return found


def check_lora(lora: Mapping[str, Any]) -> None:
    """Raises InputError for fields that peft's LoraConfig does not have."""
    try:
        from peft import LoraConfig
    except ImportError:
        raise missing_extra("peft", "train") from None
    if not isinstance(lora, Mapping):
        raise InputError(f"LMPolicy: lora is {lora!r}, expected fields of peft's LoraConfig, {{'r': 8}}")
    fields = [field.name for field in dataclasses.fields(LoraConfig)]
    for name in lora:
        if name not in fields:
            hint = f"; did you mean {_LORA_WORDS[name]!r}?" if name in _LORA_WORDS else nearest(str(name), fields)
            raise InputError(f"LMPolicy: lora: no field {name!r} in peft's LoraConfig{hint}")


def positions(config: Any) -> int | None:
    """Maximum number of tokens of a model by its Hugging Face `config`, as int; None if it does not say."""
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    for name in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"):
        if isinstance(found := getattr(config, name, None), int) and found > 0:
            return found
    return None


def load_error(path: str | Path, error: Exception) -> InputError:
    """Makes, does not raise, the one-line InputError for a model `path` that exception `error` kept from loading."""
    return InputError(f"LMPolicy: cannot load a model and tokenizer from {str(path)!r}: {_line(error)}")


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _base(adapter_config: Path) -> str:
    """The base of an adapter: as its config has it, or beside the adapter, where a relative path has come from."""
    named = str((read_object(adapter_config) or {}).get("base_model_name_or_path") or "")
    if not named:
        raise InputError(f"LMPolicy: {adapter_config} names no base_model_name_or_path")
    for folder in (Path(), *list(adapter_config.absolute().parents)[:4]):
        if (folder / named).is_dir():
            return str((folder / named).absolute())
    if Path(named).is_absolute() or named.startswith("."):
        raise InputError(
            f"LMPolicy: the base {named!r} of the adapter {adapter_config.parent} is not there: "
            f"write where it is into base_model_name_or_path of {adapter_config.name}"
        )
    return named  # of a hub


# -- memory -----------------------------------------------------------------------------------------------------------


def training_memory(made: LoadingPlan, *, reference: bool = False) -> dict[str, float] | None:
    """Dict {purpose: bytes}: memory for training the model of a `LoadingPlan`, without activations; None if unknown.

    reference: of a copy that never moves, which a term such as `kl()` asks for. Below adapters it is shared.
    """
    sizes = _parameters(made)
    if sizes is None:
        return None
    below, learn = sizes
    half = made.compute is not None and not below
    return {
        "weights": 0.0 if _key(made) in _BASES else below * made.dtype.itemsize,
        "adapters" if below else "weights in float32": 4.0 * learn,
        "copies in bfloat16": 2.0 * learn if half else 0.0,
    } | to_learn(learn, reference)


def to_learn(learn: int, reference: bool) -> dict[str, float]:
    """Memory beside the weights for `learn` trainable parameters, {purpose: bytes}: gradients, moments, reference."""
    return {
        "gradients": 4.0 * learn,
        "moments of Adam": 8.0 * learn,
        "reference copy": 4.0 * learn if reference else 0.0,
    }


def sum_of(parts: Mapping[str, float]) -> str:
    """Text that sums up {purpose: bytes}, such as `108 GB: 27 weights, 27 gradients, 54 moments of Adam`.

    >>> sum_of({"weights": 27e9, "adapters": 0.0, "gradients": 27e9})
    '54 GB: 27 weights, 27 gradients'
    """
    named = ", ".join(f"{size / 1e9:.2g} {name}" for name, size in parts.items() if size)
    return f"{sum(parts.values()) / 1e9:.3g} GB: {named}"


def check_room(name: str, learn: int, device: torch.device, *, reference: bool) -> None:
    """Raises InputError if gradients, moments and a reference copy of `learn` parameters do not fit on a device."""
    parts, there = to_learn(learn, reference), free_memory(device)
    if there is not None and sum(parts.values()) > there:
        raise InputError(
            f"policy {name!r} needs {sum_of(parts)} to learn beside its weights; {device} has {there / 1e9:.3g} GB"
            f" free: learn adapters instead, lora={{'r': 8}}, take a smaller model, or more memory"
        )


def _say_memory(made: LoadingPlan) -> None:
    """Warn before a model is loaded that takes much of the memory; refuse one whose weights alone are more than it."""
    if made.device.type == "meta":
        return
    parts, there = training_memory(made), free_memory(made.device)
    if parts is None or there is None or sum(parts.values()) < there / 4:
        return
    said = f"LMPolicy: {made.base!r} needs {sum_of(parts)}; {made.device} has {there / 1e9:.3g} GB free"
    if sum(size for name, size in parts.items() if name.startswith("weights")) > there:
        raise InputError(
            f"{said}: it cannot be loaded; take a smaller one, dtype='bf16' with lora={{'r': 8}}, or a GPU"
        )
    copy = parts.get("adapters") or parts.get("weights in float32", 0.0)
    more = f" (activations not counted; a reference, for kl(), takes {copy / 1e9:.2g} more)"
    whole = "adapters" not in parts and sum(parts.values()) > there
    warnings.warn(said + more + ("; lora={'r': 8} would take less" if whole else ""), stacklevel=4)


def _parameters(made: LoadingPlan) -> tuple[int, int] | None:
    """Parameters below adapters, and of what learns, without making them; None if that cannot be known."""
    from transformers import AutoModelForCausalLM

    try:
        with torch.device("meta"), warnings.catch_warnings(action="ignore"):
            model = AutoModelForCausalLM.from_config(made.config)
            count = sum(int(each.numel()) for each in model.parameters())
            if made.lora is None and made.adapter is None:
                return 0, count
            from peft import get_peft_model

            model = get_peft_model(model, _lora_config(made))
            return count, sum(int(each.numel()) for each in model.parameters() if each.requires_grad)
    except Exception:  # an estimate, no more: loading says what is wrong
        return None


def free_memory(device: torch.device) -> float | None:
    """Free memory of a torch device in bytes (CPU: of the machine), float; None if unknown."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(1024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError, IndexError):
        pass
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return None
