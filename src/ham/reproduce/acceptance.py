"""Which of several seeds is kept: the one that errs least on many fresh short inputs.

The validation that chose an epoch flatters it: it was the best of dozens on those very examples. Here all seeds are
asked the same ones, which chose nothing before: half of them the paper's, half as hard as the recipe's end practises.
No input is longer than those trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ham.core.seeds import Purpose, generator
from ham.runs import Trained, load
from ham.train.evaluate import Score, evaluate
from ham.train.practice import PLAIN, Conditions

ASKED = 20_000


def acceptance(trained: Trained, asked: int = ASKED) -> Score:
    """How a trained model does on fresh short inputs."""
    run, leaves = trained.run, trained.run.data.leaves
    rng = generator(Purpose.ACCEPTANCE, 0, leaves, trained.task.name)

    def score(examples: int, conditions: Conditions) -> Score:
        return evaluate(
            trained.model,
            trained.task,
            leaves=leaves,
            lengths=(1, leaves),
            examples=examples,
            rng=rng,
            conditions=conditions,
        )

    conditions = Conditions.of(run, "finish" if run.schedule.end_epochs else "main", leaves)
    if run.model.traits.soft:
        conditions = conditions.in_small_trees()
    if not conditions.any:
        return score(asked, PLAIN)
    return score(asked // 2, PLAIN) + score(asked - asked // 2, conditions)


def best_of(runs: Sequence[Path]) -> Path:
    """The run whose model errs least; of equals the surest."""
    if len(runs) == 1:
        return runs[0]
    scores = {path: acceptance(load(path)) for path in runs}
    return min(runs, key=lambda path: (scores[path].wrong, scores[path].loss))
