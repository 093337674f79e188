"""Where a model goes wrong: the same questions as `ham.evaluate`, and what is said of the first wrong symbol."""

import json

import numpy as np
import pytest
import torch

import ham
from ham.cli import main
from ham.core.errors import InputError
from ham.core.seeds import Purpose, generator
from ham.train.objective import Examples


@pytest.fixture
def sort(untrained):
    return next(trained for trained in untrained if trained.task.name == "sort")


def test_it_asks_what_evaluation_asks(untrained):
    for trained in untrained:
        if not trained.model.decisions(8):
            continue
        found = ham.probe(trained, leaves=8, examples=6, seed=3)
        rows = ham.evaluate(trained, leaves=8, examples=6, seed=3, progress=False)
        short = (1, min(trained.run.data.leaves, 8))
        shorter = ham.evaluate(trained, leaves=8, lengths=short, examples=6, seed=3, progress=False)
        assert (found.wrong, found.short_wrong) == (rows[0]["wrong"], shorter[0]["wrong"])
        assert len(found.rows) == found.wrong


def test_what_is_said_of_a_wrong_symbol_is_true(sort):
    found = ham.probe(sort, leaves=8, examples=4, seed=1)
    rng = generator(Purpose.TEST, 1, 8, "sort")
    low, high = ham.evaluate(sort, leaves=8, examples=1, seed=1, progress=False)[0]["lengths"]
    batch = sort.task.sample(rng, 4, 8, sort.task.draw_lengths(rng, 4, low, high))
    given = Examples.of(batch, sort.task.outputs)
    with torch.no_grad():
        episode = sort.model(given.inputs, given.lengths, given.asked, leaves=8)
    said, right = (episode.outputs > 0).numpy(), given.targets.numpy() > 0.5
    wrong = (said != right).any(-1) & given.counted.numpy()
    examples = np.flatnonzero(wrong.any(1))
    assert found.wrong == len(examples) > 0
    for row, which in zip(found.rows, examples, strict=True):
        symbol = int(np.flatnonzero(wrong[which])[0])
        assert (row["rows"], row["symbol"]) == (int(given.lengths[which]), symbol + 1)
        assert row["of"] == row["rows"] + 1
        assert row["leaf"] == episode.leaves[which, symbol]
        sure = episode.log_probs[which, symbol].exp()
        assert row["turn"] == float(sure.min())
        assert float(sure[3 - row["height"]]) == row["turn"]
        assert (row["turn_before"] is None) == (symbol == 0)
        assert 0 < row["output"] <= 1
        fits = [at for at in range(row["of"]) if (said[which, symbol] == right[which, at]).all()]
        assert (row["belongs"] is None) == (not fits)
        if fits:
            assert abs(row["belongs"] - 1 - symbol) == min(abs(at - symbol) for at in fits)


def test_the_command_prints_a_line_a_sequence_and_no_more_than_asked(capsys):
    words = ["probe", "merge-dham", "--leaves", "8"]
    assert main(words) == 2
    assert "a model of kind dham decides nothing" in capsys.readouterr().err
    words = ["probe", "sort4", "--leaves", "512", "--examples", "12", "--seed", "2"]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["model"], found["task"], found["leaves"]) == ("sort4", "sort4", 512)
    assert found["wrong"] == len(found["rows"]) > 3
    assert main([*words, "--show", "3"]) == 0
    heading, *_, columns, rule, first, second, third = capsys.readouterr().out.splitlines()
    assert heading.startswith(f"sort4, 512 leaves, test seed 2: {found['wrong']} of 12 wrong")
    assert columns.split()[:4] == ["rows", "symbol", "of", "belongs"]
    assert set(rule) == {"─"}
    assert [int(line.split()[0]) for line in (first, second, third)] == [
        row["rows"] for row in found["rows"][:3]
    ]


def test_bad_numbers_are_refused(sort):
    for wrong in ({"leaves": 6}, {"leaves": 1}, {"examples": 0}, {"seed": -1}):
        with pytest.raises(InputError):
            ham.probe(sort, **wrong)
    assert "wrong" in repr(ham.probe(sort, leaves=2, examples=1, seed=0))
