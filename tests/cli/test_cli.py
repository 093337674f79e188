"""The command line from outside: what it prints, what it leaves on disk, its exit codes."""

import functools
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from ham import cli, recipes, runs
from ham.cli import arguments, doctor, main
from ham.config import Options
from ham.core.errors import InputError
from ham.core.install import install
from ham.core.text import LONGEST_MESSAGE, one_line
from ham.ops import native
from ham.ops.native import library
from ham.runs import RunFolder
from ham.train import progress
from ham.train.loop import Epoch, Step
from settings import run_with

HAM = Path(sys.executable).parent / "ham"
SMALL = "--data.start 2 --data.leaves 4 --data.batches 20 --data.validation 20".split()
SMALL += "--data.threshold 1 --data.batch 8 --data.runs 2 --schedule.finish 0".split()
SMALL += "--model.depth 1 --model.size 4 --model.hidden 4 --model.cells 4".split()
OWN_TASK = """
from ham.tasks.reverse import Reverse
import pathlib
pathlib.Path({ran!r}).touch()
class Backwards(Reverse):
    name = "backwards"
"""


@pytest.fixture
def ham(capsys):
    """Runs a command in this process: exit code, what it printed, and what it complained."""

    def run(*argv):
        capsys.readouterr()
        try:
            code = main([str(word) for word in argv])
        except SystemExit as end:
            code = end.code or 0
        return (code, *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a tiny run."""
    folder = tmp_path_factory.mktemp("runs") / "reverse"
    words = ["train", "reverse", "--schedule.epochs", "2", "--out", str(folder), *SMALL]
    assert main([*words, "--backend", "reference"]) == 0
    return folder


def in_process(*argv, **kwargs):
    """The installed console script in a process of its own."""
    environment = {**os.environ, "HAM_BACKEND": "reference", **kwargs.pop("env", {})}
    # A shell starts what it runs in the background deaf to Ctrl-C, and that is inherited.
    hearing = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    return subprocess.Popen(
        [HAM, *map(str, argv)],
        text=True,
        stdout=-1,
        stderr=-1,
        env=environment,
        preexec_fn=hearing,
        **kwargs,
    )


def is_refused(result, *words):
    code, printed, complaint = result
    assert code == 2
    assert printed == ""
    assert complaint.startswith("ham: ")
    assert complaint.count("\n") == 1
    for word in words:
        assert str(word) in complaint
    return True


class TestHelp:
    def test_lists_every_command(self):
        process = in_process("--help")
        printed, complaint = process.communicate()
        assert (process.returncode, complaint) == (0, "")
        assert all(f"  {name} " in printed for name in cli.COMMANDS)

    def test_imports_nothing_slow(self):
        check = "import sys; from ham.cli import main; main(['--help']); print(*sys.modules)"
        modules = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True).stdout.split()
        assert not {"torch", "numpy", "rich", "tyro"} & set(modules)

    def test_no_command_needs_torch_to_explain_itself(self):
        check = "import sys, contextlib; from ham.cli import main\n"
        check += (
            "for name in sys.argv[1:]:\n    with contextlib.suppress(SystemExit): main([name, '--help'])\n"
        )
        names = ("train", "evaluate", "stress", "solve", "tasks", "check-task", "bench", "doctor")
        command = [sys.executable, "-c", check + "print(*sys.modules)", *names]
        printed = subprocess.run(command, capture_output=True, text=True).stdout
        assert all(f"usage: ham {name}" in printed for name in names)
        assert "torch" not in printed.split()

    @pytest.mark.parametrize("name", cli.COMMANDS)
    def test_of_each_command(self, ham, name):
        code, printed, complaint = ham(name, "--help")
        assert (code, complaint) == (0, "")
        assert f"ham {name}" in printed

    def test_without_arguments(self, ham):
        assert ham() == (0, cli.overview() + "\n", "")

    def test_version(self, ham):
        code, printed, _ = ham("--version")
        assert (code, printed.split()[0]) == (0, "ham")


class TestTrain:
    def test_leaves_a_run_and_a_line_an_epoch(self, ham, tmp_path):
        folder = tmp_path / "run"
        code, printed, complaint = ham("train", "reverse", "--out", folder, "--schedule.epochs", 2, *SMALL)
        lines = printed.splitlines()
        assert (code, complaint) == (0, "")
        assert [line.split()[:4] for line in lines[:2]] == [
            ["epoch", "1/2", "n", "2"],
            ["epoch", "2/2", "n", "2"],
        ]
        assert lines[0].split()[-4].endswith("/s")
        assert max(map(len, lines[:3])) <= 80
        assert lines[-1] == f"measure it with: ham evaluate {folder}"
        assert {path.name for path in folder.iterdir()} >= {
            "config.json", "metrics.jsonl", "checkpoint.safetensors", "state.safetensors",
        }  # fmt: skip
        assert torch.get_num_threads() == 1

    def test_flags_change_single_settings_of_the_recipe(self, ham, tmp_path):
        ham("train", "search", "--out", tmp_path / "run", "--seed", 3, "--schedule.epochs", 1, *SMALL)
        run, recipe = runs.RunFolder(tmp_path / "run").run(), recipes.get("search")
        assert (run.task, run.seed, run.schedule.epochs, run.model.size) == ("search", 3, 1, 4)
        assert run.main.learning_rate == recipe.main.learning_rate
        assert run.main.exploration_decay == recipe.main.exploration_decay

    def test_default_folder_is_named_after_task_and_seed(self, ham, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        ham("train", "priority-queue", "--seed", 7, "--schedule.epochs", 1, *SMALL)
        assert runs.RunFolder("runs/priority_queue-7").run().task == "priority_queue"

    @pytest.mark.parametrize("name", ["stack", "queue", "priority_queue"])
    def test_cramped(self, ham, tmp_path, name):
        cramped = ["--schedule.epochs", 2, "--practice.cramped", 1, *SMALL]
        assert ham("train", name, "--out", tmp_path / "run", *cramped)[0] == 0

    def test_recipe_from_a_file(self, ham, trained, tmp_path):
        again = tmp_path / "again"
        assert ham("train", "--recipe", trained / "config.json", "--out", again)[0] == 0
        assert runs.RunFolder(again).run() == runs.RunFolder(trained).run()
        ours, theirs = (load_file(path / runs.CHECKPOINT) for path in (again, trained))
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)

    @pytest.mark.parametrize("task", ["sort", "priority-queue"])
    def test_the_paper_to_the_letter(self, ham, tmp_path, task):
        short = "--schedule.epochs 1 --data.batches 1 --data.validation 5".split()
        assert ham("train", task, "--paper", *short, "--out", tmp_path / "run")[0] == 0
        run = runs.RunFolder(tmp_path / "run").run()
        assert (run.data.batch, run.data.runs, run.data.mix) == (50, 1, 0.0)
        assert (run.objective.baseline, run.objective.normalise) == ("learned", False)
        assert (run.optimiser.averaging, run.schedule.finish, run.optimiser.clip) == (0.0, 0, 5.0)
        assert (run.model.join, run.model.top, run.model.cell_bound) == ("rectified", 0.0, 0.0)
        assert not dict(run.practice)
        assert not any((run.main.tall, run.main.hard, run.main.anywhere, run.main.stocked))

    def test_the_paper_and_another_recipe_are_refused(self, ham):
        code, _, err = ham("train", "sort", "--paper", "--recipe", "sort-lstm")
        assert code == 2
        assert "--paper is a recipe of its own" in err

    def test_a_task_without_a_recipe_gets_a_model_that_fits(self, tmp_path):
        file = tmp_path / "own.py"
        file.write_text("from ham.tasks.queue import Queue\nclass Own(Queue):\n    name = 'own'\n")
        assert recipes.for_task(f"{file}:Own").model.kind == "raw-ham"

    def test_a_folder_with_a_run_is_left_alone(self, ham, trained):
        before = {path: path.read_bytes() for path in trained.iterdir()}
        assert is_refused(ham("train", "reverse", "--out", trained), trained, "--resume")
        assert before == {path: path.read_bytes() for path in trained.iterdir()}

    @pytest.mark.parametrize(
        "words",
        [
            "queue --model.kind lstm+ham",
            "add --data.start 2 --data.leaves 2",
            "sort --data.start 3",
            "sort --data.start 1 --practice.cramped 0.5",
            "sort --schedule.epochs 1.5",
            "sort --seed -1",
            "sort --tensorbored",
        ],
    )
    def test_what_cannot_begin_leaves_nothing(self, ham, tmp_path, monkeypatch, words):
        monkeypatch.chdir(tmp_path)
        assert is_refused(ham("train", *words.split()))
        assert not list(tmp_path.iterdir())

    def test_interrupted_and_resumed_gives_the_same_bits(self, trained, tmp_path, ham):
        folder = tmp_path / "run"
        process = in_process("train", "--recipe", trained / "config.json", "--out", folder,
                             "--schedule.epochs", 500)  # fmt: skip
        process.stdout.readline()
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate()
        assert process.returncode == 130
        assert complaint.splitlines()[-1] == f"ham: stopped; continue with: ham train --resume {folder}"
        done = len(runs.RunFolder(folder).metrics())
        settings = json.loads((folder / "config.json").read_text())
        settings["schedule"]["epochs"] = done + 2
        (folder / "config.json").write_text(json.dumps(settings))
        assert ham("train", "--resume", folder)[0] == 0

        straight = tmp_path / "straight"
        assert ham("train", "--recipe", folder / "config.json", "--out", straight)[0] == 0
        ours, theirs = (load_file(path / runs.STATE) for path in (folder, straight))
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)

    def test_resume_takes_no_settings(self, ham, trained):
        assert is_refused(ham("train", "--resume", trained, "--seed", 3), "--seed", "--resume")
        assert is_refused(ham("train", "reverse", "--resume", trained), "reverse", "--resume")

    def test_resuming_a_finished_run_changes_nothing(self, ham, trained):
        before = (trained / runs.CHECKPOINT).read_bytes()
        code, printed, _ = ham("train", "--resume", trained)
        assert code == 0
        assert "best validation error" in printed
        assert (trained / runs.CHECKPOINT).read_bytes() == before

    def test_evaluates_if_asked(self, ham, trained, tmp_path):
        words = ["train", "--recipe", trained / "config.json", "--out", tmp_path / "run", "--evaluate"]
        code, printed, _ = ham(*words, "--schedule.epochs", 1)
        assert code == 0
        assert [row.split()[:2] for row in printed.splitlines()[-2:]] == [["4", "1:4"], ["16", "9:16"]]

    def test_tensorboard(self, ham, trained, tmp_path, monkeypatch):
        wrote = []

        class Writer:
            def __init__(self, folder):
                wrote.append(Path(folder).name)

            def add_scalar(self, name, value, step):
                wrote.append((name, step))

            def close(self):
                wrote.append("closed")

        module = type(sys)("torch.utils.tensorboard")
        module.SummaryWriter = Writer
        monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
        assert (
            ham("train", "--recipe", trained / "config.json", "--out", tmp_path / "run", "--tensorboard")[0]
            == 0
        )
        assert (wrote[0], wrote[-1]) == ("tensorboard", "closed")
        assert {("error", 20), ("error", 40), ("longest", 40)} <= set(wrote[1:-1])
        (tmp_path / "run" / "tensorboard").symlink_to(tmp_path)
        again = ham("train", "--resume", tmp_path / "run", "--schedule.epochs", "3", "--tensorboard")
        assert is_refused(again, "tensorboard is a link, and none is written through")

    def test_tensorboard_that_is_not_installed(self, ham, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
        folder = tmp_path / "run"
        result = ham("train", "reverse", "--tensorboard", "--out", folder)
        assert is_refused(result, install("tensorboard"))
        assert not folder.exists()


class TestBar:
    def test_shows_epoch_error_leaves_pace_and_time_left(self):
        console = Console(force_terminal=True, width=100, record=True, file=io.StringIO())
        run = run_with("sort", epochs=2, batches=40)
        epoch = Epoch(1, "main", 4, 12.5, *[1.0] * 3, {"cross_entropy": 1.0}, *[1.0] * 5, True, 3.0)
        events = [Step(0, 20, 4, 0.5), Step(0, 40, 4, 0.5), epoch, Step(1, 20, 8, 0.5)]
        progress.training(events, run, 0, console)
        shown = console.export_text()
        assert "epoch 1/2  n 4  error 12.50%" in shown
        last = shown.splitlines()[-1]
        for part in ("epoch 2/2", "error 12.50%", "n 8", "examples/s", "left"):
            assert part in last

    def test_an_epochs_line_fits_80_columns(self):
        """The best of the last epoch of the longest run, in which every number is as long as it can be."""
        run = run_with("sort", epochs=100_000)
        epoch = Epoch(100_000, "main", 1 << 20, 100.0, 100.0, *[1.234e-05] * 2, {}, *[1.0] * 5, True, 1e6)
        line = progress._line(epoch, run, 1e6, "symbol")
        assert line == "epoch 100000/100000  n 1048576  error 100.00%  symbols 100.00%  best"

    def test_an_ordinary_one_tells_all(self):
        epoch = Epoch(68, "finish", 32, 0.04, 0.01, *[0.04812] * 2, {}, *[1.0] * 5, True, 1234.0)
        line = progress._line(epoch, run_with("sort", epochs=68), 9876.0, "bit")
        assert line == "epoch 68/68  n 32  error 0.04%  bits 0.01%  loss 0.04812  9,876/s  1234 s  best"


class TestEvaluate:
    KEYS = "task leaves lengths examples wrong error error_interval".split()
    KEYS += "bits wrong_bits bit_error loss seconds seed".split()

    def test_both_protocols_of_the_paper(self, ham, trained):
        code, printed, _ = ham("evaluate", trained, "--examples", 20, "--json", "--seed", 5)
        found = json.loads(printed)
        assert code == 0
        assert (found["task"], found["seed"], found["model"]) == ("reverse", 5, str(trained))
        assert [(row["leaves"], row["lengths"]) for row in found["rows"]] == [(4, [1, 4]), (16, [9, 16])]
        assert all(list(row) == self.KEYS for row in found["rows"])
        low, high = found["rows"][0]["error_interval"]
        assert low <= found["rows"][0]["error"] <= high

    def test_sizes_and_lengths_as_asked(self, ham, trained):
        _, printed, _ = ham(
            "evaluate", trained, "--leaves", 8, 32, "--lengths", "3:5", "--examples", 10, "--json"
        )
        assert [(row["leaves"], row["lengths"]) for row in json.loads(printed)["rows"]] == [
            (8, [3, 5]),
            (32, [3, 5]),
        ]

    def test_the_seed_decides(self, ham, trained):
        def found(*seed):
            _, printed, _ = ham("evaluate", trained, "--leaves", 4, "--examples", 50, "--json", *seed)
            result = json.loads(printed)
            del result["rows"][0]["seconds"]
            return result

        assert found("--seed", 5) == found("--seed", 5)
        assert found()["seed"] != found()["seed"]

    def test_table(self, ham, trained):
        _, printed, complaint = ham("evaluate", trained, "--examples", 20, "--seed", 5)
        title, columns, _, *rows = printed.splitlines()
        assert title == "reverse, test seed 5"
        assert columns.split()[:4] == ["leaves", "lengths", "examples", "wrong"]
        assert [row.split()[:3] for row in rows] == [["4", "1:4", "20"], ["16", "9:16", "20"]]
        assert complaint == ""

    def test_on_another_task(self, ham, trained):
        _, printed, _ = ham("evaluate", trained, "--task", "sort", "--examples", 5, "--json")
        assert json.loads(printed)["task"] == "sort"
        assert is_refused(ham("evaluate", trained, "--task", "add"), "memory")


class TestStress:
    def test_counts_each_family_at_each_size(self, ham, trained):
        words = ("stress", trained, "--leaves", 4, 8, "--examples", 3, "--seed", 5)
        code, printed, _ = ham(*words, "--json")
        found = json.loads(printed)
        assert code == 0
        assert (found["task"], found["seed"]) == ("reverse", 5)
        assert {row["leaves"] for row in found["rows"]} == {4, 8}
        assert all(0 <= row["wrong"] <= row["examples"] == 3 for row in found["rows"])
        assert {row["practised"] for row in found["rows"]} == {True, False}
        _, printed, _ = ham(*words)
        title, columns, _, *rows = printed.splitlines()
        assert title == "reverse, test seed 5: wrong of 3 questions each"
        assert columns.split("  ")[0] == "family"
        assert len(rows) == len(found["rows"]) // 2
        assert any(row.startswith("palindromes *") for row in rows)

    def test_a_task_without_hard_cases_is_refused(self, ham):
        assert is_refused(ham("stress", "sort4"), "sort4 names no hard cases")


class TestSettings:
    def test_help_tells_the_dozen_that_people_change_and_help_all_the_rest(self, ham):
        (_, short, _), (_, full, _) = ham("train", "add", "--help"), ham("train", "add", "--help-all")
        for flag in (
            "--model.kind",
            "--data.leaves",
            "--schedule.epochs",
            "--main.learning-rate",
            "--seed",
            "--out",
        ):
            assert flag in short
            assert flag in full
        for flag in ("--objective.discount", "--model.soft.in-order", "--end.reinforce", "--practice.varied"):
            assert flag not in short
            assert flag in full
        assert short.count("--model.") + short.count("--data.") + short.count("--main.") <= 12

    def test_a_short_run_has_a_short_end_phase(self, ham, tmp_path):
        words = ("train", "sort", "--out", tmp_path / "run", "--schedule.epochs", 2, *SMALL)
        assert ham(*words, "--schedule.finish", 25)[0] == 0
        assert [record["phase"] for record in RunFolder(tmp_path / "run").metrics()] == ["main", "finish"]

    def test_the_options_of_a_task_in_a_file_are_flags_and_are_remembered(self, ham, tmp_path):
        file = tmp_path / "own.py"
        file.write_text(
            "from dataclasses import dataclass\n"
            "from ham.tasks import Practice\n"
            "from ham.tasks.reverse import Reverse\n"
            "@dataclass(frozen=True)\nclass OwnPractice(Practice):\n    loud: float = 0.0\n"
            "class Own(Reverse):\n    name = 'own'\n    options = OwnPractice\n"
            "    def practice(self, rng, batch, n, longest, options):\n"
            "        assert options.loud == 0.5\n"
            "        return super().practice(rng, batch, n, longest, options)\n"
        )
        words = ("train", f"{file}:Own", "--out", tmp_path / "run", "--schedule.epochs", 1, *SMALL)
        assert ham(*words, "--practice.loud", 0.5)[0] == 0
        assert RunFolder(tmp_path / "run").run().practice == Options(loud=0.5)
        assert is_refused(ham(*words, "--practice.quiet", 0.5), "--practice.quiet")
        assert is_refused(ham(*words, "--practice.loud", 1.5), "must lie in 0 … 1, got 1.5")


class TestRefused:
    @pytest.mark.parametrize(
        ("words", "said"),
        [
            ("trian", "train"),
            ("train", "name the task first"),
            ("train nosuch", "nosuch"),
            ("train sort --shedule.epochs 3", "--schedule.epochs"),
            ("train sort --training.learning-rate 3", "--training.learning-rate is --main.learning-rate now"),
            ("train sort --schedule.epochs x", "whole number, got 'x'"),
            ("train sort --model.kind gpt", "gpt"),
            ("train sort --recipe nosuch", "nosuch"),
            ("train --resume nosuch", "nosuch"),
            ("train sort --backend gpu", "gpu"),
            ("train sort --threads 0", "threads"),
            ("evaluate", "NAME_OR_DIR"),
            ("evaluate nosuch", "nosuch"),
            ("evaluate RUN --leaves 48", "power of two, got 48"),
            ("evaluate RUN --leaves", "--leaves needs at least one number"),
            ("evaluate RUN --leaves 4 --lengths 3:5", "do not fit into 4"),
            ("evaluate RUN --lengths 3", "A:B"),
            ("evaluate RUN --lengths 3:1", "3:1"),
            ("evaluate RUN --examples 0", "examples"),
            ("evaluate RUN --seed -1", "seed"),
            ("evaluate RUN --task nosuch", "nosuch"),
            ("solve reverse", "--file"),
            ("solve nosuch 1", "nosuch"),
            ("solve reverse 1024 --model RUN", "between 0 and 1023, got 1024"),
            ("solve reverse one --model RUN", "one"),
            ("solve sort 1:2 --model RUN", "trained on reverse"),
            ("solve reverse 3 --model RUN --leaves 3", "power of two, got 3"),
            ("solve reverse 3 --model RUN --leaves 0", "power of two, got 0"),
            ("solve reverse 3,1,2 --model RUN --leaves 2", "does not fit into 2"),
            ("solve reverse --file nosuch --model RUN", "nosuch"),
            ("stress RUN --leaves", "--leaves needs at least one number"),
            ("plot RUN --sizes", "--sizes needs at least one number"),
            ("bench --sizes", "--sizes needs at least one number"),
            ("reproduce --threads 0", "threads must lie in 1 … 1,024, got 0"),
            ("check-task nosuch", "nosuch"),
            ("check-task nosuch.py:Task", "nosuch.py"),
            ("tasks --all", "--all"),
        ],
    )
    def test_in_one_line(self, ham, trained, tmp_path, monkeypatch, words, said):
        monkeypatch.chdir(tmp_path)
        assert is_refused(ham(*words.replace("RUN", str(trained)).split()), said)
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize("damage", ["empty", "truncated", "text", "other"])
    def test_damaged_checkpoints(self, ham, trained, tmp_path, damage):
        whole = (trained / runs.CHECKPOINT).read_bytes()
        file = tmp_path / "model.safetensors"
        file.write_bytes(
            {
                "empty": b"",
                "truncated": whole[: len(whole) // 2],
                "text": b"7:1 3:9",
                "other": (trained / runs.STATE).read_bytes(),
            }[damage]
        )
        assert is_refused(ham("evaluate", file), file)

    def test_backend_of_the_environment(self, ham, trained, monkeypatch):
        monkeypatch.setattr("ham.ops.table._asked", None)
        monkeypatch.setenv("HAM_BACKEND", "gpu")
        assert is_refused(ham("evaluate", trained), "gpu")

    def test_native_where_it_cannot_be_had(self, ham, trained, monkeypatch):
        monkeypatch.setattr(library, "why_not", lambda: "no C++ compiler was found")
        assert is_refused(ham("evaluate", trained, "--backend", "native"), "no C++ compiler was found")

    def test_a_hostile_message_stays_one_line(self):
        assert one_line("a\nb\x1b[31m\tc") == "a b [31m c"
        assert len(one_line("x" * 10_000)) == LONGEST_MESSAGE

    def test_from_the_console_script(self, tmp_path):
        process = in_process("evaluate", tmp_path)
        printed, complaint = process.communicate()
        assert is_refused((process.returncode, printed, complaint), tmp_path)

    def test_a_reader_that_leaves_early(self):
        with in_process("tasks") as process:
            process.stdout.close()
            assert process.stderr.read() == ""
        assert process.returncode == 141


class TestArguments:
    def test_a_command_is_an_annotated_function(self):
        def add(first: int, /, *, second: int = 2, minus: bool = False) -> int:
            """Add numbers."""
            return first - second if minus else first + second

        assert arguments.bound(add, ["1"], "ham add")() == 3
        assert arguments.bound(add, ["1", "--second", "5", "--minus"], "ham add")() == -4
        with pytest.raises(InputError, match="whole number, got 'x'; see ham add --help"):
            arguments.bound(add, ["x"], "ham add")


class TestTasks:
    def test_lists_names_widths_and_examples(self, ham):
        code, printed, _ = ham("tasks")
        assert code == 0
        sort = next(line for line in printed.splitlines() if line.startswith("sort "))
        assert sort.split()[-5:] == ["10", "11", "7:1", "3:9", "7:2"]

    def test_check_task(self, ham, tmp_path):
        assert ham("check-task", "sort") == (0, "sort: nothing wrong found\n", "")
        file = tmp_path / "own.py"
        file.write_text(
            "from ham.tasks.reverse import Reverse\n"
            "class Own(Reverse):\n    name = 'own'\n    def solve(self, question): return sorted(question)\n"
        )
        code, printed, complaint = ham("check-task", f"{file}:Own")
        assert (code, complaint) == (1, "")
        assert "solve says" in printed

    def test_a_checkpoint_does_not_make_a_file_run(self, ham, tmp_path):
        ran, file, folder = tmp_path / "ran", tmp_path / "own.py", tmp_path / "run"
        file.write_text(OWN_TASK.format(ran=str(ran)))
        name = f"{file}:Backwards"
        assert ham("train", name, "--out", folder, "--schedule.epochs", 1, *SMALL)[0] == 0
        ran.unlink()
        assert is_refused(ham("evaluate", folder), f"--task {name}")
        assert not ran.exists()
        assert ham("evaluate", folder, "--task", name, "--examples", 5)[0] == 0
        assert ran.exists()
        assert ham("solve", name, "3 1", "--model", folder)[0] in (0, 1)


class TestDoctor:
    def test_tells_versions_build_and_speed(self, ham, monkeypatch):
        monkeypatch.setattr(doctor, "SECONDS", 0.01)
        monkeypatch.setattr(doctor, "BATCHES", {"native": 1, "reference": 1})
        monkeypatch.setattr(doctor, "LEAVES", 2)
        code, printed, _ = ham("doctor", "--json")
        found = json.loads(printed)
        assert code == 0
        assert found["torch"] == torch.__version__
        assert found["backend_active"] == "reference"
        assert found["reference_batches_a_second"] > 0
        assert ("native_batches_a_second" in found) == native.available()
        assert ("cache_file" in found) == native.available()

    def test_says_why_there_is_no_native_engine(self, ham, monkeypatch):
        monkeypatch.setattr(native, "why_not", lambda: "no C++ compiler was found")
        monkeypatch.setattr("ham.ops.table._asked", None)
        monkeypatch.setenv("HAM_BACKEND", "auto")
        _, printed, _ = ham("doctor", "--no-speed")
        facts = dict(
            line.split(maxsplit=1) for line in printed.replace("backend active", "active").splitlines()
        )
        assert (facts["active"], facts["why"]) == ("reference", "no C++ compiler was found")

    def test_the_backend_is_named_once_on_standard_error(self, ham, trained, monkeypatch):
        monkeypatch.setattr("ham.ops.table._said", set())
        monkeypatch.setattr(library, "why_not", lambda: "no C++ compiler was found")
        _, _, complaint = ham("evaluate", trained, "--backend", "auto", "--examples", 5)
        assert complaint == "backend: reference (no C++ compiler was found)\n"
