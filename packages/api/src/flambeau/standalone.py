"""Graphs compiled without capture: `flambeau.inductor.compile` and `standalone_compile`, for programs that make their graphs themselves.

In: an FX graph (torch-level or ATen) and its inputs. Out: a callable with the graph's calling convention, or a `CompiledArtifact`, which can be saved
and loaded in another process. Nothing guards the callable: who calls it gives it what the graph was compiled for.
"""

from __future__ import annotations

import copy
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from flambeau_capture import call_disabled, unpatched

from .compiled_graph import CompiledGraph, Fresh
from .defaults import option_defaults
from .errors import ArtifactError, InvalidOption, NotHereYet, UnknownName
from .graph_key import versions
from .options import Options, resolve
from .records import Recorder
from .stack import compile_stack, load_compiled
from .torch_backend import flambeau as torch_backend

Format = Literal["binary", "unpacked"]
_MAGIC = b"flambeau-artifact-1\n"
_SIZE = struct.Struct("<Q")
_FORMATS = ("binary", "unpacked")
_SHAPES = ("from_graph", "from_example_inputs", "from_tracing_context")
_PROGRAM, _HEADER = "graph.bin", "header.json"


def compile(
    gm: fx.GraphModule, example_inputs: Sequence[Any], options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Compile a graph that a program has made.

    Args:
        gm: torch-level or ATen calls. It is left as it is.
        example_inputs: tensors, fakes and numbers, one for each placeholder.
        options: as for `flambeau.compile`.

    Returns:
        A callable like the graph. It is right for inputs like the examples alone; sizes are symbolic where those of fakes are.

    Raises:
        UnknownName, InvalidOption: for the options, and for inputs that are something else.
    """
    _check_inputs(gm, example_inputs)
    flat, spec = _with_flat_results(gm)
    compiled = torch_backend(flat, list(example_inputs), options=options)
    return compiled if spec is None else _rebuilding(compiled, spec)


class CompiledArtifact:
    """A compiled graph, called like it, that can be kept in a file.

    What is loaded has no graph to fall back to: what fails at run time raises, and its backward cannot be differentiated again.
    """

    def __init__(self, call: Callable[..., Any], built: Fresh | None, options: Options, refusal: str = "") -> None:
        self._call = call
        self._built = built
        self._options = options
        self._refusal = refusal

    def __call__(self, *inputs: Any) -> Any:
        return self._call(*inputs)

    def save(self, *, path: str | Path, format: Format = "binary") -> None:
        """Write it to a file ("binary"), or to a folder with its sources beside it as text ("unpacked").

        Raises:
            UnknownName: for another format.
            ArtifactError: where the graph, or a part of it, is run by torch's own ops, and there is no program to save.
        """
        _check_format(format)
        if self._built is None:
            raise ArtifactError(f"there is no program to save: {self._refusal}")
        header = {"versions": versions(), "options": dict(self._options.values)}
        program = _with_constants(self._built).to_bytes()
        target = Path(path)
        if format == "binary":
            text = json.dumps(header).encode()
            target.write_bytes(b"".join((_MAGIC, _SIZE.pack(len(text)), text, program)))
            return
        target.mkdir(parents=True, exist_ok=True)
        (target / _HEADER).write_text(json.dumps(header, indent=1))
        (target / _PROGRAM).write_bytes(program)
        for kind, artifact in self._built.graph.programs:
            (target / f"{kind}.txt").write_text(artifact.text(), encoding="utf-8")
            for library in artifact.libraries:
                (target / f"{kind}_{library.name}.source").write_text(library.source, encoding="utf-8")

    @classmethod
    def load(cls, *, path: str | Path, format: Format = "binary") -> CompiledArtifact:
        """What `save` wrote.

        Raises:
            UnknownName: for another format.
            ArtifactError: for something else, or what another version or another kind of processor wrote.
        """
        _check_format(format)
        header, program = _read(Path(path), format)
        if header.get("versions") != versions():
            raise ArtifactError(f"{path} was written by another version of flambeau or torch, or for another processor")
        options = Options(header["options"])
        try:
            compiled = CompiledGraph.from_bytes(program)
        except (ValueError, TypeError, KeyError, struct.error) as error:
            raise ArtifactError(f"{path} is damaged: {error}") from error
        return cls(call_disabled(load_compiled(compiled, options)), Fresh(compiled, ([], [], [])), options)


def standalone_compile(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    dynamic_shapes: str = "from_graph",
    options: Mapping[str, Any] | None = None,
    aot: bool = False,
    donate_graph_module: bool = False,
    fake_mode: FakeTensorMode | None = None,
) -> CompiledArtifact:
    """Compile a graph that a program has made into something that can be saved.

    Args:
        gm: torch-level or ATen calls; placeholders may carry fakes in `meta["val"]` or `meta["example_value"]`.
        example_inputs: tensors, fakes and numbers, one for each placeholder.
        dynamic_shapes: "from_graph" and "from_tracing_context" take sizes from what the placeholders carry, symbolic ones included;
            "from_example_inputs" takes those of the inputs.
        options: as for `flambeau.compile`.
        aot: packages that need no Python are not here yet.
        donate_graph_module: whether the graph may be changed; else it is copied.
        fake_mode: makes fakes of real inputs.

    Raises:
        UnknownName, InvalidOption: for the options, and for inputs that are something else; `NotHereYet` for `aot`.
    """
    if aot:
        raise NotHereYet("argument", "aot")
    if dynamic_shapes not in _SHAPES:
        raise UnknownName("dynamic_shapes", dynamic_shapes, _SHAPES)
    _check_inputs(gm, example_inputs)
    resolved = resolve(None, options).under(option_defaults())
    flat, spec = _with_flat_results(gm if donate_graph_module else _copied(gm))
    with unpatched():
        inputs = _described(flat, example_inputs, from_graph=dynamic_shapes != "from_example_inputs", mode=fake_mode)
    recorder = Recorder()
    compiled: Callable[..., Any] = call_disabled(
        compile_stack(flat, inputs, resolved, recorder), rescue=flat.meta.get("rescue")
    )
    refusal = _refusal(inputs, spec, recorder)
    call = compiled if spec is None else _rebuilding(compiled, spec)
    return CompiledArtifact(call, None if refusal else recorder.built[0], resolved, refusal)


def _refusal(inputs: Sequence[Any], spec: Any, recorder: Recorder) -> str:
    if any(is_traceable_wrapper_subclass(value) for value in inputs):
        return "an input is a tensor subclass, whose class is the program's code"
    if spec is not None:
        return "the graph gives something else than a tuple of tensors and numbers"
    if recorder.eager_graphs or len(recorder.built) != 1:
        return "; ".join(recorder.eager_graphs) or "the graph runs in eager"
    return ""


def _check_inputs(gm: fx.GraphModule, inputs: Sequence[Any]) -> None:
    expected = len(gm.graph.find_nodes(op="placeholder"))
    if len(inputs) != expected:
        raise InvalidOption(f"the graph takes {expected} inputs, and {len(inputs)} are given")
    for value in inputs:
        if not isinstance(value, torch.Tensor | torch.SymInt | torch.SymFloat | torch.SymBool | int | float | bool):
            raise InvalidOption(
                f"inputs of a graph are tensors and numbers, not {type(value).__name__}", hint="flatten them first"
            )


def _copied(gm: fx.GraphModule) -> fx.GraphModule:
    """The same graph in nodes of its own, over the same parameters and constants."""
    graph = fx.Graph()
    result = graph.graph_copy(gm.graph, {}, return_output_node=True)
    assert result is not None
    value, node = result
    graph.output(value).meta = copy.copy(node.meta)
    made = fx.GraphModule(gm, graph)
    made.meta = dict(gm.meta)
    return made


def _with_flat_results(gm: fx.GraphModule) -> tuple[fx.GraphModule, Any]:
    """A graph that gives a tuple of its results, and how they are put together; None where it gives such a tuple."""
    (output,) = gm.graph.find_nodes(op="output")
    (results,) = output.args
    if isinstance(results, tuple | list) and not any(isinstance(item, tuple | list | dict) for item in results):
        return gm, None
    made = _copied(gm)
    (output,) = made.graph.find_nodes(op="output")
    flat, spec = pytree.tree_flatten(output.args[0])
    output.args = (tuple(flat),)
    made.recompile()
    return made, spec


def _rebuilding(compiled: Callable[..., Any], spec: Any) -> Callable[..., Any]:
    def call(*inputs: Any) -> Any:
        return pytree.tree_unflatten(compiled(*inputs), spec)

    return call


def _described(
    gm: fx.GraphModule, inputs: Sequence[Any], *, from_graph: bool, mode: FakeTensorMode | None
) -> list[Any]:
    """What stands for each input while the graph is compiled; written to `meta["val"]` of the placeholders."""
    placeholders = gm.graph.find_nodes(op="placeholder")
    known = []
    for node, given in zip(placeholders, inputs, strict=True):
        carried = node.meta.get("example_value", node.meta.get("val")) if from_graph else None
        known.append(carried if carried is not None and (_is_symbolic(carried) or not _is_real(given)) else given)
    mode = next((value.fake_mode for value in known if isinstance(value, FakeTensor)), mode) or FakeTensorMode()
    for place, (node, value) in enumerate(zip(placeholders, known, strict=True)):
        if _is_real(value):
            known[place] = mode.from_tensor(value, static_shapes=True)
        node.meta["val"] = known[place]
    return known


def _is_real(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor)


def _is_symbolic(value: Any) -> bool:
    sizes = (*value.shape, *value.stride()) if isinstance(value, torch.Tensor) else (value,)
    return any(isinstance(size, torch.SymInt | torch.SymFloat | torch.SymBool) for size in sizes)


def _with_constants(built: Fresh) -> CompiledGraph:
    """The graph, its programs with the contents of all their constants."""
    whole: dict[str, Any] = {}
    for (kind, artifact), tensors in zip(built.graph.programs, built.constants, strict=False):
        given = iter(tensors)
        constants = tuple(
            spec if spec.data is not None else attrs.evolve(spec, data=_bytes_of(next(given)))
            for spec in artifact.constants
        )
        whole[kind] = attrs.evolve(artifact, constants=constants)
    return attrs.evolve(built.graph, **whole)


def _bytes_of(tensor: torch.Tensor) -> bytes:
    if not tensor.is_contiguous():
        raise ArtifactError(
            "a constant of the graph does not lie in the order of its elements", hint="make it contiguous"
        )
    if not tensor.numel():
        return b""
    data: bytes = tensor.detach().cpu().view(-1).view(torch.uint8).numpy().tobytes()
    return data


def _check_format(format: str) -> None:
    if format not in _FORMATS:
        raise UnknownName("format", format, _FORMATS)


def _read(path: Path, format: str) -> tuple[dict[str, Any], bytes]:
    try:
        if format == "unpacked":
            return json.loads((path / _HEADER).read_text()), (path / _PROGRAM).read_bytes()
        data = path.read_bytes()
        start = len(_MAGIC) + _SIZE.size
        if not data.startswith(_MAGIC):
            raise ArtifactError(f"{path} is no artifact that save(format='binary') wrote")
        (size,) = _SIZE.unpack_from(data, len(_MAGIC))
        return json.loads(data[start : start + size]), data[start + size :]
    except (OSError, ValueError, struct.error) as error:
        raise ArtifactError(f"{path} cannot be read: {error}") from error
