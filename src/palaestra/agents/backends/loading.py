"""A pretrained model from a folder or hub: what is asked for is checked first, weights that learn are held in float32.

An update of 1e-5 of a weight is lost in 16 bits, or grows to the next number that there is; so `dtype` is the type of
weights that do not learn (below adapters), and of the arithmetic on a GPU if it is bfloat16. Left out: quantisation,
models spread over devices, code that a hub brings (`trust_remote_code`).
"""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from palaestra.algebra.files import read_object
from palaestra.errors import InputError, missing_extra, nearest

_TYPES = {
    "float32": torch.float32, "fp32": torch.float32, "bfloat16": torch.bfloat16, "bf16": torch.bfloat16,
    "float16": torch.float16, "fp16": torch.float16,
}  # fmt: skip
_LORA_WORDS = {"rank": "r", "alpha": "lora_alpha", "dropout": "lora_dropout", "modules": "target_modules"}
HALF = (torch.float16, torch.bfloat16)


class Plan(NamedTuple):
    """What is to be loaded, after every check that needs no weights.

    base: folder or hub id of the weights. adapter: folder or id of an adapter on them. config: of the base.
    """

    base: str
    adapter: str | None
    lora: Mapping[str, Any] | None
    device: torch.device
    dtype: torch.dtype
    config: Any


def plan(
    path: str | Path, lora: Mapping[str, Any] | None, device: str | torch.device, dtype: str | torch.dtype
) -> Plan:
    """Raises InputError for whatever cannot work; warns of a model that will hardly fit."""
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
        raise cannot(path, error) from error
    if adapter is not None and lora is not None:
        raise InputError(f"LMPolicy: {str(path)!r} is an adapter already: leave lora= out, and it goes on learning")
    made = Plan(source, adapter, lora, where, kind, config)
    _say_memory(made)
    return made


def load(made: Plan) -> tuple[Any, Any]:
    """(model, tokenizer) of a plan, on its device."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    whole = made.lora is None and made.adapter is None
    try:
        model = AutoModelForCausalLM.from_pretrained(made.base, dtype=torch.float32 if whole else made.dtype)
        tokenizer = AutoTokenizer.from_pretrained(made.adapter or made.base)
    except (OSError, ValueError) as error:
        raise cannot(made.base, error) from error
    if not whole:
        model = _adapted(model, made)
    try:
        return model.to(made.device), tokenizer
    except RuntimeError as error:
        raise InputError(f"LMPolicy: {made.base!r} does not fit on {made.device}: {_line(error)}") from error


def _adapted(model: Any, made: Plan) -> Any:
    try:
        from peft import LoraConfig, PeftModel, get_peft_model
    except ImportError:
        raise missing_extra("peft", "train") from None
    if made.adapter is not None:
        return PeftModel.from_pretrained(model, made.adapter, is_trainable=True)
    layers = sorted({name.rpartition(".")[2] for name, each in model.named_modules() if _is_matrix(each)})
    try:
        # A LoRA that starts at the same random place for the same model; peft draws from the global generator.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **(made.lora or {})))
    except (TypeError, ValueError) as error:
        raise InputError(f"LMPolicy: lora: {_line(error)}; layers of this model: {', '.join(layers)}") from error


def _is_matrix(module: torch.nn.Module) -> bool:
    return isinstance(module, torch.nn.Linear) or type(module).__name__ == "Conv1D"


# -- what is asked for ------------------------------------------------------------------------------------------------


def dtype_of(dtype: str | torch.dtype) -> torch.dtype:
    """`"bf16"`, `"bfloat16"`, `"torch.bfloat16"` or the type itself. Raises InputError for others."""
    name = str(dtype).removeprefix("torch.")
    if name not in _TYPES:
        raise InputError(f"LMPolicy: dtype is {str(dtype)!r}{nearest(name, _TYPES)}")
    return _TYPES[name]


def compute_of(compute: str | torch.dtype | None) -> torch.dtype | None:
    """The type of the arithmetic beside that of the weights: bfloat16 or none. Raises InputError for others."""
    found = None if compute is None else dtype_of(compute)
    if found is torch.float16:
        raise InputError("LMPolicy: compute is 'float16', in which gradients vanish: take 'bf16', or leave it out")
    return None if found is torch.float32 else found


def device_of(device: str | torch.device) -> torch.device:
    """Raises InputError for a device that is not here."""
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
    """How many tokens a model can tell apart by place; None if it does not say."""
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    for name in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"):
        if isinstance(found := getattr(config, name, None), int) and found > 0:
            return found
    return None


def cannot(path: str | Path, error: Exception) -> InputError:
    """The one line for a model that cannot be loaded."""
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


def _say_memory(made: Plan) -> None:
    """Warn before a model is loaded that takes much of the memory; refuse one whose weights alone are more than it."""
    parameters = _parameters(made.config)
    if parameters is None:
        return
    whole = made.lora is None and made.adapter is None
    weights = parameters * (4 if whole else made.dtype.itemsize)
    need = weights * 4 if whole else weights  # gradients, and two moments of Adam, in float32
    there = _memory(made.device)
    if there is None or need < there / 4:
        return
    sizes = f"{parameters / 1e9:.2g} billion parameters take {weights / 1e9:.3g} GB"
    learning = (
        f", {need / 1e9:.3g} GB while they learn (gradients, Adam)"
        if whole
        else ", adapters and activations not counted"
    )
    said = f"LMPolicy: {made.base!r}: {sizes}{learning}; {made.device} has {there / 1e9:.3g} GB"
    if weights > there:
        raise InputError(
            f"{said}: it cannot be loaded; take a smaller one, dtype='bf16' with lora={{'r': 8}}, or a GPU"
        )
    warnings.warn(said + ("; lora={'r': 8} would take less" if whole and need > there else ""), stacklevel=4)


def _parameters(config: Any) -> int | None:
    """Of the model that a config describes, without making it; None if it cannot be known."""
    from transformers import AutoModelForCausalLM

    try:
        with torch.device("meta"):
            return sum(int(each.numel()) for each in AutoModelForCausalLM.from_config(config).parameters())
    except Exception:  # an estimate, no more: loading says what is wrong
        return None


def _memory(device: torch.device) -> float | None:
    """Bytes of a device."""
    if device.type == "cuda":
        return float(torch.cuda.get_device_properties(device).total_memory)
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return None
