"""Ordinary code of other models: recurrent cells, convolutions, losses, augmentations, graphs."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..registry import Made, program

SECTION = "ordinary models"


@program(SECTION)
def lstm_by_the_library() -> Made:
    lstm = nn.LSTM(3, 4, num_layers=2, batch_first=True)
    return lambda x: lstm(x)[0][:, -1], [(torch.randn(2, 5, 3),)], lstm


@program(SECTION)
def gru_cell_in_a_loop() -> Made:
    cell = nn.GRUCell(3, 4)

    def f(xs: Tensor) -> Tensor:
        h = torch.zeros(xs.shape[1], 4)
        for x in xs:
            h = cell(x, h)
        return h

    return f, [(torch.randn(4, 2, 3),)], cell


@program(SECTION)
def lstm_cell_by_hand() -> Made:
    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gates = nn.Linear(7, 16)

        def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            h, c = state
            i, f, g, o = self.gates(torch.cat((x, h), -1)).chunk(4, -1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            return torch.sigmoid(o) * torch.tanh(c), c

    return Cell(), [(torch.randn(2, 3), (torch.zeros(2, 4), torch.zeros(2, 4)))]


@program(SECTION)
def bidirectional_rnn_over_lengths() -> Made:
    rnn = nn.GRU(3, 4, bidirectional=True, batch_first=True)

    def f(x: Tensor, lengths: Tensor) -> Tensor:
        out, _ = rnn(x)
        mask = torch.arange(x.shape[1]) < lengths[:, None]
        return (out * mask[..., None]).sum(1) / lengths[:, None]

    return f, [(torch.randn(2, 4, 3), torch.tensor([4, 2]))], rnn


@program(SECTION)
def residual_block() -> Made:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = (nn.Conv2d(2, 2, 3, padding=1, bias=False) for _ in range(2))
            self.bn1, self.bn2 = nn.BatchNorm2d(2), nn.BatchNorm2d(2)

        def forward(self, x: Tensor) -> Tensor:
            out = F.relu(self.bn1(self.conv1(x)))
            return F.relu(self.bn2(self.conv2(out)) + x)

    return Block(), [(torch.randn(2, 2, 5, 5),), (torch.randn(2, 2, 5, 5),)]


@program(SECTION)
def unet_with_skips() -> Made:
    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.ModuleList([nn.Conv2d(1, 2, 3, padding=1), nn.Conv2d(2, 4, 3, padding=1)])
            self.up = nn.ModuleList([nn.Conv2d(6, 2, 3, padding=1), nn.Conv2d(3, 1, 3, padding=1)])

        def forward(self, x: Tensor) -> Tensor:
            skips = []
            for conv in self.down:
                skips.append(x)
                x = F.max_pool2d(F.relu(conv(x)), 2)
            for conv in self.up:
                x = F.interpolate(x, scale_factor=2.0)
                x = conv(torch.cat((x, skips.pop()), 1))
            return x

    return UNet(), [(torch.randn(1, 1, 8, 8),)]


@program(SECTION)
def squeeze_and_excitation() -> Made:
    class Squeeze(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(4, 2), nn.Linear(2, 4)

        def forward(self, x: Tensor) -> Tensor:
            w = F.adaptive_avg_pool2d(x, 1).flatten(1)
            return x * self.fc2(self.fc1(w).relu()).sigmoid()[..., None, None]

    return Squeeze(), [(torch.randn(2, 4, 3, 3),)]


@program(SECTION)
def patches_and_class_token() -> Made:
    class Patches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.proj, self.cls = nn.Conv2d(1, 4, 2, 2), nn.Parameter(torch.zeros(1, 1, 4))
            self.positions = nn.Parameter(torch.randn(1, 5, 4))

        def forward(self, x: Tensor) -> Tensor:
            tokens = self.proj(x).flatten(2).transpose(1, 2)
            return torch.cat((self.cls.expand(len(x), -1, -1), tokens), 1) + self.positions

    return Patches(), [(torch.randn(2, 1, 4, 4),), (torch.randn(3, 1, 4, 4),)]


@program(SECTION)
def variational_autoencoder_loss() -> Made:
    encoder, decoder = nn.Linear(4, 4), nn.Linear(2, 4)

    def f(x: Tensor) -> Tensor:
        mean, log_var = encoder(x).chunk(2, -1)
        z = mean + torch.randn_like(mean) * (0.5 * log_var).exp()
        divergence = -0.5 * (1 + log_var - mean.pow(2) - log_var.exp()).sum(-1)
        return F.binary_cross_entropy_with_logits(decoder(z), x.sigmoid()) + divergence.mean()

    return f, [(torch.randn(3, 4),)], [encoder, decoder]


@program(SECTION)
def focal_loss() -> Made:
    def f(logits: Tensor, target: Tensor, gamma: float) -> Tensor:
        loss = F.cross_entropy(logits, target, reduction="none", label_smoothing=0.1)
        return ((1 - (-loss).exp()) ** gamma * loss).mean()

    return f, [(torch.randn(4, 3, requires_grad=True), torch.tensor([0, 1, 2, 0]), 2.0)]


@program(SECTION)
def contrastive_loss() -> Made:
    def f(a: Tensor, b: Tensor, t: float) -> Tensor:
        logits = F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).t() / t
        labels = torch.arange(len(a))
        return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2

    return f, [(torch.randn(4, 3, requires_grad=True), torch.randn(4, 3, requires_grad=True), 0.1)]


@program(SECTION)
def dice_loss_and_iou() -> Made:
    def f(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        p = logits.sigmoid()
        overlap = (p * target).sum((1, 2))
        dice = 1 - (2 * overlap + 1) / (p.sum((1, 2)) + target.sum((1, 2)) + 1)
        hard = p > 0.5
        iou = (hard & target.bool()).sum() / (hard | target.bool()).sum().clamp(min=1)
        return dice.mean(), iou

    return f, [(torch.randn(2, 4, 4, requires_grad=True), (torch.rand(2, 4, 4) > 0.5).float())]


@program(SECTION)
def ctc_loss_of_a_batch() -> Made:
    def f(logits: Tensor, target: Tensor) -> Tensor:
        lengths = torch.full((2,), logits.shape[0])
        return F.ctc_loss(logits.log_softmax(-1), target, lengths, torch.tensor([2, 3]))

    return f, [(torch.randn(6, 2, 5, requires_grad=True), torch.tensor([[1, 2, 0], [1, 3, 4]]))]


@program(SECTION)
def normalization_and_flip_of_images() -> Made:
    mean, std = torch.tensor([0.5, 0.4, 0.3]), torch.tensor([0.2, 0.2, 0.2])

    def f(x: Tensor) -> Tensor:
        x = (x - mean[:, None, None]) / std[:, None, None]
        flip = torch.rand(len(x)) < 0.5
        return torch.where(flip[:, None, None, None], x.flip(-1), x)

    return f, [(torch.rand(3, 3, 4, 4),)]


@program(SECTION)
def random_crop_of_images() -> Made:
    def f(x: Tensor, size: int) -> Tensor:
        top = torch.randint(0, x.shape[-2] - size + 1, (len(x), 1)) + torch.arange(size)
        left = torch.randint(0, x.shape[-1] - size + 1, (len(x), 1)) + torch.arange(size)
        batch = torch.arange(len(x))[:, None, None]
        return x[batch, :, top[:, :, None], left[:, None]].permute(0, 3, 1, 2)

    return f, [(torch.rand(2, 3, 6, 6), 4)]


@program(SECTION)
def mixup_and_cutout() -> Made:
    def f(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        lam = torch.distributions.Beta(1.0, 1.0).sample()
        order = torch.randperm(len(x))
        mixed = lam * x + (1 - lam) * x[order]
        mixed[..., :2, :2] = 0
        return mixed, lam * y + (1 - lam) * y[order]

    return f, [(torch.rand(4, 1, 4, 4), torch.rand(4, 2))]


@program(SECTION)
def rotation_by_grid_sample() -> Made:
    def f(x: Tensor, angle: float) -> Tensor:
        c, s = math.cos(angle), math.sin(angle)
        theta = torch.tensor([[c, -s, 0.0], [s, c, 0.0]]).expand(len(x), 2, 3)
        grid = F.affine_grid(theta, list(x.shape), align_corners=False)
        return F.grid_sample(x, grid, align_corners=False)

    return f, [(torch.rand(1, 1, 4, 4), 0.3), (torch.rand(1, 1, 4, 4), 0.6)]


@program(SECTION)
def gaussian_blur_kernel() -> Made:
    def f(x: Tensor, sigma: float) -> Tensor:
        t = torch.arange(-1.0, 2.0)
        k = (-(t**2) / (2 * sigma**2)).exp()
        k = (k / k.sum()).outer(k / k.sum())
        return F.conv2d(x, k.expand(x.shape[1], 1, 3, 3), padding="same", groups=x.shape[1])

    return f, [(torch.rand(1, 3, 5, 5), 1.0), (torch.rand(1, 3, 5, 5), 2.0)]


@program(SECTION)
def graph_convolution() -> Made:
    linear = nn.Linear(3, 2)

    def f(x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        degree = torch.zeros(len(x)).scatter_add_(0, target, torch.ones(edges.shape[1]))
        norm = degree.clamp(min=1).rsqrt()
        messages = linear(x)[source] * (norm[source] * norm[target])[:, None]
        return torch.zeros(len(x), 2).index_add_(0, target, messages)

    return f, [(torch.randn(4, 3), torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]))], linear


@program(SECTION)
def state_space_scan() -> Made:
    def f(x: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        h = torch.zeros(x.shape[0], a.shape[0])
        ys = []
        for t in range(x.shape[1]):
            h = torch.exp(a) * h + b * x[:, t, None]
            ys.append((h * c).sum(-1))
        return torch.stack(ys, 1)

    return f, [(torch.randn(2, 5), -torch.rand(3), torch.randn(3), torch.randn(3, requires_grad=True))]


@program(SECTION)
def spectrogram() -> Made:
    def f(x: Tensor) -> Tensor:
        window = torch.hann_window(8)
        s = torch.stft(x, 8, 4, window=window, return_complex=True)
        return s.abs().pow(2).clamp(min=1e-8).log10()

    return f, [(torch.randn(2, 32),)]


@program(SECTION)
def fourier_mixing() -> Made:
    return lambda x: torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real, [(torch.randn(2, 4, 4),)]


@program(SECTION)
def vector_quantizer() -> Made:
    codebook = nn.Parameter(torch.randn(5, 3))

    def f(z: Tensor) -> tuple[Tensor, Tensor]:
        distance = torch.cdist(z, codebook)
        ids = distance.argmin(-1)
        q = F.embedding(ids, codebook)
        loss = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())
        return z + (q - z).detach(), loss

    return f, [(torch.randn(4, 3, requires_grad=True),)], codebook


@program(SECTION)
def diffusion_step() -> Made:
    net = nn.Linear(4, 3)
    betas = torch.linspace(1e-3, 0.1, 10)

    def f(x: Tensor, t: Tensor) -> Tensor:
        keep = (1 - betas).cumprod(0)[t][:, None]
        noise = torch.randn_like(x)
        noisy = keep.sqrt() * x + (1 - keep).sqrt() * noise
        return F.mse_loss(net(torch.cat((noisy, t[:, None] / 10), -1)), noise)

    return f, [(torch.randn(4, 3), torch.tensor([0, 3, 5, 9]))], net


@program(SECTION)
def policy_gradient_returns() -> Made:
    def f(log_probs: Tensor, rewards: list[float], gamma: float) -> Tensor:
        returns: list[float] = []
        for reward in reversed(rewards):
            returns.insert(0, reward + gamma * (returns[0] if returns else 0.0))
        r = torch.tensor(returns)
        r = (r - r.mean()) / (r.std() + 1e-6)
        return -(log_probs * r).sum()

    return f, [(torch.randn(4, requires_grad=True), [1.0, 0.0, 2.0, 1.0], 0.9)]


@program(SECTION)
def generalized_advantages() -> Made:
    def f(rewards: Tensor, values: Tensor, done: Tensor) -> Tensor:
        last, out = torch.zeros(rewards.shape[1]), torch.zeros_like(rewards)
        for t in reversed(range(len(rewards))):
            delta = rewards[t] + 0.99 * values[t + 1] * (1 - done[t]) - values[t]
            last = delta + 0.99 * 0.95 * (1 - done[t]) * last
            out[t] = last
        return out

    return f, [(torch.rand(4, 2), torch.rand(5, 2), torch.zeros(4, 2))]


@program(SECTION)
def differentiable_sort_of_tops() -> Made:
    def f(x: Tensor) -> Tensor:
        values, order = x.sort(dim=-1, descending=True, stable=True)
        ranks = order.argsort(-1)
        return values.cumsum(-1).gather(-1, ranks) / (ranks + 1)

    return f, [(torch.randn(3, 5, requires_grad=True),)]


@program(SECTION)
def siamese_network() -> Made:
    class Siamese(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.trunk = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.GELU(), nn.Dropout(0.1))

        def forward(self, pair: tuple[Tensor, Tensor], *, margin: float = 1.0) -> dict[str, Tensor]:
            a, b = map(self.trunk, pair)
            distance = F.pairwise_distance(a, b)
            return {"distance": distance, "loss": F.relu(margin - distance).mean()}

    return Siamese(), [((torch.randn(3, 4), torch.randn(3, 4)),)]
