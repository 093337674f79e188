"""`ham bench`: the engine's speed beside plain PyTorch, torch.compile, JAX and softmax attention."""

from __future__ import annotations

import json as json_text
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from ham.cli.arguments import optional
from ham.core.errors import InputError
from ham.core.files import write_whole


def bench(
    *,
    quick: bool = False,
    sizes: Annotated[tuple[int, ...] | None, optional("N ...")] = None,
    json: Annotated[Path | None, optional("FILE")] = None,
    out: Annotated[Path | None, optional("DIR")] = None,
) -> None:
    """Measure the engine's speed beside plain PyTorch, torch.compile, JAX and softmax attention.

    Args:
        quick: measure only what the ratios need, in less than a minute.
        sizes: leaves at which training steps are timed; 4 to 128 by default.
        json: write the ratios and all times to this file.
        out: folder for performance.md and performance.svg; by default docs of ham's repository,
            unless only a part is measured.
    """
    from ham.core.tree import depth_of

    if sizes == ():
        raise InputError("--sizes needs at least one number of leaves, such as --sizes 32")
    for leaves in sizes or ():
        depth_of(leaves)
    for file in (json, out):
        if file is not None and not file.absolute().parent.is_dir():
            raise InputError(f"there is no folder {file.absolute().parent} for {file.name}")

    from ham import bench as library
    from ham.bench.peers import benchmarks
    from ham.cli.engine import prepare

    plan = library.QUICK if quick else library.FULL
    if sizes:
        plan = replace(plan, sizes=sizes)
    prepare(None, None)
    found = library.measure(plan)
    print(library.markdown(found))
    if json is not None:
        write_whole(json, (json_text.dumps(library.as_json(found), indent=2) + "\n").encode())
        print(f"\nwrote {json}")
    if out is None and plan == library.FULL and (folder := benchmarks()) is not None:
        out = folder.parent / "docs"
    if out is not None:
        for file in library.write_report(found, out):
            print(f"wrote {file}")
