"""Runs somebody's program in a process of its own: a line with a question comes in, a line with its answer goes out.

Started as a script by `palaestra.teams.program`; it imports nothing of this package. What the program prints goes to
the error stream.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any


def load(path: str) -> Callable[[str], Any]:
    """Import `module:name` as a function of a question: a callable, or a graph with `invoke`, as LangGraph makes."""
    module, _, name = path.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if hasattr(found, "invoke"):
        return lambda question: found.invoke({"messages": [{"role": "user", "content": question}]})
    if callable(found):
        return lambda question: found(question)
    raise TypeError(
        f"{path} is a {type(found).__name__}: expected a function of a question, or something with invoke()"
    )


def text_of(result: Any) -> str:
    """The answer text in a program's result: a text, a state with messages, or a message."""
    if isinstance(result, Mapping):
        for name in ("answer", "output"):
            if name in result:
                return text_of(result[name])
        if result.get("messages"):
            return text_of(result["messages"][-1])
        if "content" in result:
            return text_of(result["content"])
    if hasattr(result, "content"):
        return text_of(result.content)
    return "" if result is None else str(result)


def main() -> None:
    """Entry point of the worker process: answer questions from stdin until there are no more."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the program prints is not the answer

    def say(**what: str) -> None:
        channel.write(json.dumps(what) + "\n")
        channel.flush()

    try:
        program = load(sys.argv[1])
    except BaseException as error:
        say(error=f"cannot be loaded ({type(error).__name__}: {error})")
        return
    with asyncio.Runner() as runner:  # one loop for all questions: clients keep connections that belong to it
        for line in sys.stdin:
            try:
                result = program(json.loads(line)["question"])
                if inspect.isawaitable(result):
                    result = runner.run(_awaited(result))
                say(answer=text_of(result))
            except BaseException as error:
                sys.stdout.flush()
                traceback.print_exc()
                say(error=f"{type(error).__name__}: {error}")


async def _awaited(result: Any) -> Any:
    """The result; tasks that a program left behind end with its answer."""
    try:
        return await result
    finally:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


if __name__ == "__main__":
    main()
