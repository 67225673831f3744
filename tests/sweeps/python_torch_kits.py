"""Declarations for random Python programs that put their own functions in the place of torch's and the library's.

In: nothing. Out: `TORCH_KITS`, in the form of `python_kits.py`. What is replaced is given back after each run (`restored.py`); nothing that the sweep itself
calls between the calls of a program is among it.
"""

from __future__ import annotations

import itertools

from .python_kits import Kit, kit_of

#: A method of tensors -> its arguments.
_METHODS = {
    "abs": "", "sum": "", "mul": "{I}", "add": "{T}", "sub": "{I}", "relu": "", "neg": "", "square": "", "sign": "", "clamp": "-1, {I}", "flip": "0", "cumsum": "0", "amax": "", "max": "", "unsqueeze": "0", "view": "-1", "expand": "-1",
    "fill_": "{I}", "mul_": "{I}", "add_": "{T}", "relu_": "", "zero_": "", "where": "{t} > 1, {T}", "eq": "{T}", "__add__": "{T}", "__radd__": "{I}", "__mul__": "{I}", "__rmul__": "{I}", "__sub__": "{T}", "__rsub__": "{I}",
    "__neg__": "", "__pow__": "2", "__abs__": "", "__iadd__": "{I}", "__matmul__": "{T}", "repeat": "2", "double": "", "float": "", "type": "torch.float64", "prod": "", "outer": "{T}", "index_select": "0, torch.tensor([0])", "diff": "", "norm": "1", "unbind": "", "contiguous": "",
    "tolist": "", "permute": "0", "t": "", "squeeze": "", "flatten": "", "any": "", "all": "", "count_nonzero": "", "sort": "", "argmax": "", "lt": "{T}", "logical_not": "", "trunc": "", "scatter_add": "0, torch.tensor([0]), {T}",
}  # fmt: skip
#: A function -> its arguments.
_FUNCTIONS = {
    "torch.abs": "{T}", "torch.add": "{T}, {I}", "torch.mul": "{T}, {I}", "torch.relu": "{T}", "torch.sum": "{T}", "torch.maximum": "{T}, {T}", "torch.where": "{t} > 0, {T}, {I}", "torch.zeros_like": "{T}", "torch.full_like": "{T}, {I}", "torch.flip": "{T}, (0,)", "torch.clamp": "{T}, -1, 2",
    "torch.cumsum": "{T}, 0", "torch.outer": "{T}, {T}", "torch.einsum": "'i->i', {T}", "torch.norm": "{T}, 1", "torch.atleast_2d": "{T}", "torch.neg": "{T}", "torch.unbind": "{T}", "torch.linalg.vector_norm": "{T}, 1", "torch.square": "{T}", "torch.is_tensor": "{T}", "torch.hstack": "[{T}, {T}]",
    "torch.diff": "{T}", "torch.dot": "{T}, {T}", "torch.matmul": "{T}, {T}", "torch.masked_select": "{T}, {t} > 0", "torch.special.round": "{T}", "torch.numel": "{T}", "torch.result_type": "{T}, 1", "torch.broadcast_tensors": "{T}, {T}", "torch.cat": "[{T}, {T}]",
    "F.relu": "{T}", "F.pad": "{T}, (1, 0)", "F.hardtanh": "{T}", "F.threshold": "{T}, 1, 0", "F.leaky_relu": "{T}, 2", "F.linear": "{T}, torch.eye(3, dtype=torch.float64)", "F.dropout": "{T}, 0.5, False", "F.mse_loss": "{T}, {T}", "F.normalize": "{T}, 1, 0", "F.relu6": "{T}", "F.l1_loss": "{T}, {T}, reduction='sum'", "F.one_hot": "{t}.abs().long()", "F.softshrink": "{T}, 1",
}  # fmt: skip
_LIBRARY = {
    "math.comb": "5, abs({I}) % 5", "math.hypot": "3, 4", "heapq.nlargest": "1, {L}", "bisect.bisect": "[1, 3], {I}", "textwrap.indent": "{S}, '-'", "json.dumps": "{L}", "random.choice": "[{I}]", "string.capwords": "{S}", "math.isqrt": "9", "itertools.pairwise": "{L}",
}  # fmt: skip
#: A method of layers -> an expression that comes to it. Not those that FX needs for its own modules.
_LAYERS = {
    "nn.ReLU.forward": "net({T})", "nn.Sequential.forward": "net({T})", "nn.Identity.forward": "own(net({T}))", "nn.Module.__call__": "net({T})", "nn.Module.train": "net.train()({T})", "Doubling.__call__": "own({T})", "nn.Sequential.__getitem__": "net[0]({T})", "nn.Sequential.__iter__": "sum(1 for _ in net) * {T}", "nn.ReLU.__init__": "nn.ReLU()({T})",
    "nn.Module.children": "len(list(net.children())) * {T}",
}  # fmt: skip

_TEXT = """
CALLED = []
ORIGINALS = {}
FACTOR = 2
def original(place):
    if place not in ORIGINALS:
        owner, name = place.rsplit('.', 1)
        ORIGINALS[place] = getattr(eval(owner), name)
    return ORIGINALS[place]
def put(place, function):
    original(place)
    owner, name = place.rsplit('.', 1)
    setattr(eval(owner), name, function)
def noted(place):
    before = original(place)
    def called(*args, **kwargs):
        CALLED.append(place)
        return before(*args, **kwargs)
    return called
def wrapped(place):
    before = original(place)
    @functools.wraps(before, assigned=('__doc__',), updated=())
    def called(*args, **kwargs):
        return before(*args, **kwargs) * FACTOR
    return called
class Called:
    def __init__(self, place):
        self.before, self.count = original(place), 0
    def __call__(self, *args, **kwargs):
        self.count += 1
        return self.before(*args, **kwargs)
    def __get__(self, instance, owner=None):
        return self if instance is None else functools.partial(self, instance)
def flat(value):
    if isinstance(value, torch.Tensor):
        return value.reshape(-1)[:3].to(torch.float64)
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], torch.Tensor):
        return flat(value[0])
    return torch.full((1,), len(str(value)), dtype=torch.float64)
class Doubling(nn.ReLU):
    def forward(self, t):
        return super().forward(t) * 2
net, own = nn.Sequential(nn.ReLU(), nn.Identity()), Doubling()
net.more = nn.ReLU()
"""
#: What a program puts in the place of a function.
_PUT = [
    "put('{place}', wrapped('{place}'))", "put('{place}', noted('{place}'))", "put('{place}', original('{place}'))", "put('{place}', Called('{place}'))", "put('{place}', lambda t, *a, **k: t)", "put('{place}', functools.partial(original('{place}')))", "put('{place}', torch.negative)",
    "put('{place}', lambda *a, f=original('{place}'), **k: f(*a, **k) + 1)",
]  # fmt: skip


def _kit(calls: dict[str, str]) -> Kit:
    """A kit that replaces what these expressions come to."""
    changes = [put.replace("{place}", place) for place in calls for put in _PUT]
    blocks = [
        "with mock.patch.object({}, '{}', lambda *a, **k: {{T}}):\n    {{t}} = flat({})".format(
            *place.rsplit(".", 1), call
        )
        for place, call in calls.items()
    ]
    inside = [f"put('{place}', noted('{place}'))\n{{t}} = flat({call})" for place, call in calls.items()]
    return kit_of(
        _TEXT,
        [*changes, "global FACTOR; FACTOR = {n}", "CALLED.clear()"],
        ["CALLED"],
        T=[f"flat({call})" for call in calls.values()],
        I=["len(CALLED)", "FACTOR"],
        do=[*(f"{{t}} = flat({call})" for call in calls.values()), *blocks, *inside],
    )


def _in_fours(calls: dict[str, str]) -> list[dict[str, str]]:
    items = iter(calls.items())
    return [dict(some) for some in iter(lambda: list(itertools.islice(items, 4)), [])]


TORCH_KITS: list[Kit] = [
    _kit(some)
    for calls in (
        {f"torch.Tensor.{name}": f"{{T}}.{name}({arguments})" for name, arguments in _METHODS.items()},
        {place: f"{place}({arguments})" for place, arguments in (_FUNCTIONS | _LIBRARY).items()},
        _LAYERS,
    )
    for some in _in_fours(calls)
]
