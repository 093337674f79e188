"""A whole run as frozen dataclasses, one for each component; the command line and the files are made from them."""

from ham.config.checks import from_dict
from ham.config.data import Data
from ham.config.model import Architecture, Soft
from ham.config.objective import Objective
from ham.config.options import Options
from ham.config.run import (
    FORMAT,
    NOWHERE,
    UNBOUNDED,
    Run,
    changed,
    completed,
    paper,
    require_readable,
    unused,
)
from ham.config.schedule import END, Optimiser, Phase, Schedule

__all__ = [
    "END",
    "FORMAT",
    "NOWHERE",
    "UNBOUNDED",
    "Architecture",
    "Data",
    "Objective",
    "Optimiser",
    "Options",
    "Phase",
    "Run",
    "Schedule",
    "Soft",
    "changed",
    "completed",
    "from_dict",
    "paper",
    "require_readable",
    "unused",
]
