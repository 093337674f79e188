"""What Python knows of the C++ sources comes from the library: structures, and the names of parameters."""

from __future__ import annotations

import ctypes
import re

import pytest

from ham.models import LSTMHAM, AttentiveDecoder, EncoderDecoder, RawHAM
from ham.ops import native
from ham.ops.native import compiler, library
from ham.ops.native.networks import named_parameters, sizes_of_model
from ham.ops.native.structures import Structures

pytestmark = pytest.mark.skipif(not native.available(), reason=native.why_not() or "available")


def declared(name: str) -> list[str]:
    """The fields of a structure, in the order of the header."""
    header = "".join((compiler.SOURCES / file).read_text() for file in ("api.h", "objective.h"))
    body = re.search(rf"struct {name} {{(.*?)}};", header, re.DOTALL)
    assert body, name
    lines = [line.split("//")[0].strip() for line in body[1].splitlines()]
    statements = " ".join(lines).split(";")
    fields = []
    for statement in filter(None, map(str.strip, statements)):
        first, *others = statement.split(",")
        names = [first.split()[-1], *others]
        fields += [re.sub(r"\[.*\]", "", each).strip(" *") for each in names]
    return fields


def test_all_fields_of_the_header_are_told_in_its_order():
    for name, made in library.structures()._made.items():
        assert [field for field, *_ in made._fields_] == declared(name)


def test_every_structure_of_the_header_is_told():
    header = "".join((compiler.SOURCES / file).read_text() for file in ("api.h", "objective.h"))
    assert set(re.findall(r"^struct (\w+)", header, re.MULTILINE)) == set(library.structures()._made)


@pytest.mark.parametrize("left_out", ["HamAdam 72 weight ", "HamAdam 72 unbiased_root "])
def test_a_field_that_is_not_told_is_found_out(left_out):
    told = library.loaded().ham_structures().decode()
    lines = [line for line in told.splitlines() if not line.startswith(left_out)]
    assert len(lines) < len(told.splitlines())
    with pytest.raises(ValueError, match=r"HamAdam.*missing"):
        Structures("\n".join(lines))


def test_a_field_that_does_not_exist_cannot_be_set():
    made = library.structures().HamAdam
    with pytest.raises(AttributeError):
        made(wieghts=3)
    call = made(weights=3)
    with pytest.raises(AttributeError):
        call.wieghts = 4
    assert call.weights == 3
    with pytest.raises(AttributeError, match="no structure 'HamNothing'"):
        library.structures().HamNothing()
    assert ctypes.sizeof(made) == 72


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("join", ["rectified", "highway"])
@pytest.mark.parametrize("kind", [LSTMHAM, RawHAM])
def test_the_engine_calls_parameters_as_the_modules_do(kind, join, depth):
    model = kind(3, 2, size=5, hidden=4, depth=depth, join=join)
    parameters = named_parameters(model.networks())
    expected = dict(sizes_of_model(model).parameters)
    assert {name: tuple(tensor.shape) for name, tensor in parameters.items()} == expected


@pytest.mark.parametrize("kind", [EncoderDecoder, AttentiveDecoder])
def test_likewise_those_of_the_baselines(kind):
    model = kind(3, 2, cells=4)
    sizes = sizes_of_model(model)
    for parameters, expected in (
        (dict(model.encoder.named_parameters()), sizes.reader),
        (named_parameters(model.decoding()), sizes.decoder.parameters),
    ):
        assert {name: tuple(tensor.shape) for name, tensor in parameters.items()} == dict(expected)
