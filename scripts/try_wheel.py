"""Tries an installed package as somebody without a compiler would: `python scripts/try_wheel.py native|reference`.

The argument says which engine is to serve then: `native` with a wheel that brings one, else `reference`.
"""

import os
import sys
from tempfile import TemporaryDirectory

os.environ["CXX"] = "no-compiler-at-all"


def main(expected: str) -> None:
    import torch

    import ham
    from ham.cli import main as command
    from ham.ops import native

    torch.set_num_threads(1)
    assert "site-packages" in ham.__file__, f"the package is not installed: {ham.__file__}"
    assert (native.why_not() == "") == (expected == "native"), native.why_not()
    assert ham.solve("sort", "7:1 3:9 7:2").answer == [(3, 9), (7, 1), (7, 2)]
    memory = ham.HAM(features=3, query=4)
    state, query = memory.init(torch.rand(2, 5, 3)), torch.rand(2, 4)
    read = memory.attend(state, query)
    memory.update(state, read, query)
    read.log_probs.sum().backward()
    with TemporaryDirectory() as folder:
        small = "--data.batches 2 --data.validation 2 --schedule.epochs 1 --schedule.finish 0".split()
        assert command(["train", "reverse", *small, "--backend", expected, "--out", f"{folder}/run"]) == 0
    print(f"{expected}: {native.build_info().file if expected == 'native' else native.why_not()}")


if __name__ == "__main__":
    with TemporaryDirectory() as cache:
        os.environ["HAM_CACHE"] = cache  # nor anything that was built before
        main(sys.argv[1])
