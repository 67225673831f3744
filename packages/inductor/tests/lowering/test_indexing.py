"""Reads and writes at computed positions."""

import pytest
import torch

aten = torch.ops.aten
torch.manual_seed(0)
X = torch.randn(5, 6)
ROWS, COLUMNS = torch.tensor([4, 0, -1]), torch.tensor([1, 5, 2])


def test_reads(check):
    """gather, index_select, embedding, advanced indexing."""
    index = torch.randint(0, 5, (3, 6))
    check(
        lambda x, r, c, i: (
            x.gather(0, i),
            x.index_select(1, c),
            x[r],
            x[:, c],
            x[r, c],
            x[r[:, None], c],
            aten.embedding(x, c[:2]),
        ),
        X,
        ROWS,
        COLUMNS.clamp(max=4),
        index,
    )


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -3])
def test_a_choice_along_any_dimension(check, dim):
    """Dimensions before and after it stay."""
    x, index = torch.randn(4, 3, 5), torch.tensor([2, 0, 2, 1])
    check(lambda x, i: (x.index_select(dim, i), x.gather(dim, (x * 9).long() % 3), x.select(dim, 1)), x, index)


def test_an_index_out_of_range_is_an_error():
    """As in eager, not a wild read."""
    from .conftest import lower_and_run

    with pytest.raises(IndexError):
        lower_and_run(lambda x, i: x[i] + 1, X, torch.tensor([7]))


@pytest.mark.parametrize("place", [5, -6])
def test_a_selected_place_out_of_range_is_an_error(place):
    """The library says so; a choice at every element would leave the tensor as it is."""
    from .conftest import lower_and_run

    with pytest.raises(IndexError, match="out of range"):
        lower_and_run(lambda x: aten.select_scatter(x, x[0], 0, place), X)


def test_nothing_is_checked_where_nothing_is_written():
    """A scatter of no elements."""
    from .conftest import lower_and_run

    empty, index = torch.zeros(2, 0, 4), torch.zeros(2, 0, 4, dtype=torch.int64)
    (found,) = lower_and_run(lambda x, i: (aten.scatter.value(x, 1, i, 1.0),), empty, index).outputs
    assert found.shape == empty.shape


def test_writes(check):
    """scatter, scatter_add, index_put with and without accumulation."""
    index = torch.randint(0, 5, (3, 6))
    check(
        lambda x, r, c, i: (
            x.scatter(0, i[:1], x[:1] * 2),
            x.scatter(0, i[:1], 9.0),
            x.scatter_add(0, i, x[:3]),
            aten.index_put(x, [r], x[:3] + 1),
            aten.index_put(x, [r, c], c.float(), True),
            aten.index_put(x, [x > 0], torch.tensor(0.5)),
            aten.embedding_dense_backward(x, c.clamp(max=3)[[0, 1, 2, 0, 1]], 6, 1, False),
        ),
        X,
        ROWS,
        COLUMNS,
        index,
        modes=("fake",),
    )


@pytest.mark.parametrize(
    ("op", "write"),
    [
        ("scatter.src", lambda x, i, v: x.scatter(0, i, v[0])),
        ("scatter_add.default", lambda x, i, v: x.scatter_add(0, i, v[0])),
        ("scatter_add.default", lambda x, i, v: x.scatter_add(0, i[0], v)),
        ("scatter_add.default", lambda x, i, v: x[0].scatter_add(0, i * 0, v)),
        ("index_copy.default", lambda x, i, v: x.index_copy(0, i, v[0])),
        ("gather.default", lambda x, i, v: x.gather(0, i[0])),
    ],
)
def test_operands_without_dimensions_are_the_librarys(check, op, write):
    """Beside operands of one dimension they count as one element."""
    check(write, torch.ones(3), torch.tensor([1]), torch.tensor([5.0]), library=[op])


def test_what_no_fake_refuses_is_the_librarys_error():
    """Values of another type; more indices than dimensions."""
    from .conftest import lower_and_run

    one, place = torch.tensor([1.0]), torch.tensor([0])
    with pytest.raises(RuntimeError, match="dtypes match"):
        lower_and_run(lambda x, i, v: aten._unsafe_index_put(x, [i], v), torch.arange(3), place, one)
    with pytest.raises(IndexError, match="too many indices"):
        lower_and_run(lambda x, i, v: aten._unsafe_index_put(x, [i], v), torch.tensor(1.0), place, one)


def test_values_for_each_place_of_a_mask_are_the_librarys(check):
    """They are taken one after another, in the order of the mask's places; of one value there is a choice at each element."""
    x = torch.tensor([[1.0, -1.0, 2.0], [-2.0, 3.0, -3.0]])
    call = ["index_put.default"]
    for values in (torch.tensor([7.0, 8.0, 9.0]), torch.tensor([0.5])):
        check(lambda x, v: aten.index_put(x, [x > 0], v), x, values, modes=("fake",), library=call)
    check(lambda x: aten.index_put(x, [x > 0], torch.tensor(0.5)), x, modes=("fake",))


def test_functional_writes_to_views(check):
    """select_scatter and slice_scatter."""
    check(
        lambda x: (
            aten.select_scatter(x, x[0] * 2, 0, 2),
            aten.slice_scatter(x, x[:2] * 3, 0, 1, 5, 2),
            aten.slice_scatter(x, x[:, :2] * 3, 1, 2, 4),
        ),
        X,
    )
