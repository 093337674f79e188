"""Training: the objective's terms, the estimators, the curriculum and the loop.

Nothing is imported here: the loop stands on `ham.evaluate`, which stands on the losses.
"""
