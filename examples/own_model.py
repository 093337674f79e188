"""A whole model of one's own on the memory, trained hard with REINFORCE, or soft without.

    python examples/own_model.py

Among the rows of an input two are not empty: each has a key and a bit. Asked for one key after another, the model
answers with their bits. It has to find the row, with one access of Θ(log n) a question.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ham

ROWS, KEYS, WIDTH, QUESTIONS, RUNS = 8, 2, 20, 2, 8


class LookUp(nn.Module):
    """A GRU that drives the memory: question in, bit out."""

    def __init__(self, memory: type[ham.HAM]):
        super().__init__()
        self.memory = memory(features=KEYS + 1, query=WIDTH, size=WIDTH)
        self.ask = nn.GRUCell(KEYS, WIDTH)
        self.output = nn.Linear(2 * WIDTH, 1)

    def forward(self, rows: Tensor, questions: Tensor) -> tuple[Tensor, list[ham.Read]]:
        state, h, reads, answers = self.memory.init(rows), rows.new_zeros(len(rows), WIDTH), [], []
        for question in questions.unbind(1):
            h = self.ask(question, h)
            reads.append(read := self.memory.attend(state, h))
            answers.append(self.output(torch.cat([read.value, h], -1)).squeeze(-1))
            state = self.memory.update(state, read, h)
        return torch.stack(answers, 1), reads


def batch(inputs: int, runs: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, questions and right answers; with several runs of each input side by side."""
    bits = torch.randint(0, 2, (inputs, KEYS)).float()
    filled = torch.cat([torch.eye(KEYS).expand(inputs, -1, -1), bits[..., None]], -1)
    shuffled = torch.rand(inputs, ROWS).argsort(1)[..., None].expand(-1, -1, KEYS + 1)
    rows = F.pad(filled, (0, 0, 0, ROWS - KEYS)).gather(1, shuffled)
    asked = torch.randint(0, KEYS, (inputs, QUESTIONS))
    made = rows, F.one_hot(asked, KEYS).float(), bits.gather(1, asked)
    return tuple(part.repeat_interleave(runs, 0) for part in made)


def train(model: LookUp, batches: int = 600) -> float:
    """The share of wrong answers at the end, on inputs that are new, without sampling."""
    adam = torch.optim.Adam(model.parameters(), lr=5e-3)
    runs = (
        1 if isinstance(model.memory, ham.SoftHAM) else RUNS
    )  # nothing is sampled there: all would be alike
    for _ in range(batches):
        rows, questions, bits = batch(128 // runs, runs)
        answers, reads = model.train()(rows, questions)
        cost = F.binary_cross_entropy_with_logits(answers, bits, reduction="none")
        right = ((answers > 0) == (bits > 0.5)).float()  # the reward
        loss = ham.reinforce(reads, right, runs=runs, discount=0.5, exploration=1e-3) + cost.mean(0).sum()
        adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        adam.step()
    with torch.no_grad():
        rows, questions, bits = batch(1000)
        return float(((model.eval()(rows, questions)[0] > 0) != (bits > 0.5)).float().mean())


if __name__ == "__main__":
    for memory in (ham.HAM, ham.SoftHAM):
        torch.manual_seed(0)
        print(f"{memory.__name__}: {train(LookUp(memory)):.1%} of the answers are wrong")
