"""Counts by length and on hard cases, as tables and cards show them."""

from __future__ import annotations

from ham.reproduce import exact
from ham.reproduce.exact import Counted
from ham.runs import load
from ham.use.stress import stress


def test_counts_by_length_are_of_those_asked():
    assert list(exact.by_length(load("reverse"), 3, {8: 5, 16: 4})) == [Counted(8, 0, 5), Counted(16, 0, 4)]


def test_where_all_are_wrong_longer_ones_are_not_asked():
    baseline = load("reverse-lstm")
    found = list(exact.by_length(baseline, 3, {32: 4, 512: 3, 1024: 2}))
    assert found[-1] == Counted(512, 3, 3)
    table = exact.length_table({"reverse-lstm": found, "reverse": [Counted(1024, 1, 2)]})
    assert table[0] == "| leaves | 32 | 512 | 1,024 |"
    assert table[2].endswith(" | 3 of 3 |  |")
    assert table[3] == "| reverse |  |  | 1 of 2 |"


def test_counts_are_shares_with_an_interval_in_a_plot():
    point = Counted(4096, 1, 4).percent
    assert (point.leaves, point.error) == (4096, 25.0)
    assert 0 < point.low < 25 < point.high < 100


def test_families_are_those_of_stress_with_a_star_for_the_practised():
    trained = load("sort")
    rows = stress(trained, leaves=(4, 8), examples=3, seed=5)
    found = exact.families(trained, 5, examples=3, sizes=(4, 8))
    assert [name.removesuffix(" *") for name in found] == [
        row["family"] for row in rows if row["leaves"] == 4
    ]
    assert {name.removesuffix(" *") for name in found if name.endswith(" *")} == {
        row["family"] for row in rows if row["practised"]
    }
    table = exact.family_table(found)
    assert table[0] == "| wrong of 3 | 4 leaves | 8 leaves |"
    assert len(table) == 2 + len(found)


def test_all_families_together():
    found = {"one": [Counted(4, 1, 5), Counted(8, 0, 5)], "other": [Counted(4, 2, 5), Counted(8, 0, 5)]}
    assert exact.all_families(found) == [Counted(4, 3, 10), Counted(8, 0, 10)]
