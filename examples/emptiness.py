"""What a trained memory thinks of nothing: the value of an empty subtree, by its height.

    python examples/emptiness.py queue stack runs/my_run

A model is trained on trees of height 2 to 5. If JOIN keeps the value of two empty halves where it is, a taller tree
looks the same to SEARCH. Trained with `objective.pull` (queue) it does, otherwise it drifts: see how far.
"""

import sys

import torch

import ham

HEIGHTS = 10


def lengths_of_emptiness(memory: ham.HAM) -> list[float]:
    """Euclidean length of an empty subtree's value, for heights 1 to HEIGHTS."""
    state = memory.empty(1, 1 << HEIGHTS)
    leftmost = [state.tree[0, 1 << HEIGHTS - height] for height in range(1, HEIGHTS + 1)]
    return [value.norm().item() for value in leftmost]


def main() -> None:
    with torch.no_grad():
        for name in sys.argv[1:] or ["stack", "queue", "priority_queue"]:
            lengths = lengths_of_emptiness(ham.load(name).model.memory)
            print(f"{name:15}", *(f"{length:7.2f}" for length in lengths))


if __name__ == "__main__":
    main()
