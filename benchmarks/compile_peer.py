"""One training step with `torch.compile`: LEAVES BATCH BATCHES REPETITIONS, prints JSON.

`torch.compile` of the reference as it is breaks into fragments at its custom functions and gains
nothing. So here a timestep is written once more in plain differentiable operations, which compile
into one graph, and the time loop stays in Python: unrolled, n = 32 would compile for many minutes.
As in the JAX peer a descent reads its nodes with one gather, and a path is written at once.
"""

from __future__ import annotations

import json
import sys
from functools import partial

import numpy as np
import torch
from torch import Tensor

from ham.bench.timing import interleaved
from ham.bench.work import Trainer, Work
from ham.models.memory import Read
from ham.models.model import Model, Recorder
from ham.ops import log_prob_of, set_backend


def rows(tree: Tensor, nodes: Tensor) -> Tensor:
    return tree.gather(1, nodes[..., None].expand(-1, -1, tree.shape[-1]))


class Plain(Model):
    """LSTM+HAM with a compiled timestep, on another model's parameters."""

    def __init__(self, model, compiled: bool = True):
        super().__init__()
        self.memory, self.controller, self.output = model.memory, model.controller, model.output
        self.baseline = model.baseline
        self.step = torch.compile(self.timestep, fullgraph=True) if compiled else self.timestep

    def timestep(self, tree: Tensor, h: Tensor, c: Tensor, uniforms: Tensor, active: Tensor):
        depth = uniforms.shape[1]
        path = [torch.ones_like(uniforms[:, 0], dtype=torch.int64)]
        turns = []
        with torch.no_grad():
            for level in range(depth):
                node = rows(tree, path[-1][:, None])[:, 0]
                logit = self.memory.search(torch.cat([node, h], -1)).squeeze(-1)
                turns.append(uniforms[:, level] < torch.sigmoid(logit))
                path.append(2 * path[-1] + turns[-1])
        way = torch.stack(path, 1)
        nodes, beside = rows(tree, torch.cat([way, way[:, 1:] ^ 1], 1)).split([depth + 1, depth], 1)
        queries = h[:, None].expand(-1, depth, -1)
        logits = self.memory.search(torch.cat([nodes[:, :depth], queries], -1)).squeeze(-1)
        value = nodes[:, depth]
        h, c = self.controller(value, (h, c))
        fresh = [self.memory.write(value, h)]
        for level in range(depth, 0, -1):
            is_right, there = (way[:, level] & 1).bool()[:, None], beside[:, level - 1]
            left, right = (
                torch.where(is_right, there, fresh[-1]),
                torch.where(is_right, fresh[-1], there),
            )
            fresh.append(self.memory.join(torch.cat([left, right], -1)))
        written = torch.where(active[:, None, None], torch.stack(fresh[::-1], 1), nodes)
        tree = tree.scatter(1, way[..., None].expand_as(written), written)
        leaf, taken = path[-1] - tree.shape[1] // 2, torch.stack(turns, 1)
        return tree, h, c, self.output(h), Read(leaf, value, taken, logits, log_prob_of(logits, taken))

    def episode(self, questions):
        uniforms, asked = questions.uniforms, questions.asked
        tree = self.memory.init(questions.inputs, questions.lengths, questions.leaves).tree
        h = c = tree.new_zeros(len(tree), self.controller.hidden_size)
        record = Recorder(asked)
        for t in range(uniforms.shape[1]):
            record.queries.append(h)
            tree, h, c, output, read = self.step(tree, h, c, uniforms[:, t], t < asked)
            record.reads.append(read)
            record.outputs.append(output)
        return record.episode(1, None)


def main(leaves: int, batch: int, batches: int, repetitions: int) -> None:
    torch.set_num_threads(1)
    set_backend("reference")
    trainer = Trainer()
    trainer.gradient.model = Plain(trainer.model)
    rng = np.random.default_rng(0)
    work = [Work.draw(rng, leaves, batch) for _ in range(batches)]
    job = [partial(trainer.step, one) for one in work]
    print(json.dumps({"seconds": interleaved({"step": job}, repetitions)["step"]}))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
