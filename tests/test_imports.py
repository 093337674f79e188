"""Imports point one way, and the command line starts without torch."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"

# A folder may import those before it and none after it; ham/__init__.py names what is public.
LAYERS = [
    "ham.core",
    "ham.tasks",
    "ham.ops",
    "ham.models",
    "ham.config",
    "ham.recipes",
    "ham.runs",
    "ham.train",
    "ham.use",
    "ham.view",
    "ham.search",
    "ham.reproduce",
    "ham.bench",
    "ham.cli",
    "ham.__main__",
]


def layer_of(module):
    """The place of a module's folder in the order; every module has one."""
    (layer,) = [place for place, name in enumerate(LAYERS) if f"{module}.".startswith(f"{name}.")]
    return layer


def name_of(path):
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(SOURCE.glob("ham/**/*.py"))}
FOLDERS = {module.split(".")[1] for module in MODULES if module != "ham"}


def imported(path):
    """Every module of ham that a file imports, at its top or inside a function."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "ham")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ham":
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in MODULES else node.module


def test_the_order_names_every_folder():
    assert {f"ham.{folder}" for folder in FOLDERS} == set(LAYERS)


@pytest.mark.parametrize("module", [module for module in MODULES if module != "ham"])
def test_imports_point_one_way(module):
    for other in imported(MODULES[module]):
        assert other == "ham" or layer_of(other) <= layer_of(module), f"{module} must not import {other}"


def test_the_modules_of_a_folder_import_each_other_in_no_circle():
    known = {name: set(imported(path)) & MODULES.keys() - {name} for name, path in MODULES.items()}
    packages = {name for name, path in MODULES.items() if path.name == "__init__.py"}
    left = {name: {other for other in others if other not in packages} for name, others in known.items()}
    while free := [name for name, others in left.items() if not others & left.keys()]:
        for name in free:
            del left[name]
    assert not left


def test_an_import_against_the_order_would_be_found(tmp_path):
    wrong = tmp_path / "tree.py"
    wrong.write_text("def late():\n    from ham.train import loop\n")
    assert list(imported(wrong)) == ["ham.train.loop"]
    assert layer_of("ham.train.loop") > layer_of("ham.runs.folder") > layer_of("ham.core.tree")


def test_a_module_outside_the_order_would_be_found():
    with pytest.raises(ValueError, match="not enough values"):
        layer_of("ham.somewhere")


def test_losses_know_arrays_and_no_model():
    for module in ("ham.train.losses", "ham.train.estimators", "ham.train.curriculum"):
        allowed = ("ham.core", "ham.train.losses")
        assert all(other.startswith(allowed) for other in imported(MODULES[module]))


def test_the_view_reads_what_runs_left_and_never_a_model():
    for module, path in MODULES.items():
        if module.startswith("ham.view"):
            for other in imported(path):
                assert not other.startswith(("ham.models", "ham.ops", "ham.train"))


def test_tasks_know_nothing_of_torch():
    """But for the likelihoods of their answers; and those import it when they are asked for one."""
    for module, path in MODULES.items():
        if module.startswith("ham.tasks") and module != "ham.tasks.codecs":
            assert "torch" not in path.read_text("utf-8")


def test_shipped_models_are_data_alone():
    assert not list(SOURCE.glob("ham/pretrained/**/*.py"))


@pytest.mark.parametrize("module", ["ham", "ham.cli", "ham.config", "ham.tasks.sort"])
def test_torch_is_imported_only_where_it_is_used(module):
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
