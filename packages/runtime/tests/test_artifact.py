"""Artifacts: text, bytes, digests."""

from __future__ import annotations

import hashlib
import json

import attrs
import pytest
import torch

from flambeau_runtime import artifact as a
from flambeau_runtime import encode, load
from flambeau_runtime.errors import ArtifactError


def everything() -> a.Artifact:
    """An artifact that uses every record and every kind of argument."""
    nested = a.Program([], 1, 0, [a.InputSpec("tensor", 0)], [a.OutputSpec("tensor", 0)])
    arguments = (
        a.Reg(0), a.Scalar(0), 1, 2.5, float("inf"), float("-inf"), True, None, "text", 3 + 4j, torch.float16,
        torch.device("cpu"), torch.strided, torch.channels_last, (a.Reg(0), (1, 2)), (), 2**40,
    )  # fmt: skip
    program = a.Program(
        [
            a.Alloc(1, (a.Scalar(0), 4), (4, 1), torch.float32, "cpu"),
            a.View(2, 1, (4,), (1,), a.Scalar(0), torch.int32),
            a.Launch(0, (0, 1), (a.Scalar(0),), a.Scalar(0), 64),
            a.Launch(1, (0,), (), grid=(1, a.Scalar(0), 1)),
            a.Call("aten::foo", "bar", arguments, {"key": (1, None)}, (3, a.Scalar(1), None)),
            a.Hold(3, (a.Scalar(0), 4), (4, 1), torch.float32, "cuda:1", "aten::foo.bar"),
            a.Compute(2, "add", (a.Scalar(0), -1)),
            a.Size(3, 0, 1, "stride"),
            a.Item(4, 0),
            a.Check(True, "never"),
            a.Copy(0, 1),
            a.Subprogram("cond", (nested, nested), (True, a.Reg(0)), (5,)),
            a.Python("hook", (a.Reg(0), (1,)), (6,)),
            a.Free((1, 2)),
        ],
        8, 8, [a.InputSpec("tensor", 0, torch.float32, "cpu", (4, None), (None, 1), static=True, mutated=True, name="x"),
               a.InputSpec("scalar", 0)],
        [a.OutputSpec("tensor", 3), a.OutputSpec("scalar", 1.5), a.OutputSpec("input", 0), a.OutputSpec("none")],
    )  # fmt: skip
    libraries = [
        a.Library("l", "cpp", "int x;", ("-O1",), b"\x00\xffbinary"),
        a.Library("t", "triton", "def f(): pass"),
    ]
    kernels = [a.Kernel("k", 0, "k", 2, 1, scalar_kinds="i", checks=("bad",)), a.Kernel("t", 1, "t", 1)]
    constants = [a.ConstantSpec(7, torch.float32, (1,), data=b"\0\0\0\0", name="c")]
    return a.Artifact(program, libraries, kernels, constants, [a.Symbol("s0", 0, 4)], {"a": {"b": (1, 2.0)}})


def test_bytes_and_back_are_equal() -> None:
    made = everything()
    again = a.Artifact.from_bytes(made.to_bytes())
    assert again == made
    assert again.to_bytes() == made.to_bytes()
    assert again.validate() is again


def test_not_a_number_survives_the_bytes() -> None:
    made = a.Artifact(a.Program([], 0, 0, [], [a.OutputSpec("scalar", float("nan"))]))
    value = a.Artifact.from_bytes(made.to_bytes()).program.outputs[0].value
    assert value != value


def test_sources_lie_in_the_bytes_as_they_are(artifact) -> None:
    """Quotes and lines are not escaped, so that reading an artifact is no parsing of its sources; half a pair survives too."""
    source = '"line"\n' * 500 + "\ud800"
    made = attrs.evolve(artifact, libraries=[attrs.evolve(artifact.libraries[0], source=source)])
    data = made.to_bytes()
    assert source[:-1].encode() in data
    assert a.Artifact.from_bytes(data).libraries[0].source == source


def test_save_and_load(tmp_path, artifact) -> None:
    artifact.save(tmp_path / "x.flambeau")
    assert a.Artifact.load(tmp_path / "x.flambeau").program == artifact.program


def test_digest_ignores_binaries_and_follows_content(artifact) -> None:
    built = attrs.evolve(artifact, libraries=[attrs.evolve(artifact.libraries[0], binary=b"elf")])
    assert built.digest == artifact.digest
    assert attrs.evolve(artifact, meta={}).digest != artifact.digest


def test_text_names_kernels_registers_and_positions(artifact) -> None:
    text = artifact.text()
    assert "t1 = alloc float32 [s0, 4] strides [4, 1] on cpu" in text
    assert "launch cpp_affine(t0, t1, 2.0, 1.0) extent s1 grain 1024" in text
    assert "model.py:12 in forward" in text and "return t1, s1" in text
    assert "hold t3 float32 [s0, 4] strides [4, 1] on cuda from aten::foo.bar" in everything().text()
    assert len(everything().text().splitlines()) > 20


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("truncate", "checksum"),
        ("flip", "checksum"),
        ("version", "has format"),
        ("magic", "not an artifact"),
        ("empty", r"is truncated(?! or)"),
    ],
)
def test_damaged_bytes_are_refused(damage: str, message: str, artifact) -> None:
    """With what is wrong."""
    data = bytearray(artifact.to_bytes())
    if damage == "truncate":
        data = data[:-20]
    elif damage == "flip":
        data[len(data) // 2] ^= 1
    elif damage == "version":
        data[8] = 99
    elif damage == "magic":
        data[0] = 0
    else:
        data = bytearray()
    with pytest.raises(ArtifactError, match=message):
        a.Artifact.from_bytes(bytes(data))


def test_a_value_without_an_encoding_is_refused() -> None:
    made = a.Artifact(a.Program([a.Call("aten::x", "", (object(),))], 0, 0, [], []))
    with pytest.raises(ArtifactError, match="object"):
        made.to_bytes()


BAD = {
    "undefined tensor": ([a.Free((3,))], "t3 is read but not defined"),
    "freed tensor": ([a.Free((0,)), a.Copy(0, 0)], "t0 is read but not defined"),
    "undefined scalar": ([a.Check(a.Scalar(2), "m")], "s2 is read"),
    "register range": ([a.Alloc(99, (1,), (1,), torch.int8)], "t99 is outside"),
    "rank": ([a.Alloc(1, (1, 2), (1,), torch.int8)], "2 sizes but 1 strides"),
    "held tensor": ([a.Hold(2, (1,), (1,), torch.int8)], "t2 is read but not defined"),
    "held rank": ([a.Hold(0, (1, 2), (1,), torch.int8)], "2 sizes but 1 strides"),
    "held size": ([a.Hold(0, (a.Scalar(1),), (1,), torch.int8)], "s1 is read"),
    "kernel": ([a.Launch(7, ())], "kernel 7 does not exist"),
    "buffers": ([a.Launch(0, (0,), (1.0, 1.0))], "takes 2 buffers"),
    "grain": ([a.Launch(0, (0, 0), (1.0, 1.0), 1, 0)], "grain"),
    "opcode": ([a.Compute(0, "frobnicate", (1,))], "frobnicate"),
    "arity": ([a.Compute(0, "add", (1,))], "unknown opcode 'add' with 1"),
    "subprogram": ([a.Subprogram("loop", ())], "'loop'"),
    "not an instruction": (["alloc"], "not an instruction"),
}


@pytest.mark.parametrize("name", BAD)
def test_validate_names_the_instruction(name: str) -> None:
    instructions, message = BAD[name]
    kernels = [a.Kernel("k", 0, "k", 2, 2)]
    program = a.Program(instructions, 4, 4, [a.InputSpec("tensor", 0)], [])
    made = a.Artifact(program, [a.Library("l", "cpp", "")], kernels)
    with pytest.raises(ArtifactError, match=message.replace("(", r"\(")):
        made.validate()


def test_ordinals_become_slots() -> None:
    """Devices are numbered by the inputs; one that no input carries keeps its ordinal; doing it twice changes nothing."""
    code = [
        a.Alloc(2, (1,), (1,), torch.int8, "cuda:3"), a.Alloc(3, (1,), (1,), torch.int8, "cuda:2"),
        a.Call("aten::zeros", "", ((1,),), {"device": torch.device("cuda:5")}, (3,)),
        a.Alloc(3, (1,), (1,), torch.int8, "cuda"),
    ]  # fmt: skip
    inputs = [a.InputSpec("tensor", 0, device="cuda:3"), a.InputSpec("tensor", 1, device="cuda:2")]
    program = a.Artifact(a.Program(code, 4, 0, inputs, [])).validate().program
    assert program.devices == (None, None, 5)
    assert [str(spec.device) for spec in program.inputs] == ["cuda:0", "cuda:1"]
    assert [str(i.device) for i in program.instructions if isinstance(i, a.Alloc)] == ["cuda:0", "cuda:1", "cuda:0"]
    assert a.Artifact(program).program is program


def test_a_device_without_a_slot_is_refused() -> None:
    program = a.Program([a.Alloc(0, (1,), (1,), torch.int8, "cuda:1")], 1, 0, [], [], devices=(None,))
    with pytest.raises(ArtifactError, match="cuda:1 is none of its 1 devices"):
        a.Artifact(program).validate()


def _program(instructions=(), scalars=2, inputs=(), outputs=()):
    return a.Artifact(a.Program(list(instructions), 2, scalars, list(inputs), list(outputs)))


def _kernel(**given):
    return attrs.evolve(
        _program(),
        libraries=[a.Library("l", "cpp", "int x;")],
        kernels=[a.Kernel("k", 0, "k", **{"buffers": 2, **given})],
    )


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (_program([a.Compute(5, "neg", (1,))]), r"instruction 0 \(.*\): s5 is outside the 2 scalar registers"),
        (
            _program([a.Size(0, 0, 0, "width")], inputs=[a.InputSpec("tensor", 0)]),
            r"instruction 0 \(.*\): unknown size kind 'width'",
        ),
        (_program(inputs=[a.InputSpec("number", 0)]), "program, inputs: unknown input kind 'number'"),
        (
            _program(inputs=[a.InputSpec("tensor", 0, sizes=(4, 2), strides=(1,), name="x")]),
            "input x: 2 sizes, 1 strides",
        ),
        (_program(inputs=[a.InputSpec("tensor", 0, strides=(1,))]), "input 0: strides without sizes"),
        (_program(outputs=[a.OutputSpec("input", 0)]), "program, outputs: there is no input 0"),
        (_program(outputs=[a.OutputSpec("tensor", "t0")]), "unknown output"),
        (attrs.evolve(_program(), version=a.FORMAT_VERSION + 1), "this runtime reads"),
        (attrs.evolve(_kernel(), libraries=[]), "kernel k: library 0 does not exist"),
        (_kernel(dtypes=(torch.float32,)), "kernel k: 1 dtypes for 2 buffers"),
        (_kernel(scalars=2, scalar_kinds="i"), "kernel k: scalar kinds 'i' for 2 scalars"),
        (_kernel(scalars=1, scalar_kinds="x"), "kernel k: scalar kinds 'x' for 1 scalars"),
    ],
)
def test_what_makes_no_sense_is_refused(made, message: str) -> None:
    """What comes from a disk is run by native code, which trusts it from here on."""
    with pytest.raises(ArtifactError, match=message):
        made.validate()


def _written(tree, blobs=()) -> bytes:
    """The bytes of a tree, with the checksum that belongs to them."""
    header = json.dumps({"tree": tree, "programs": [], "blobs": [len(blob) for blob in blobs]}).encode()
    body = encode._PREFIX.pack(encode.MAGIC, a.FORMAT_VERSION, len(header)) + header + b"".join(blobs)
    return body + hashlib.sha256(body).digest()


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"NoRecord": []}, "cannot be read"),
        ({"Artifact": []}, "cannot be read"),
        ({"dtype": "nn"}, "'nn' is no dtype"),
        ({"dtype": "float33"}, "float33"),
        ({"bytes": 3}, "cannot be read"),
        ({"program": 0}, "cannot be read"),
        ([1, 2], "expected an Artifact, found tuple"),
        ({"dtype": "float32"}, "expected an Artifact, found dtype"),
    ],
)
def test_bytes_that_are_whole_and_hold_something_else_are_refused(tree, message: str) -> None:
    """A checksum says that the bytes are as they were written, not by whom."""
    with pytest.raises(ArtifactError, match=message):
        a.Artifact.from_bytes(_written(tree))


def test_a_constant_of_another_size_is_refused() -> None:
    spec = a.ConstantSpec(0, torch.float32, (2,), data=b"\0" * 4)
    made = attrs.evolve(_program(outputs=[a.OutputSpec("tensor", 0)]), constants=[spec])
    with pytest.raises(ArtifactError, match="constant t0 holds 4 bytes"):
        load(made)
    empty = attrs.evolve(made, constants=[attrs.evolve(spec, sizes=(0, 3), data=b"")])
    (found,) = load(empty)()
    assert found.shape == (0, 3) and found.dtype == torch.float32
