"""Imports point one way, and the command line starts without torch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"

# A module may import its own layer and those before it. The longest name that fits counts.
LAYERS = [
    ["ham.errors", "ham.plain"],
    ["ham.tree", "ham.tasks"],
    ["ham.ops"],
    ["ham.nn"],
    ["ham.baselines"],
    ["ham.config"],
    ["ham.learn"],
    ["ham.evaluate", "ham.runs"],
    ["ham.learn.loop"],
    ["ham"],
    ["ham.cli", "ham.view.commands", "ham.search.commands", "ham.__main__"],
]
LAYER_OF = {name: layer for layer, names in enumerate(LAYERS) for name in names}


def layer_of(module):
    while module not in LAYER_OF:
        module = module.rpartition(".")[0]
    return LAYER_OF[module]


def name_of(path):
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(SOURCE.glob("ham/**/*.py"))}


def imported(path):
    """Every module of ham that a file imports, at its top or inside a function."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "ham")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ham":
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in MODULES else node.module


@pytest.mark.parametrize("module", [module for module in MODULES if module != "ham"])
def test_imports_point_one_way(module):
    for other in imported(MODULES[module]):
        assert layer_of(other) <= layer_of(module), f"{module} must not import {other}"


def test_an_import_against_the_order_would_be_found(tmp_path):
    wrong = tmp_path / "tree.py"
    wrong.write_text("def late():\n    from ham.learn import loop\n")
    assert list(imported(wrong)) == ["ham.learn.loop"]
    assert layer_of("ham.learn.loop") > layer_of("ham.learn.losses") > layer_of("ham.tree")


def test_losses_know_arrays_and_no_model():
    for module in ("ham.learn.losses", "ham.learn.estimators", "ham.learn.curriculum"):
        assert not list(imported(MODULES[module]))


def test_the_view_reads_what_runs_left_and_never_a_model():
    for module, path in MODULES.items():
        if module.startswith("ham.view"):
            for other in imported(path):
                assert not other.startswith(("ham.nn", "ham.ops", "ham.baselines", "ham.learn"))


def test_tasks_know_nothing_of_torch():
    for module, path in MODULES.items():
        if module.startswith("ham.tasks"):
            assert "torch" not in path.read_text("utf-8")


@pytest.mark.parametrize("module", ["ham", "ham.cli", "ham.config"])
def test_torch_is_imported_only_where_it_is_used(module):
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_public_name_is_there():
    import ham

    for name in ham.__all__:
        assert getattr(ham, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Ham'"):
        _ = ham.Ham
