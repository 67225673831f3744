"""The steps that random tensor programs are made of, as texts.

In them `x` and `y` stand for any value made before, `D` for a dimension. Out: tables by family. Those of `INEXACT` round; all others are exact on
small whole numbers. A step that eager refuses is mostly not taken, so that a table may hold what fits few values.
"""

from __future__ import annotations

#: New values of one or two others, element by element. Zeros get the sign that eager's vectorised loops give them, not that of its others: `+ 0`.
POINTWISE = [
    "-x", "x + 1", "x * 2", "x - 3", "x + y", "x - y", "x * y", "torch.maximum(x, y)", "torch.minimum(x, y)", "torch.where(x > y, x, y)",
    "torch.where(x > 0, x, 0)", "torch.where(y > 0, 1, x)", "x == 0", "x > 0", "x < y", "x == y", "x.logical_not()", "x.logical_and(y)", "x.abs()",
    "x.clamp(-1, 2)", "torch.clamp(x, min=y)", "x.to(torch.int64)", "x.to(torch.int32)", "x.to(torch.float64)", "x.to(torch.bool)", "x.to(torch.float32)",
    "x.to(torch.int64).to(torch.uint8)", "x % 3", "x // 2", "x & y", "x | y", "x ^ 3", "~x", "x.sign()", "x.masked_fill(x > 0, 1)", "torch.add(x, y, alpha=2)",
    "torch.zeros_like(x)", "torch.full_like(x, 3)", "x.new_ones(x.shape)", "x.clone()", "x.contiguous()", "x.detach()", "x.type_as(y)", "x.square()", "x ** 2",
    "torch.relu(x)", "x.to(torch.bfloat16)", "x.to(torch.float16)", "1 - x", "x / 2", "torch.rsub(x, y)", "torch.addcmul(x, y, y, value=2)", "torch.lerp(x, y, 0.5)",
    "torch.empty_like(x).copy_(y)", "torch.fmod(x, 3)", "x.floor()", "torch.copysign(x, y + 0)", "torch.heaviside(x, y)", "x.positive()", "torch.hypot(x * 0, y)",
    "F.leaky_relu(x, 0.5)", "F.hardtanh(x)", "F.relu6(x)", "F.threshold(x, 1, 0)", "F.prelu(x, x.new_full((1,), 0.5))", "F.softshrink(x, 1) + 0", "F.hardshrink(x, 1)",
    "torch.isfinite(x)", "x.real", "x.conj()", "torch.complex(x, y)", "x.new_zeros(2, 3)", "x.expand_as(y)", "torch.nan_to_num(x)", "x.float()", "x.double()", "x.long()",
    "torch.xlogy(x * 0, y)", "x.ne(y)", "torch.ge(x, 1)", "torch.sub(x, y, alpha=3)", "x.bitwise_not()", "torch.gcd(x, y)", "x << 1", "torch.trunc(x)", "x.sgn()",
]  # fmt: skip
#: Along rows, and joins of several tensors. Eager does not count writes to what `torch.kron` saves, and is wrong after one: it gets copies. Medians along an
#: expanded dimension read beyond the memory in eager.
ROWS = [
    "x.sum(D)", "x.sum()", "x.sum(D, keepdim=True)", "x.sum((0, -1))", "x.amax(D)", "x.amin(D, keepdim=True)", "x.amax((0, -1))", "x.max(D)[0]", "x.any(D)", "x.all(D)",
    "x.cumsum(D)", "x.sort(D)[0]", "x.cummax(D)[0]", "x.topk(1, D)[0]", "torch.count_nonzero(x, D)", "torch.diff(x, dim=D)", "torch.cat([x, y], D)", "torch.cat([x, x], D)",
    "torch.stack([x, x * 2], D)", "torch.outer(x.flatten()[:4], y.flatten()[:5])", "torch.arange(x.shape[0]) + x.sum()", "x.argmax(D)", "x.min(D).indices", "x.sort(D, stable=True)[1]",
    "x.cumprod(D)", "x.prod(D)", "torch.aminmax(x, dim=D)[1]", "x.max()", "x @ y", "x @ y.mT", "x.mT @ y", "torch.einsum('i...,i...->...', x, y)", "torch.addmm(x, x, y)",
    "torch.cat([x, y.to(x.dtype)], D)", "torch.stack([x, y], D)", "torch.hstack([x, y])", "torch.block_diag(x, x)", "torch.cartesian_prod(x.flatten()[:3], y.flatten()[:2])",
    "torch.meshgrid(x.flatten()[:2], y.flatten()[:3], indexing='ij')[0]", "torch.bmm(x, y)", "F.linear(x, y)", "torch.trace(x)", "torch.kron(x[:2].clone(), x[:1].clone())", "x.kthvalue(1, D)[0]",
    "x.contiguous().median(D)[0]", "x.mode(D)[0]", "torch.logical_or(x, y).sum(D)", "x.nansum(D)", "x.sum(D, dtype=torch.float64)", "torch.dot(x.flatten()[:3], y.flatten()[:3])", "torch.vander(x.flatten()[:3], 3)",
    "torch.cat([x, x[:0]], 0)", "torch.cat([x[:0], y], D)", "x.cummin(D)[1]", "torch.searchsorted(torch.arange(3), x.to(torch.int64))", "x.unique()", "torch.histc(x, 4)", "x.argsort(D)",
]  # fmt: skip
#: Windows on the memory of another value, and values in another order.
VIEWS = [
    "x.transpose(0, -1)", "x.flip(D)", "x.unsqueeze(D)", "x.squeeze()", "x[1:]", "x[::2]", "x[..., :2]", "x[..., 1:]", "x[0]", "x[..., -1]", "x.reshape(-1)", "x.flatten()",
    "x.permute(*range(x.dim())[::-1])", "x.expand(2, *x.shape)", "x.roll(1, D)", "F.pad(x, (1, 1))", "F.pad(x, (1, -1), value=2)", "x.chunk(2, D)[0]", "x.split(2, D)[-1]",
    "x.split(2, D)[0]", "x.unfold(D, 2, 1)", "x.diagonal(0, 0, -1)", "x.tril()", "x.triu(1)", "x.movedim(0, -1)", "x.select(D, 0)", "x.narrow(D, 0, 1)", "x.view(-1)",
    "x.view(x.shape[0], -1)", "x.repeat_interleave(2, D)", "x.t()", "x.mT", "x.unbind(D)[-1]", "torch.tensor_split(x, 2, D)[1]", "torch.rot90(x)", "x[None]", "x[:, None]",
    "x.unflatten(-1, (1, -1))", "x[x.shape[0] // 2 :]", "x[: x.shape[0] // 2]", "torch.tile(x, (2,))", "x.swapaxes(0, -1).contiguous()", "x[:0]", "x[..., :0]", "x.narrow(D, 0, 0)",
    "x.as_strided((2,), (1,))", "torch.diag(x)", "torch.diag_embed(x)", "x.repeat(2, *[1] * (x.dim() - 1))", "x.view_as(x)", "x.contiguous(memory_format=torch.channels_last)",
    "x.squeeze(D)", "torch.broadcast_to(x, (2, *x.shape))", "torch.atleast_2d(x)", "x.ravel()", "torch.narrow_copy(x, 0, 0, 1)", "torch.view_as_real(x)", "x.view(torch.int32)", "x.T",
    "x.unfold(0, 1, 1)", "x.reshape(x.shape[::-1])", "F.pad(x[None], (1, 1), mode='reflect')[0]", "F.pad(x[None], (0, 1), mode='replicate')[0]", "x.expand(-1, -1)", "x.imag", "x.resolve_conj()",
    "F.pixel_shuffle(x.expand(4, *x.shape), 2)", "torch.vstack([x, x])[1:]", "x.clone(memory_format=torch.preserve_format)", "x.swapdims(0, -1)[..., :1]", "x.unsqueeze(0).expand(3, *x.shape)[1]",
]  # fmt: skip
#: Reads and writes at places that indices name.
INDICES = [
    "x.index_select(D, torch.tensor([0, 0]))", "x[torch.tensor([0, -1])]", "x[..., torch.tensor([0, 1, 0])]", "x.gather(D, torch.zeros_like(x, dtype=torch.int64))",
    "x.take(torch.tensor([0, 1]))", "torch.scatter(x, D, torch.zeros_like(x, dtype=torch.int64), 1)", "x.index_add(D, torch.zeros(x.shape[D], dtype=torch.int64), x)",
    "x.scatter_add(D, torch.zeros_like(x, dtype=torch.int64), x)", "x.scatter_reduce(D, torch.zeros_like(x, dtype=torch.int64), x, 'amax')", "x.index_fill(D, torch.tensor([0]), 7)",
    "x.index_copy(0, torch.tensor([0]), x[-1:])", "torch.select_scatter(x, x.select(D, 0) + 1, D, 0)", "torch.slice_scatter(x, x[:1] * 0, 0, 0, 1)", "x.masked_scatter(x > 0, x.clone())",
    "x.put(torch.tensor([0]), x.flatten()[:1] * 2)", "F.one_hot(x.to(torch.int64).abs() % 5, 5)", "torch.bucketize(x, torch.tensor([-1, 0, 1]))", "x[x > 0]", "x[torch.tensor([0]), ..., torch.tensor([0])]",
    "torch.take_along_dim(x, x.argsort(D), D)", "F.embedding(y.to(torch.int64).abs() % 2, x)", "x[None, torch.tensor([[0], [0]])]", "x.diagonal_scatter(x.diagonal() * 2)", "torch.nonzero(x)",
    "x[torch.zeros_like(x, dtype=torch.int64)]", "F.one_hot(x.to(torch.int64))", "torch.index_put(x, (torch.tensor([0, 0]),), x[0] * 0 + 1, accumulate=True)", "x.item() if x.numel() == 1 else x",
    "x[y.to(torch.bool)]", "x.index_reduce(0, torch.tensor([0]), x[:1], 'amax')", "F.embedding_bag(y.to(torch.int64).abs() % 2, x, mode='sum')", "x[..., torch.tensor([True] * x.shape[-1])]",
]  # fmt: skip
#: Writes, through whatever `x` is a window on.
WRITES = [
    "x.add_(1)", "x.mul_(2)", "x.sub_(y)", "x.neg_()", "x.zero_()", "x.fill_(2)", "x.clamp_(min=0)", "x[0].zero_()", "x[..., 0] = 5", "x.copy_(x.flip(0))", "x.t().mul_(2)",
    "x.flatten()[:2].fill_(3)", "x[1:].add_(x[:-1])", "x[x > 0] = 1", "x[torch.tensor([0, -1])] = 2", "x.transpose(0, -1)[0] += 1", "x.masked_fill_(x > 1, 0)", "x.view(-1)[::2] *= 3",
    "x.select(D, 0).copy_(x.select(D, -1))", "x.index_add_(0, torch.tensor([0]), x[-1:].clone())", "x.diagonal(0, 0, -1).fill_(4)", "x.squeeze().neg_()", "x.cumsum_(D)", "x.tril_()",
    "x.scatter_(0, torch.zeros_like(x, dtype=torch.int64), 2)", "x.split(2, D)[-1].add_(1)", "x.unsqueeze(0).add_(y)", "x.chunk(2, D)[0].mul_(2)", "x.logical_not_()", "x += y", "x *= 2", "x -= 1",
    "x[:] = y", "x[::2] = y[::2]", "x[1:] = x[:-1].clone()", "x.copy_(y)", "x.relu_()", "F.relu(x, inplace=True)", "x.addcmul_(y, y)", "x[x < 0] *= -1", "x[..., -1:] -= y[..., :1]", "x.T[0] = 1",
    "x.index_copy_(0, torch.tensor([0]), y[:1])", "x.index_fill_(D, torch.tensor([0]), 2)", "x.scatter_add_(D, torch.zeros_like(y, dtype=torch.int64), y)", "x.put_(torch.tensor([0]), y.flatten()[:1])",
    "x.masked_scatter_(y > 0, y)", "x.swapaxes_(0, -1)", "x.unsqueeze_(0)", "x.squeeze_()", "x.t_()", "x.transpose_(0, -1)", "x.eq_(y)", "x.fill_diagonal_(3)", "x.lerp_(y, 0.5)", "x[0], x[-1] = x[-1], x[0]",
    "x.expand(2, *x.shape)[0].add_(1)", "x.detach().mul_(2)", "x.unfold(0, 1, 1).add_(1)", "x.real.add_(1)", "x.view(x.shape).neg_()", "x.index_put_((torch.tensor([0]),), y[0])", "x.triu_()", "x.clamp_(-1, 1)",
    "x[:, :1].add_(x[:, 1:2])", "x.sort(D)[0].zero_()", "x.resize_(x.shape)", "x.abs_()", "x.sign_()", "x.requires_grad_(False)", "x.div_(2)", "x.set_(x)", "x.bitwise_and_(1)", "x.square_()",
    "x.data.add_(1)", "x.data[0] = 7", "x.data = x.data * 2", "x.data = y.data", "x.data.mul_(y)", "x.detach_()",
]  # fmt: skip
#: Several tensors in one call, results into a tensor that exists.
GROUPS = [
    "torch._foreach_add_([x, y], 1)", "torch._foreach_mul_([x, y], 2)", "torch._foreach_add_([x, y], [y, x])", "torch._foreach_neg_([x])", "torch._foreach_zero_([x, y])",
    "torch._foreach_copy_([x], [y])", "torch._foreach_add_([x, x], 1)", "torch._foreach_sub_([x, y], [1, 2])", "torch._foreach_addcmul_([x], [y], [y], 2)", "torch._foreach_lerp_([x], [y], 0.5)",
    "torch.add(x, y, out=x)", "torch.mul(x, 2, out=y)", "torch.neg(y, out=x)", "torch.cat([x, y], out=x.new_empty(0))", "torch.sum(x, 0, out=y[0])", "torch.maximum(x, y, out=x)",
    "torch._foreach_clamp_max_([x, y], 1)", "torch._foreach_abs_([x, y.clone()])", "torch._foreach_mul_([x, x.view(-1)], 2)", "torch._foreach_maximum_([x], [y])", "torch.where(x > 0, x, y, out=y)",
]  # fmt: skip
GROUP_VALUES = [
    "torch._foreach_add([x, y], 1)[0]", "torch._foreach_mul([x, y], [y, x])[1]", "torch._foreach_sub([x, x], 2)[1]", "torch._foreach_neg([x, y])[1]", "torch._foreach_add([x, y], [y, y], alpha=2)[0]",
    "torch._foreach_maximum([x], [y])[0]", "torch._foreach_norm([x, y], 1)[0]", "torch.stack(torch._foreach_abs([x, x]))", "torch.add(x, y, out=torch.empty_like(x))", "torch.mul(x, y, out=x.new_empty(0))",
    "torch.broadcast_tensors(x, y)[1]", "torch.split_with_sizes(x, [1, x.shape[0] - 1])[1]", "torch.cat(x.unbind(0))", "torch.sum(x, D, out=x.new_empty(0))", "torch.utils.checkpoint.checkpoint(lambda t: t * t, x, use_reentrant=False)",
]  # fmt: skip
#: Draws of random numbers; a half is kept exactly.
RANDOM = [
    "F.dropout(x, 0.5)", "torch.bernoulli(torch.full_like(x, 0.5))", "x * torch.randint(0, 3, x.shape)", "torch.randint_like(x, 4)", "torch.randperm(x.shape[0])", "F.dropout(x.transpose(0, -1), 0.5)",
    "F.dropout(x[..., ::2], 0.5)", "F.dropout1d(x, 0.5)", "F.dropout2d(x, 0.5)", "F.alpha_dropout(x, 0.0)", "torch.where(torch.rand_like(x) > 0.5, x, -x)", "torch.randn_like(x).sign() * x",
    "(torch.rand(x.shape) > 0.5) * x", "torch.multinomial(x.abs().flatten().to(torch.float64) + 1, 2)", "torch.full_like(x.t(), 0.5).bernoulli()", "x.clone().bernoulli_(0.5)", "torch.empty_like(x).bernoulli_(0.5)",
    "torch.empty_like(x).random_(5)", "torch.randint(0, 9, (x.shape[0], 2))", "F.dropout(x.expand(2, *x.shape), 0.5)", "F.feature_dropout(x, 0.5)", "torch.normal(x.new_zeros(3), 0.0)", "F.rrelu(x, 0.5, 0.5, True)",
    "F.dropout(x, 0.5, training=False)", "F.dropout(x, 1.0)", "F.dropout(x, 0.0)", "(x.new_empty(x.shape).uniform_() > 0.5) | (x > 0)", "(x.new_empty(4).normal_() > 0)", "(x.new_empty(3).exponential_() > 1)",
]  # fmt: skip
RANDOM_WRITES = [
    "x.bernoulli_(0.5)",
    "x.random_(3)",
    "F.dropout(x, 0.5, inplace=True)",
    "x.t().bernoulli_(0.5)",
    "x[..., ::2].random_(4)",
    "torch.manual_seed(3)",
]
#: Steps that round.
INEXACT = [
    "x.exp()", "torch.sigmoid(x)", "torch.tanh(x)", "x.softmax(D)", "x.log_softmax(D)", "x.mean(D)", "x.mean()", "x.var(D)", "x.std(D, correction=0)", "F.layer_norm(x, x.shape[-1:])", "F.gelu(x)", "F.silu(x)",
    "x.abs().sqrt()", "(x.abs() + 1).log()", "x.sin()", "torch.logsumexp(x, D)", "x / (y.abs() + 1)", "x.norm()", "x.norm(dim=D)", "F.normalize(x, dim=D)", "torch.atan2(x, y)", "x.abs().rsqrt()", "F.softplus(x)",
    "F.mse_loss(x, y)", "F.smooth_l1_loss(x, y)", "F.cosine_similarity(x, y, D)", "torch.pow(x.abs() + 1, 0.5)", "2 ** x", "2 ** x.clamp(-3, 3)", "x.abs() ** y", "F.elu(x)", "F.selu(x)", "F.mish(x)", "x.erf()", "torch.logaddexp(x, y)", "x.cumsum(D).exp().log()",
    "F.cross_entropy(x, x.argmax(-1))", "F.batch_norm(x, None, None, training=True)", "F.group_norm(x, 1)", "F.instance_norm(x[None]).flatten(1)", "torch.cdist(x, x)", "torch.renorm(x, 2, 0, 1)", "x.reciprocal()", "torch.angle(x)",
    "F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction='batchmean')", "F.huber_loss(x, y)", "x.logcumsumexp(D)", "F.interpolate(x[None, None], scale_factor=2)[0, 0]", "F.avg_pool1d(x, 2)", "F.max_pool1d(x, 2)",
    "F.scaled_dot_product_attention(x, y, y)", "torch.linalg.vector_norm(x, 3, D)", "torch.linalg.inv(x.t() @ x + 9 * torch.eye(x.shape[-1], dtype=x.dtype))", "torch.linalg.det(x @ x.t())", "F.rms_norm(x, x.shape[-1:])",
    "torch.fft.fft(x)", "torch.view_as_complex(torch.stack([x, y], -1)).abs()", "F.glu(x, D)", "F.hardswish(x)", "F.hardsigmoid(x)", "F.celu(x)", "F.logsigmoid(x)", "F.tanhshrink(x)", "F.pairwise_distance(x, y)", "x.lgamma()",
]  # fmt: skip
#: Family -> how often it is taken; the first word says what becomes of the step.
FAMILIES = [
    ("value", POINTWISE, 8), ("value", ROWS, 5), ("value", VIEWS, 8), ("value", INDICES, 3), ("write", WRITES, 6), ("write", GROUPS, 1.5),
    ("value", GROUP_VALUES, 1), ("value", RANDOM, 1), ("write", RANDOM_WRITES, 0.3),
]  # fmt: skip
