"""One scheme for all generators: apart for each purpose, alike for each seed."""

import numpy as np
import pytest

from ham.core.seeds import Purpose, generator, seed_words


def test_what_is_drawn_for_one_purpose_is_never_drawn_for_another():
    drawn = {purpose: generator(purpose, 0, 0).integers(1 << 62) for purpose in Purpose}
    assert len(set(drawn.values())) == len(Purpose)


@pytest.mark.parametrize(
    ("purpose", "which", "words"),
    [
        (Purpose.TRAINING, (7,), [0, 3, 7]),
        (Purpose.VALIDATION, (7,), [1, 3, 7]),
        (Purpose.TEST, (32, "sort"), [2, 3, 32, *b"sort"]),
        (Purpose.SEARCH, (7, 123), [3, 3, 7, 123]),
    ],
)
def test_published_runs_repeat_their_draws(purpose, which, words):
    """Logs, searches and tables were made with these words: they must stay."""
    assert seed_words(purpose, 3, *which) == words
    assert generator(purpose, 3, *which).random() == np.random.default_rng(words).random()
