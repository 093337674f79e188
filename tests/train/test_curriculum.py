import numpy as np
import pytest

from ham.train.curriculum import Curriculum, stages


def test_inputs_get_longer_below_the_threshold_and_not_at_it():
    curriculum = Curriculum(stages(4, 32, growth=2.0), threshold=0.2)
    assert curriculum.after(0.2).longest == 4
    assert curriculum.after(0.19).longest == 8


@pytest.mark.parametrize(
    ("first", "last", "growth", "lengths"),
    [
        (4, 32, 2.0, (4, 8, 16, 32)),
        (32, 32, 2.0, (32,)),
        (8, 32, 1.5, (8, 12, 18, 27, 32)),
        (2, 8, 1.1, (2, 3, 4, 5, 6, 7, 8)),  # never the same length again
    ],
)
def test_stages_grow_by_a_factor_up_to_the_last(first, last, growth, lengths):
    assert stages(first, last, growth) == lengths


def test_it_ends_at_the_last_stage():
    curriculum = Curriculum((4, 8, 16), threshold=1.1)
    seen = []
    for _ in range(4):
        seen.append((curriculum.longest, curriculum.complete))
        curriculum = curriculum.after(0.0)
    assert seen == [(4, False), (8, False), (16, True), (16, True)]


def draws(longest, mix, times=20_000, most=64):
    curriculum = Curriculum(longest, threshold=0.2, stage=len(longest) - 2)
    rng = np.random.default_rng(0)
    drawn = [curriculum.draw(rng, mix, most) for _ in range(times)]
    sizes, counts = np.unique(drawn, return_counts=True)
    return dict(zip(sizes.tolist(), (counts / times).tolist(), strict=True))


def test_mixing_draws_every_size_so_far_alike():
    # 30% of batches spread over lengths of up to 4, 8, 16 and 32: 7.5% each, and the current one has 70% more.
    shares = draws((4, 8, 16, 32, 64), 0.3)
    assert shares.keys() == {4, 8, 16, 32}
    for size, share in {4: 0.075, 8: 0.075, 16: 0.075, 32: 0.775}.items():
        assert abs(shares[size] - share) < 0.01


@pytest.mark.parametrize(("mix", "sizes"), [(0.0, {8}), (1.0, {2, 4, 8})])
def test_mixing_never_and_always(mix, sizes):
    assert draws((2, 4, 8, 16), mix, 500).keys() == sizes


def test_training_can_stay_behind_validation():
    shares = draws((4, 8, 16, 32, 64), 0.3, most=8)
    assert shares.keys() == {4, 8}
    assert abs(shares[4] - 0.15) < 0.01
