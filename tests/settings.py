"""Runs for tests, with settings by their own names: `run_with("sort", batch=4, epochs=2)`."""

import dataclasses

from ham.config import Architecture, Run, changed

PLACES = {
    field.name: f"{part}.{field.name}"
    for part in ("data", "objective", "optimiser", "schedule", "main")
    for field in dataclasses.fields(getattr(Run("sort"), part))
}
PLACES |= {name: f"model.soft.{name}" for name in ("tree_clip", "in_order")}
PLACES["every"] = "model.every"
PLACES |= {name: f"practice.{name}" for name in ("varied", "cramped", "fills")}


def run_with(task="sort", model=None, *, seed=0, **settings) -> Run:
    """A run with some settings, each in the part that owns it; of soft attention where they are its own."""
    if model is None:
        model = Architecture(kind="dham" if {"tree_clip", "in_order"} & settings.keys() else "lstm+ham")
    run = Run(task, model, seed=seed)
    return changed(run, {PLACES[name]: value for name, value in settings.items()})
