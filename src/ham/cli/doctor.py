"""`ham doctor`."""

from __future__ import annotations

import json as json_text


def doctor(*, json: bool = False, speed: bool = True) -> None:
    """Show what this installation runs on, and how fast.

    Args:
        json: print JSON instead.
        speed: measure training batches a second with each engine.
    """
    from ham.doctor import facts, speeds

    found = facts()
    if speed:
        found |= speeds()
    if json:
        print(json_text.dumps(found, indent=2))
        return
    for name, value in found.items():
        print(f"{name.replace('_', ' '):28}{value}")
