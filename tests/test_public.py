"""`import ham` is fast, shows what there is, and every name of it explains itself."""

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import ham
from ham import tasks

FUNCTIONS = [name for name in ham.__all__ if callable(getattr(ham, name)) and name.islower()]
CLASSES = [name for name in ham.__all__ if isinstance(getattr(ham, name), type)]
MODULES = ["config", "models", "recipes", "tasks"]


def in_a_fresh_process(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_nothing_heavy_is_imported_with_it():
    heavy = {"torch", "numpy", "matplotlib", "rich", "tyro", "safetensors", "jaxtyping"}
    assert in_a_fresh_process(f"import sys, ham; dir(ham); print(*({heavy!r} & sys.modules.keys()))") == ""


def test_a_model_answers_without_pytorchs_compiler():
    """To import it takes as long as to import PyTorch."""
    assert (
        in_a_fresh_process("import sys, ham; ham.solve('sort', '7:1'); print('torch._dynamo' in sys.modules)")
        == "False"
    )


def test_dir_shows_all_of_it_and_nothing_else():
    assert set(dir(ham)) == {*ham.__all__, "__version__"}
    shown = in_a_fresh_process("import ham; print(*dir(ham))").split()
    assert set(shown) == set(dir(ham))


def test_every_name_is_there_in_a_fresh_process():
    found = in_a_fresh_process("import ham; print(*(name for name in ham.__all__ if getattr(ham, name)))")
    assert found.split() == ham.__all__


def test_every_name_is_a_function_a_class_or_a_module():
    assert {*FUNCTIONS, *CLASSES, *MODULES} == set(ham.__all__)
    assert all(isinstance(getattr(ham, name), ModuleType) for name in MODULES)


def test_what_tools_see_is_what_there_is():
    """Editors and type checkers read the imports under TYPE_CHECKING; Python reads the table."""
    tree = ast.parse(Path(ham.__file__).read_text("utf-8"))
    [for_tools] = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {}
    for line in for_tools.body:
        [alias] = line.names
        assert alias.asname == alias.name, "only `x as x` is public to them"
        seen[alias.name] = "" if line.module == "ham" else line.module
    called = {"train": "ham.train.start", "view": "ham.view.watch"}
    assert seen == {**ham._HOMES, **called}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_explain_themselves(name):
    function = inspect.unwrap(getattr(ham, name))
    described = inspect.getdoc(function)
    assert described
    signature = inspect.signature(getattr(ham, name))
    assert signature.return_annotation is not inspect.Signature.empty
    for parameter in signature.parameters.values():
        assert parameter.annotation is not inspect.Parameter.empty, parameter
        if len(signature.parameters) > 1:
            assert f"{parameter.name}:" in described, f"{parameter.name} is not explained"


@pytest.mark.parametrize("name", CLASSES)
def test_classes_explain_themselves(name):
    own = getattr(ham, name)
    assert inspect.getdoc(own)
    for parameter in list(inspect.signature(own.__init__).parameters.values())[1:]:
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            assert parameter.annotation is not inspect.Parameter.empty, parameter
    for each, method in vars(own).items():
        if inspect.isfunction(method) and not each.startswith("_"):
            assert inspect.getdoc(method), f"{name}.{each} has no docstring"


@pytest.mark.parametrize("name", MODULES)
def test_modules_explain_themselves(name):
    module = getattr(ham, name)
    assert module.__doc__
    assert module.__all__
    for each in module.__all__:
        assert getattr(module, each) is not None


@pytest.mark.parametrize("name", ["train", "view"])
def test_a_folder_that_is_called_is_still_a_folder(name):
    folder = getattr(ham, name)
    assert folder is importlib.import_module(f"ham.{name}")
    assert callable(folder)
    assert folder.__path__


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="no attribute 'Ham'"):
        _ = ham.Ham


def test_tasks_and_results_are_shown_in_a_line():
    assert repr(tasks.get("sort")) == "Sort('sort', features=10)"
