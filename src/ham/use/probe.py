"""Where a model goes wrong: at which symbol, from which leaf, and how sure it was of its turns and of the symbol."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch

from ham.core.errors import InputError
from ham.core.numbers import whole
from ham.core.rows import Rows
from ham.core.seeds import Purpose, generator
from ham.core.tree import depth_of
from ham.ops import Episode
from ham.runs import ModelLike, Trained, loaded
from ham.tasks import Task
from ham.train.evaluate import LARGEST_BATCH, LEAVES_AT_ONCE, evaluate_at, lengths_for, require_finite
from ham.train.losses import whole_sequences_wrong, wrong_parts
from ham.train.objective import Examples
from ham.use.evaluate import chosen_seed


@dataclass(frozen=True)
class Probed:
    """What was found; printed, a line for each wrong sequence."""

    task: str
    leaves: int
    examples: int
    seed: int
    wrong: int
    """Sequences of the lengths that `ham.evaluate` asks in such a memory."""
    short_wrong: int
    """The same number of sequences as short as the trained ones, in the same memory: what height alone does."""
    rows: Rows
    """Of each wrong sequence its first wrong symbol: see `docs/command_line.md`."""

    def __repr__(self) -> str:
        return f"{self.heading}\n{self.rows!r}" if self.rows else self.heading

    @property
    def heading(self) -> str:
        """The counts in a line."""
        short = f"as short as trained {self.short_wrong:,}"
        return (
            f"{self.task}, {self.leaves:,} leaves, test seed {self.seed}: "
            f"{self.wrong:,} of {self.examples:,} wrong, {short}"
        )

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


def probe(
    model: ModelLike,
    *,
    task: str | Task | None = None,
    leaves: int = 1024,
    examples: int = 500,
    seed: int | None = None,
) -> Probed:
    """Ask a trained model as `ham.evaluate` does, and look at the first wrong symbol of each wrong sequence.

    Args:
        model: a trained model with a tree that decides, or what `ham.load` takes: a run's folder, a checkpoint, a name.
        task: another task than the one it was trained on.
        leaves: size of the memory, a power of two of at least 2.
        examples: questions of the lengths for that size, and as many short ones.
        seed: of the questions; by default a new one each time, which is in the result.
    """
    trained = loaded(model, task)
    if not trained.run.model.traits.decides:
        raise InputError(f"a model of kind {trained.run.model.kind} decides nothing that could be looked at")
    leaves, examples = whole("leaves", leaves), whole("examples", examples)
    if not depth_of(leaves):
        raise InputError("a memory of one leaf leaves nothing to decide: give at least 2 leaves")
    if examples < 1:
        raise InputError(f"examples must be at least 1, got {examples}")
    seed = chosen_seed(seed)
    rows = Rows(list(_wrong(trained, leaves, examples, seed)))
    most = min(trained.run.data.leaves, leaves)
    short = evaluate_at(trained, leaves, examples=examples, seed=seed, lengths=(1, most))
    return Probed(trained.task.name, leaves, examples, seed, len(rows), short.wrong, rows)


def _wrong(trained: Trained, leaves: int, examples: int, seed: int) -> Iterator[dict[str, Any]]:
    """The first wrong symbols, of the same questions as `evaluate_at` asks."""
    rng, task = generator(Purpose.TEST, seed, leaves, trained.task.name), trained.task
    low, high = lengths_for(leaves, trained.run.data.leaves)
    at_once = max(1, min(LARGEST_BATCH, LEAVES_AT_ONCE // leaves, examples))
    for done in range(0, examples, at_once):
        batch = min(at_once, examples - done)
        drawn = task.sample(rng, batch, leaves, task.draw_lengths(rng, batch, low, high))
        given = Examples.of(drawn, task.outputs)
        with torch.no_grad():
            episode = trained.model(given.inputs, given.lengths, given.asked, leaves=leaves)
        require_finite(episode.outputs, leaves)
        require_finite(episode.log_probs, leaves, "turns")
        missed = wrong_parts(given.hits(episode.outputs), given.counted)
        for which in whole_sequences_wrong(missed).nonzero().flatten().tolist():
            symbol = int(missed[which].any(-1).nonzero()[0])
            rows = int(given.lengths[which])
            yield {"rows": rows, **_looked_at(episode, which, symbol, trained.model.every, given)}


def _looked_at(episode: Episode, which: int, symbol: int, every: int, given: Examples) -> dict[str, Any]:
    """A symbol of an example: where it belongs, the leaf it was read from, how sure the turns and the symbol were."""
    first, last = symbol * every, (symbol + 1) * every
    turns = episode.log_probs[which].exp()
    depth = turns.shape[-1]
    here = int(turns[first:last].argmin())
    before = turns[:first].amin(-1)
    outputs, codec = episode.outputs[which, symbol], given.codec
    fits = codec.hits(outputs.expand_as(given.targets[which]), given.targets[which]).all(-1)
    places = (fits & given.counted[which]).nonzero().flatten()
    return {
        "symbol": symbol + 1,
        "of": int(given.asked[which]),
        "belongs": int(places[(places - symbol).abs().argmin()]) + 1 if len(places) else None,
        "leaf": int(episode.leaves[which, last - 1]),
        "turn": float(turns[first:last].flatten()[here]),
        "height": depth - here % depth,
        "turn_before": float(before.min()) if first else None,
        "timestep_before": int(before.argmin()) + 1 if first else None,
        "output": float(codec.log_prob(outputs, codec.read(outputs)).exp()) if codec.discrete else None,
    }


__all__ = ["Probed", "probe"]
