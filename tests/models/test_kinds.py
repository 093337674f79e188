"""What the registry says of a kind of model is true of the model."""

import pytest

from ham import recipes, tasks
from ham.config import Architecture
from ham.core.errors import InputError
from ham.models import Model
from ham.models.kinds import KINDS, columns, kind_for

TASKS = {True: ("stack",), False: ("sort",), None: ("sort", "stack")}


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_a_kind_is_what_it_says(kind):
    for name in TASKS[kind.online]:
        model = Architecture(kind=kind.name, cells=4, size=4, hidden=4).build(tasks.get(name))
        assert isinstance(model, Model)
        assert bool(model.decisions(8)) == kind.decides
        assert hasattr(model, "memory") == kind.tree
        assert getattr(model, "soft", False) == kind.soft


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS.values() if kind.online is not None], ids=lambda k: k.name
)
def test_a_kind_refuses_the_tasks_it_is_not_for_and_names_the_one_that_is(kind):
    other = kind_for(not kind.online, kind.suffix)
    assert (other.suffix, other.title == kind.title or not kind.suffix) == (kind.suffix, True)
    with pytest.raises(InputError, match=f"it needs --model.kind {other.name.replace('+', '[+]')}, not"):
        Architecture(kind=kind.name).build(tasks.get("sort" if kind.online else "stack"))


def test_the_columns_are_the_papers_and_the_appendixs():
    assert [column.title for column in columns(1)] == ["lstm", "lstm+a", "lstm+ham", "ham-paper", "dham"]
    assert [column.title for column in columns(2)] == ["raw-ham", "ham-paper", "dham"]


@pytest.mark.parametrize("table", recipes.TABLES)
def test_every_cell_has_a_recipe_of_its_kind(table):
    for column in columns(table):
        for task in recipes.TABLES[table]:
            run = recipes.get(task + column.suffix)
            assert (run.task, run.model.kind) == (task, column.kind.name)
