"""An estimator of one's own: what REINFORCE takes for the advantage of a timestep.

    ham train reverse --objective.baseline examples/own_estimator.py:against_the_mean

It gets what the sampled runs of a batch came to and gives an advantage for every timestep of every run. In Python the
function itself is given: `ham.train.loop.train(run, folder, estimator=against_the_mean)`.
"""

from torch import Tensor

from ham.train.estimators import Outcomes


def against_the_mean(outcomes: Outcomes) -> Tensor:
    """Each return compared with the mean of all runs that are still going at that timestep."""
    running = outcomes.ran.sum(0).clamp(min=1)
    mean = (outcomes.returns * outcomes.ran).sum(0) / running
    return outcomes.returns - mean
