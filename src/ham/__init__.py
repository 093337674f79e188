"""Hierarchical Attentive Memory (Andrychowicz & Kurach, 2016): a neural memory read and written in Θ(log n).

In a network of your own: `HAM`, an ordinary `torch.nn.Module`, and `SoftHAM`; what they give, `State` and `Read`;
`reinforce`, which trains the decisions. The paper's models: `LSTMHAM`, `RawHAM`, and `load` for those that are trained.
What can be done with them: `train`, `resume`, `evaluate`, `solve`, `trace`, `stress`, `probe`, `view`. Tasks of your
own: `Task` and what is in `tasks`.

Everything is imported on first use, so that `import ham` and the command line start fast.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Everything public, and where it is; a name without a place is a module of this package.
_HOMES = {
    "HAM": "ham.models",
    "InputError": "ham.core.errors",
    "LSTMHAM": "ham.models",
    "Model": "ham.models",
    "Penalties": "ham.ops.episode",
    "RawHAM": "ham.models",
    "Read": "ham.models",
    "Run": "ham.config",
    "SoftHAM": "ham.models",
    "State": "ham.models",
    "Task": "ham.tasks",
    "Trace": "ham.use.trace",
    "Trained": "ham.runs",
    "config": "",
    "evaluate": "ham.use.evaluate",
    "load": "ham.runs",
    "models": "",
    "probe": "ham.use.probe",
    "recipes": "",
    "reinforce": "ham.train.reinforce",
    "resume": "ham.train.start",
    "set_backend": "ham.ops",
    "solve": "ham.use.solve",
    "stress": "ham.use.stress",
    "tasks": "",
    "trace": "ham.use.trace",
    "train": "",
    "view": "",
}

if TYPE_CHECKING:
    from ham import config as config
    from ham import models as models
    from ham import recipes as recipes
    from ham import tasks as tasks
    from ham.config import Run as Run
    from ham.core.errors import InputError as InputError
    from ham.models import HAM as HAM
    from ham.models import LSTMHAM as LSTMHAM
    from ham.models import Model as Model
    from ham.models import RawHAM as RawHAM
    from ham.models import Read as Read
    from ham.models import SoftHAM as SoftHAM
    from ham.models import State as State
    from ham.ops import set_backend as set_backend
    from ham.ops.episode import Penalties as Penalties
    from ham.runs import Trained as Trained
    from ham.runs import load as load
    from ham.tasks import Task as Task
    from ham.train.reinforce import reinforce as reinforce
    from ham.train.start import resume as resume
    from ham.train.start import train as train
    from ham.use.evaluate import evaluate as evaluate
    from ham.use.probe import probe as probe
    from ham.use.solve import solve as solve
    from ham.use.stress import stress as stress
    from ham.use.trace import Trace as Trace
    from ham.use.trace import trace as trace
    from ham.view.watch import view as view

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ham' has no attribute {name!r}")
    home = _HOMES[name]
    found = getattr(importlib.import_module(home), name) if home else importlib.import_module(f"ham.{name}")
    globals()[name] = found  # found at once from now on
    return found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
