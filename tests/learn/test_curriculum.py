import numpy as np
import pytest

from ham.learn.curriculum import Curriculum


def test_the_tree_doubles_below_the_threshold_and_not_at_it():
    curriculum = Curriculum(now=4, last=32, threshold=0.2)
    assert curriculum.after(0.2).now == 4
    assert curriculum.after(0.19).now == 8


def test_it_ends_at_the_last_tree():
    curriculum = Curriculum(now=4, last=16, threshold=1.1)
    seen = []
    for _ in range(4):
        seen.append((curriculum.now, curriculum.complete))
        curriculum = curriculum.after(0.0)
    assert seen == [(4, False), (8, False), (16, True), (16, True)]


def draws(curriculum, mix, smallest, times=20_000, largest=64):
    rng = np.random.default_rng(0)
    drawn = [curriculum.draw(rng, mix, smallest, largest) for _ in range(times)]
    sizes, counts = np.unique(drawn, return_counts=True)
    return dict(zip(sizes.tolist(), (counts / times).tolist(), strict=True))


def test_mixing_draws_every_size_so_far_alike():
    # 30% of batches spread over 4, 8, 16 and 32 leaves: 7.5% each, and the current one has 70% more.
    shares = draws(Curriculum(32, 64, 0.2), 0.3, 4)
    assert shares.keys() == {4, 8, 16, 32}
    for size, share in {4: 0.075, 8: 0.075, 16: 0.075, 32: 0.775}.items():
        assert abs(shares[size] - share) < 0.01


@pytest.mark.parametrize(("mix", "sizes"), [(0.0, {8}), (1.0, {2, 4, 8})])
def test_mixing_never_and_always(mix, sizes):
    assert draws(Curriculum(8, 64, 0.2), mix, 2, 500).keys() == sizes


def test_training_can_stay_behind_validation():
    shares = draws(Curriculum(32, 64, 0.2), 0.3, 4, largest=8)
    assert shares.keys() == {4, 8}
    assert abs(shares[4] - 0.15) < 0.01
