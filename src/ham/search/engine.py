"""The trials of a search, run by Ray Tune.

Notable choices: Ray is given trial numbers and nothing else, so what a trial is cannot depend on
how many workers there are or which of them gets it. A trial's state is its run's folder on storage
that all nodes share, not a checkpoint of Ray's: a retry after a lost worker, and a new driver after
a dead one, both go on from there. So a search is resumed from its folder alone, without Ray's
pickled snapshot of the driver, which is some seconds old and treats a search that ran out of time
as done.
"""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import chdir, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ham.core.errors import InputError
from ham.core.files import read_text
from ham.core.install import install
from ham.core.processes import kill_descendants, passing_folder
from ham.search.plan import ERROR, Outcome, Plan, SearchFolder, outcomes, standings
from ham.search.screen import Board

LOST_WORKERS = 5
"""How often a trial may lose its worker before Ray gives it up."""
REDUCTION = 3
"""Of the trials that reach a rung, one in so many goes on; the next rung is as many times as far."""
FIRST_RUNG = 0.1
"""Share of its epochs that every trial gets."""
SECONDS_FOR_THE_LAST_OWNER = 60.0
SECONDS_TO_ANSWER = 10.0
MOST_WORKERS = 1000
RAY = ".ham-ray-"
"""How the names of folders with Ray's own notes begin."""
INTERRUPTED = 130
"""The exit code of who was stopped by Ctrl-C."""
LONGEST_TEMPORARY = 28
"""Characters of the folder for temporary ones: the names of Ray's sockets, 72 more, must stay below 108."""
OBJECT_STORE = 100 << 20
"""Nothing but small dictionaries goes through Ray's object store."""


@dataclass(frozen=True)
class Resources:
    """Where and for how long a search runs; none of it changes what a trial is."""

    address: str | None = None
    """A Ray cluster; None is this machine alone."""
    workers: int | None = None
    cores: int = 1
    hours: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("workers", self.workers), ("cores", self.cores)):
            if value is not None and not 1 <= value <= MOST_WORKERS:
                raise InputError(f"{name} must lie in 1 … {MOST_WORKERS:,}, got {value:,}")
        if self.hours is not None and not 0 < self.hours < 10_000:
            raise InputError(f"hours must be above 0 and below 10,000, got {self.hours}")
        if self.address is not None and self.address.startswith("ray://"):
            raise InputError(
                f"run ham on a machine of the cluster, with --address auto, not through {self.address}"
            )


def run(folder: SearchFolder, plan: Plan, resources: Resources, screen: Board) -> None:
    """Run the trials that have not ended yet, until they have or the time is over; Ray is connected."""
    with _notes_of_ray(folder.path) as notes:
        _fit(folder, plan, resources, screen, notes)


@contextmanager
def _notes_of_ray(folder: Path) -> Iterator[Path]:
    """A folder for what Ray writes down, which nobody needs afterwards; the search's folder is locked.

    Its name is new each time: another's folder is not ours to write into or to remove.
    """
    for left in folder.glob(f"{RAY}????????"):  # by a search that was killed
        shutil.rmtree(left, ignore_errors=True)
    notes = Path(tempfile.mkdtemp(prefix=RAY, dir=folder))
    try:
        yield notes
    finally:
        shutil.rmtree(notes, ignore_errors=True)


def _fit(folder: SearchFolder, plan: Plan, resources: Resources, screen: Board, notes: Path) -> None:
    from ray import tune

    done = [outcome for outcome in outcomes(folder, plan) if outcome.ended]
    open_numbers = sorted(set(plan.numbers) - {outcome.number for outcome in done})
    scheduler = tune.schedulers.FIFOScheduler() if plan.sweep else _halving(folder, plan, done)
    tuner = tune.Tuner(
        tune.with_resources(trial, {"cpu": resources.cores}),
        param_space={
            "folder": str(folder.path),
            "cores": resources.cores,
            "number": tune.grid_search(open_numbers),
        },
        tune_config=tune.TuneConfig(
            scheduler=scheduler,
            max_concurrent_trials=resources.workers,
            time_budget_s=None if resources.hours is None else resources.hours * 3600,
            reuse_actors=True,
            trial_name_creator=_name_of,
            trial_dirname_creator=_name_of,
        ),
        run_config=tune.RunConfig(
            name=notes.name,
            storage_path=str(notes.parent),
            failure_config=tune.FailureConfig(max_failures=LOST_WORKERS),
            callbacks=[_announcer(folder, plan, screen)],
            verbose=0,
        ),
    )
    tuner.fit()


def trial(config: dict[str, Any]) -> None:
    """One trial, in a worker of Ray's, wherever that is: train the run of this number to its end."""
    import torch
    from ray import tune

    import ham
    from ham.train.loop import Diverged, Epoch, train

    folder = SearchFolder(config["folder"])
    if not folder.path.is_dir():
        raise InputError(
            f"node {socket.gethostname()} does not see {folder.path}: a search's folder must be on storage "
            "that all nodes share, under the same path"
        )
    plan = folder.plan()
    ham.set_backend(plan.backend)  # type: ignore[arg-type]
    torch.set_num_threads(config["cores"])
    number = config["number"]
    here = folder.trial(number)
    run = plan.run(number)
    here.path.mkdir(parents=True, exist_ok=True)
    # Its last, dying worker may not have let go of the folder yet.
    with here.locked(patience=SECONDS_FOR_THE_LAST_OWNER):
        here.prepare(run)
        with suppress(FileNotFoundError):
            (here.path / ERROR).unlink()
        before = here.outcome(number, run)
        for standing in list(standings(before.records))[-1:]:
            tune.report(standing)  # so that Ray knows where it stands, even if nothing is left to do
        if before.ended:
            return
        try:
            with closing(train(run, here)) as events:
                for event in events:
                    if isinstance(event, Epoch):
                        tune.report(list(standings(here.metrics()))[-1])
        except Diverged as error:
            here.end("diverged", len(here.metrics()), str(error))
        except Exception:
            # Not raised to Ray, which would try again at once: the same batch would fail the same way.
            here.fail(traceback.format_exc())


def _halving(folder: SearchFolder, plan: Plan, done: Sequence[Outcome]) -> Any:
    """Asynchronous successive halving (ASHA), told of the trials that ended before."""
    from ray.tune.schedulers import ASHAScheduler

    class Halving(ASHAScheduler):
        def on_trial_result(self, tune_controller, trial, result):
            decision = super().on_trial_result(tune_controller, trial, result)
            if decision == self.STOP:
                folder.trial(trial.config["number"]).end("stopped", result["epoch"])
            return decision

    epochs = max(plan.run(number).schedule.epochs for number in plan.numbers)
    settings: dict[str, Any] = {
        "time_attr": "epoch",
        "metric": "score",
        "mode": "max",
        "max_t": epochs,
        "grace_period": max(1, round(FIRST_RUNG * epochs)),
        "reduction_factor": REDUCTION,
        "stop_last_trials": False,
    }
    scheduler = Halving(**settings)
    for outcome in done:
        stand_in: Any = SimpleNamespace(trial_id=f"before-{outcome.number}")
        scheduler.on_trial_add(None, stand_in)  # type: ignore[arg-type]
        for standing in standings(outcome.records):
            # The plain scheduler's method: what it decides now must not end the trial again.
            ASHAScheduler.on_trial_result(scheduler, None, stand_in, standing)  # type: ignore[arg-type]
    return scheduler


def _announcer(folder: SearchFolder, plan: Plan, screen: Board) -> Any:
    from ray.tune import Callback

    class Announcer(Callback):
        """Passes on what happens; Ray's own tables and logs are off."""

        def __init__(self, screen: Board) -> None:
            self.screen = screen

        def __getstate__(self) -> dict[str, Any]:
            return {}  # Ray pickles its driver, for a restore that is not used here

        def on_trial_start(self, iteration, trials, trial, **info):
            self.screen.running(trial.config["number"])

        def on_trial_result(self, iteration, trials, trial, result, **info):
            if "score" in result:
                self.screen.reported(trial.config["number"], result)

        def on_trial_recover(self, iteration, trials, trial, **info):
            self.screen.again(trial.config["number"], self._why(trial))

        def on_trial_complete(self, iteration, trials, trial, **info):
            self._ended(trial)

        def on_trial_error(self, iteration, trials, trial, **info):
            number = trial.config["number"]
            if not (folder.trial(number).path / ERROR).exists():
                folder.trial(number).fail(self._why(trial) or "it lost its worker too often")
            self._ended(trial)

        def _why(self, trial) -> str:
            """What went wrong in a trial; nothing if it was its worker that went."""
            with suppress(InputError):
                return read_text(folder.trial(trial.config["number"]).path / ERROR)
            # A node that does not see the folder cannot write into it; Ray brings its words.
            said = Path(trial.error_file).read_text() if trial.error_file else ""
            return said.rpartition("InputError: ")[2] if "InputError: " in said else ""

        def _ended(self, trial):
            number = trial.config["number"]
            self.screen.ended(folder.trial(number).outcome(number, plan.run(number)))

    return Announcer(screen)


def _name_of(trial: Any) -> str:
    return f"trial-{trial.config['number']:04}"


@contextmanager
def connected(resources: Resources) -> Iterator[None]:
    """A connection to the cluster at an address, or a Ray of our own on this machine's loopback."""
    ray = import_ray(resources)
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    if resources.address is None:
        cpus = (resources.workers * resources.cores) if resources.workers else (os.cpu_count() or 1)
        if resources.cores > cpus:
            raise InputError(f"a trial on {resources.cores} cores cannot run on this machine's {cpus}")
        quiet |= {"num_cpus": cpus, "include_dashboard": False, "object_store_memory": OBJECT_STORE}
    stopped = False
    with _private_folder() as private:
        try:
            # Ray lets its workers import what lies in the current folder, and that may be a stranger's.
            with chdir(private), _sigterm_as_before():
                if resources.address is None:
                    _start(ray, private, quiet)
                else:
                    _join(ray, resources.address, quiet)
            yield
        except KeyboardInterrupt:
            stopped = True
            raise
        finally:
            if stopped and resources.address is None:
                _leave_at_once()
            else:
                ray.shutdown()


@contextmanager
def _sigterm_as_before() -> Iterator[None]:
    """Ray puts a handler of its own in the place of a command's, and then nobody removes our folder."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if callable(before) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _leave_at_once() -> None:
    """Kill a Ray of our own, and end without it: it takes many seconds to end in peace."""
    kill_descendants()
    atexit.register(_end)


def _end() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(INTERRUPTED)


@contextmanager
def _private_folder() -> Iterator[str]:
    """A folder inside one that nobody else may enter: Ray opens its own, and its sockets, to all."""
    usual = tempfile.gettempdir()
    short = usual if len(usual) <= LONGEST_TEMPORARY else "/tmp"
    with passing_folder(tempfile.mkdtemp(prefix="ham-", dir=short)) as closed:
        folder = os.path.join(closed, "r")
        os.mkdir(folder)
        yield folder


def _start(ray: Any, folder: str, quiet: dict[str, Any]) -> None:
    try:
        ray.init(address="local", _temp_dir=folder, **quiet)
    except Exception as error:  # Ray has no type of its own for this
        raise InputError(f"Ray could not be started on this machine: {error}") from None


def _join(ray: Any, address: str, quiet: dict[str, Any]) -> None:
    try:
        _reach(address)
        ray.init(address=address, **quiet)
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(
            f"no Ray cluster can be used at {address}: {error}; start one with: ray start --head"
        ) from None


def _reach(address: str) -> None:
    """An error at once if nobody listens there: Ray would try for a quarter of an hour."""
    host, _, port = address.rpartition(":")
    if host:
        socket.create_connection((host, int(port)), SECONDS_TO_ANSWER).close()


def import_ray(resources: Resources) -> Any:
    """Ray, told before it is imported to be quiet, to phone nobody and to stay on this machine."""
    settings = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_CHDIR_TO_TRIAL_DIR": "0",
        "RAY_AIR_NEW_OUTPUT": "0",
        "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
        "TUNE_DISABLE_SIGINT_HANDLER": "1",
        "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",  # a trial may diverge before its first report
        "TUNE_GLOBAL_CHECKPOINT_S": "3600",
        "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    }
    if resources.address is None:
        # In spite of its name this is what keeps every process of Ray's on the loopback, on any system.
        settings["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        if "RAY_AUTH_MODE" not in os.environ:
            # Else Ray makes a token of its own and leaves it in the user's home.
            settings |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16)}
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    try:
        import ray
        import ray.tune
    except ImportError as error:
        raise InputError(
            f"ham tune and ham sweep run on Ray, which is not installed ({error}): {install('tune')}"
        ) from None
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    return ray


def on_this_machine(backend: str) -> str:
    """The engine that `auto` means here; all trials get the same, wherever they run."""
    if backend != "auto":
        return backend
    try:
        from ham.ops import native
    except ImportError:
        return "reference"
    return "native" if native.available() else "reference"
