import torch

from lit_rl.data.integers import Integers


def seeded():
    return torch.Generator().manual_seed(5)


def test_the_numbers_are_the_same_however_many_are_drawn_ahead():
    sizes = [(10, 3), (7, 1), (1_000_000, 64), (3, 200), (10, 0), (5, 7)]
    streams = [Integers(seeded(), ahead) for ahead in (0, 2, 50, 1000)]
    for bound, n in sizes:
        first, *others = ([*stream.below(bound, n)] for stream in streams)
        assert len(first) == n and all(0 <= x < bound for x in first)
        assert others == [first, first, first]


def test_they_are_those_that_torch_draws():
    integers, generator = Integers(seeded(), 100), seeded()
    for bound in (6, 1000, 50_000, 2**28 - 1):
        assert integers.below(bound, 41).tolist() == torch.randint(bound, (41,), generator=generator).tolist()


def test_after_a_cut_the_generator_alone_says_what_comes():
    generator = seeded()
    integers = Integers(generator, 100)
    integers.below(10, 30)
    integers.cut()
    again = torch.Generator()
    again.set_state(generator.get_state())
    assert integers.below(10, 30).tolist() == Integers(again, 100).below(10, 30).tolist()
