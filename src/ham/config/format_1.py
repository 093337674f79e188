"""Runs as the first version wrote them: everything but the model in one flat list of settings."""

from __future__ import annotations

from typing import Any

from ham.core.errors import InputError

_PARTS = {
    "data": "batch runs batches validation start leaves train_up_to threshold growth mix tallest",
    "objective": "reward discount baseline normalise entropy pull",
    "optimiser": "clip averaging",
    "schedule": "epochs finish patience restart",
    "main": "learning_rate learning_rate_decay reinforce exploration exploration_decay tall tall_from anywhere hard",
    "practice": "varied cramped fills",
    "model.soft": "tree_clip in_order",
}
NAMES = {f"training.{name}": f"{part}.{name}" for part, names in _PARTS.items() for name in names.split()}
NAMES |= {
    "training.finish_learning_rate": "end.learning_rate",
    "training.finish_decay": "end.learning_rate_decay",
    "training.finish_reinforce": "end.reinforce",
    "training.finish_tall": "end.tall",
    "training.finish_anywhere": "end.anywhere",
    "training.finish_hard": "end.hard",
}
"""What each setting was called, and is now."""

_SOFT = {"lstm+ham": "dham", "raw-ham": "raw-dham"}


def upgraded(data: dict[str, Any], where: str) -> dict[str, Any]:
    """A run of the first format as one of the second."""
    model, training = ({**_object(data, part, where)} for part in ("model", "training"))
    if unknown := set(data) - {"task", "model", "training", "seed"}:
        raise InputError(
            f"{where} has no field {sorted(unknown)[0]!r}; there are model, seed, task, training"
        )
    found: dict[str, Any] = {name: value for name, value in data.items() if name != "training"}
    if type(soft := model.pop("soft", False)) is not bool:
        raise InputError(f"{where}: model: soft must be bool, got {soft!r}")
    if soft:
        kind = model.get("kind", "lstm+ham")
        if kind not in tuple(_SOFT):
            raise InputError(f"{where}: model.soft is for models with a tree, not for {kind}")
        model["kind"] = _SOFT[kind]
    found["model"] = model
    for name, value in training.items():
        place = NAMES.get(f"training.{name}")
        if place is None:
            known = ", ".join(sorted(old.partition(".")[2] for old in NAMES))
            raise InputError(f"{where}: training has no field {name!r}; there are {known}")
        *path, last = place.split(".")
        if path[0] == "practice" and value == 0:
            continue
        at = found
        for part in path:
            at = at.setdefault(part, {})
        at[last] = value
    return found


def _object(data: dict[str, Any], name: str, where: str) -> dict[str, Any]:
    value = data.get(name, {})
    if not isinstance(value, dict):
        raise InputError(f"{where}: {name} should be an object, got {value!r}")
    return value
