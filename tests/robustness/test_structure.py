"""What the sources of the five packages keep to: no large class, no long file, no circle of imports within a package."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.compiles(graphs=0)

ROOT = Path(__file__).parents[2] / "packages"
PACKAGES = ("api", "autograd", "capture", "inductor", "runtime")
MOST_METHODS, MOST_LINES = 40, 600
#: Carried word for word by each package that imports no sibling.
CARRIED = ("error_root", "event_log", "option_fields")


def _modules(package: str) -> dict[str, Path]:
    """Its modules by their dotted names."""
    source = ROOT / package / "src"
    found = {}
    for path in source.rglob("*.py"):
        parts = path.relative_to(source).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@pytest.mark.parametrize("name", CARRIED)
def test_what_packages_carry_is_one_text(name: str) -> None:
    found = [path.read_text() for path in ROOT.glob(f"*/src/*/{name}.py")]
    assert len(found) == 3 and len(set(found)) == 1


@pytest.mark.parametrize("package", PACKAGES)
def test_no_class_is_large(package: str) -> None:
    for path in _modules(package).values():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                methods = [part for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)]
                assert len(methods) <= MOST_METHODS, f"{path}: {node.name} has {len(methods)} methods"


@pytest.mark.parametrize("package", PACKAGES)
def test_no_file_is_long(package: str) -> None:
    for path in _modules(package).values():
        assert len(path.read_text().splitlines()) <= MOST_LINES, path


def _imported(name: str, path: Path, modules: dict[str, Path]) -> Iterator[str]:
    """Modules of the same package that a module imports anywhere, also within functions and for types alone."""
    inside = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            around = inside.split(".")[: len(inside.split(".")) - node.level + 1] if node.level else []
            base = ".".join((*around, *(node.module or "").split("."))).rstrip(".")
            names = [f"{base}.{alias.name}" for alias in node.names]
            yield from (each if each in modules else base for each in names if each in modules or base in modules)


@pytest.mark.parametrize("package", PACKAGES)
def test_no_modules_import_each_other(package: str) -> None:
    """A package's own `__init__` is not counted: it names what the package gives."""
    modules = _modules(package)
    inits = {name for name, path in modules.items() if path.name == "__init__.py" and "." not in name}
    arrows = {
        name: set(_imported(name, path, modules)) - inits - {name}
        for name, path in modules.items()
        if name not in inits
    }
    done: set[str] = set()
    for name in arrows:
        _refuse_circles(name, arrows, [], done)


def _refuse_circles(name: str, arrows: dict[str, set[str]], way: list[str], done: set[str]) -> None:
    assert name not in way, f"a circle: {' -> '.join([*way[way.index(name) :], name])}"
    if name in done:
        return
    for other in sorted(arrows[name]):
        _refuse_circles(other, arrows, [*way, name], done)
    done.add(name)
