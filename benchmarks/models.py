"""A batch of training for every kind of model: plain PyTorch against the native engine.

    python benchmarks/models.py

Batches of the recipes' size, on one thread, both engines in turn on the same examples. Times are of the
process, so other work on the machine matters less; the ratio is what counts.
"""

from __future__ import annotations

import time
from statistics import median

import numpy as np
import torch

import ham
from ham import recipes, tasks
from ham.train.flat import FlatParameters
from ham.train.gradient import Gradient
from ham.train.objective import Examples

MODELS = ("sort", "queue", "sort-dham", "queue-dham", "sort-lstm", "sort-lstm+a")
BATCHES = 7


def milliseconds(name: str, leaves: int, backend: str) -> float:
    """Median over batches of what a gradient takes, after one to warm up."""
    ham.set_backend(backend)
    run = recipes.get(name)
    task, data = tasks.get(run.task), run.data
    torch.manual_seed(0)
    model = run.model.build(task)
    gradient = Gradient(model, FlatParameters(model), run)
    times = []
    for number in range(1 + BATCHES):
        rng = np.random.default_rng([number, leaves])
        inputs = data.batch // data.runs
        drawn = task.sample(rng, inputs, leaves, task.draw_lengths(rng, inputs, 1, leaves))
        examples = Examples.of(drawn.repeat(data.runs), task.outputs)
        shape = (data.batch, examples.counted.shape[1] * model.every, model.decisions(leaves))
        uniforms = torch.from_numpy(rng.random(shape, dtype=np.float32))
        before = time.process_time()
        gradient.of(
            examples, uniforms, leaves=leaves, reinforce=run.main.reinforce, exploration=run.main.exploration
        )
        times.append(1e3 * (time.process_time() - before))
    return median(times[1:])


def main() -> None:
    torch.set_num_threads(1)
    print("| recipe | leaves | PyTorch, ms | native, ms | ratio |")
    print("|---|---|---|---|---|")
    for name in MODELS:
        for leaves in (8, 32):
            slow, fast = (milliseconds(name, leaves, backend) for backend in ("reference", "native"))
            print(f"| {name} | {leaves} | {slow:.1f} | {fast:.2f} | {slow / fast:.1f} |", flush=True)


if __name__ == "__main__":
    main()
