"""Native exceptions that hold more than `args`: each field as in plain Python, however the exception came to be, also after a break."""

from __future__ import annotations

import pytest
import torch
from both_ways import eager

from flambeau_capture import make_region

FIELDS = (
    "args", "errno", "strerror", "filename", "filename2", "msg", "name", "path", "value", "code", "encoding", "object",
    "start", "end", "reason", "lineno", "offset", "text", "message", "exceptions",
)  # fmt: skip


class WithImport(ImportError):
    pass


class WithFile(OSError):
    def __init__(self, text):
        super().__init__(2, text, "a file")
        self.own = 1


MADE = {
    "import": lambda: ImportError("text"),
    "import of a number": lambda: ImportError(5),
    "import, a class of the program": lambda: WithImport("text"),
    "import, two": lambda: ImportError("text", "more"),
    "exit": lambda: SystemExit(3),
    "exit, two": lambda: SystemExit(3, 4),
    "stop": lambda: StopIteration(5),
    "os": lambda: OSError("text"),
    "os, number": lambda: OSError(2, "text"),
    "os, file": lambda: OSError(2, "text", "a file"),
    "os, all": lambda: OSError(2, "text", "a file", None, "another"),
    "os, too many": lambda: OSError(2, "text", 3, 4, 5, 6),
    "os, a class of the program": lambda: WithFile("text"),
    "decode": lambda: UnicodeDecodeError("a", b"b", 0, 1, "why"),
    "decode, refused": lambda: UnicodeDecodeError("a"),
    "encode": lambda: UnicodeEncodeError("a", "b", 0, 1, "why"),
    "syntax": lambda: SyntaxError("text"),
    "syntax, place": lambda: SyntaxError("text", ("file", 1, 2, "line")),
    "syntax, refused": lambda: SyntaxError("text", 5),
    "group": lambda: ExceptionGroup("text", [ValueError(1)]),
    "group, empty": lambda: ExceptionGroup("text", []),
}


_KEY = {"key": 1}


def _raise(make):
    raise make()


def _import_no_name():
    from math import nothing

    return nothing


RAISED = {
    **{f"raise {name}": lambda make=make: _raise(make) for name, make in MADE.items()},
    "decoding": lambda: b"\xff".decode("utf8"),
    "a file": lambda: open("/there/is/none"),
    "no such name": _import_no_name,
    "no such module": lambda: __import__("nothing_of_the_kind"),
    "text of a program": lambda: eval("1 +"),
    "twice": lambda: max(**_KEY, **_KEY),
}


def looked_at(error):
    """What can be told of an exception; of those within, the same."""
    fields = {name: getattr(error, name, "none") for name in FIELDS}
    if fields["exceptions"] != "none":
        fields["args"], fields["exceptions"] = repr(fields["args"]), repr(fields["exceptions"])
    return type(error), str(error), repr(error), fields


def _ways(make):
    """Programs that tell the exception inside, hand it out, and let it out."""

    def inside(x):
        try:
            found = make()
        except BaseException as error:
            found = error
        return x + 1, type(found), str(found), repr(found), [getattr(found, name, "none") for name in FIELDS[:-2]]

    def handed_out(x):
        try:
            found = make()
        except BaseException as error:
            found = error.with_traceback(None)
        return x + 1, found

    def let_out(x):
        x.add_(1)
        return make()

    return inside, handed_out, let_out


@pytest.mark.parametrize("name", [*MADE, *RAISED])
def test_fields_of_native_exceptions(name):
    inside, handed_out, let_out = _ways(MADE[name] if name in MADE else RAISED[name])
    records, x = [], torch.ones(2)
    if "group" not in name:
        region = make_region(inside, eager, observer=records.append)
        assert [region(x)[1:] for _ in range(2)] == [inside(x)[1:]] * 2
    for program in (handed_out, let_out):
        region = make_region(program, eager, observer=records.append)
        assert _last(region) == _last(region) == _last(program)
    assert records, "nothing was looked at"


def _last(function):
    """What is known of the exception that is returned or raised."""
    try:
        result = function(torch.ones(2))
    except BaseException as error:
        return looked_at(error)
    return looked_at(result[1] if type(result) is tuple else result)
