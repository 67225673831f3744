"""Every distribution of `torch.distributions`, made and used inside of a compiled function: draws, densities, moments and their gradients.

The draws are eager's own, since both runs begin with the same seed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributions as d
from torch import Tensor
from torch.torch_version import TorchVersion
from torch.utils import _pytree as pytree

import flambeau

from ..comparison import assert_same

Make = Callable[[Tensor, Tensor], d.Distribution]

#: Name -> the distribution of three numbers and of three positive ones.
MADE: dict[str, Make] = {
    "Bernoulli": lambda a, p: d.Bernoulli(logits=a),
    "Beta": lambda a, p: d.Beta(p, p + 1),
    "Binomial": lambda a, p: d.Binomial(5, logits=a),
    "Categorical": lambda a, p: d.Categorical(probs=p),
    "Cauchy": lambda a, p: d.Cauchy(a, p),
    "Chi2": lambda a, p: d.Chi2(p),
    "ContinuousBernoulli": lambda a, p: d.ContinuousBernoulli(logits=a),
    "Dirichlet": lambda a, p: d.Dirichlet(p),
    "Exponential": lambda a, p: d.Exponential(p),
    "FisherSnedecor": lambda a, p: d.FisherSnedecor(p, p + 1),
    "Gamma": lambda a, p: d.Gamma(p, p),
    "GeneralizedPareto": lambda a, p: d.GeneralizedPareto(a, p, p / 9),
    "Geometric": lambda a, p: d.Geometric(logits=a),
    "Gumbel": lambda a, p: d.Gumbel(a, p),
    "HalfCauchy": lambda a, p: d.HalfCauchy(p),
    "HalfNormal": lambda a, p: d.HalfNormal(p),
    "Independent": lambda a, p: d.Independent(d.Normal(a, p), 1),
    "InverseGamma": lambda a, p: d.InverseGamma(p + 1, p),
    "Kumaraswamy": lambda a, p: d.Kumaraswamy(p, p),
    "LKJCholesky": lambda a, p: d.LKJCholesky(3, p[0]),
    "Laplace": lambda a, p: d.Laplace(a, p),
    "LogNormal": lambda a, p: d.LogNormal(a, p),
    "LogisticNormal": lambda a, p: d.LogisticNormal(a, p),
    "LowRankMultivariateNormal": lambda a, p: d.LowRankMultivariateNormal(a, a[:, None], p),
    "MixtureSameFamily": lambda a, p: d.MixtureSameFamily(d.Categorical(logits=a), d.Normal(a, p)),
    "Multinomial": lambda a, p: d.Multinomial(4, logits=a),
    "MultivariateNormal": lambda a, p: d.MultivariateNormal(a, torch.diag(p)),
    "NegativeBinomial": lambda a, p: d.NegativeBinomial(5.0, logits=a),
    "Normal": lambda a, p: d.Normal(a, p),
    "OneHotCategorical": lambda a, p: d.OneHotCategorical(logits=a),
    "OneHotCategoricalStraightThrough": lambda a, p: d.OneHotCategoricalStraightThrough(logits=a),
    "Pareto": lambda a, p: d.Pareto(p, p + 1),
    "Poisson": lambda a, p: d.Poisson(p),
    "RelaxedBernoulli": lambda a, p: d.RelaxedBernoulli(p[0], logits=a),
    "RelaxedOneHotCategorical": lambda a, p: d.RelaxedOneHotCategorical(p[0], logits=a),
    "StudentT": lambda a, p: d.StudentT(p + 2, a, p),
    "TransformedDistribution": lambda a, p: d.TransformedDistribution(d.Normal(a, p), [d.SigmoidTransform()]),
    "Uniform": lambda a, p: d.Uniform(a, a + p),
    "VonMises": lambda a, p: d.VonMises(a, p),
    "Weibull": lambda a, p: d.Weibull(p, p),
    "Wishart": lambda a, p: d.Wishart(p[0] + 5, torch.diag(p)),
}
#: Where a loop of torch's own is left to Python.
BROKEN = {
    "Wishart": pytest.mark.falls_back("the truth of a tensor"),
}

if TorchVersion(torch.__version__) < "2.13":
    BROKEN["Wishart"] = pytest.mark.falls_back("_standard_gamma has no shape rule")
    # Inverses of transforms are kept by weak references there.
    TRANSFORMED = (
        "Gumbel", "InverseGamma", "Kumaraswamy", "LogNormal", "LogisticNormal", "Pareto", "RelaxedBernoulli", "RelaxedOneHotCategorical",
        "TransformedDistribution", "Weibull",
    )  # fmt: skip
    BROKEN |= dict.fromkeys(TRANSFORMED, pytest.mark.falls_back("making a weak reference"))


def _use(make: Make, a: Tensor) -> list[Any]:
    """What programs ask of a distribution; what it has not, it says by an exception."""
    d.Distribution.set_default_validate_args(False)
    made = make(a, a.exp())
    drawn = made.sample((2,))
    found: list[Any] = [type(made).__name__, made.batch_shape, made.event_shape, made.sample(), drawn]
    found.append(made.rsample() if made.has_rsample else None)
    found.append(made.log_prob(drawn))
    found += [_answer(made.entropy), _answer(lambda: made.mean), _answer(lambda: made.variance)]
    found.append(_answer(lambda: made.cdf(drawn)))
    return found


def _answer(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except NotImplementedError:
        return "not implemented"


def _run(function: Callable[..., Any], make: Make) -> tuple[Any, Tensor | None]:
    torch.manual_seed(3)
    a = torch.tensor([0.2, -0.3, 0.7], requires_grad=True)
    found = function(make, a)
    wanted = [t.sum() for t in pytree.tree_leaves(found) if isinstance(t, Tensor) and t.requires_grad]
    with contextlib.suppress(NotImplementedError):
        torch.stack(wanted).sum().backward()
    return found, a.grad


@pytest.fixture(autouse=True)
def _validated_as_before():
    before = d.Distribution._validate_args
    yield
    d.Distribution.set_default_validate_args(before)


def test_all_are_here() -> None:
    """A new one in torch has to be listed."""
    there = {
        name
        for name in d.__all__
        if isinstance(getattr(d, name), type) and issubclass(getattr(d, name), d.Distribution)
    }
    assert set(MADE) == (there - {"Distribution", "ExponentialFamily"}) | {"GeneralizedPareto"}


@pytest.mark.filterwarnings("ignore:Singular sample detected")
@pytest.mark.parametrize("name", [pytest.param(name, marks=BROKEN.get(name, ())) for name in MADE])
def test_a_distribution(name: str) -> None:
    compiled = flambeau.compile(_use, backend="eager")
    assert_same(_run(compiled, MADE[name]), _run(_use, MADE[name]), strides=False)
