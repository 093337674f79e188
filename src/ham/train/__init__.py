"""Training: the objective's terms, the estimators, the curriculum, evaluation, and the loop.

Called, it trains: `ham.train("sort")` is `train` of start.py.
"""

from ham.core.called import call_as

call_as(__name__, "start:train")
