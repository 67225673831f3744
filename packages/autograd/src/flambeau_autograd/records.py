"""What the stages hand to each other and to a cache: plain frozen data.

`Signature` says how the compiled forward and backward are joined to the caller: which inputs are written, what each
output is, what is saved. It holds only numbers, strings and tuples, so that it survives `to_json` / `from_json`.
"""

from __future__ import annotations

import json
from typing import Any

from attrs import asdict, field, frozen
from torch.fx import GraphModule


@frozen
class ResultNumber:
    """Among the arguments of a `ViewStep`: the number that is forward output `result`."""

    result: int


@frozen
class TypeName:
    """Among the arguments of a `ViewStep`: the dtype `torch.<dtype>`."""

    dtype: str


@frozen
class ViewStep:
    """One replayable view: `op` as `aten.select.int`, its arguments after the tensor, and which result of a list; `grad`: whether autograd
    saw it, or it was taken under `no_grad`.

    Arguments are numbers, strings, None, tuples of them, `ResultNumber` for symbolic sizes and `TypeName` for dtypes.
    """

    op: str
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()
    item: int | None = None
    grad: bool = True


@frozen
class OutputSpec:
    """Where one output of the user's graph comes from.

    kind: "graph" (forward output `index`), "input" (the caller's own object `index`), "view_of_input" (replay `steps`
    on input `index`), "view_of_base" (replay on forward output `index`), "view_of_output" (replay on output `index` of the user's
    graph), "same_as" (the object of output `index`), "constant" (`value`).
    """

    kind: str
    index: int = -1
    requires_grad: bool = False
    steps: tuple[ViewStep, ...] = ()
    value: Any = None


@frozen
class MutationSpec:
    """Input `index` is written. `mode` "graph": the forward copies into it; "silent": the same, and autograd is not
    told, as by the kernels that write running statistics; "wrapper": forward output `output` is copied into it under autograd,
    because the write has gradient history."""

    index: int
    mode: str
    output: int = -1


@frozen
class SavedSpec:
    """A value kept for the backward. kind "input" / "output" / "extra": its place; `is_tensor` false for ints.

    `shares`: a returned forward output whose storage it shares, so that in-place writes to that one are noticed.
    `checked` false: a write to it is an error for some gradients only, and it is watched for that.
    """

    kind: str
    index: int
    is_tensor: bool = True
    shares: int = -1
    checked: bool = True


@frozen
class WatchedSpec:
    """An input or an output (`kind`, `index`) that eager's nodes save: the backward raises when it was written meanwhile.

    kind "written": an input whose contents after the write with mode "wrapper" are saved. `reached`: the places in `differentiable` whose
    gradients lead to such a node. `kept`: the node holds the very tensor, and the backward raises when it was detached in place.
    """

    kind: str
    index: int
    reached: tuple[int, ...]
    kept: bool = False


@frozen
class Signature:
    """How to call the compiled forward and backward on behalf of the user's graph.

    `results` counts forward outputs before the saved ones (written inputs, then user outputs and bases).
    `differentiable`: those of them that carry gradients, one tangent each, in order; `tangent_orders` gives for
    each the dimension order (outermost first) in which the backward expects the tangent to be dense.
    `grad_inputs`: inputs that receive gradients, in the order of the backward's outputs.
    `reached_by`: for each of these the places in `differentiable` that it decides; with no gradient for any, it has none itself.
    `led_by`: for each of these the places in `differentiable` from which eager's engine comes to its history, with a gradient or without.
    `watched`: what eager saves and the compiled halves do not.
    `frees`: for each differentiable result the places in `differentiable` that no backward can come through when its own is done: something
    that is freed then is saved behind both. Not its own place where eager saves nothing behind it.
    `saved`: in the order of the backward's inputs (ints first), before the tangents.
    `flagged`: sets of places in `differentiable`; of each the backward is told, after the tangents, whether one of them has a gradient.
    `follows`: whether how a gradient lies in eager may depend on how the tangents do.
    `hands_on`: whether a gradient is a tangent, or a view of one, where other tangents are absent.
    `double_backward`: "" when the forward may be run again for a backward that is differentiated, else why that gives other values.
    `not_linear`: an op through which gradients are no linear function of the tangents, or "".
    `decisive`: inputs whose contents, and not their sizes alone, decide gradients; or whether the graph raises.
    `draws`: whether the forward draws random numbers from the CPU's generator.
    `raises`: whether the forward may raise for the values of what it is given.
    """

    inputs: int
    results: int
    extras: int
    outputs: tuple[OutputSpec, ...]
    mutations: tuple[MutationSpec, ...] = ()
    differentiable: tuple[int, ...] = ()
    tangent_orders: tuple[tuple[int, ...], ...] = ()
    grad_inputs: tuple[int, ...] = ()
    reached_by: tuple[tuple[int, ...], ...] = ()
    led_by: tuple[tuple[int, ...], ...] = ()
    saved: tuple[SavedSpec, ...] = ()
    watched: tuple[WatchedSpec, ...] = ()
    frees: tuple[tuple[int, ...], ...] = ()
    flagged: tuple[tuple[int, ...], ...] = ()
    follows: bool = False
    hands_on: bool = False
    double_backward: str = ""
    not_linear: str = ""
    decisive: tuple[int, ...] = ()
    draws: bool = False
    raises: bool = False

    @property
    def is_plain(self) -> bool:
        """True when forward outputs are the user's outputs one for one."""
        if any(m.mode == "wrapper" for m in self.mutations) or self.results != len(self.outputs):
            return False
        return all(o.kind == "graph" and o.index == i for i, o in enumerate(self.outputs))

    def to_json(self) -> str:
        """A JSON text from which `from_json` builds an equal record."""
        return json.dumps(asdict(self, recurse=True), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Signature:
        """Inverse of `to_json`. Raises `ValueError` or `TypeError` when the text is not one of ours."""
        data = json.loads(text)
        data["outputs"] = tuple(
            OutputSpec(**{**o, "steps": tuple(_view_step(s) for s in o["steps"]), "value": _plain(o["value"])})
            for o in data["outputs"]
        )
        data["mutations"] = tuple(MutationSpec(**m) for m in data["mutations"])
        data["saved"] = tuple(SavedSpec(**s) for s in data["saved"])
        data["watched"] = tuple(WatchedSpec(**{**w, "reached": tuple(w["reached"])}) for w in data["watched"])
        for name in ("differentiable", "grad_inputs", "decisive"):
            data[name] = tuple(data[name])
        for name in ("tangent_orders", "reached_by", "led_by", "frees", "flagged"):
            data[name] = tuple(tuple(part) for part in data[name])
        return cls(**data)


#: Sizes and strides of a tangent, or None where no gradient came to a result.
Lying = tuple[tuple[int, ...], tuple[int, ...]] | None


@frozen
class Layout:
    """How a gradient lies. `tangent`: the place of the one in whose memory it does, `offset` elements after the beginning of that, or -1."""

    strides: tuple[int, ...]
    tangent: int = -1
    offset: int = 0


@frozen
class Prepared:
    """The result of `prepare`: plain signature, forward and backward graphs, and their inputs (fakes, ints)."""

    signature: Signature
    forward: GraphModule
    backward: GraphModule | None
    forward_inputs: list[Any] = field(factory=list)
    backward_inputs: list[Any] = field(factory=list)
    replay: GraphModule | None = None


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return ResultNumber(**value) if "result" in value else TypeName(**value)
    return tuple(_plain(v) for v in value) if isinstance(value, list) else value


def _view_step(data: dict[str, Any]) -> ViewStep:
    pairs = tuple((name, _plain(value)) for name, value in data["kwargs"])
    return ViewStep(data["op"], _plain(data["args"]), pairs, data["item"], data["grad"])
