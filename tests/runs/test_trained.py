"""Trained models: what they say of themselves, their logs, and their export to a folder as the Hub has one."""

import pytest
import torch

import ham
from ham import runs, tasks
from ham.config import Architecture, Run
from ham.core.errors import InputError
from ham.runs import Trained, save_checkpoint

SHIPPED = runs.shipped()


def test_it_says_in_a_line_what_it_is():
    trained = ham.load("sort")
    assert repr(trained) == "Trained('sort', kind='lstm+ham', parameters=13933, leaves=32)"
    assert repr(trained.model).startswith(
        "LSTMHAM(13,933 parameters, HAM(features=10, query=20, size=20, hidden=40"
    )
    assert "\n" not in repr(trained.model)


def test_its_log_is_rows():
    log = ham.load("sort").log
    assert [row["epoch"] for row in log] == list(range(1, len(log) + 1))
    assert log[-1].keys() >= {"error", "loss", "longest", "seconds"}
    assert "epoch" in repr(log).splitlines()[0]


def test_rows_are_what_pandas_takes():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ham.load("sort").log)
    assert list(frame.columns)[:2] == ["epoch", "phase"]


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_model_is_exported_and_loaded(tmp_path, name):
    trained = ham.load(name)
    folder = trained.save_pretrained(tmp_path / name)
    assert {"config.json", "model.safetensors", "README.md"} <= {path.name for path in folder.iterdir()}
    again = ham.load(folder)
    assert again.run == trained.run
    assert again.log == trained.log
    ours, theirs = again.model.state_dict(), trained.model.state_dict()
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
    card = (folder / "README.md").read_text("utf-8")
    assert card.startswith("---\nlibrary_name: ham-memory\nlicense: apache-2.0\ntags:\n")
    assert "| leaves | lengths |" in card, "the measured errors belong to the card"
    if again.task.example:
        assert again.task.example in card


def test_the_exported_model_solves(tmp_path):
    folder = ham.load("sort").save_pretrained(tmp_path)
    assert ham.solve(folder, "7:1 3:9 7:2").right
    assert ham.solve(folder / "model.safetensors", "7:1 3:9 7:2").right


def test_the_header_is_what_the_hub_reads(tmp_path):
    yaml = pytest.importorskip("yaml")
    folder = ham.load("sort").save_pretrained(tmp_path)
    about = yaml.safe_load((folder / "README.md").read_text("utf-8").split("---\n")[1])
    assert about["tags"][-2:] == ["algorithmic-reasoning", "sort"]


def test_a_model_of_ones_own_has_no_licence_of_ours(tmp_path):
    run = Run("reverse", Architecture(size=4, hidden=4, cells=4))
    trained = Trained(run.model.build(tasks.get("reverse")), tasks.get("reverse"), run)
    assert trained.log == []
    card = (trained.save_pretrained(tmp_path) / "README.md").read_text("utf-8")
    assert "license" not in card
    assert not (tmp_path / "metrics.jsonl").exists()
    trained.save_pretrained(tmp_path, license="mit")
    assert "license: mit" in (tmp_path / "README.md").read_text("utf-8")


@pytest.mark.parametrize("linked", [False, True])
def test_what_lies_beside_a_checkpoint_is_not_exported(tmp_path, linked):
    folder = ham.load("reverse").save_pretrained(tmp_path / "run")
    (tmp_path / "private").write_text("title\nsecret")
    if linked:
        (folder / "card.md").symlink_to(tmp_path / "private")
    else:
        (folder / "card.md").write_text("title\nsecret")
    card = (ham.load(folder).save_pretrained(tmp_path / "out") / "README.md").read_text("utf-8")
    assert "secret" not in card
    assert "Validation error" in card


@pytest.mark.parametrize("name", [runs.CHECKPOINT, runs.STATE])
def test_the_folder_of_a_run_is_not_written_over(tmp_path, name):
    """Its settings and its log have the same names; and who loads it gets its checkpoint, not what was saved there."""
    (tmp_path / name).touch()
    for model in (ham.load("sort"), ham.HAM(3, 4)):
        with pytest.raises(InputError, match="holds a run, whose files would be replaced"):
            model.save_pretrained(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_loaded_model_does_for_another_task_what_the_named_one_does():
    class Twice(type(tasks.get("sort"))):
        every = 2

    trained = ham.load("sort")
    for asked in (trained, "sort"):
        assert runs.loaded(asked, Twice()).model.every == 2
    assert runs.loaded(trained, "sort").model is trained.model


def test_another_task_must_fit(tmp_path):
    trained = ham.load("stack")
    assert runs.loaded(trained) is trained
    assert runs.loaded(trained, "queue").task.name == "queue"
    assert runs.loaded(trained, tasks.get("queue")).task.name == "queue"
    with pytest.raises(InputError, match="sort is not online"):
        runs.loaded(trained, "sort")
    save_checkpoint(tmp_path / "own.safetensors", trained.run, trained.model.state_dict())
    assert ham.load(tmp_path / "own.safetensors", tasks.get("queue")).task.name == "queue"
