"""A recommender's step: embeddings, bags, gathers and scatters, their gradients beside eager's."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

import flambeau


class Recommender(nn.Module):
    """Scores of items for users, with counts of what is seen."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(11, 8), nn.Embedding(17, 8, padding_idx=0)
        self.scale = nn.Parameter(torch.ones(8))
        self.mix = nn.Linear(16, 1)

    def forward(self, users: Tensor, items: Tensor, picked: Tensor) -> tuple[Tensor, Tensor]:
        user, bag = self.users(users), self.items(items)
        present = (items != 0).unsqueeze(-1)
        pooled = (bag * present).sum(1) / present.sum(1).clamp(min=1)
        chosen = bag.gather(1, picked[:, None, None].expand(-1, 1, bag.shape[-1])).squeeze(1)
        seen = torch.zeros(17).index_add(0, items.flatten(), torch.ones(items.numel()))
        rare = (1 / (1 + seen))[items].mean(1)
        score = (user * self.scale * chosen).sum(-1) + self.mix(torch.cat([user, pooled], -1)).squeeze(-1)
        loss = functional.binary_cross_entropy_with_logits(score * rare, (picked % 2).float())
        loss = loss - 0.2 * functional.logsigmoid(score).mean()
        return loss + 0.1 * functional.one_hot(picked, 4).float().std(), score.detach()


def step(run: nn.Module, model: nn.Module, *inputs: Tensor) -> list[Tensor]:
    model.zero_grad()
    loss, score = run(*inputs)
    loss.backward()
    return [loss.detach(), score, *(parameter.grad.clone() for parameter in model.parameters())]


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Recommender()
    inputs = torch.randint(0, 11, (5,)), torch.randint(0, 17, (5, 4)), torch.randint(0, 4, (5,))
    torch.testing.assert_close(step(flambeau.compile(model), model, *inputs), step(model, model, *inputs))
