"""Tool calls as text: what families of models write, read into names and arguments, and written again.

    hermes      <tool_call>{"name": …, "arguments": {…}}</tool_call>              Hermes, Qwen2.5, Qwen3
    llama       {"name": …, "parameters": {…}}; …  behind <|python_tag|> or not   Llama 3
    mistral     [TOOL_CALLS][{"name": …, "arguments": {…}}]                       Mistral
    json        the same object, or a list of them, alone, in a code fence, or behind a text
    xml         <tool_call><function=NAME><parameter=KEY>VALUE</parameter>…       Qwen3-Coder
    invoke      <invoke name="NAME"><parameter name="KEY">VALUE</parameter>…      Claude
    pythonic    [NAME(KEY=VALUE), …]                                              Llama 4
    auto        whichever of these the text looks like

What a model thinks first, up to `</think>`, holds no calls. A reader never raises: what cannot be read is
`ParsedAnswer.error`, "kind: why", with kind one of `FAULTS`. Left out: calls that are streamed, and repair of JSON.
"""

from palaestra.envs.tool_calls.formats import (
    FAULTS,
    FORMATS,
    Call,
    FaultError,
    Format,
    ParsedAnswer,
    Schemas,
    check,
    parse,
    split_thinking,
    to_json,
    write,
)
from palaestra.envs.tool_calls.in_json import Auto, Hermes, Json, LlamaFormat, Mistral, Pythonic
from palaestra.envs.tool_calls.in_marks import Invoke, Xml

__all__ = [
    "FAULTS",
    "FORMATS",
    "Auto",
    "Call",
    "FaultError",
    "Format",
    "Hermes",
    "Invoke",
    "Json",
    "LlamaFormat",
    "Mistral",
    "ParsedAnswer",
    "Pythonic",
    "Schemas",
    "Xml",
    "check",
    "parse",
    "split_thinking",
    "to_json",
    "write",
]
