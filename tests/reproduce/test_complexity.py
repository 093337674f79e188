"""The complexity row: what is counted, and which growth is found in it."""

import numpy as np
import pytest

from ham.reproduce import complexity, tables
from ham.reproduce.complexity import Cost, Fit, fit

SIZES = tuple(1 << exponent for exponent in range(5, 12))


@pytest.mark.parametrize(
    ("growth", "costs"),
    [
        ("1", [250.0] * 7),
        ("log n", [4 + 1.4 * np.log2(n) for n in SIZES]),
        ("n", [230 + 0.1 * n for n in SIZES]),
    ],
)
def test_a_growth_is_found_in_noisy_costs(growth, costs):
    noisy = np.array(costs) * np.random.default_rng(0).uniform(0.97, 1.03, len(costs))
    assert fit(SIZES, tuple(noisy)).growth == growth


def test_a_cost_that_shrinks_by_noise_is_constant():
    assert fit(SIZES, (280.0, 270.0, 240.0, 250.0, 230.0, 240.0, 210.0)).growth == "1"


def test_the_operations_of_a_timestep_grow_as_the_paper_says(monkeypatch):
    monkeypatch.setattr(complexity, "SIZES", (32, 128, 512))
    monkeypatch.setattr(complexity, "SYMBOLS_TO_TIME", dict.fromkeys(complexity.PAPER, (1, 2)))
    costs = list(complexity.measured(repeats=1))
    assert [cost.fit_of_operations.growth for cost in costs] == ["1", "n", "log n"]
    first, middle, last = costs[2].operations
    assert last - middle == middle - first  # one more level each
    assert all(time > 0 for cost in costs for time in cost.microseconds)


def test_the_row_in_every_format(tmp_path):
    cost = Cost("lstm+ham", (32, 64, 128), (100, 120, 140), (5.0, 6.0, 7.0))
    tables.write(tmp_path, tables.Found([], {}, [cost], seed=1))
    assert "| paper | Θ(log n) |" in (tmp_path / "tables.md").read_text()
    assert r"$\Theta$" in (tmp_path / "tables.tex").read_text()
    assert '"growth": "log n"' in (tmp_path / "results.json").read_text()


def test_a_fit_in_words():
    assert Fit("1", 17200.0, 0.0).text() == "17,200"
    assert Fit("n", 18672.0, 144.0).text() == "18,672 + 144·n"
