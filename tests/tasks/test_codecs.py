"""Codecs by hand, and the laws that everything which reads outputs relies on."""

import math

import numpy as np
import pytest
import torch

from ham.core.errors import InputError
from ham.tasks import Bits, OneHot, Real
from ham.tasks.codecs import Ended

COLOURS = OneHot("red", "green", "blue")
CODECS = [Bits(3), COLOURS, Real(0.1), Real(0.1, count=2, deviation=0.5)]
CODECS += [codec.ended() for codec in CODECS]
ITEMS = {"Bits": 5, "OneHot": "green", "Real": 0.25}
EACH = pytest.mark.parametrize("codec", CODECS, ids=str)


def item_of(codec):
    inner = codec.inner if isinstance(codec, Ended) else codec
    item = ITEMS[type(inner).__name__]
    return (item, -item) if isinstance(inner, Real) and inner.count == 2 else item


@EACH
def test_an_item_comes_back_from_its_row(codec):
    item = item_of(codec)
    row = codec.row(item)
    assert (row.shape, row.dtype) == ((codec.width,), np.float32)
    assert codec.item(row) == item
    assert codec.right(codec.item(row), item)
    assert not codec.problem(row[None])
    assert isinstance(codec.show(item), str)


@EACH
def test_what_is_read_is_right_and_is_judged_as_its_outputs_are(codec):
    outputs, others = torch.randn(2, 20, 4, codec.width)
    read = codec.read(outputs)
    assert torch.equal(codec.read(read), read)
    assert codec.hits(outputs, read).all()
    if not isinstance(
        codec, Ended
    ):  # beside End-Of-Output an item is not asked for, and its likelihood no matter
        assert (codec.log_prob(outputs, read) >= codec.log_prob(outputs, codec.read(others))).all()
    targets = codec.read(others)
    assert torch.equal(codec.hits(outputs, targets), codec.hits(read, targets))
    assert not codec.hits(outputs, targets).all()


@EACH
def test_shapes(codec):
    outputs = torch.randn(2, 3, codec.width, requires_grad=True)
    targets = codec.read(torch.randn(2, 3, codec.width))
    log_prob = codec.log_prob(outputs, targets)
    assert log_prob.shape == (2, 3)
    log_prob.sum().backward()
    assert outputs.grad.any()
    assert codec.hits(outputs, targets).shape[:2] == (2, 3)
    assert codec.chances(outputs).shape == outputs.shape
    assert (codec.hits(outputs, targets).shape[-1] > 1) == (codec.part == "bit")


def test_log_likelihoods_by_hand():
    bits = Bits(2).log_prob(torch.tensor([1.0, -2.0]), torch.tensor([1.0, 1.0]))
    assert bits.item() == pytest.approx(-math.log1p(math.exp(-1)) - math.log1p(math.exp(2)))
    category = COLOURS.log_prob(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.0, 1.0, 0.0]))
    assert category.item() == pytest.approx(2 - math.log(math.exp(1) + math.exp(2) + math.exp(3)))
    number = Real(0.1, deviation=0.5).log_prob(torch.tensor([0.3]), torch.tensor([0.7]))
    assert number.item() == pytest.approx(-((0.4 / 0.5) ** 2) / 2)


def test_at_the_end_of_output_nothing_else_is_asked():
    codec = Real(0.1).ended()
    end = torch.tensor([0.0, 1.0])
    assert codec.log_prob(torch.tensor([9.0, 2.0]), end).item() == pytest.approx(-math.log1p(math.exp(-2)))
    assert codec.hits(torch.tensor([9.0, 2.0]), end).all()
    assert not codec.hits(torch.tensor([0.0, -2.0]), end).any()
    item = torch.tensor([0.5, 0.0])
    assert codec.hits(torch.tensor([0.55, -2.0]), item).all()
    assert not codec.hits(torch.tensor([0.55, 2.0]), item).any()
    assert not codec.hits(torch.tensor([0.65, -2.0]), item).any()


def test_bits_end_by_one_more_bit_as_in_the_paper():
    assert Bits(4).ended() == Bits(5)


def test_right_is_within_the_tolerance():
    assert Real(0.05).right(0.94, 0.9)
    assert not Real(0.05).right(0.96, 0.9)
    assert not Real(0.05, count=2).right((0.9, 0.96), (0.9, 0.9))


def test_numbers_are_printed_as_exactly_as_they_are_judged():
    assert Real(0.05).show(0.123456) == "0.123"
    assert Real(10.0).show(123.456) == "123"
    assert Real(0.5, count=2).show((1.25, -0.5)) == "1.25:-0.50"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: OneHot("red"), "at least two categories"),
        (lambda: OneHot("red", "red"), "all different"),
        (lambda: COLOURS.row("pink"), "must be one of red, green, blue, got 'pink'"),
        (lambda: Real(0.0), "tolerance"),
        (lambda: Real(math.inf), "tolerance"),
        (lambda: Real(0.1, count=0), "count"),
        (lambda: Real(0.1, deviation=0.0), "deviation"),
    ],
)
def test_bad_input_is_refused(make, said):
    with pytest.raises(InputError, match=said):
        make()


@pytest.mark.parametrize(
    ("codec", "targets"),
    [
        (Bits(2), [[0, 2]]),
        (COLOURS, [[1, 1, 0]]),
        (COLOURS.ended(), [[1, 0, 0, 0.5]]),
        (Real(0.1), [[math.nan]]),
    ],
)
def test_targets_that_cannot_be(codec, targets):
    assert codec.problem(np.array(targets, np.float32)).startswith("must give")
