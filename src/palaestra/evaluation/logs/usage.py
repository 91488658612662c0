"""Tokens of a model call, whoever reports them.

Providers disagree on whether the prompt's tokens include those read from a cache: OpenAI and Google count them in,
Anthropic counts them apart, Inspect AI counts them apart today and did not always. Here `tokens_in` is the whole
prompt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def tokens(usage: Any) -> dict[str, Any]:
    """Dict of token counts of a usage record of any provider: tokens_in, tokens_cached, tokens_cache_write, tokens_out.

    tokens_in is the whole prompt, tokens_cached the part of it that was read from a cache.

    What is not reported is absent. Inspect's total says which convention its log follows: if it is input plus output,
    the cached tokens are part of the input.

    >>> tokens({"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 80}})
    {'tokens_in': 100, 'tokens_cached': 80, 'tokens_out': 5}
    >>> tokens({"input_tokens": 20, "cache_read_input_tokens": 80, "output_tokens": 5})
    {'tokens_in': 100, 'tokens_cached': 80, 'tokens_out': 5}
    """
    if not isinstance(usage, Mapping):
        return {}

    def first(*names: str) -> int | None:
        for name in names:
            if name in usage and isinstance(usage[name], int) and usage[name] >= 0:
                return int(usage[name])
        return None

    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    whole = first("prompt_tokens", "prompt_token_count")
    out = first("completion_tokens", "candidates_token_count", "output_tokens")
    read = first("input_tokens_cache_read", "cache_read_input_tokens", "cached_content_token_count")
    written = first("input_tokens_cache_write", "cache_creation_input_tokens", "cache_write_input_tokens")
    if isinstance(details, Mapping) and isinstance(details.get("cached_tokens"), int):
        read = details["cached_tokens"]
        whole = first("input_tokens") if whole is None else whole  # OpenAI's responses: cached ones are inside
    if whole is None:
        fresh = first("input_tokens")
        inside = fresh is not None and out is not None and first("total_tokens") == fresh + out
        whole = fresh if fresh is None or inside else fresh + (read or 0) + (written or 0)
    found = {"tokens_in": whole, "tokens_cached": read, "tokens_cache_write": written, "tokens_out": out}
    return {name: value for name, value in found.items() if value is not None}
