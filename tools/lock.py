"""Write `requirements.lock`: what `.[all]` installs, at the versions of `constraints.txt`, with the hash of every file.

PyTorch is left out: which of its builds is right depends on the machine. Run it in the environment that `make install`
made, with uv on the path: `python tools/lock.py`.
"""

from __future__ import annotations

import re
import subprocess
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LEFT_OUT = ("torch", "palaestra", "setuptools")


def closure(name: str, extras: tuple[str, ...], found: dict[str, None]) -> dict[str, None]:
    """Distributions that `name[extras]` requires on this machine, in the order of their names."""
    for line in distribution(name).requires or ():
        needed = Requirement(line)
        wanted = needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in (*extras, ""))
        each = canonicalize_name(needed.name)
        if not wanted or (each in found and not needed.extras):
            continue
        found[each] = None
        closure(each, tuple(needed.extras), found)
    return found


def pins() -> dict[str, str]:
    """Name -> line of constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text().split()
    return {canonicalize_name(re.split("==", line)[0]): line for line in lines}


def main() -> None:
    """Resolve nothing, hash everything."""
    known = pins()
    lines = [known[each] for each in sorted(closure("palaestra", ("all",), {})) if each not in LEFT_OUT]
    command = ["uv", "pip", "compile", "--no-deps", "--generate-hashes", "--no-annotate", "--no-header", "--quiet"]
    done = subprocess.run([*command, "-"], input="\n".join(lines), text=True, check=True, stdout=subprocess.PIPE)
    head = "# What .[all] installs, but for PyTorch, with the hash of every file; written by tools/lock.py\n"
    (ROOT / "requirements.lock").write_text(head + done.stdout)


if __name__ == "__main__":
    main()
