"""Pictures of what a model did: the page, the plots, the analysis figure. Reads traces, never a model.

Called, it makes the page: `ham.view("sort")` is `view` of watch.py.
"""

from ham.core.called import call_as

call_as(__name__, "watch:view")
