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


def _chain(make, change=None):
    """A program that hands out an exception, and what it tells itself of where that came from."""

    def program(x):
        try:
            try:
                raise KeyError(1)
            except KeyError as first:
                made = make(first)
                if change is not None:
                    change(made, first)
                raise made
        except (ValueError, TypeError) as error:
            found = error
        return x + 1, found, type(found.__cause__), type(found.__context__), found.__suppress_context__

    return program


def _set(name, value):
    return lambda made, first: setattr(made, name, first if value == "first" else value)


def _from(cause):
    def made(first):
        try:
            raise ValueError(2) from (first if cause == "first" else cause)
        except (ValueError, TypeError) as error:
            return error

    return made


CHAINS = {
    "after another": _chain(lambda first: ValueError(2)),
    **{f"from {cause!r}": _chain(_from(cause)) for cause in ("first", None, OSError, torch.Tensor, 3, "text")},
    **{
        f"{name} of {value!r}": _chain(lambda first: ValueError(2), _set(f"__{name}__", value))
        for name in ("cause", "context", "suppress_context")
        for value in ("first", None, True, False, 3)
    },
    "from a cause that is shown no more": _chain(_from("first"), _set("__suppress_context__", False)),
    "from a cause that is taken back": _chain(_from("first"), _set("__cause__", None)),
}


def _told(error):
    if error is None:
        return None
    return type(error), str(error), _told(error.__cause__), _told(error.__context__), error.__suppress_context__


def _all_told(result):
    return _told(result[1]), *result[2:]


@pytest.mark.parametrize("program", CHAINS.values(), ids=CHAINS.keys())
def test_what_an_exception_came_of(program):
    records = []
    region = make_region(program, eager, observer=records.append)
    expected = _all_told(program(torch.ones(2)))
    assert [_all_told(region(torch.ones(2))) for _ in range(2)] == [expected] * 2
    assert records, "nothing was looked at"


def test_the_chain_of_an_exception_that_existed():
    def program(x, error):
        error.__cause__ = KeyError(1)
        error.__suppress_context__ = False
        error.__traceback__ = None
        return x + 1

    def used(function):
        errors = [_raised(), _raised()]
        for error in errors:
            function(torch.ones(2), error)
        return [(_told(error), error.__traceback__) for error in errors]

    assert used(make_region(program, eager)) == used(program)


def _raised():
    try:
        raise ValueError(2)
    except ValueError as error:
        return error
