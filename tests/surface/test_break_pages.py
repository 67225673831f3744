"""The page of graph breaks: a program for each reason, which breaks for it and gives what eager gives."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import flambeau
from flambeau.compiler import config
from flambeau_capture import CompileRecord, make_region
from flambeau_capture.reasons import all_reasons

from .break_examples import EXAMPLES
from .rows import calls


def outcome(function: Callable[..., Any], *args: Any) -> tuple[str, Any]:
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            return "returned", function(*args)
        except Exception as error:
            return "raised", type(error)


@calls("tools", "graph_break_pages")
def test_each_reason_has_its_program_on_the_page() -> None:
    assert [reason.code for reason in all_reasons() if reason.code not in EXAMPLES] == []
    assert set(EXAMPLES) <= {reason.code for reason in all_reasons()}
    page = (Path(__file__).resolve().parents[2] / "docs/errors/graph-breaks.md").read_text()
    for code, example in EXAMPLES.items():
        section = page.partition(f"\n## {code}\n")[2].partition("\n## ")[0]
        assert f"def {example.program.__name__}(" in section
        assert example.instead is None or f"def {example.instead.__name__}(" in section


@calls("tools", "graph_break_pages")
@pytest.mark.parametrize("code", sorted(EXAMPLES))
@pytest.mark.judges_itself
@pytest.mark.usefixtures("own_marks")
def test_each_program_breaks_for_its_reason(code: str) -> None:
    example = EXAMPLES[code]
    if code == "triton-kernel":
        pytest.importorskip("triton")
    records: list[CompileRecord] = []
    region = make_region(
        example.program, lambda graph, inputs: graph.forward, observer=records.append, **example.settings
    )
    found = outcome(region, *example.inputs())
    assert code in {told.code for record in records for told in record.breaks}
    expected = outcome(example.program, *example.inputs())
    assert found[0] == expected[0]
    if found[0] == "raised":
        assert found[1] is expected[1]
    else:
        torch.testing.assert_close(found[1], expected[1])
    if example.instead is not None:
        with config.patch(dict(example.settings)):
            whole = flambeau.compile(example.instead, backend="eager", fullgraph=True)(*example.inputs())
        torch.testing.assert_close(whole, found[1])
