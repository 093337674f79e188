"""Recipes that say they come from a recorded search have what it found."""

import json

import pytest

from ham import recipes
from ham.config import Run, changed, paper
from ham.models.kinds import PAPER
from ham.reproduce.document import SEARCHES
from ham.search.plan import SearchFolder

TASKS = (*recipes.SEQUENCES, *recipes.STRUCTURES)


def setting(run, name):
    part, _, rest = name.partition(".")
    return getattr(getattr(run, part), rest)


@pytest.mark.parametrize("task", TASKS)
def test_the_paper_to_the_letter_with_what_its_search_found(task):
    folder, run = SEARCHES / f"{task}{PAPER}", recipes.get(f"{task}{PAPER}")
    trials = json.loads((folder / "results.json").read_text("utf-8"))["trials"]
    plan = SearchFolder(folder).plan()
    assert len(trials) == plan.trials >= 8
    best = max(trials, key=lambda trial: (trial["longest"] or 0, -trial["error"], -trial["loss"]))
    for name, found in best["settings"].items():
        assert setting(run, name) == pytest.approx(found, rel=0.05), name


@pytest.mark.parametrize("task", TASKS)
def test_nothing_else_differs_from_the_paper(task):
    run = recipes.get(f"{task}{PAPER}")
    left_open = {name: setting(run, name) for name in SearchFolder(SEARCHES / f"{task}{PAPER}").plan().space}
    plain = paper(Run(task, changed(Run(task), {"model.kind": run.model.kind}).model))
    assert changed(plain, left_open) == run
