"""What to type where something is missing."""

from ham.core import install


def test_from_a_clone(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.setattr(install, "CLONE", tmp_path)
    assert install.install("tune") == f"pip install -e '{tmp_path}[tune]'"
    monkeypatch.chdir(tmp_path)
    assert install.install("tune") == "pip install -e '.[tune]'"


def test_where_it_is_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(install, "CLONE", tmp_path)
    assert install.install("view") == "pip install 'ham-memory[view]'"
