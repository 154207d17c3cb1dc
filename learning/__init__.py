"""Building blocks of algorithms, for your own: returns, distributions, networks, optimizers.

docs/learning.md has examples. Names are loaded on first use. Blocks for acting are in remuda.learning.acting.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remuda.policy.base import Loss
    from remuda.policy.network_learner import NetworkLearner, TargetLearner, Transitions
    from remuda.policy.networks.custom import Preparation
    from remuda.policy.networks.encoders import by_parts, impala_resnet, nature_cnn, perceptron, simba, transformer
    from remuda.policy.networks.flat_parameters import FlatParameters, FlatPart
    from remuda.policy.networks.normalisation import Moments, running_returns
    from remuda.policy.networks.optimizers import Optimizer, Optimizers, make_optimizer
    from remuda.policy.networks.perceptrons import Perceptrons
    from remuda.policy.networks.tensors import legal_in, masked, to_tensor, weights_from
    from remuda.policy.networks.torch_networks import RunningMoments
    from remuda.policy.returns import Outcome, Returns, VTrace, generalized_advantages, n_step_returns, vtrace
    from remuda.policy.torch_distributions import (
        Categorical,
        Gaussian,
        Likelihood,
        MultiCategorical,
        SquashedGaussian,
        categorical,
    )

__all__ = [
    "Categorical",
    "FlatParameters",
    "FlatPart",
    "Gaussian",
    "Likelihood",
    "Loss",
    "Moments",
    "MultiCategorical",
    "NetworkLearner",
    "Optimizer",
    "Optimizers",
    "Outcome",
    "Perceptrons",
    "Preparation",
    "Returns",
    "RunningMoments",
    "SquashedGaussian",
    "TargetLearner",
    "Transitions",
    "VTrace",
    "by_parts",
    "categorical",
    "generalized_advantages",
    "impala_resnet",
    "legal_in",
    "make_optimizer",
    "masked",
    "n_step_returns",
    "nature_cnn",
    "perceptron",
    "running_returns",
    "simba",
    "to_tensor",
    "transformer",
    "vtrace",
    "weights_from",
]

if not TYPE_CHECKING:  # type checkers read the names above, and then know which names there are not
    _MODULES = {
        "policy.base": "Loss",
        "policy.network_learner": "NetworkLearner TargetLearner Transitions",
        "policy.networks.custom": "Preparation",
        "policy.networks.encoders": "by_parts impala_resnet nature_cnn perceptron simba transformer",
        "policy.networks.flat_parameters": "FlatParameters FlatPart",
        "policy.networks.normalisation": "Moments running_returns",
        "policy.networks.optimizers": "Optimizer Optimizers make_optimizer",
        "policy.networks.perceptrons": "Perceptrons",
        "policy.networks.tensors": "legal_in masked to_tensor weights_from",
        "policy.networks.torch_networks": "RunningMoments",
        "policy.returns": "Outcome Returns VTrace generalized_advantages n_step_returns vtrace",
        "policy.torch_distributions": "Categorical Gaussian Likelihood MultiCategorical SquashedGaussian categorical",
    }
    _MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}

    def __getattr__(name: str) -> object:
        """Import a name of `__all__` on first use: torch takes seconds."""
        if name not in _MODULE_OF:
            raise AttributeError(f"module 'remuda.learning' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"remuda.{_MODULE_OF[name]}"), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
