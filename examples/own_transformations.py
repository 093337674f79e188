"""A memory with transformations of one's own: JOIN with a layer norm, SEARCH by dot product.

    python examples/own_transformations.py

The task: each example's rows hold a key and a value, and the query is a key; the answer is its value. It is learned
with soft attention, which differentiates through the choice of leaves, and then run hard, with Θ(log n) an access.
"""

from __future__ import annotations

import torch
from torch import nn

import ham

KEYS, SIZE = 4, 12


class NormedJoin(nn.Module):
    """JOIN(left, right) = LayerNorm(ReLU(W [left; right] + b))."""

    def __init__(self, size: int):
        super().__init__()
        self.mix, self.norm = nn.Linear(2 * size, size), nn.LayerNorm(size)

    def forward(self, pair: torch.Tensor) -> torch.Tensor:
        return self.norm(torch.relu(self.mix(pair)))


class DotSearch(nn.Module):
    """SEARCH(h, q) = (A h) · (B q) + b: go right where node and query agree."""

    def __init__(self, size: int, query: int):
        super().__init__()
        self.size = size
        self.of_node, self.of_query = nn.Linear(size, 16), nn.Linear(query, 16)

    def forward(self, both: torch.Tensor) -> torch.Tensor:
        node, query = both[..., : self.size], both[..., self.size :]
        return (self.of_node(node) * self.of_query(query)).sum(-1, keepdim=True)


def memory(kind: type[ham.HAM]) -> ham.HAM:
    """HAM or SoftHAM with these two in it; EMBED and WRITE are the paper's."""
    return kind(features=KEYS + 1, query=KEYS, size=SIZE, join=NormedJoin(SIZE), search=DotSearch(SIZE, KEYS))


def batch(examples: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows (a key in one-hot, a bit) in random order, a key that is asked for, and its bit."""
    order = torch.rand(examples, KEYS, generator=generator).argsort(1)
    bits = torch.randint(0, 2, (examples, KEYS), generator=generator).float()
    rows = torch.cat([nn.functional.one_hot(order, KEYS).float(), bits[..., None]], -1)
    asked = torch.randint(0, KEYS, (examples,), generator=generator)
    answer = bits[torch.arange(examples), (order == asked[:, None]).float().argmax(1)]
    return rows, nn.functional.one_hot(asked, KEYS).float(), answer


def train(batches: int = 600, seed: int = 0) -> tuple[float, float]:
    """The share of wrong answers before and after, run hard."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    soft, output = memory(ham.SoftHAM), nn.Linear(SIZE, 1)
    hard = memory(ham.HAM)

    def wrong() -> float:
        hard.load_state_dict(soft.state_dict())
        rows, asked, answer = batch(1000, generator)
        with torch.no_grad():
            read = hard.eval().attend(hard.init(rows), asked)
            return float(((output(read.value).squeeze(-1) > 0) != (answer > 0.5)).float().mean())

    before = wrong()
    adam = torch.optim.Adam([*soft.parameters(), *output.parameters()], lr=1e-2)
    for _ in range(batches):
        rows, asked, answer = batch(64, generator)
        read = soft.attend(soft.init(rows), asked)
        loss = nn.functional.binary_cross_entropy_with_logits(output(read.value).squeeze(-1), answer)
        adam.zero_grad()
        loss.backward()
        adam.step()
    return before, wrong()


if __name__ == "__main__":
    first, last = train()
    print(f"wrong before training: {first:.1%}, after: {last:.1%}")
