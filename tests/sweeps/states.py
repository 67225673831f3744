"""Random histories of small modules: calls with changes in between.

In: a seed. Out: a `Program`. A module is drawn from layers, then a sequence of calls, steps of training and changes: modes, hooks, attributes,
globals, dtypes, grad modes, autocast, resets and limits of the compiler, copies, state dicts, parameters replaced, threads.
"""

from __future__ import annotations

import random

from .program import Program

#: How often each backend is taken when none is named.
MIX = {"eager": 4, "aot_eager": 5, "lowered": 3, "inductor": 1}

#: Layers that take and give (n, 4).
LAYERS = [
    "nn.Linear(4, 4)", "nn.Linear(4, 4, bias=False)", "nn.LayerNorm(4)", "nn.BatchNorm1d(4)", "nn.BatchNorm1d(4, momentum=None)", "nn.Dropout(0.5)", "nn.ReLU()", "nn.ReLU(inplace=True)", "nn.GELU()", "nn.Identity()",
    "nn.Sequential(nn.Linear(4, 4), nn.Tanh())", "nn.GroupNorm(2, 4)", "nn.PReLU()", "nn.Dropout1d(0.5)", "nn.Softmax(-1)", "nn.AlphaDropout(0.5)", "nn.RMSNorm(4)", "nn.Hardswish()", "nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))",
    "nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))", "nn.Bilinear(4, 4, 4)", "nn.LSTMCell(4, 4)", "nn.GRUCell(4, 4)", "nn.Embedding(5, 4)", "nn.MultiheadAttention(4, 2)", "nn.InstanceNorm1d(4, track_running_stats=True)",
]  # fmt: skip
_FORMS = {
    "Bilinear": "{m}({t}, {t})",
    "LSTMCell": "{m}({t})[0]",
    "GRUCell": "{m}({t})",
    "Embedding": "{t} + {m}({t}.round().long().abs().clamp(max=4)).mean(1)",
    "MultiheadAttention": "{m}({t}, {t}, {t})[0]",
}
#: Further lines of `forward`.
EXTRAS = [
    "self.calls += 1", "t = t * self.scale", "self.seen.add_(1)", "t = t + G", "if self.training:\n    t = t + 1", "self.log.append(t.shape[0])", "t = t + self.table['k']", "if self.flag:\n    t = t * 2", "self.last = t.detach()",
    "t = self.extra(t)", "t = t + self.calls", "for layer in self.layers:\n    t = layer(t)", "t = t + self.seen.sum()", "if t.shape[0] > 3:\n    t = t - 1", "t = t + OPTIONS.get('bias', 0)", "t = helper(t)", "print('forward', t.shape[0])",
    "self.mean = self.mean * 0.5 + t.detach().mean()", "t = t + float(self.training)", "if torch.is_grad_enabled():\n    t = t * 3", "t = t.to(self.w.dtype)", "t = t @ self.w", "t = t + len(self.layers)", "t = t + getattr(self, 'late', 0)",
    "with torch.no_grad():\n    self.seen += t.sum()", "t = t if not torch.is_autocast_enabled('cpu') else t + 1", "with torch.autocast('cpu', torch.bfloat16, enabled=False):\n    t = (t.to(self.w.dtype) @ self.w)", "t = torch.utils.checkpoint.checkpoint(self.extra, t, use_reentrant=False)",
]  # fmt: skip
#: What may happen between two calls.
CHANGES = [
    "m.eval()", "m.train()", "m.scale = 3", "m.scale = 0.5", "m.flag = not m.flag", "G = 5", "OPTIONS['bias'] = 2", "m.table['k'] = 3", "m.seen = torch.zeros(4)", "m.seen.zero_()", "m.log.clear()", "m.late = 2", "del m.log[:]",
    "handles.append(m.register_forward_hook(lambda m, a, r: r * 2))", "handles.append(m.register_forward_pre_hook(lambda m, a: (a[0] + 1,)))", "handles and handles.pop().remove()", "handles.append(m.extra.register_forward_hook(lambda m, a, r: r + 1))",
    "handles.append(m.layers[0].register_full_backward_hook(lambda m, i, o: None))", "m.requires_grad_(False)", "m.requires_grad_(True)", "m.w.requires_grad_(not m.w.requires_grad)", "m.w = nn.Parameter(m.w.detach() * 2)", "m.w.data.mul_(2)", "m.w.data = m.w.data + 1",
    "m.layers.append(nn.ReLU())", "m.layers[0] = nn.Identity()", "m.extra = nn.Linear(4, 4)", "m.load_state_dict({k: v + 1 for k, v in m.state_dict().items()}, strict=False)", "m.load_state_dict(copy.deepcopy(m.state_dict()), assign=True)", "m.double()", "m.float()", "m.to(torch.bfloat16)",
    "reset()", "g = compile(m)", "g = compile(m, dynamic=True)", "g = compile(m, recompile_limit=2)", "m = copy.deepcopy(m); g = compile(m)", "g = copy.deepcopy(g)", "m.zero_grad()", "m.zero_grad(set_to_none=False)", "helper = lambda t: t - 1", "M.forward_note = 1", "m.calls = 0", "m.flag = True",
    "torch.set_grad_enabled(not torch.is_grad_enabled())", "m.extra.forward = lambda t: t * 2", "m.apply(lambda c: c.train(not c.training))", "del m.late_missing" if False else "m.mean = torch.zeros(())", "with torch.no_grad():\n    for p in m.parameters():\n        p.add_(1)", "m.half() if False else m.train(False)",
    "torch.set_default_dtype(torch.float64 if torch.get_default_dtype() == torch.float32 else torch.float32)", "for p in m.parameters():\n    p.grad = None", "for p in m.parameters():\n    p.grad = torch.ones_like(p)", "nn.Module.register_buffer(m, 'more', torch.ones(4))", "torch.manual_seed(4)", "m.add_module('late_child', nn.ReLU())", "m.register_parameter('late_w', nn.Parameter(torch.ones(4)))",
    "F_relu = F.relu", "nn.ReLU.forward, nn.Identity.forward = nn.ReLU.forward, nn.Identity.forward", "torch.use_deterministic_algorithms(not torch.are_deterministic_algorithms_enabled())", "m.share_memory() if False else m.eval()", "torch.set_num_threads(1)", "m.w.grad = None", "m.extra.requires_grad_(False)",
]  # fmt: skip
#: How a call is made; `{x}` is the input.
CALLS = [
    "r = call(g, {x})", "r = call(g, {x})", "r = call(g, {x})\nbackward(r)", "r = call(g, {x})\nbackward(r)", "r = call(g, {x}.requires_grad_())\nbackward(r)", "with torch.no_grad():\n    r = call(g, {x})", "with torch.inference_mode():\n    call(lambda t: g(t).clone() is None, {x})", "with torch.autocast('cpu', torch.bfloat16):\n    r = call(g, {x})",
    "r = call(g, {x}.double())", "r = call(m, {x})\nbackward(r)", "optimizer.zero_grad()\nr = call(g, {x})\nbackward(r)\noptimizer.step()", "r = call(g, t={x})", "thread = threading.Thread(target=call, args=(g, {x}))\nthread.start()\nthread.join()", "r = call(g, {x}.t().contiguous().t())", "r = call(g, {x}.to(torch.bfloat16))",
    "with torch.enable_grad():\n    r = call(g, {x})\nbackward(r)", "with torch.autocast('cpu', torch.bfloat16):\n    r = call(g, {x})\nbackward(r)", "r = call(g.forward, {x})", "r = call(g, {x}[:0])", "r = call(g, call(g, {x}))", "call(lambda t: g(t) + g(t * 2), {x})", "r = call(torch.func.functional_call, g, dict(m.named_parameters()), ({x},))",
]  # fmt: skip


def program(seed: int, backend: str | None = None) -> Program:
    """The program of a seed."""
    chance = random.Random(f"states {seed}")
    chosen = chance.choices(list(MIX), list(MIX.values()))[0]
    source = "\n".join([*_declarations(chance), "", *_history(chance)]) + "\n"
    return Program("states", seed, source, backend or chosen, exact=False)


def _declarations(chance: random.Random) -> list[str]:
    layers = [chance.choice(LAYERS[:20]) for _ in range(chance.choice([1, 1, 2]))]
    special = chance.choice(LAYERS)
    form = next((form for name, form in _FORMS.items() if name in special), "{m}({t})").format(m="self.special", t="t")
    steps = chance.sample(EXTRAS, chance.randint(1, 5))
    if chance.random() < 0.7 and "layer(t)" not in "".join(steps):
        steps.insert(chance.randrange(len(steps) + 1), "for layer in self.layers:\n    t = layer(t)")
    steps.insert(chance.randrange(len(steps) + 1), f"t = {form}")
    body = [f"        {line}" for step in steps for line in step.split("\n")]
    answer = chance.choice(["t", "t", "t, t * 2", "dict(t=t)", "[t, self.calls]"])
    return [
        "G = 1", "OPTIONS = {}", "def helper(t):", "    return t * 2", "class M(nn.Module):", "    def __init__(self):", "        super().__init__()", f"        self.layers = nn.ModuleList([{', '.join(layers)}])",
        f"        self.special = {special}", "        self.extra = nn.Linear(4, 4)", "        self.w = nn.Parameter(torch.eye(4))", "        self.seen = nn.Buffer(torch.zeros(4))", "        self.mean = nn.Buffer(torch.zeros(()), persistent=False)",
        "        self.calls, self.scale, self.flag, self.log, self.table = 0, 2, False, [], {'k': 1}", "    def forward(self, t):", *body, f"        return {answer}",
    ]  # fmt: skip


def _history(chance: random.Random) -> list[str]:
    start = chance.choice(
        [
            "compile(m)",
            "compile(m)",
            "compile(m, dynamic=True)",
            "compile(m, dynamic=False)",
            "compile(m, recompile_limit=3)",
        ]
    )
    lines = [
        "m = M()",
        f"g = {start}",
        "handles = []",
        "optimizer = torch.optim.SGD(m.parameters(), lr=0.5, momentum=0.5)",
    ]
    size = chance.choice([3, 4, 5])
    is_called = False
    for number in range(chance.randint(3, 7)):
        if number:
            lines += [line for _ in range(chance.choice([0, 1, 1, 2])) for line in chance.choice(CHANGES).split("\n")]
        if chance.random() < 0.3:
            size = chance.choice([1, 2, 3, 4, 6])
        made = f"whole(({size}, 4), torch.float32, {number})"
        call = chance.choice(CALLS)
        is_called = is_called or "call(m" not in call
        lines += call.replace("{x}", made).split("\n")
    if not is_called:
        lines.append(f"call(g, {made})")
    return [
        "def drive(compile, call, show, backward):",
        "    global G, helper",
        *(f"    {line}" for line in lines),
        "    show(m, OPTIONS)",
    ]
