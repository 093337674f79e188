"""The page's colours: enough contrast, and still apart for eyes that lack one kind of cone."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

import ham.view

CSS = (Path(ham.view.__file__).parent / "page.css").read_text("utf-8")
MARKS = ("path", "read", "write", "join")

# Viénot, Brettel and Mollon (1999), in linear RGB.
BLINDNESS = {
    "protan": [[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]],
    "deutan": [[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]],
}


def theme(name: str) -> dict[str, np.ndarray]:
    """The variables of a theme as linear RGB."""
    light, dark = re.findall(r":root \{(.*?)\n\s*\}", CSS, re.S)
    text = light if name == "light" else dark
    colours = re.findall(r"--([\w-]+): #([0-9a-f]{6});", text)
    return {
        key: linear(np.array([int(value[i : i + 2], 16) / 255 for i in (0, 2, 4)])) for key, value in colours
    }


def linear(rgb: np.ndarray) -> np.ndarray:
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def luminance(rgb: np.ndarray) -> float:
    return float(rgb @ [0.2126, 0.7152, 0.0722])


def contrast(one: np.ndarray, other: np.ndarray) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def lab(rgb: np.ndarray) -> np.ndarray:
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ rgb
    f = np.cbrt(np.clip(xyz / [0.9505, 1, 1.089], 1e-6, None))
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("name", ["light", "dark"])
def test_text_is_readable(name):
    colours = theme(name)
    for text, ground in [
        ("ink", "back"), ("ink", "card"), ("ink", "soft"), ("quiet", "back"), ("quiet", "card"), ("quiet", "soft"),
        ("on-path", "path"), ("wrong", "card"), ("right", "card"), ("write", "card"), ("join", "card"),
    ]:  # fmt: skip
        assert contrast(colours[text], colours[ground]) >= 4.4, f"{text} on {ground}"
    for mark in ("path", "write", "join", "cell"):
        assert contrast(colours[mark], colours["card"]) >= 3, mark


@pytest.mark.parametrize("name", ["light", "dark"])
@pytest.mark.parametrize("kind", BLINDNESS)
def test_marks_differ_for_colour_blind_eyes(name, kind):
    colours = theme(name)
    seen = {mark: lab(np.clip(BLINDNESS[kind] @ colours[mark], 0, 1)) for mark in MARKS}
    for one, other in itertools.combinations(MARKS, 2):
        assert np.linalg.norm(seen[one] - seen[other]) > 11, (one, other)
