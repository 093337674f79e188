"""What strangers may send: values, texts and files spoilt at random, for tests that draw them.

`$HAM_FUZZ=10000` makes every such test draw so many cases, other ones each time.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from ham import tasks

DEEP = 100_000
"""More nesting than any stack holds."""
VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 3, 2**31, 2**53 + 1, 2**63, 2**64, 10**30, 10**400,
    0.0, -0.5, 1e-320, 1e308, float("inf"), float("nan"),
    "", "0", "sort", "x" * 10_000, "\x00", "\ud800", "\u202e", "<script>alert(1)</script>",
    "../../../etc/passwd", "/dev/zero", "file:///etc/passwd", "evil.py:Evil", "/tmp/evil.py:Evil", "ham.runs",
    [], {}, [[]], [0] * 1000, {"": ""}, {"__class__": "os.system"}, [1.5, "a", None], {"choice": []}, {"log": [0, 0]},
]  # fmt: skip
TEXTS = [
    "[" * DEEP, '{"a":' * DEEP, "1" * 5000, "1e999", "-1e999", "NaN", "Infinity", "-0", "{}", "[]", "null", '""', "",
    '{"a": 1, "a": 2}', "\ufeff{}", "\x00", "\u2028", '"\\ud800"', "𝟙", "1_0", "+5", "0x10", "1e3", "٣",
    "pop", ":", "?", "|",
]  # fmt: skip
"""Words of JSON and of questions that readers disagree about."""


def cases(usual: int) -> Callable:
    """How many cases a test draws: as many as usual, or as $HAM_FUZZ says."""
    if asked := os.environ.get("HAM_FUZZ"):
        return settings(max_examples=int(asked), derandomize=False, database=None)
    return settings(max_examples=usual)


@st.composite
def spoilt_json(draw, whole: Any) -> str:
    """A JSON text with some of its values exchanged, left out or doubled, perhaps spoilt as a text too."""
    data = json.loads(json.dumps(whole))
    for _ in range(draw(st.integers(0, 3))):
        inside = data
        while True:
            keys = list(inside) if isinstance(inside, dict) else list(range(len(inside)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(inside[key], (dict, list)) and inside[key] and draw(st.booleans()):
                inside = inside[key]
                continue
            match draw(st.integers(0, 4)):
                case 0:
                    del inside[key]
                case 1 if isinstance(inside, dict):
                    inside[draw(st.sampled_from(["", "x", "__proto__", str(key).upper()]))] = inside[key]
                case _:
                    drawn = draw(st.sampled_from(VALUES) | st.integers() | st.floats() | st.text(max_size=20))
                    inside[key] = copy.deepcopy(drawn)
            break
    text = json.dumps(data)
    return draw(spoilt_text(text)) if draw(st.integers(0, 3)) == 0 else text


@st.composite
def spoilt_text(draw, text: str) -> str:
    """A text with pieces cut out, doubled, or exchanged for hostile ones."""
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 12)))
        piece = draw(st.sampled_from([*TEXTS, text[start:end] * 2]) | st.text(max_size=8))
        text = text[:start] + piece + text[end:]
    return text


@st.composite
def spoilt_bytes(draw, data: bytes) -> bytes:
    """Bytes with bits flipped, cut short, or with pieces cut out, doubled or overwritten."""
    data = bytes(data)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, max(len(data) - 1, 0)))
        match draw(st.integers(0, 4)):
            case 0 if data:
                flipped = data[place] ^ (1 << draw(st.integers(0, 7)))
                data = data[:place] + bytes([flipped]) + data[place + 1 :]
            case 1:
                data = data[:place]
            case 2:
                data = data[:place] + draw(st.binary(max_size=16)) + data[place:]
            case 3:
                data = data[:place] + data[place + draw(st.integers(0, 64)) :]
            case _:
                many = draw(st.sampled_from([b"\xff" * 8, bytes(8), b"\x7f" + bytes(7), b"9" * 16]))
                data = data[:place] + many + data[place + len(many) :]
    return data


def packed(header: Any, body: bytes) -> bytes:
    """A safetensors file with this header, be it true or not."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


@st.composite
def spoilt_tensors(draw, data: bytes) -> bytes:
    """A safetensors file spoilt anywhere, or only where its header lies about the rest."""
    if draw(st.booleans()):
        return draw(spoilt_bytes(data))
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    metadata = header["__metadata__"]
    if draw(st.booleans()):
        name = draw(st.sampled_from(sorted(metadata)))
        if metadata[name].startswith("{"):
            metadata[name] = draw(spoilt_json(json.loads(metadata[name])))
        else:
            metadata[name] = draw(st.sampled_from(["", "2", "01", "99999999999999999999", "x"]))
        return packed(header, data[8 + size :])
    return packed(draw(spoilt_json(header)).encode("utf-8", "surrogatepass"), data[8 + size :])


@st.composite
def questions(draw, name: str) -> str:
    """A question as a person would type it, or nearly."""
    example = tasks.get(name).example
    return draw(st.just(example) | spoilt_text(example) | st.sampled_from(TEXTS) | st.text(max_size=30))
