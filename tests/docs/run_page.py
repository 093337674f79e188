"""Runs the code of one page, which comes as JSON on standard input: its Python in one namespace, its commands small.

    {"python": ["..."], "commands": [["solve", "sort", "3:1"], ...], "parsed": [["tune", "sort"], ...]}

Prints what each command printed, as JSON.
"""

import contextlib
import io
import json
import sys

import torch

from ham.cli import COMMANDS, main
from ham.cli.arguments import bound


def run(page: dict) -> list[str]:
    namespace: dict = {"__name__": "page"}
    for number, block in enumerate(page["python"], 1):
        exec(compile(block, f"python block {number}", "exec"), namespace)
    for name, *rest in page["parsed"]:
        if not COMMANDS[name].raw:
            bound(COMMANDS[name].load(), rest, f"ham {name}")
    printed = []
    for command in page["commands"]:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            code = main(command)
        if code:
            sys.exit(f"ham {' '.join(command)} ended with {code}")
        printed.append(out.getvalue())
    return printed


if __name__ == "__main__":
    torch.set_num_threads(1)
    given = json.load(sys.stdin)
    with contextlib.redirect_stdout(io.StringIO()):
        result = run(given)
    json.dump(result, sys.stdout)
