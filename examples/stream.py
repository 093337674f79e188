"""The memory's state carried through a stream that never ends, as in recurrent reinforcement learning.

    python examples/stream.py

The stream is cut into chunks: gradients go back to the beginning of a chunk and no further. Episodes end at any time,
each row of the batch at its own, and the next one starts with an empty memory. The task: say the bit that the episode
gave two timesteps ago.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ham

WIDTH, LEAVES, BATCH, CHUNK, DELAY = 16, 4, 64, 8, 2
Carry = tuple[ham.State, Tensor]
"""What goes from timestep to timestep: the memory, and the controller's state."""


class Agent(nn.Module):
    """A GRU with a memory. `step` is a function from carry and input to carry and output, as scans want it."""

    def __init__(self, memory: type[ham.HAM] = ham.HAM):
        super().__init__()
        self.memory = memory(features=1, query=WIDTH, size=WIDTH)
        self.controller = nn.GRUCell(1 + WIDTH, WIDTH)
        self.output = nn.Linear(WIDTH, 1)

    def start(self, batch: int) -> Carry:
        return self.memory.empty(batch, LEAVES), self.output.weight.new_zeros(batch, WIDTH)

    def step(self, carry: Carry, x: Tensor) -> tuple[Carry, tuple[Tensor, ham.Read]]:
        state, h = carry
        read = self.memory.attend(state, h)
        h = self.controller(torch.cat([x, read.value], -1), h)
        return (self.memory.update(state, read, h), h), (self.output(h).squeeze(-1), read)

    def restarted(self, carry: Carry, done: Tensor) -> Carry:
        """The carry with a fresh start in those rows whose episode ended; `done`: batch, bool."""
        (state, h), (empty, zeros) = carry, self.start(len(done))
        return state.replaced(done, empty), torch.where(done[:, None], zeros, h)


def detached(carry: Carry) -> Carry:
    """The same values; gradients end here. Only after `backward`: the memory's storage is used again."""
    state, h = carry
    return state.detach(), h.detach()


def stream(timesteps: int) -> tuple[Tensor, Tensor, Tensor]:
    """Bits, the bits of two timesteps before, and whether an episode begins; each batch × time."""
    bits = torch.randint(0, 2, (BATCH, timesteps)).float()
    return bits, F.pad(bits, (DELAY, 0))[:, :timesteps], torch.rand(BATCH, timesteps) < 0.05


def learn(agent: Agent, chunks: int = 200) -> list[float]:
    """The loss of each chunk, per answer; the first answers of an episode cannot be known."""
    adam = torch.optim.Adam(agent.parameters(), lr=5e-3)
    carry, costs = agent.start(BATCH), []
    bits, targets, begins = stream(chunks * CHUNK)
    for chunk in range(chunks):
        carry, log_probs, reads = detached(carry), [], []
        for t in range(chunk * CHUNK, (chunk + 1) * CHUNK):
            carry = agent.restarted(carry, begins[:, t])
            carry, (answer, read) = agent.step(carry, bits[:, t, None])
            log_probs.append(-F.binary_cross_entropy_with_logits(answer, targets[:, t], reduction="none"))
            reads.append(read)
        log_prob = torch.stack(log_probs, 1)
        loss = 0.1 * ham.reinforce(reads, log_prob, discount=0.5) - log_prob.mean(0).sum()
        adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 1.0)
        adam.step()
        costs.append(-log_prob.mean().item())
    return costs


if __name__ == "__main__":
    torch.manual_seed(0)
    costs = learn(Agent())
    print(f"loss of an answer: {sum(costs[:10]) / 10:.2f} at first, {sum(costs[-10:]) / 10:.2f} at the end")
