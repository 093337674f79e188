"""What was measured, as ratios, as a Markdown page's block, and as a plot."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from ham.bench.access import CALLED_BATCH, CALLED_LEAVES
from ham.bench.measure import Measured
from ham.bench.work import BATCH
from ham.core.errors import InputError
from ham.core.files import write_whole
from ham.view.drawing import blank, drawn, matplotlib

BEGIN, END = "<!-- measured by ham bench -->", "<!-- end of what was measured -->"
PAGE, PLOT = "performance.md", "performance.svg"
CALLED = f"n = {CALLED_LEAVES}, batch {CALLED_BATCH}, a GRU cell as controller"
TITLES = {
    "native": "native, 1 thread",
    "native 2": "native, 2 threads",
    "eager": "PyTorch, eager",
    "compile": "torch.compile",
    "jax": "JAX, jit + scan",
}
"""Of contestants."""
TARGETS = {
    "native_vs_eager": ("native, 1 thread, against eager PyTorch", "×", 60.0, "at least"),
    "native_vs_jax": ("native, 1 thread, against JAX jit + scan", "×", 8.0, "at least"),
    "sgemm_fraction": ("fraction of the core's sgemm rate", "", 0.65, "at least"),
    "tall_vs_short": (
        "batch in 1,024 leaves with 32 rows against one in 32 leaves, time",
        "×",
        2.2,
        "at most",
    ),
    "sort_seconds": ("sorting 131,072 items with the shipped model", " s", 3.0, "at most"),
    "threads_2_vs_1": ("2 threads against 1", "×", 1.7, "at least"),
    "access_2e20_vs_2e10": ("access at n = 2^20 against n = 2^10, time", "×", 3.0, "at most"),
    "softmax_vs_access_2e20": ("access against a softmax read at n = 2^20", "×", 1000.0, "at least"),
    "call_vs_softmax_forward": (
        "access called from Python against a softmax read, time",
        "×",
        0.68,
        "at most",
    ),
    "call_vs_softmax_both": ("… forward and backward", "×", 0.88, "at most"),
}


def ratios(found: Measured) -> dict[str, float | None]:
    """The ratios that have targets; None where the plan did not measure one."""
    n = found.plan.reference

    def ratio(above: dict[int, float], over: int, below: dict[int, float], under: int) -> float | None:
        return above[over] / below[under] if over in above and under in below else None

    native = found.steps["native"]
    return {
        "native_vs_eager": ratio(found.steps["eager"], n, native, n),
        "native_vs_jax": ratio(found.steps["jax"], n, native, n),
        "sgemm_fraction": found.episode_rate / found.sgemm_rate,
        "tall_vs_short": found.tall,
        "sort_seconds": found.sort,
        "threads_2_vs_1": ratio(native, n, found.steps["native 2"], n),
        "access_2e20_vs_2e10": ratio(found.access, 1 << 20, found.access, 1 << 10),
        "softmax_vs_access_2e20": ratio(found.softmax, 1 << 20, found.access, 1 << 20),
        **{f"call_vs_softmax_{way}": _called_ratio(found, way) for way in ("forward", "both")},
    }


def as_json(found: Measured) -> dict[str, Any]:
    """The ratios, and under `measured` everything they were made from."""
    return {**ratios(found), "measured": asdict(found)}


def markdown(found: Measured) -> str:
    """All tables."""
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    return "\n\n".join(
        [
            f"{found.machine}; {versions}.",
            f"### Targets\n\n{_targets(found)}",
            f"### A training step\n\nMilliseconds per batch of {BATCH}:\n\n{_steps(found, True)}",
            f"Examples a second:\n\n{_steps(found, False)}{_remarks(found)}",
            f"### Arithmetic, and everything around the op\n\n{_arithmetic(found)}",
            f"### Where the op's time goes\n\n{_parts(found)}",
            f"### One access\n\nMicroseconds:\n\n{_accesses(found)}",
            f"### One access called from Python\n\n{CALLED}, microseconds:\n\n{_calls(found)}",
        ]
    )


def write_report(found: Measured, folder: Path) -> list[Path]:
    """Put the tables into the folder's page, between its two marks, and the plot beside it."""
    page, plot = folder / PAGE, folder / PLOT
    folder.mkdir(parents=True, exist_ok=True)
    text = page.read_text() if page.is_file() else f"# Performance\n\n![]({PLOT})\n\n{BEGIN}\n{END}\n"
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        before, after = f"{text.rstrip()}\n\n", "\n"
    write_whole(page, f"{before}{BEGIN}\n\n{markdown(found)}\n\n{END}{after}".encode())
    return [page, *([plot] if _draw(found, plot) else [])]


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _digits(value: float | None) -> str:
    """Three significant digits, thousands separated."""
    if value is None:
        return "—"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 1 else f"{value:.{1 if value >= 10 else 2}f}"


def _targets(found: Measured) -> str:
    rows = []
    for name, value in ratios(found).items():
        what, unit, target, side = TARGETS[name]
        reached = value is not None and (value >= target if side == "at least" else value <= target)
        verdict = "not measured" if value is None else "yes" if reached else "no"
        measured = "—" if value is None else f"{_digits(value)}{unit}"
        rows.append([what, f"{side} {target:,g}{unit}", measured, verdict])
    return _table(["", "target", "measured", "reached"], rows)


def _steps(found: Measured, milliseconds: bool) -> str:
    rows = []
    for leaves in found.plan.sizes:
        times = [found.steps[name].get(leaves) for name in TITLES]
        cells = [None if t is None else 1e3 * t if milliseconds else BATCH / t for t in times]
        rows.append([str(leaves), *map(_digits, cells)])
    return _table(["n", *TITLES.values()], rows)


def _remarks(found: Measured) -> str:
    """Why a number is missing, each reason once."""
    lines = []
    for name, reasons in found.missing.items():
        if name not in TITLES:
            continue
        for reason in dict.fromkeys(reasons.values()):
            sizes = ", ".join(str(leaves) for leaves, why in reasons.items() if why == reason)
            lines.append(f"{TITLES[name]} at n = {sizes}: {reason}.")
    return "".join(f"\n\n{line}" for line in lines)


def _arithmetic(found: Measured) -> str:
    around, n = found.around, found.plan.reference
    rest = around.whole - around.op - around.sampling
    rows = [
        [f"useful GFLOP/s of the op, n = {n}, 1 thread", _digits(found.episode_rate / 1e9)],
        ["GFLOP/s of torch.mm, 1 thread", _digits(found.sgemm_rate / 1e9)],
        [f"whole training step, n = {n}, batch {BATCH}, ms", _digits(1e3 * around.whole)],
        ["… the op: forward, objective, backward", _digits(1e3 * around.op)],
        ["… drawing the batch and its uniforms", _digits(1e3 * around.sampling)],
        ["… clipping, Adam, averaging", _digits(1e3 * rest)],
        ["share of everything around the op", f"{100 * around.share:.0f}%"],
    ]
    return _table(["", "measured"], rows)


def _parts(found: Measured) -> str:
    """What is beside the matrix products, and keeps the fraction of sgemm below 1."""
    if not found.parts:
        return f"Not known: {next(iter(found.missing['parts'].values()))}."
    rows = [[part, f"{100 * share:.0f}%"] for part, share in found.parts.items()]
    return _table([f"n = {found.plan.reference}, all lanes used", "share"], rows)


def _accesses(found: Measured) -> str:
    rows = []
    for leaves, seconds in found.access.items():
        softmax = found.softmax[leaves]
        times = [_digits(1e6 * seconds), _digits(1e6 * softmax), f"{_digits(softmax / max(seconds, 1e-12))}×"]
        rows.append([f"2^{leaves.bit_length() - 1}", *times])
    return _table(["n", "HAM, attend and update", "softmax attention", ""], rows)


def _called_ratio(found: Measured, way: str) -> float:
    return found.called[f"access {way}"] / found.called[f"softmax {way}"]


def _calls(found: Measured) -> str:
    rows = []
    for way, title in (("forward", "forward"), ("both", "forward and backward")):
        times = [_digits(1e6 * found.called[f"{what} {way}"]) for what in ("access", "softmax")]
        rows.append([title, *times, f"{_digits(_called_ratio(found, way))}×"])
    return _table(["", "HAM, attend and update", "softmax read", "ratio"], rows)


def _draw(found: Measured, file: Path) -> bool:
    """The log–log plot; False where matplotlib is missing."""
    try:
        rc_context = matplotlib().rc_context
    except InputError:
        return False
    with rc_context({"svg.hashsalt": "ham", "svg.fonttype": "none", "font.size": 9}):
        figure = blank(9.0, 3.8)
        training, access = figure.subplots(1, 2)
        for name, title in TITLES.items():
            if times := found.steps[name]:
                values = [1e3 * seconds for seconds in times.values()]
                training.plot(list(times), values, marker="o", markersize=3, label=title)
        training.set(title=f"a training step, batch {BATCH}", xlabel="n", ylabel="ms per batch")
        for title, times in (
            ("HAM, attend and update", found.access),
            ("softmax attention", found.softmax),
        ):
            values = [1e6 * seconds for seconds in times.values()]
            access.plot(list(times), values, marker="o", markersize=3, label=title)
        access.set(title="one access", xlabel="n", ylabel="µs")
        for axes in (training, access):
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.grid(alpha=0.3)
            axes.legend(frameon=False)
        write_whole(file, drawn(figure, "svg", metadata={"Date": None}))
    return True
