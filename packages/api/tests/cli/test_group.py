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


def test_unwritable_file_is_one_line(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["cache", "export", str(tmp_path / "absent" / "file")])
    assert done.exit_code == 2
    assert len(done.output.splitlines()) == 1
    assert "absent" in done.output
