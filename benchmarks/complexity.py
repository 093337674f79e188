"""What an access costs as the memory grows: `python benchmarks/complexity.py` rewrites docs/complexity.md.

With `--own` it measures, in place of the paper's networks, transformations that no engine knows.

Forward and backward of 64 accesses (attend and update of the generic `ham.HAM`, one example) are
measured as the difference between a run of 128 accesses and one of 64 on a tree that was built
before. What both runs pay once therefore cancels: building the tree, and allocating and zeroing
the one gradient tree on the way back. Both are Θ(n), once a sequence.

Times are CPU seconds of this process, the best of several runs; memory is the peak of what
PyTorch allocated, from its own profiler, so neither depends on what else the machine does.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

import ham
from ham.core.tree import depth_of, path_to
from ham.models import HAM, State
from ham.ops import native
from ham.reproduce.pages import replaced
from ham.view.drawing import blank, matplotlib

DOCUMENT = Path(__file__).parents[1] / "docs" / "complexity.md"
FIGURE = DOCUMENT.with_suffix(".svg")
EXPONENTS = range(6, 19, 2)
PLAIN_EXPONENTS = range(6, 17, 2)
"""Plain autograd is measured only as far as patience goes."""
OWN_EXPONENTS = range(6, 17, 2)
SIZE, QUERY, ACCESSES = 20, 20, 64

Run = Callable[[int], None]


def chain(
    memory: HAM, tree: torch.Tensor, queries: torch.Tensor, leaves: torch.Tensor, *, backward: bool = True
) -> Run:
    """Accesses through `ham.HAM`; each starts from the same tree, and only the reads enter the loss."""

    def run(accesses: int) -> None:
        state, loss = State(tree), torch.zeros(())
        for t in range(accesses):
            read = memory.attend(state, queries[t], leaf=leaves[t])
            loss = loss + read.value.sum() + read.log_probs.sum()
            state = memory.update(state, read, queries[t])
        if backward:
            loss.backward()
        # The tree holds the whole chain of accesses; a run must leave nothing for the next one.
        tree.detach_()

    return run


def plain(memory: HAM, tree: torch.Tensor, queries: torch.Tensor, leaves: torch.Tensor) -> Run:
    """The same on plain autograd, in place as well: but the gradient of every indexed read is a dense tree."""
    rows = torch.arange(len(tree))
    count = tree.shape[1] // 2

    def run(accesses: int) -> None:
        here, loss = tree.detach().requires_grad_().clone(), torch.zeros(())
        for t in range(accesses):
            path = path_to(leaves[t], count)
            for level in range(depth_of(count)):
                value = here[rows, path[:, level]]
                logit = memory.search(torch.cat([value, queries[t]], -1))
                loss = loss + torch.nn.functional.logsigmoid(logit).sum()
            value = here[rows, path[:, -1]]
            loss = loss + value.sum()
            here[rows, path[:, -1]] = memory.write(value, queries[t])
            for level in range(depth_of(count) - 1, -1, -1):
                node = path[:, level]
                both = torch.cat([here[rows, 2 * node], here[rows, 2 * node + 1]], -1)
                here[rows, node] = memory.join(both)
        loss.backward()

    return run


def seconds(run: Run, accesses: int) -> float:
    started = time.process_time()
    run(accesses)
    return time.process_time() - started


def marginal_seconds(run: Run, repeats: int) -> float:
    """CPU time of 64 accesses more."""
    run(8)
    pairs = [(seconds(run, ACCESSES), seconds(run, 2 * ACCESSES)) for _ in range(repeats)]
    short, long = (min(times) for times in zip(*pairs, strict=True))
    return long - short


def peak_bytes(run: Run, accesses: int) -> int:
    """Most memory that PyTorch held at once during a run, above what it held before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        run(accesses)
    held = peak = 0
    events = [e for e in profiled.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def measure() -> list[dict]:
    kinds = {"reference": (chain, EXPONENTS, 3), "plain autograd": (plain, PLAIN_EXPONENTS, 2)}
    if native.available():
        kinds["native"] = (chain, EXPONENTS, 20)
    results = []
    for kind, (make, exponents, repeats) in kinds.items():
        ham.set_backend("native" if kind == "native" else "reference")
        for exponent in exponents:
            torch.manual_seed(exponent)
            leaves = 1 << exponent
            memory = HAM(SIZE, QUERY, SIZE)
            with torch.no_grad():
                tree = memory.init(torch.randn(1, leaves, SIZE)).tree
            queries = torch.randn(2 * ACCESSES, 1, QUERY)
            targets = torch.randint(leaves, (2 * ACCESSES, 1))
            run = make(memory, tree, queries, targets)
            time_of_64 = marginal_seconds(run, repeats)
            memory_of_64 = peak_bytes(run, 2 * ACCESSES) - peak_bytes(run, ACCESSES)
            results.append({"kind": kind, "exponent": exponent, "time": time_of_64, "memory": memory_of_64})
            print(results[-1], flush=True)
    return results


def own_memory() -> HAM:
    """EMBED, JOIN, SEARCH and WRITE of one's own, made of parts that the native engine does not know."""
    return HAM(
        SIZE,
        QUERY,
        SIZE,
        embed=nn.Linear(SIZE, SIZE),
        join=nn.Sequential(nn.Linear(2 * SIZE, SIZE), nn.Tanh(), nn.LayerNorm(SIZE)),
        search=nn.Sequential(nn.Linear(SIZE + QUERY, SIZE), nn.GELU(), nn.Linear(SIZE, 1)),
        write=nn.Bilinear(SIZE, QUERY, SIZE),
    )


def measure_own(repeats: int = 3) -> list[dict]:
    """Microseconds of one access with transformations of one's own, forward and with backward."""
    ham.set_backend("reference")
    results = []
    for exponent in OWN_EXPONENTS:
        torch.manual_seed(exponent)
        memory, leaves = own_memory(), 1 << exponent
        with torch.no_grad():
            tree = memory.init(torch.randn(1, leaves, SIZE)).tree
        given = (torch.randn(2 * ACCESSES, 1, QUERY), torch.randint(leaves, (2 * ACCESSES, 1)))
        times = {
            name: 1e6 / ACCESSES * marginal_seconds(chain(memory, tree, *given, backward=backward), repeats)
            for name, backward in (("forward", False), ("both", True))
        }
        results.append({"exponent": exponent, **times})
        print(results[-1], flush=True)
    return results


def own_table(results: list[dict]) -> str:
    """Microseconds, and how much more than at the smallest memory."""
    first = results[0]
    lines = ["| n | log2 n | forward, µs | | forward and backward, µs | |", "|---|---|---|---|---|---|"]
    for here in results:
        cells = [f"{here[way]:.0f} | {here[way] / first[way]:.2f}" for way in ("forward", "both")]
        growth = here["exponent"] / first["exponent"]
        lines.append(f"| 2^{here['exponent']} | {growth:.2f} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def table(results: list[dict]) -> str:
    """Everything relative to the same kind's smallest memory."""
    by = {(r["kind"], r["exponent"]): r for r in results}
    kinds = list(dict.fromkeys(r["kind"] for r in results))
    lines = [
        "| n | log2 n | " + " | ".join(f"{k}: time | memory" for k in kinds) + " |",
        "|---|---|" + "---|---|" * len(kinds),
    ]
    for exponent in EXPONENTS:
        cells = []
        for kind in kinds:
            first, here = by[kind, EXPONENTS[0]], by.get((kind, exponent))
            if here is None:
                cells += ["", ""]
            else:
                cells += [f"{here['time'] / first['time']:.2f}", f"{here['memory'] / first['memory']:.2f}"]
        lines.append(f"| 2^{exponent} | {exponent / EXPONENTS[0]:.2f} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(results: list[dict]) -> None:
    figure = blank(9, 3.6)
    panels = figure.subplots(1, 2)
    for panel, what in zip(panels, ("time", "memory"), strict=True):
        for kind, mark in (("reference", "o"), ("native", "s"), ("plain autograd", "^")):
            rows = [r for r in results if r["kind"] == kind]
            if rows:
                ratios = [r[what] / rows[0][what] for r in rows]
                panel.plot([2 ** r["exponent"] for r in rows], ratios, marker=mark, label=kind)
        sizes = [2**e for e in EXPONENTS]
        panel.plot(sizes, [e / EXPONENTS[0] for e in EXPONENTS], "k--", lw=1, label="log n")
        panel.set(xscale="log", yscale="log", xlabel="leaves n", ylabel=f"{what}, relative to n = 64")
        panel.set_xticks(sizes, [f"$2^{{{e}}}$" for e in EXPONENTS])
        panel.minorticks_off()
        panel.grid(alpha=0.3)
        # Where plain autograd leaves the picture is the point, not how far it goes.
        panel.set_ylim(0.8, 40)
        panel.set_yticks([1, 2, 4, 8, 16, 32], ["1", "2", "4", "8", "16", "32"])
    panels[0].legend()
    with matplotlib().rc_context({"svg.hashsalt": "ham"}):
        figure.savefig(FIGURE, metadata={"Date": None})


def rewrite(name: str, table: str) -> None:
    """Put a table between the page's two marks of this name."""
    DOCUMENT.write_text(replaced(DOCUMENT.read_text("utf-8"), name, table), "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--own", action="store_true", help="with transformations that no engine knows")
    torch.set_num_threads(1)
    if parser.parse_args().own:
        rewrite("measured with own modules", own_table(measure_own()))
        return
    results = measure()
    draw(results)
    rewrite("measured", table(results))


if __name__ == "__main__":
    main()
