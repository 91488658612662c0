"""Recipes hold no secrets: whatever they say is written to disk and shown on pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

_NAME = (
    r"(?:(?:\w*[_-])?(?:api[_-]?key|secret(?:[_-]key)?|passwo?r?d|passphrase|credentials?|authorization|"
    r"(?:access|auth|api|bearer|hf|hub)[_-]?token)|token)"
)
_FIELD = re.compile(_NAME, re.IGNORECASE)
"""Names of options whose value is a secret."""

_OPTION = re.compile(rf"(?<![\w-]){_NAME}\s*=\s*['\"][^'\"]", re.IGNORECASE)

_URL = re.compile(r"\w[\w+.-]*://[^/\s?#@]+@")
_KEY = re.compile(
    r"(?<![\w-])(sk-(?=[\w-]*\d)[\w-]{12,}|hf_\w{16,}|gh[pousr]_\w{16,}|AKIA[0-9A-Z]{12,}|AIza[\w-]{20,}|"
    r"xox[abprs]-[\w-]{10,}|eyJ[\w-]{10,}\.[\w-]{10,}|Bearer\s+[\w.~+/=-]{12,}|-----BEGIN [A-Z ]*PRIVATE KEY)"
)


def refuse_secrets(data: Any, field: str = "") -> None:
    """Raise ValueError if a value is, or looks like, a key or a password; the message does not repeat it.

    Raises:
        ValueError: names the field and what to write instead.

    >>> refuse_secrets({"options": {"base_url": "https://me:1234@host/v1"}})
    Traceback (most recent call last):
    ...
    ValueError: options.base_url: a name and password in a URL; recipes are written to disk, so leave them out and ...
    """
    if isinstance(data, BaseModel):
        data = {name: getattr(data, name) for name in type(data).model_fields}
    if isinstance(data, Mapping):
        for key, value in data.items():
            place = f"{field}.{key}" if field else str(key)
            refuse_secrets(str(key), field)
            if isinstance(value, str) and value and _FIELD.fullmatch(str(key)):
                raise ValueError(f"{place}: {_said('a secret')}")
            refuse_secrets(value, place)
    elif isinstance(data, str):
        if _URL.search(data):
            raise ValueError(f"{field}: {_said('a name and password in a URL')}")
        if _OPTION.search(data) or _KEY.search(data):
            raise ValueError(f"{field}: {_said('what looks like a key')}")
    elif isinstance(data, Iterable):
        for each in data:
            refuse_secrets(each, field)


def _said(what: str) -> str:
    return (
        f"{what}; recipes are written to disk, so leave them out and name the environment variable that holds it, "
        "e.g. api_key_env: MY_KEY"
    )
