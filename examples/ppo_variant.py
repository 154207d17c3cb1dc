"""PPO with an additional cost for moving away from the acting policy: a variant of a built-in algorithm, by its loss.
`remuda train examples/ppo_variant.yaml` (or launch) runs this variant; see docs/learning.md."""

from remuda.config.algorithms.actor_critic import PpoConfig
from remuda.policy.algorithms.actor_critic.entries import PpoEntry


class Settings(PpoConfig):
    """PPO's, and how much a nat of divergence costs (Schulman et al. 2017, section 4)."""

    kl_coefficient: float = 0.5


class KlPpo(PpoEntry):
    """The class for `policy.type`."""

    settings = Settings

    def declaration(self, config, settings):
        declared = super().declaration(config, settings)
        return declared.model_copy(update={"monitored": (*declared.monitored, "kl_cost")})

    def make_algorithm(self, setup, seed):
        from remuda.policy.algorithms.actor_critic.ppo import Ppo, divergence  # not above: collectors need no torch

        class Learning(Ppo):
            def loss(self, steps, *, clip):
                losses = super().loss(steps, clip=clip)
                cost = setup.settings.kl_coefficient * divergence(losses.log_ratio)
                return losses._replace(total=losses.total + cost, metrics={"kl_cost": cost})

        return Learning(setup.config, setup.observation, setup.action, seed)
