"""How the ops of the database run: `python -m tests.conformance.coverage [--ops 150|300|all] [--device cpu|cuda]`.

In: which ops. Out, on stdout: one line an op with its generated kernels, library calls and graphs that run in eager (both
directions, all samples) and the first reason, then totals. It counts and does not compare; `test_op_db.py` does.
"""

from __future__ import annotations

import argparse

from torch.testing._internal.opinfo.core import OpInfo

import flambeau
from flambeau.compile import compile_recorded
from flambeau.records import Recorder

from .database import candidates, choice, identifier, program_of, run, samples
from .test_op_db import SAMPLES

#: The choices of the CPU tests, of the GPU tests, and everything.
SEEDS = {"150": 20, "300": 21}


def measure(op: OpInfo, device: str) -> tuple[Recorder, str]:
    """The records of one op, and the exception that stopped it ("" when none did)."""
    recorder = Recorder()
    for sample in samples(op, SAMPLES, device):
        try:
            run(compile_recorded(program_of(op), recorder, dynamic=False), sample)
        except Exception as error:
            return recorder, f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    return recorder, ""


def kind_of(kernels: int, calls: int, eager: int, error: str) -> str:
    """Where the op's work is done."""
    if error:
        return "raised"
    if eager:
        return "eager"
    if kernels:
        return "mixed" if calls else "generated"
    return "library" if calls else "no work"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", default="150", choices=[*SEEDS, "all"])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    args = parser.parse_args()
    chosen = candidates() if args.ops == "all" else choice(int(args.ops), SEEDS[args.ops])
    kinds: dict[str, int] = {}
    totals = [0, 0, 0, 0]
    print(f"{'op':58} {'kernels':>8} {'library':>8} {'eager':>6} {'breaks':>7}  runs as")
    for op in chosen:
        flambeau.compiler.reset()
        recorder, error = measure(op, args.device)
        kernels = sum(program.kernels for program in recorder.programs)
        calls = sum(sum(program.library_calls.values()) for program in recorder.programs)
        row = [kernels, calls, len(recorder.eager_graphs), len(recorder.breaks)]
        kind = kind_of(kernels, calls, len(recorder.eager_graphs), error)
        if kind == "no work" and not recorder.programs and recorder.breaks:
            kind = "not captured"
        kinds[kind] = kinds.get(kind, 0) + 1
        totals = [total + part for total, part in zip(totals, row, strict=True)]
        reason = error or next(iter(recorder.eager_graphs), "")
        line = f"{identifier(op):58} {row[0]:8} {row[1]:8} {row[2]:6} {row[3]:7}  {kind} {reason}".rstrip()
        print(line, flush=True)
    print(f"{'total':58} {totals[0]:8} {totals[1]:8} {totals[2]:6} {totals[3]:7}")
    print(", ".join(f"{kind}: {count}" for kind, count in sorted(kinds.items())))


if __name__ == "__main__":
    main()
