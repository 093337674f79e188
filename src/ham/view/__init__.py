"""Pictures of what a model did: the page, the plots, the analysis figure. Reads traces, never a model."""
