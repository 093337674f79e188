"""HAM with three controllers: an LSTM, a GRU, and a feed-forward network without any state.

The memory asks nothing of what drives it but a query. Each controller here learns to find the
largest of a few numbers with one access; run the file to see them learn.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ham

STEPS = 300

WIDTH = 16


class WithLSTM(nn.Module):
    """The hidden state is the query, as in the paper's LSTM+HAM."""

    def __init__(self, features: int, outputs: int):
        super().__init__()
        self.memory = ham.HAM(features, query=WIDTH, size=WIDTH)
        self.controller = nn.LSTMCell(WIDTH, WIDTH)
        self.output = nn.Linear(WIDTH, outputs)

    def forward(self, x: Tensor, accesses: int) -> tuple[Tensor, Tensor]:
        state = self.memory.init(x)
        h = c = x.new_zeros(len(x), WIDTH)
        log_probs = []
        for _ in range(accesses):
            read = self.memory.attend(state, h)
            h, c = self.controller(read.value, (h, c))
            state = self.memory.update(state, read, h)
            log_probs.append(read.log_probs.sum(-1))
        return self.output(h), torch.stack(log_probs).sum(0)


class WithGRU(nn.Module):
    """The same with one state instead of two."""

    def __init__(self, features: int, outputs: int):
        super().__init__()
        self.memory = ham.HAM(features, query=WIDTH, size=WIDTH)
        self.controller = nn.GRUCell(WIDTH, WIDTH)
        self.output = nn.Linear(WIDTH, outputs)

    def forward(self, x: Tensor, accesses: int) -> tuple[Tensor, Tensor]:
        state = self.memory.init(x)
        h = x.new_zeros(len(x), WIDTH)
        log_probs = []
        for _ in range(accesses):
            read = self.memory.attend(state, h)
            h = self.controller(read.value, h)
            state = self.memory.update(state, read, h)
            log_probs.append(read.log_probs.sum(-1))
        return self.output(h), torch.stack(log_probs).sum(0)


class WithFeedForward(nn.Module):
    """Nothing is remembered but in the memory: the query is made from what was read last."""

    def __init__(self, features: int, outputs: int):
        super().__init__()
        self.memory = ham.HAM(features, query=WIDTH, size=WIDTH)
        self.controller = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        self.output = nn.Linear(WIDTH, outputs)

    def forward(self, x: Tensor, accesses: int) -> tuple[Tensor, Tensor]:
        state = self.memory.init(x)
        query = x.new_zeros(len(x), WIDTH)
        log_probs = []
        for _ in range(accesses):
            read = self.memory.attend(state, query)
            query = self.controller(read.value)
            state = self.memory.update(state, read, query)
            log_probs.append(read.log_probs.sum(-1))
        return self.output(read.value), torch.stack(log_probs).sum(0)


def learn(model: nn.Module, steps: int = STEPS, accesses: int = 1) -> list[float]:
    """REINFORCE with a mean baseline: the reward is minus the squared error of the largest number."""
    adam = torch.optim.Adam(model.parameters(), lr=5e-3)
    errors = []
    for _ in range(steps):
        x = torch.rand(64, 4, 1)
        answer, log_prob = model(x, accesses)
        error = F.mse_loss(answer, x.amax(1), reduction="none").sum(-1)
        advantage = (error.mean() - error).detach()
        loss = error.mean() - (advantage * log_prob).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        errors.append(error.mean().item())
    return errors


def main(steps: int = STEPS) -> None:
    for controller in (WithLSTM, WithGRU, WithFeedForward):
        torch.manual_seed(0)
        errors = learn(controller(1, 1), steps)
        start, end = sum(errors[:20]) / 20, sum(errors[-20:]) / 20
        print(f"{controller.__name__}: mean squared error {start:.3f} at the start, {end:.4f} at the end")


if __name__ == "__main__":
    main()
