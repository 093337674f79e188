"""A search on disk.

    search.json          what is searched, from which seed: everything that decides the trials
    trials/0007/         the run of trial 7 (of seed 7, in a sweep), like any other run's folder
    trials/0007/end.json   why it ended before its time: stopped as hopeless, or diverged
    trials/0007/error.txt  what went wrong with it, if it failed

A trial goes on from whatever its folder holds, so a search that lost its driver, or ran out of
time, is continued by running the trials that have not ended.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from ham import tasks
from ham.config import FORMAT, Run, changed, require_readable
from ham.core.errors import InputError
from ham.core.files import read_text, require_no_link, write_whole
from ham.core.text import shell_word, visible
from ham.core.tree import capacity_for
from ham.ops.table import Backend
from ham.runs import CONFIG, RunFolder, quality
from ham.search import space as spaces
from ham.search.space import Space

PLAN, END, ERROR = "search.json", "end.json", "error.txt"
MOST_TRIALS = 100_000

Status = Literal["finished", "stopped", "diverged", "failed", "open"]
"""finished: ran to its own end; stopped: hopeless beside the others; failed and open ones run again
when the search is resumed."""


def require_trials(count: int) -> None:
    if not 1 <= count <= MOST_TRIALS:
        raise InputError(f"a search has 1 to {MOST_TRIALS:,} trials, got {count:,}")


@dataclass(frozen=True)
class Plan:
    """Everything that decides the trials of a search, or of a sweep over seeds."""

    base: Run
    space: Space
    trials: int
    seed: int
    backend: str
    seeds: tuple[int, ...] = ()
    """The seeds of a sweep; empty in a search."""
    success: float = 1.0
    """Percent of validation error, on the last tree, up to which a trial counts as a success."""

    def __post_init__(self) -> None:
        require_trials(len(self.seeds) or self.trials)
        if self.seed < 0 or any(seed < 0 for seed in self.seeds):
            raise InputError("seeds must not be negative")
        if not 0 <= self.success <= 100:
            raise InputError(f"success must lie in 0 … 100 percent, got {self.success}")

    @property
    def numbers(self) -> Sequence[int]:
        """The numbers of the trials; in a sweep they are the seeds."""
        return self.seeds or range(max(self.trials, 0))

    @property
    def sweep(self) -> bool:
        return bool(self.seeds)

    def run(self, number: int) -> Run:
        """The run of a trial."""
        if self.sweep:
            return replace(self.base, seed=number)
        return spaces.draw(self.base, self.space, self.seed, number)

    def check(self) -> None:
        """Refuse trials that could not begin, before any of them does."""
        task = tasks.get(self.base.task)
        built = set()
        for number in self.numbers:
            run = self.run(number)
            if run.model not in built:
                run.model.build(task)
                built.add(run.model)
            task.practised(run.practice)
            if (least := capacity_for(task.shortest)) > run.data.leaves:
                raise InputError(f"{task.name} needs at least {least} leaves, got {run.data.leaves}")

    def to_json(self) -> str:
        data = {
            "format": FORMAT,
            "base": json.loads(self.base.to_json()),
            "space": {name: values.to_json() for name, values in self.space.items()},
            "trials": self.trials,
            "seed": self.seed,
            "seeds": list(self.seeds),
            "success": self.success,
            "backend": self.backend,
        }
        return json.dumps(data, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str, where: str) -> Plan:
        data = spaces.from_file(text, where)
        require_readable(data.get("format"), where)
        kinds = {
            "base": dict,
            "space": dict,
            "trials": int,
            "seed": int,
            "seeds": list,
            "success": float,
            "backend": str,
        }
        for name, kind in kinds.items():
            if type(data.get(name)) is not kind:
                raise InputError(f"{where}: {name} should be a {kind.__name__}, got {data.get(name)!r}")
        if data["backend"] not in get_args(Backend):
            raise InputError(
                f"{where}: backend should be {' or '.join(get_args(Backend))}, got {data['backend']!r}"
            )
        if not all(type(seed) is int for seed in data["seeds"]):
            raise InputError(f"{where}: seeds should be whole numbers")
        return cls(
            base=Run.from_json(json.dumps(data["base"]), f"{where}: base"),
            space=spaces.from_json(data["space"], f"{where}: space"),
            trials=data["trials"],
            seed=data["seed"],
            seeds=tuple(data["seeds"]),
            success=data["success"],
            backend=data["backend"],
        )


class SearchFolder:
    """The folder of one search; every node that runs its trials must see it under the same path."""

    def __init__(self, path: str | Path):
        self.path = Path(path).absolute()

    def refuse_if_taken(self) -> None:
        if (self.path / PLAN).exists():
            raise InputError(
                f"{self.path} already holds a search; continue it with --resume {shell_word(self.path)}"
            )

    def begin(self, plan: Plan) -> None:
        self.refuse_if_taken()
        try:
            (self.path / "trials").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot make the folder {self.path}: {error.strerror}") from None
        self.write_plan(plan)

    def refuse_links(self, plan: Plan) -> None:
        """Whatever a trial leaves must land here."""
        require_no_link(self.path / "trials")
        for number in plan.numbers:
            require_no_link(self.trial(number).path)

    def write_plan(self, plan: Plan) -> None:
        write_whole(self.path / PLAN, plan.to_json().encode())

    def plan(self) -> Plan:
        path = self.path / PLAN
        if not path.is_file():
            raise InputError(f"{self.path} holds no search: it has no {PLAN}")
        return Plan.from_json(read_text(path), str(path))

    def trial(self, number: int) -> TrialFolder:
        return TrialFolder(self.path / "trials" / f"{number:04}")


class TrialFolder(RunFolder):
    """The folder of a trial's run, and what became of it."""

    def prepare(self, run: Run) -> None:
        """Begin the run here, or make sure that the one that is here is this one."""
        if not (self.path / CONFIG).exists():
            self.begin(run)
        elif self.run() != run:
            raise InputError(f"{self.path} holds another run than its trial's; move it away")

    def end(self, why: Literal["stopped", "diverged"], epoch: int, message: str = "") -> None:
        record = {"why": why, "epoch": epoch, "message": message}
        write_whole(self.path / END, json.dumps(record).encode())

    def fail(self, message: str) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        write_whole(self.path / ERROR, message.encode())

    def outcome(self, number: int, run: Run) -> Outcome:
        """What the folder says of its trial; one that never began is open."""
        status: Status = "open"
        message = ""
        records = self.metrics()
        saved = self.read_state()
        if saved is not None and saved[1].get("phase") == "done":
            status = "finished"
        elif (self.path / END).exists():
            ended = spaces.from_file(read_text(self.path / END), str(self.path / END))
            status = "diverged" if ended.get("why") == "diverged" else "stopped"
            message = str(ended.get("message", ""))
        elif (self.path / ERROR).exists():
            status, message = "failed", read_text(self.path / ERROR)
        return Outcome(number, run, status, tuple(records), message)


@dataclass(frozen=True)
class Outcome:
    """Where a trial stands."""

    number: int
    run: Run
    status: Status
    records: tuple[dict[str, Any], ...]
    """What its run's `metrics.jsonl` holds, a record an epoch."""
    message: str = ""

    @property
    def last_words(self) -> str:
        """The last line of what went wrong, which in a traceback is what it is about."""
        return visible((self.message.strip().splitlines() or [""])[-1])

    @property
    def ended(self) -> bool:
        return self.status in ("finished", "stopped", "diverged")

    @property
    def epochs(self) -> int:
        return len(self.records)

    @property
    def seconds(self) -> float:
        return self.records[-1]["seconds"] if self.records else 0.0

    @property
    def best(self) -> dict[str, Any] | None:
        """The epoch whose weights were kept."""
        return max(self.records, key=quality, default=None)

    @property
    def reached(self) -> bool:
        """Whether it was validated on the last stage of its curriculum."""
        return self.best is not None and self.best["longest"] == self.run.data.leaves

    def succeeded(self, success: float) -> bool:
        return self.best is not None and self.reached and self.best["error"] <= success

    @property
    def recipe(self) -> Run:
        """The run that gives this trial's result: as long as it was trained, no longer.

        Nothing of the schedule depends on how many epochs are still to come, so a trial that was
        stopped early is the same run with fewer epochs.
        """
        if self.status == "finished":
            return self.run
        finish = sum(record["phase"] == "finish" for record in self.records)
        return changed(self.run, {"schedule.epochs": max(self.epochs, 1), "schedule.finish": finish})


def ranked(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Trials with a result, the best first."""
    measured = [outcome for outcome in outcomes if outcome.best is not None]
    return sorted(measured, key=lambda outcome: quality(outcome.best or {}), reverse=True)


def outcomes(folder: SearchFolder, plan: Plan) -> list[Outcome]:
    return [folder.trial(number).outcome(number, plan.run(number)) for number in plan.numbers]


def standings(records: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """What a trial reports after each epoch: its best so far, and the score that trials are compared by."""
    best = None
    for record in records:
        best = record if best is None else max(best, record, key=quality)
        yield {
            "epoch": record["epoch"],
            "seconds": record["seconds"],
            **{name: best[name] for name in ("longest", "error", "loss")},
            "score": score(best["longest"], best["error"]),
        }


def score(longest: int, error: float) -> float:
    """Curriculum progress and error in one number: any error on longer inputs beats none on shorter.

    >>> score(8, error=100.0) > score(4, error=0.0)
    True
    """
    return longest - error / 200
