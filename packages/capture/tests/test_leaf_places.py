"""Which tensors the expressions of `mutates_args` name."""

from __future__ import annotations

import pytest
import torch

from flambeau_capture.leaf_places import check_expressions, tensors_written


def function(x, model, pairs):
    pass


def test_expressions():
    model = torch.nn.BatchNorm1d(2)
    x, first, second = torch.ones(2), torch.ones(3), torch.ones(4)
    tensors = [x, model.running_mean, first, second]
    given = (function, [x, model], {"pairs": {"k": [first, second]}}, tensors)

    def places(*expressions):
        return tensors_written(given[0], expressions, *given[1:])

    assert places() == [] and places("x") == [0] and places("model.running_mean", "x") == [0, 1]
    assert places("pairs") == [2, 3] and places("pairs['k'][1]") == [3]
    with pytest.raises(ValueError, match="no tensor among"):
        places("model.training")


def test_what_is_no_expression():
    check_expressions(function, ["x", "model.a.b[0]"])
    for text, expected in (("z", "no parameter"), ("x()", "attribute or item"), ("x[", "attribute or item")):
        with pytest.raises(ValueError, match=expected):
            check_expressions(function, [text])
