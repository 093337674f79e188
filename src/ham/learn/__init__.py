"""Training: the objective's terms, the estimators, the curriculum and the loop."""

from ham.learn.loop import Diverged, Epoch, Step, train

__all__ = ["Diverged", "Epoch", "Step", "train"]
