"""The package as a whole: what is public, what it costs to import, what ships, and whether links hold."""

from __future__ import annotations

import ast
import contextlib
import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib import resources
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tools.lock import LEFT_OUT, closure, pins

import palaestra
from palaestra import extend
from palaestra_atlas import systems

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("name", palaestra.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(palaestra, name) is not None


def test_nothing_else_is_public() -> None:
    code = (
        "import palaestra, types; print(*sorted(n for n, v in vars(palaestra).items() if not n.startswith('_')"
        " and n not in palaestra.__all__ and not isinstance(v, types.ModuleType)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60).stdout.split()
    assert set(found) <= {"Any", "TYPE_CHECKING", "annotations"}, "only what `from __future__` and `typing` bring"
    assert len(set(palaestra.__all__)) == len(palaestra.__all__)
    with pytest.raises(AttributeError, match="module 'palaestra' has no attribute 'no_such_name'"):
        _ = palaestra.no_such_name


def test_submodules_do_not_take_the_place_of_functions_of_the_same_name() -> None:
    code = (
        "import palaestra.play.rollout, palaestra.algebra.parse, palaestra.evaluation, palaestra.envs\n"
        "import palaestra as pa; assert all(map(callable, (pa.rollout, pa.parse, pa.evaluate)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_core_is_imported_without_torch() -> None:
    heavy = ("torch", "transformers", "matplotlib", "statsmodels", "openai", "pyspiel", "textarena", "pandas")
    code = (
        "import sys, palaestra.agents, palaestra_atlas, palaestra.interface.cli, palaestra.envs, palaestra.evaluation\n"
        "import palaestra.runs.summary, palaestra.runs.recipe, palaestra.interface.report, palaestra_atlas\n"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    alone = f"import sys, palaestra; print(*(name for name in {heavy!r} if name in sys.modules))"
    found = subprocess.run([sys.executable, "-c", alone], capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout.split() == []


def test_an_extra_that_an_error_names_can_be_installed() -> None:
    there = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    sources = "".join(file.read_text() for file in (ROOT / "src").rglob("*.py"))
    named = {*re.findall(r'missing_extra\([^)]*, "([\w-]+)"\)', sources)}
    assert len(named) > 10
    assert named <= there.keys()


def test_what_an_extra_adds_is_pinned_or_said_not_to_be() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {extra: [re.match(r"[\w.-]+", each)[0] for each in needs] for extra, needs in extras.items()}  # type: ignore[index]
    own = {extra: {canonicalize_name(each) for each in names} for extra, names in named.items()}
    loose = {extra for extra, names in own.items() if names - pins().keys() - {"palaestra", "palaestra-atlas"}}
    for page in ("README.md", "SECURITY.md"):
        (said,) = re.findall(r"extras `low-bit`(.+?)(?: themselves| add)", (ROOT / page).read_text(), flags=re.DOTALL)
        assert {"low-bit", *re.findall(r"`([\w-]+)`", said)} == loose, page


def test_the_atlas_carries_its_licence_and_a_page() -> None:
    project = tomllib.loads((ROOT / "atlas" / "pyproject.toml").read_text())["project"]
    assert project["license-files"] == ["LICENSE"]
    assert (ROOT / "atlas" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert (ROOT / "atlas" / project["readme"]).is_file()


def test_the_lock_has_a_hash_for_every_pin_that_all_installs() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    locked = dict(re.findall(r"^([\w.-]+)==(\S+) ", lock, flags=re.MULTILINE))
    locked = {canonicalize_name(name): version for name, version in locked.items()}
    assert {name: pins()[name].split("==")[1] for name in locked} == locked
    assert closure("palaestra", ("all",), {}).keys() - set(LEFT_OUT) == locked.keys()
    assert all("--hash=sha256:" in part for part in re.split(r"^(?=[\w.-]+==)", lock, flags=re.MULTILINE)[1:])


def test_what_needs_torch_says_so_when_it_is_not_there() -> None:
    code = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name.partition('.')[0] == 'torch': raise ModuleNotFoundError('not here', name='torch')\n"
        "sys.meta_path.insert(0, Absent())\n"
        "import palaestra\n"
        "for name in ('PolicyGradient', 'Trainer', 'LMPolicy', 'TabularPolicy'):\n"
        "    try: getattr(palaestra, name)\n"
        "    except palaestra.PalaestraError as error: print(error)\n"
        "from palaestra.interface.cli import main; main(['train', 'kuhn-selfplay'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    line = "torch is not installed: pip install 'palaestra[train]'"
    assert done.stdout.splitlines() == [line] * 4
    assert (done.returncode, done.stderr) == (2, f"error: {line}\n")


def test_what_ships() -> None:
    package = resources.files("palaestra")
    assert package.joinpath("py.typed").is_file()
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["palaestra"]
    source = Path(palaestra.__file__).parent
    shipped = {path for pattern in patterns for path in source.glob(pattern)}
    data = {p for p in source.rglob("*") if p.is_file() and p.suffix not in (".py", ".pyc") and "~" not in p.name}
    assert data <= shipped, f"not packaged: {sorted(data - shipped)}"


def test_the_version_is_said_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == palaestra.__version__
    assert f"## {palaestra.__version__}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_hold(document: Path) -> None:
    text = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text)
    for target in targets:
        if target.startswith(("http://", "https://", "mailto:", "#")):
            continue
        path, _, anchor = target.partition("#")
        linked = document.parent / path
        assert linked.exists(), f"{document.name} links to {target}, which is not there"
        if anchor and linked.suffix == ".md":
            headings = re.findall(r"^#+ +(.*)$", linked.read_text(encoding="utf-8"), flags=re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in slugs, f"{document.name} links to {target}; {path} has no such heading"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_are_named_exist(document: Path) -> None:
    """Paths in backticks that begin with a folder of the repository, unless they are patterns."""
    text = document.read_text(encoding="utf-8")
    for path in re.findall(r"`((?:src|docs|examples|benchmarks|tests)/[\w./-]+)`", text):
        if not re.search(r"[A-Z]{3,}|NNN|\.\.\.", path):
            assert (ROOT / path).exists(), f"{document.name} names {path}, which is not there"


def test_the_page_on_the_architecture_names_every_floor_in_the_order_of_imports() -> None:
    rows = re.findall(r"^\| \w+ \| `(\w+)` \|", (ROOT / "docs/architecture.md").read_text(), flags=re.MULTILINE)
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert rows == [layer.removeprefix("palaestra.") for layer in contracts[0]["layers"]]
    source = Path(palaestra.__file__).parent
    packages = {path.stem for path in source.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert packages - {"__init__", "__main__"} == set(rows) - {"palaestra_atlas"}


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md", "docs/architecture.md"])
def test_the_number_of_systems_is_that_of_the_atlas(document: str) -> None:
    said = re.findall(r"(\d+) (?:published systems|systems|rows)\b", (ROOT / document).read_text())
    assert said
    assert {int(number) for number in said} == {len(systems())}


def test_plugins_can_register_in_every_registry() -> None:
    source = "\n".join(path.read_text() for path in Path(palaestra.__file__).parent.rglob("*.py"))
    made = r"^([A-Z_]+)(?:: Registry\[.*\])? = (?:Registry|RewardModels)\b"  # the second is a kind of the first
    registries = set(re.findall(made, source, flags=re.MULTILINE))
    assert {place.partition(":")[2] for place in extend.KINDS.values()} == registries


def test_no_extra_brings_a_gpl_licence_unasked() -> None:
    """`all` installs nothing under the GPL (the LGPL is no obstacle), as the metadata of what is installed say."""
    there = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted, seen = [*expanded(there, "all")], set()
    gpl = []
    while wanted:
        requirement = Requirement(wanted.pop())
        key = (requirement.name, *sorted(requirement.extras))
        if key in seen:
            continue
        seen.add(key)
        with contextlib.suppress(PackageNotFoundError):
            found = distribution(requirement.name)
            said = [found.metadata.get(field) or "" for field in ("License-Expression", "License")]
            said = [each.split("\n")[0] for each in [*said, *found.metadata.get_all("Classifier", [])]]
            if any(re.search(r"\bA?GPL|GNU (Affero )?General Public", each) for each in said):
                gpl.append(requirement.name)
            for each in map(Requirement, found.requires or ()):
                environments = [{"extra": extra} for extra in (*requirement.extras, "")]
                if each.marker is None or any(map(each.marker.evaluate, environments)):
                    wanted.append(str(each))
    assert len(seen) > 30
    assert gpl == []
    assert {"textarena", "pettingzoo"} <= {Requirement(each).name for each in expanded(there, "games")}


def expanded(extras: dict[str, list[str]], name: str) -> list[str]:
    """Requirements of an extra, with those of the extras that it names."""
    found = []
    for each in extras[name]:
        requirement = Requirement(each)
        own = requirement.name == "palaestra"
        found += [part for extra in requirement.extras for part in expanded(extras, extra)] if own else [each]
    return found


def imported(name: str, path: Path, modules: Mapping[str, Path]) -> Iterator[str]:
    """Modules that a module imports at its top or inside functions; what only a type checker reads does not count."""
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.ImportFrom):
            found = [f"{node.module}.{each.name}" for each in node.names]
            yield from (each if each in modules else str(node.module) for each in found)
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            waiting += ast.iter_child_nodes(node)


def test_no_module_imports_itself_through_others_not_even_inside_functions() -> None:
    root = Path(palaestra.__file__).parent
    modules = {".".join(path.relative_to(root.parent).with_suffix("").parts): path for path in root.rglob("*.py")}
    modules = {name.removesuffix(".__init__"): path for name, path in modules.items()}
    graph = {name: {*imported(name, path, modules)} & modules.keys() - {name} for name, path in modules.items()}
    done: dict[str, bool] = {}

    def visit(name: str, way: tuple[str, ...]) -> None:
        assert name not in way, " -> ".join((*way[way.index(name) :], name))
        if name not in done:
            for each in sorted(graph[name]):
                visit(each, (*way, name))
            done[name] = True

    for name in graph:
        visit(name, ())


def test_modules_of_the_glossary_are_there() -> None:
    named = set(re.findall(r"`(palaestra(?:_atlas)?\.[a-z_.]+)`", (ROOT / "docs" / "glossary.md").read_text()))
    assert len(named) > 30
    for name in named:
        importlib.import_module(name)
