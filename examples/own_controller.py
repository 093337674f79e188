"""HAM driven by a controller of one's own, in a loop of one's own.

The memory asks nothing of what drives it but a query. The controller here is an Elman network, one line of equations;
it learns to find the largest of a few numbers with one access. Run the file to see it learn.

`LSTMHAM(..., controller=Elman(...))` makes a whole model with it: it keeps the contract of `ham.models.controllers`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ham

STEPS = 300
WIDTH = 16


class Elman(nn.Module):
    """h' = tanh(W·read + U·h); the state is the query."""

    def __init__(self, inputs: int, cells: int):
        super().__init__()
        self.cells = cells
        self.layer = nn.Linear(inputs + cells, cells)

    def first(self, read: Tensor) -> tuple[Tensor]:
        return (read.new_zeros(len(read), self.cells),)

    def forward(self, read: Tensor, state: tuple[Tensor]) -> tuple[Tensor]:
        return (torch.tanh(self.layer(torch.cat([read, *state], -1))),)


class Finder(nn.Module):
    """A memory, its controller, and what is said after some accesses."""

    def __init__(self, features: int, outputs: int):
        super().__init__()
        self.memory = ham.HAM(features, query=WIDTH, size=WIDTH)
        self.controller = Elman(WIDTH, WIDTH)
        self.output = nn.Linear(WIDTH, outputs)

    def forward(self, x: Tensor, accesses: int) -> tuple[Tensor, Tensor]:
        memory = self.memory.init(x)
        state = self.controller.first(x)
        log_probs = []
        for _ in range(accesses):
            read = self.memory.attend(memory, state[0])
            state = self.controller(read.value, state)
            memory = self.memory.update(memory, read, state[0])
            log_probs.append(read.log_probs.sum(-1))
        return self.output(state[0]), torch.stack(log_probs).sum(0)


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
    torch.manual_seed(0)
    errors = learn(Finder(1, 1), steps)
    start, end = sum(errors[:20]) / 20, sum(errors[-20:]) / 20
    print(f"mean squared error {start:.3f} at the start, {end:.4f} at the end")


if __name__ == "__main__":
    main()
