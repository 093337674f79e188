"""What is released installs clean, has everything in it, and works without a compiler."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import ham
from ham.ops import native
from ham.ops.native import compiler, prebuilt

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
REPOSITORY = PROJECT["urls"]["Repository"]


def loaded(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def the_engine_of_this_machine(engines):
    """In place of two fresh builds, which take a minute: the one that the tests run on, under a wheel's names."""
    engines.mkdir()
    built = native.build_info()
    for level in prebuilt.LEVELS:
        file = engines / prebuilt.name_of(level)
        shutil.copy(built.file, file)
        shutil.copy(built.file.with_suffix(".json"), file.with_suffix(".json"))
        file.with_suffix(".version").write_text(built.version)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The distributions, by what their names end with; `twine check --strict` has passed them."""
    engines = the_engine_of_this_machine if native.available() and prebuilt.levels_here() else None
    paths = loaded("release").release(tmp_path_factory.mktemp("dist"), engines)
    return {re.search(r"(any\.whl|x86_64\.whl|tar\.gz)$", path.name)[0]: path for path in paths}


@pytest.fixture(scope="module")
def metadata(made):
    with zipfile.ZipFile(made["any.whl"]) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith("METADATA")]
        return Parser().parsestr(wheel.read(name).decode("utf-8"))


def test_an_index_is_told_what_it_asks_for(metadata):
    assert metadata["Name"] == "ham-memory"
    assert metadata["Version"] == ham.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert {line.split(", ")[0] for line in metadata.get_all("Project-URL")} == PROJECT["urls"].keys()
    assert set(metadata["Keywords"].split(",")) == set(PROJECT["keywords"])


def test_the_readmes_links_work_outside_of_the_repository(metadata):
    links = re.findall(r"\]\(([^)\s]+)\)", metadata.get_payload())
    inside = [link for link in links if link.startswith(REPOSITORY)]
    assert len(inside) > 10
    assert not [link for link in links if not re.match(r"https://|#", link)]
    for link in inside:
        path = re.sub(rf"^{REPOSITORY}/(blob|raw)/main/", "", link).partition("#")[0]
        assert (ROOT / path).exists(), link


def test_the_source_distribution_has_docs_examples_and_tests(made):
    with tarfile.open(made["tar.gz"]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip("not a clone")
    unneeded = {".gitignore", ".pre-commit-config.yaml"}
    files = {name for name in tracked.stdout.splitlines() if (ROOT / name).exists()}
    missing = {
        name for name in files - names if not name.startswith(".github") and Path(name).name not in unneeded
    }
    assert not missing


def test_a_wheel_has_types_models_sources_and_nothing_else(made):
    with zipfile.ZipFile(made["any.whl"]) as wheel:
        names = set(wheel.namelist())
    assert {"ham/py.typed", "ham/ops/csrc/api.h", "ham/pretrained/sort/checkpoint.safetensors"} <= names
    assert {name.split("/")[0] for name in names} == {"ham", f"ham_memory-{ham.__version__}.dist-info"}
    assert not [name for name in names if name.endswith(".so")]


@pytest.mark.parametrize(("wheel", "engine"), [("any.whl", "reference"), ("x86_64.whl", "native")])
def test_an_installed_wheel_works_without_a_compiler(made, wheel, engine, tmp_path):
    if wheel not in made:
        pytest.skip("no engine can be built here")
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    # Its dependencies are those of the tests; the package is not, which is here by a path of its own.
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "HAM_BACKEND")}
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, made[wheel]], check=True, env=clean)
    words = [python, "-W", "error::ImportWarning", ROOT / "scripts" / "try_wheel.py", engine]
    done = subprocess.run(words, cwd=tmp_path, env=clean, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (str(site) in done.stdout) == (engine == "native")


class TestPrebuilt:
    """When an engine that came with the package is taken."""

    @pytest.fixture(autouse=True)
    def folder(self, tmp_path, monkeypatch):
        monkeypatch.setattr(prebuilt, "FOLDER", tmp_path)
        monkeypatch.setattr(prebuilt, "levels_here", lambda: ["x86-64-v3"])
        self.put(tmp_path / prebuilt.name_of("x86-64-v3"))
        return tmp_path

    def put(self, file):
        file.write_bytes(b"an engine")
        digest = compiler.hashlib.sha256(b"an engine").hexdigest()
        file.with_suffix(".json").write_text(f'{{"sha256": "{digest}", "seconds": 1}}')
        file.with_suffix(".version").write_text("g++ 12")

    def test_one_that_fits_is_taken(self):
        found = prebuilt.find()
        assert found.version == "g++ 12"
        assert "-march=x86-64-v3" in found.flags

    def test_one_for_another_torch_is_passed_over(self, monkeypatch):
        monkeypatch.setattr(prebuilt.torch, "__version__", "2.99.0")
        assert prebuilt.find() is None

    def test_a_torch_of_the_same_release_will_do(self, monkeypatch):
        monkeypatch.setattr(
            prebuilt.torch, "__version__", prebuilt.torch.__version__.partition("+")[0] + "+cu999"
        )
        assert prebuilt.find() is not None

    def test_one_for_another_processor_is_passed_over(self, monkeypatch):
        monkeypatch.setattr(prebuilt, "levels_here", lambda: ["x86-64-v4"])
        assert prebuilt.find() is None

    def test_one_of_other_sources_is_passed_over(self, monkeypatch, tmp_path):
        (tmp_path / "csrc").mkdir()
        (tmp_path / "csrc" / "api.h").write_text("// another")
        monkeypatch.setattr(compiler, "SOURCES", tmp_path / "csrc")
        assert prebuilt.find() is None

    def test_one_that_was_cut_short_is_passed_over(self, folder):
        (folder / prebuilt.name_of("x86-64-v3")).write_bytes(b"an eng")
        assert prebuilt.find() is None

    @pytest.mark.parametrize(("name", "value"), [("HAM_SANITIZE", "1"), ("HAM_MARCH", "x86-64")])
    def test_who_asks_for_a_build_of_his_own_gets_it(self, monkeypatch, name, value):
        monkeypatch.setenv(name, value)
        assert prebuilt.find() is None


def test_citation_and_address_agree_with_the_package():
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"version: {ham.__version__}\n" in citation
    assert f"repository-code: {REPOSITORY}\n" in citation
    assert PROJECT["version"] == ham.__version__
