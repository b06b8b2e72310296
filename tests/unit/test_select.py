from grpo_cli.train.select import Uniform


def test_an_epoch_sees_every_row_at_most_once_and_drops_the_rest() -> None:
    chosen = [row for generation in range(3) for row in Uniform(10, 3, seed=1).choose(generation)]
    assert len(chosen) == 9
    assert len(set(chosen)) == 9


def test_later_epochs_have_an_order_of_their_own() -> None:
    rows = Uniform(12, 4, seed=1)
    epochs = [[row for batch in range(3) for row in rows.choose(3 * epoch + batch)] for epoch in range(3)]
    assert all(sorted(epoch) == list(range(12)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]


def test_the_choice_is_a_function_of_seed_and_generation() -> None:
    assert Uniform(100, 8, seed=3).choose(57) == Uniform(100, 8, seed=3).choose(57)
    assert Uniform(100, 8, seed=3).choose(57) != Uniform(100, 8, seed=4).choose(57)
