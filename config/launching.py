"""Settings of `remuda launch` and of the launchers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field

from remuda.config.section import NonNegative, NonNegativeFloat, Positive, PositiveFloat, Section, no_bool

LOCAL = "local"
"""The launcher of this machine."""
Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.,:@/+\[\]=-]+$", max_length=200)]
Line = Annotated[str, Field(pattern=r"^[^\n\r\x00]+$", max_length=1_000)]
ResourceName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.:-]{0,99}$")]


class EngineConfig(Section):
    """Settings of an engine that starts the processes of a run; the engine's name is that of the setting in
    LaunchConfig."""

    launcher: ClassVar[str]
    """`module:Class` of the launcher, imported on demand."""
    runs_dir_here: ClassVar[bool] = True
    """False if the runs folder is on a volume that this machine does not see."""


class SlurmConfig(EngineConfig):
    """Jobs of `launch.on: slurm`: one job for coordinator and learner, and an array of jobs per further role. All nodes
    must see this installation of Remuda at the same path, and the node of the coordinator the runs folder."""

    launcher: ClassVar[str] = "remuda.deploy.slurm.launcher:SlurmLauncher"

    partition: Word | None = None
    """The partition of all jobs; null is the cluster's default."""
    learner_partition: Word | None = None
    """Partition of the job with coordinator and learner, if different: for example the partition with GPUs, or the only
    partition that sees the runs folder."""
    account: Word | None = None
    """Account to charge."""
    qos: Word | None = None
    """The quality of service."""
    walltime_min: Positive | None = None
    """Time limit per job in minutes; null is the limit of the partition. A job at the limit is restarted, and the run
    continues."""
    notice_s: Annotated[int, Field(ge=30, le=65_535), BeforeValidator(no_bool)] = 120
    """Seconds before the end of the walltime at which a job begins to hand in and save; Slurm may send the notice up to
    a minute early. Saving a checkpoint must take less."""
    workers_per_job: Positive = 1
    """Collectors, evaluators or reanalyzers per job of an array."""
    cores_per_worker: Positive = 1
    """Cores per collector, evaluator and reanalyzer."""
    memory_mib_per_worker: Positive | None = None
    """Memory per collector, evaluator and reanalyzer; null is the default of the cluster."""
    learner_cores: Positive = 2
    """Cores of the job with coordinator and learner."""
    learner_gpus: NonNegative = 0
    """GPUs of the job with coordinator and learner."""
    learner_memory_mib: Positive | None = None
    """Memory of the job with coordinator and learner; null is the default of the cluster."""
    port: Annotated[int, Field(ge=0, le=65_535), BeforeValidator(no_bool)] = 0
    """The coordinator's port; 0 is any free port."""
    options: tuple[Annotated[str, Field(pattern=r"^--[a-z][^\n\r\x00]*$", max_length=1_000)], ...] = ()
    """More options of sbatch for every job, for example `--constraint=avx512`."""
    setup: tuple[Line, ...] = ()
    """Lines of shell at the beginning of every job, for example `module load cuda`. Jobs have the environment of your
    login shell, not of the shell where you typed `remuda launch`."""
    max_replacements: NonNegative = 100
    """Largest number of lost jobs to resubmit, in total."""
    poll_interval_s: PositiveFloat = 10.0
    """Seconds between two questions to Slurm about the state of the jobs."""


Cpus = Annotated[float, Field(ge=0.1, le=10_000), BeforeValidator(no_bool)]
Label = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]


class KubernetesConfig(EngineConfig):
    """Jobs of `launch.on: kubernetes`: one job for coordinator and learner, and one indexed job per further role. A
    volume is mounted at the path of the runs folder."""

    launcher: ClassVar[str] = "remuda.deploy.kubernetes.launcher:KubernetesLauncher"
    runs_dir_here: ClassVar[bool] = False

    image: Word | None = None
    """Container image with your environment, for example built from the `Dockerfile`. Required."""
    claim: Label | None = None
    """PersistentVolumeClaim of the volume, with access mode ReadWriteMany; ReadWriteOnce is enough if workers do not
    mount the volume. Required."""
    workers_mount: bool = True
    """Mount the volume in collectors, evaluators and reanalyzers. Otherwise their files travel by stream."""
    namespace: Label = "default"
    """Namespace of all objects."""
    user: Positive = 1_000
    """User id and group id of all processes, with permission to write to the volume."""
    cpus_per_worker: Cpus = 1.0
    """CPUs per collector, evaluator and reanalyzer."""
    memory_mib_per_worker: Positive = 1_024
    """Memory per collector, evaluator and reanalyzer."""
    learner_cpus: Cpus = 2.0
    """CPUs of the container with coordinator and learner."""
    learner_gpus: NonNegative = 0
    """GPUs of the container with coordinator and learner (`nvidia.com/gpu`)."""
    learner_memory_mib: Positive = 4_096
    """Memory of the container with coordinator and learner."""
    port: Annotated[int, Field(gt=0, le=65_535), BeforeValidator(no_bool)] = 5555
    """The coordinator's port."""
    stream_port: Annotated[int, Field(gt=0, le=65_535), BeforeValidator(no_bool)] = 5556
    """Port for files of workers without the volume."""
    http_port: Annotated[int, Field(gt=0, le=65_535), BeforeValidator(no_bool)] = 9310
    """Port of /health, used by the probes, and of /metrics."""
    node_selector: dict[str, str] = {}  # noqa: RUF012  (pydantic copies it)
    """Required labels of nodes."""
    max_replacements: NonNegative = 100
    """Largest number of restarts of failed pods of a job; pods evicted by the cluster do not count."""
    poll_interval_s: PositiveFloat = 10.0
    """Seconds between two questions to Kubernetes about the state of the jobs."""


class RayResources(Section):
    """Resources that Ray reserves for a worker of a role. Ray does not enforce the reservation."""

    num_cpus: NonNegativeFloat = 1.0
    """Processor cores; with 0.5 two workers share a core."""
    num_gpus: NonNegativeFloat = 0.0
    """GPUs. A worker sees only this number of GPUs, so `learner.device: cuda` needs 1."""
    memory_bytes: Positive | None = None
    """Memory; null requests none."""
    custom: Annotated[dict[ResourceName, PositiveFloat], Field(max_length=64)] = {}  # noqa: RUF012  (pydantic copies it)
    """Custom resources of the cluster's nodes by name, for example {big_memory: 1}."""


class RayConfig(EngineConfig):
    """Workers as actors of a Ray cluster (`on: ray`). Needs `pip install 'remuda[ray]'` on every node."""

    launcher: ClassVar[str] = "remuda.deploy.ray.launcher:RayLauncher"

    address: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    """Address of the cluster: host:port of the head node, `auto` for the cluster of this machine, or `local` for a
    cluster that starts here and ends with the run. Null is the environment variable RAY_ADDRESS, or `local` if unset.
    """
    learner: RayResources = RayResources()
    """For the learner."""
    collector: RayResources = RayResources()
    """For every collector."""
    evaluator: RayResources = RayResources()
    """For every evaluator."""
    reanalyzer: RayResources = RayResources()
    """For every reanalyzer."""
    inference: RayResources = RayResources()
    """For every inference worker."""

    def of(self, role: str) -> RayResources:
        """Return the resources of a worker of this role."""
        by_role = {
            "learner": self.learner,
            "collector": self.collector,
            "evaluator": self.evaluator,
            "reanalyzer": self.reanalyzer,
            "inference": self.inference,
        }
        return by_role[role]


class LaunchConfig(Section):
    """Starting the coordinator and the workers by `remuda launch`. These settings do not change the learning."""

    on: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*(:[A-Za-z_][A-Za-z0-9_]*)?$", max_length=200)] = LOCAL
    """The launcher: `local` (this machine), a section below, for example `slurm`, your own as `module:Class`, looked up
    in the folder of the config file first, or a launcher of an installed package by name (entry point group
    `remuda.launchers`). The option --on sets this."""
    slurm: SlurmConfig = SlurmConfig()
    """For `on: slurm`."""
    ray: RayConfig = RayConfig()
    """For `on: ray`."""
    kubernetes: KubernetesConfig = KubernetesConfig()
    """For `on: kubernetes`."""
    coordinator_timeout_s: PositiveFloat = 3_600.0
    """Seconds that workers, and `remuda launch` itself, wait for a silent or missing coordinator. A cluster may take
    long to restart the coordinator."""

    @property
    def runs_dir_here(self) -> bool:
        """True if this machine sees the runs folder of the launcher."""
        return ENGINES[self.on].runs_dir_here if self.on in ENGINES else True


ENGINES: Mapping[str, EngineConfig] = MappingProxyType(
    {name: one.default for name, one in LaunchConfig.model_fields.items() if isinstance(one.default, EngineConfig)}
)
"""Default settings of Remuda's own engines by name: the settings of LaunchConfig with an EngineConfig."""
