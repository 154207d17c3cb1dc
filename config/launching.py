"""The settings of `remuda launch`: what starts the processes of a run."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from remuda.config.numbers import NonNegative, NonNegativeFloat, Positive, PositiveFloat, no_bool
from remuda.config.section import Section

LOCAL = "local"
"""The launcher of this machine."""
KUBERNETES = "kubernetes"
"""The launcher whose runs folder is on a volume that this machine does not see."""
Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.,:@/+\[\]=-]+$", max_length=200)]
Line = Annotated[str, Field(pattern=r"^[^\n\r\x00]+$", max_length=1_000)]
ResourceName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.:-]{0,99}$")]


class SlurmConfig(Section):
    """The jobs of `launch.on: slurm`: one for coordinator and learner, and for each other role an array of jobs. All
    nodes must see this installation of Remuda at the same path, and the node of the coordinator the runs folder."""

    partition: Word | None = None
    """The partition of all jobs; null is the cluster's default."""
    learner_partition: Word | None = None
    """The partition of the job with coordinator and learner, if it is another one: such as one with GPUs, or the only
    one whose nodes see the runs folder."""
    account: Word | None = None
    """The account that is charged."""
    qos: Word | None = None
    """The quality of service."""
    walltime_min: Positive | None = None
    """Minutes that each job may run; null is the partition's limit. A job that reaches it is started again, and the run
    goes on."""
    notice_s: Annotated[int, Field(ge=30, le=65_535), BeforeValidator(no_bool)] = 120
    """Seconds before the end of its walltime at which a job begins to hand in and save; Slurm may be up to a minute
    early. Saving a checkpoint must take less."""
    workers_per_job: Positive = 1
    """Collectors, evaluators or reanalyzers in each job of an array."""
    cores_per_worker: Positive = 1
    """Cores of each collector, evaluator and reanalyzer."""
    memory_mib_per_worker: Positive | None = None
    """Memory of each of them; null is the cluster's default."""
    learner_cores: Positive = 2
    """Cores of the job with coordinator and learner."""
    learner_gpus: NonNegative = 0
    """GPUs of that job."""
    learner_memory_mib: Positive | None = None
    """Memory of that job; null is the cluster's default."""
    port: Annotated[int, Field(ge=0, le=65_535), BeforeValidator(no_bool)] = 0
    """The coordinator's port; 0 is any that is free."""
    options: tuple[Annotated[str, Field(pattern=r"^--[a-z][^\n\r\x00]*$", max_length=1_000)], ...] = ()
    """More options of sbatch for every job, such as `--constraint=avx512`."""
    setup: tuple[Line, ...] = ()
    """Lines of shell at the beginning of every job, such as `module load cuda`. Jobs have the environment of your login
    shell, not that of the shell in which `remuda launch` was typed."""
    max_replacements: NonNegative = 100
    """How often, in all, a job that was lost is submitted again."""
    poll_interval_s: PositiveFloat = 10.0
    """Seconds between two questions to Slurm about the state of the jobs."""


Cpus = Annotated[float, Field(ge=0.1, le=10_000), BeforeValidator(no_bool)]
Label = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]


class KubernetesConfig(Section):
    """The jobs of `launch.on: kubernetes`: one for coordinator and learner, and for each other role one with an index
    for each worker. A volume is mounted at the path of the runs folder."""

    image: Word | None = None
    """The container image, such as one that the `Dockerfile` builds, with your environment in it. Required."""
    claim: Label | None = None
    """The PersistentVolumeClaim of the volume, of access mode ReadWriteMany; ReadWriteOnce is enough if workers do not
    mount it. Required."""
    workers_mount: bool = True
    """Whether collectors, evaluators and reanalyzers mount the volume. If not, their files travel by stream."""
    namespace: Label = "default"
    """Where everything is made."""
    user: Positive = 1_000
    """The user id, and the group, of all processes; it must be able to write to the volume."""
    cpus_per_worker: Cpus = 1.0
    """CPUs of each collector, evaluator and reanalyzer."""
    memory_mib_per_worker: Positive = 1_024
    """Memory of each of them."""
    learner_cpus: Cpus = 2.0
    """CPUs of the container with coordinator and learner."""
    learner_gpus: NonNegative = 0
    """GPUs of that container (`nvidia.com/gpu`)."""
    learner_memory_mib: Positive = 4_096
    """Memory of that container."""
    port: Annotated[int, Field(gt=0, le=65_535), BeforeValidator(no_bool)] = 5555
    """The coordinator's port."""
    stream_port: Annotated[int, Field(gt=0, le=65_535), BeforeValidator(no_bool)] = 5556
    """The port for files of workers that do not mount the volume."""
    http_port: Annotated[int, Field(gt=0, le=65_535), BeforeValidator(no_bool)] = 9310
    """The port of /health, which the probes ask, and of /metrics."""
    node_selector: dict[str, str] = {}  # noqa: RUF012  (pydantic copies it)
    """Labels that nodes must have."""
    max_replacements: NonNegative = 100
    """How often Kubernetes starts a failed pod of a job again; pods that the cluster evicts do not count."""
    poll_interval_s: PositiveFloat = 10.0
    """Seconds between two questions to Kubernetes about the state of the jobs."""


class RayResources(Section):
    """What Ray sets aside for each worker of a role. Ray does not enforce it."""

    num_cpus: NonNegativeFloat = 1.0
    """Processor cores; 0.5 lets two workers share one."""
    num_gpus: NonNegativeFloat = 0.0
    """GPUs. A worker sees no more than these, so `learner.device: cuda` needs 1 here."""
    memory_bytes: Positive | None = None
    """Memory; null asks for none."""
    custom: Annotated[dict[ResourceName, PositiveFloat], Field(max_length=64)] = {}  # noqa: RUF012  (pydantic copies it)
    """Resources that nodes of the cluster were started with, by name, such as {big_memory: 1}."""


class RayConfig(Section):
    """Workers as actors of a Ray cluster (`on: ray`). Needs `pip install 'remuda[ray]'`, on each node."""

    address: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    """The cluster: host:port of its head, `auto` for the one that this machine is a node of, or `local` for one that is
    started here and ends with the run. Null is the environment variable RAY_ADDRESS, or `local` where that is not
    set."""
    learner: RayResources = RayResources()
    """For the learner."""
    collector: RayResources = RayResources()
    """For each collector."""
    evaluator: RayResources = RayResources()
    """For each evaluator."""
    reanalyzer: RayResources = RayResources()
    """For each reanalyzer."""

    def of(self, role: str) -> RayResources:
        """What a worker of this role needs."""
        by_role = {
            "learner": self.learner,
            "collector": self.collector,
            "evaluator": self.evaluator,
            "reanalyzer": self.reanalyzer,
        }
        return by_role[role]


class LaunchConfig(Section):
    """How `remuda launch` starts the coordinator and the workers. Nothing of it changes what is learned."""

    on: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*(:[A-Za-z_][A-Za-z0-9_]*)?$", max_length=200)] = LOCAL
    """The launcher: `local` (this machine), `slurm`, `ray`, `kubernetes`, your own as `module:Class`, looked up in the
    folder of the config file first, or the name of one in an installed package (entry point group `remuda.launchers`).
    The option --on sets this."""
    slurm: SlurmConfig = SlurmConfig()
    """For `on: slurm`."""
    ray: RayConfig = RayConfig()
    """For `on: ray`."""
    kubernetes: KubernetesConfig = KubernetesConfig()
    """For `on: kubernetes`."""
    coordinator_timeout_s: PositiveFloat = 3_600.0
    """Seconds that workers, and `remuda launch` itself, wait for a coordinator that is silent or missing. An engine may
    take long to start it again."""
