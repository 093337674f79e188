"""Training: the objective's terms, the estimators, the curriculum, evaluation, and the loop."""
