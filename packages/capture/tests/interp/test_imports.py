"""Imports inside of functions: what they run, what a module answers by itself, and modules that are replaced between calls.

In: a package made for the test, functions that import of it. Out: results, modules that are loaded, and effects of the modules' own code as in plain Python.
"""

from __future__ import annotations

import importlib
import sys
import types

import pytest
import torch
from both_ways import assert_equal, eager, outcome

from flambeau_capture import make_region

PACKAGE = {
    "__init__.py": """
value = 1
calls = []
def __getattr__(name):
    calls.append(name)
    if name == "lazy":
        return len(calls)
    raise AttributeError(f"nothing is called {name}")
""",
    "sub/__init__.py": "def fn(x):\n    return x * 2\n",
    "late.py": "made = []\nmade.append(1)\ndef fn(x):\n    return x + len(made)\n",
    "broken.py": "import nothing_of_that_name\n",
    "kinds.py": """
import sys, types
class Kind(types.ModuleType):
    def __getattr__(self, name):
        self.asked = getattr(self, "asked", 0) + 1 if name != "asked" else 0
        return self.asked
    @property
    def counted(self):
        return 5
sys.modules[__name__].__class__ = Kind
""",
}
PROGRAMS = {
    "a package's own answer": "import own_package\n    return x * own_package.lazy, list(own_package.calls)",
    "asked for in the import": "from own_package import lazy\n    return x * lazy, sys.modules['own_package'].calls[:]",
    "none": "import own_package as p\n    return x + 1, getattr(p, 'no', 5), hasattr(p, 'no'), list(p.calls)",
    "not there": "try:\n        from own_package import nothing\n    except ImportError as error:\n        return x + 1, str(error)",
    "a submodule": "from own_package import sub\n    return sub.fn(x)",
    "a submodule by its path": "import own_package.sub as sub\n    return sub.fn(x)",
    "a broken one": "try:\n        import own_package.broken\n    except ImportError as error:\n        return x + 1, error.name",
    "taken out and imported again": "import sys, own_package.late\n    sys.modules.pop('own_package.late')\n    import own_package.late as late\n"
    "    return late.fn(x), 'own_package.late' in sys.modules",
    "a class of its own": "import own_package.kinds as k\n    return x + 1, k.one, k.two, k.counted",
    "a value": "import own_package\n    own_package.value += 1\n    return x * own_package.value",
}
CHANGES = {
    "nothing": lambda modules: None,
    "another module": lambda modules: modules.update(own_package=types.SimpleNamespace(value=11, sub=None)),
    "an answer": lambda modules: setattr(modules["own_package"], "__getattr__", lambda name: 9),
    "a name": lambda modules: vars(modules["own_package"]).update(lazy=3, no=2, nothing=4),
    "no submodule": lambda modules: modules.update({"own_package.sub": None}),
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The package is on the path, and not loaded; the function loads it afresh."""
    for name, text in PACKAGE.items():
        path = tmp_path / "own_package" / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def unload():
        for name in [name for name in sys.modules if name.partition(".")[0] == "own_package"]:
            del sys.modules[name]

    yield unload
    unload()


@pytest.mark.parametrize(("change", "loaded"), [("nothing", False), *((change, True) for change in CHANGES)])
@pytest.mark.parametrize("program", PROGRAMS)
def test_imports_are_pythons(program, change, loaded, package):
    scope = {"sys": sys}
    exec(f"def run(x):\n    y = x + 1\n    {PROGRAMS[program]}", scope)

    def seen(function):
        package()
        if loaded:
            for name in ("late", "sub"):
                importlib.import_module(f"own_package.{name}")
        found = []
        for call in range(4):
            if call == 2:
                CHANGES[change](sys.modules)
            found.append(outcome(function, torch.ones(2)))
            found.append(sorted(name for name in sys.modules if name.startswith("own_package")))
        return found

    expected = seen(scope["run"])
    assert_equal(seen(make_region(scope["run"], eager)), expected)
