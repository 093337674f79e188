"""A whole run as one frozen dataclass; the command line and the files are made from it."""

from ham.config.run import FORMAT, WITH_A_TREE, Architecture, Kind, Run, Training, from_dict

__all__ = ["FORMAT", "WITH_A_TREE", "Architecture", "Kind", "Run", "Training", "from_dict"]
