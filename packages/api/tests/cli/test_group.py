"""The command `flambeau`: help without loading commands, versions, and errors as one line."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner

import flambeau
from flambeau.cli import main
from flambeau.cli.group import COMMANDS
from flambeau.errors import BackendError, InternalError, InvalidOption
from flambeau_inductor.errors import LoweringError
from flambeau_runtime.errors import BuildError


def test_help_loads_no_command() -> None:
    """What a command needs is imported when it runs."""
    code = (
        "import sys\nfrom flambeau.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {sorted(COMMANDS)!r} if f'flambeau.cli.{{name}}' in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    for name in COMMANDS:
        assert name in done.stdout


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_row_has_a_command(name: str) -> None:
    """The table says what the command says of itself first."""
    command = getattr(import_module(f"flambeau.cli.{name}"), name)
    assert command.name == name
    done = CliRunner().invoke(main, [name, "--help"])
    assert done.exit_code == 0, done.output


def test_version() -> None:
    done = CliRunner().invoke(main, ["--version"])
    assert done.output.strip() == f"flambeau, version {flambeau.__version__}"


def test_unknown_command_names_the_nearest() -> None:
    done = CliRunner().invoke(main, ["docter"])
    assert done.exit_code == 2
    assert len(done.output.splitlines()) == 1
    assert "did you mean 'doctor'?" in done.output


def test_wrong_bundle_is_one_line(tmp_path: Path) -> None:
    """A file that is no bundle is an error of the user's, not a traceback."""
    wrong = tmp_path / "wrong.bin"
    wrong.write_text("no bundle\n")
    done = CliRunner().invoke(main, ["cache", "import", str(wrong)])
    assert done.exit_code == 2
    assert isinstance(done.exception, SystemExit)
    assert done.output.startswith(f"Error: {wrong}: this is not a cache bundle")
    assert len(done.output.splitlines()) == 1


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidOption("no such option"), 2),
        (BackendError("the graph has no program"), 2),
        (FileNotFoundError(2, "No such file", "here"), 2),
        (OSError(28, "No space left on device"), 1),
        (InternalError("ours"), 1),
        (LoweringError("ours"), 1),
        (BuildError("the compiler ended with 1"), 1),
    ],
)
def test_what_was_given_is_told_apart(error: Exception, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From what the machine lacks, and from faults of ours: one line, and another status."""

    def fails() -> None:
        raise error

    monkeypatch.setattr("flambeau.cli.cache.default_store", fails)
    done = CliRunner().invoke(main, ["cache", "list"])
    assert (done.exit_code, len(done.output.splitlines())) == (status, 1), done.output
    monkeypatch.setenv("FLAMBEAU_VERBOSE", "1")
    assert CliRunner().invoke(main, ["cache", "list"]).exception is error


@pytest.mark.parametrize(("text", "told"), [("{", "is no JSON: "), ("[1]", "is no JSON object: [1]")])
@pytest.mark.parametrize("command", ["explain", "minify"])
def test_arguments_that_are_none(command: str, text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("def step():\n    pass\n")
    target = f"{tmp_path}/script.py" + (":step" if command == "explain" else "")
    done = CliRunner().invoke(main, [command, "--arguments", text, target])
    assert done.exit_code == 2 and done.output.startswith(f"Error: --arguments {told}")


def test_unwritable_file_is_one_line(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["cache", "export", str(tmp_path / "absent" / "file")])
    assert done.exit_code == 2
    assert len(done.output.splitlines()) == 1
    assert "absent" in done.output
