"""`ham bench`: the engine's speed beside plain PyTorch, torch.compile, JAX and softmax attention."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from ham.cli.arguments import optional, require_sizes
from ham.cli.tables import TABLE, Forms, Table
from ham.core.files import require_room


def bench(
    *,
    quick: bool = False,
    sizes: Annotated[tuple[int, ...] | None, optional("N ...")] = None,
    form: Forms = TABLE,
    out: Annotated[Path | None, optional("DIR")] = None,
) -> None:
    """Measure the engine's speed beside plain PyTorch, torch.compile, JAX and softmax attention.

    Args:
        quick: measure only what the ratios need, in less than a minute.
        sizes: leaves at which training steps are timed; 4 to 128 by default.
        out: folder for performance.md and performance.svg; by default docs of ham's repository,
            unless only a part is measured.
    """
    from ham.core.tree import depth_of

    require_sizes("--sizes", sizes)
    for leaves in sizes or ():
        depth_of(leaves)
    if out is not None:
        require_room(out, folder=True)

    from ham import bench as library
    from ham.bench.peers import benchmarks
    from ham.cli.engine import prepare

    plan = library.QUICK if quick else library.FULL
    if sizes:
        plan = replace(plan, sizes=sizes)
    prepare(None, None)
    found = library.measure(plan)
    if form.for_a_person:
        print(library.markdown(found))
    else:
        records = [{"ratio": name, "measured": value} for name, value in library.ratios(found).items()]
        rows = [tuple(map(str, record.values())) for record in records]
        form.show([Table(("ratio", "measured"), rows, right=("measured",))], records, library.as_json(found))
    if out is None and plan == library.FULL and (folder := benchmarks()) is not None:
        out = folder.parent / "docs"
    if out is not None:
        for file in library.write_report(found, out):
            print(f"wrote {file}", file=sys.stderr)
