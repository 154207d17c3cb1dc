"""A league: a pool of checkpoints of all policies, their ratings, and who plays whom.

Pure: evaluations of checkpoints come in, weights of opponents and resets of exploiters come out. The state is journaled
before any message about it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise

from msgspec import field, structs

from remuda.config.learning import ExploiterConfig, LeagueConfig
from remuda.config.schema import ExperimentConfig
from remuda.training.snapshot import Snapshot
from remuda.wire.messages import CheckpointRecord

INTERVAL_SIGMAS = 2.0
"""Half the width of a rating's interval, in standard deviations."""
MOST_RESETS = 100
"""Newest resets that are kept; the log has all."""
Key = tuple[int, int]
"""A checkpoint: index of its policy, and train_iter."""


class LeagueMember(Snapshot, frozen=True):
    """A checkpoint in the pool of a league."""

    policy: int
    """Index of its policy."""
    record: CheckpointRecord
    mu: float
    sigma: float


class LeagueReset(Snapshot, frozen=True):
    """An exploiter began again with its first weights."""

    policy: int
    env_step: int
    train_iter: int
    """Update at which it began again."""
    parent: str
    """Name of the file of the weights."""
    sha256: str
    """Of that file."""
    reason: str


class LeagueResult(Snapshot, frozen=True):
    """Games of a checkpoint against another, by policy index and train_iter, as seen by the first."""

    judged: tuple[int, int]
    other: tuple[int, int]
    won: int
    drawn: int
    lost: int


class LeagueSnapshot(Snapshot, frozen=True):
    """See League."""

    pool: list[LeagueMember] = field(default_factory=list[LeagueMember])
    newest: list[LeagueMember | None] = field(default_factory=list[LeagueMember | None])
    """The newest evaluated checkpoint of each policy."""
    first: list[CheckpointRecord | None] = field(default_factory=list[CheckpointRecord | None])
    """First checkpoint of each policy; exploiters begin again with these weights."""
    began: list[int] = field(default_factory=list[int])
    """Environment step at which each policy began (again)."""
    results: list[LeagueResult] = field(default_factory=list[LeagueResult])
    resets: list[LeagueReset] = field(default_factory=list[LeagueReset])
    """The newest, in order of time."""
    resets_before: int = 0
    games: int = 0
    """All counted games."""


@dataclass(frozen=True)
class Judged:
    """Consequences of the evaluation of a checkpoint."""

    member: LeagueMember
    """The checkpoint, with its rating."""
    lines: tuple[str, ...]
    """For the log."""
    reset: tuple[CheckpointRecord, str] | None = None
    """Weights with which its policy begins again, and the reason."""

    @property
    def interval(self) -> tuple[float, float, float]:
        """Bounds and middle of the rating."""
        return interval(self.member)


class League:
    """The state of a league. Policies are numbered by the order of their names."""

    def __init__(self, config: ExperimentConfig, settings: LeagueConfig) -> None:
        """`config` of the run."""
        from openskill.models import PlackettLuce  # an extra; see why_unrated

        self.names = tuple(sorted(config.policies)) or ("",)
        self._settings, self._share = settings, config.self_play.share
        self._exploiters = {index: settings.exploiters.get(name) for index, name in enumerate(self.names)}
        self._model = PlackettLuce()
        self._pool: list[LeagueMember] = []
        self._newest: list[LeagueMember | None] = [None] * len(self.names)
        self._first: list[CheckpointRecord | None] = [None] * len(self.names)
        self._began = [0] * len(self.names)
        self._results: dict[tuple[Key, Key], LeagueResult] = {}
        self._resets = deque[LeagueReset](maxlen=MOST_RESETS)
        self._resets_before = 0
        """Resets before those."""
        self._games = 0

    # --- what holds ---

    @property
    def opponents(self) -> tuple[tuple[CheckpointRecord, ...], ...]:
        """The pool by policy: opponents of every evaluation."""
        return tuple(tuple(one.record for one in self._pool if one.policy == index) for index in range(len(self.names)))

    @property
    def has_begun(self) -> bool:
        """True once a checkpoint has been evaluated."""
        return any(self._newest)

    def in_use(self, policy: int) -> tuple[int, ...]:
        """Checkpoints of a policy, by train_iter, whose files the league needs."""
        first = self._first[policy]
        kept = [one.record.train_iter for one in self._pool if one.policy == policy]
        return (*kept, *(() if first is None else (first.train_iter,)))

    def all_weights(self) -> list[list[float]]:
        """Return the weights of the opponents of each policy, for collectors; see `weights`."""
        return [self.weights(index) for index in range(len(self.names))]

    def weights(self, policy: int) -> list[float]:
        """Return the weights of a policy's opponents: the newest version of each policy, then the pool by policy.

        A main policy plays against itself, and in `share` of its episodes against the pool. An exploiter of main
        policies plays against their newest versions, and in `share` against their checkpoints; an exploiter of the
        league against the pool.
        """
        count, exploiter = len(self.names), self._exploiters[policy]
        frozen = [one for index in range(count) for one in self._pool if one.policy == index]
        if exploiter is None:
            live, share = {policy}, self._share
        else:
            live = {index for index in range(count) if self._exploiters[index] is None}
            share = self._share if exploiter.against == "main" else 1.0
        against = [self._weight(policy, one, exploiter) for one in frozen]
        total = sum(against)
        share = share if total else 0.0
        weights = [(1.0 - share) / len(live) if index in live else 0.0 for index in range(count)]
        return weights + [share * one / total if total else 0.0 for one in against]

    def _weight(self, policy: int, other: LeagueMember, exploiter: ExploiterConfig | None) -> float:
        if exploiter is not None and exploiter.against == "main" and self._exploiters[other.policy] is not None:
            return 0.0
        won = self.win_probability(self._newest[policy], other)
        match self._settings.matching:
            case "hard":
                return max((1.0 - won) ** 2, 1e-3)  # a rating may err: nobody is left out for good
            case "even":
                return max(won * (1.0 - won), 1e-3)
            case "uniform":
                return 1.0

    def rating(self, policy: int) -> float | None:
        """Return the rating of the newest evaluated checkpoint of a policy; None before the first evaluation."""
        newest = self._newest[policy]
        return None if newest is None else interval(newest)[1]

    def win_probability(self, one: LeagueMember | None, other: LeagueMember) -> float:
        """Return the probability by ratings that the first checkpoint wins; 0.5 before the first evaluation."""
        if one is None:
            return 0.5
        rate = self._model.create_rating
        return float(self._model.predict_win([[rate([one.mu, one.sigma])], [rate([other.mu, other.sigma])]])[0])

    # --- what happens ---

    def evaluated(
        self,
        policy: int,
        record: CheckpointRecord,
        opponents: Sequence[Sequence[CheckpointRecord]],
        scores: Mapping[int, float],
        agents: int,
    ) -> Judged:
        """Rate a checkpoint by its games, and let it join the pool if it is due.

        `opponents` by policy are those of the evaluation; `scores` by episode are 1 (won), 0.5 or 0. See
        `opponent_of`.
        """
        self._first[policy] = self._first[policy] or record
        flat = [(index, one.train_iter) for index, records in enumerate(opponents) for one in records]
        before = self._newest[policy]
        mu = self._model.mu if before is None or self._has_begun(policy, before) else before.mu
        member = LeagueMember(policy, record, mu, self._model.sigma)
        for episode in sorted(scores) if flat else ():
            member = self._play(member, flat[opponent_of(episode, agents, len(flat))], scores[episode])
        self._newest[policy] = member
        why = self._joins(policy, member)
        joins = f", and joins the pool: {why}" if why else ""
        lines = [f"{self.called(_key(member))} is rated {_shown(member)}{joins}", *(self._join(member) if why else ())]
        exploiter = self._exploiters[policy]
        first = self._first[policy]
        reset = (first, why) if exploiter is not None and why and first is not None else None
        return Judged(member, tuple(lines), reset)

    def begun_again(self, policy: int, record: CheckpointRecord, weights: CheckpointRecord, reason: str) -> str:
        """An exploiter has begun again, with this checkpoint; return a line for the log."""
        self._began[policy] = record.env_step
        self._resets_before += len(self._resets) == MOST_RESETS
        self._resets.append(
            LeagueReset(policy, record.env_step, record.train_iter, weights.file, weights.sha256, reason)
        )
        return f"{self.called((policy, record.train_iter))} begins again with the weights of {weights.file}: {reason}"

    def _has_begun(self, policy: int, before: LeagueMember) -> bool:
        """True if the policy has begun again since this checkpoint."""
        return any(one.policy == policy and one.train_iter >= before.record.train_iter for one in self._resets)

    def _play(self, judged: LeagueMember, other: Key, score: float) -> LeagueMember:
        """Count a game, and return the judged checkpoint with its new rating."""
        self._games += 1
        pair = _key(judged), other
        known = self._results.get(pair) or LeagueResult(*pair, 0, 0, 0)
        won, lost = int(score > 0.5), int(score < 0.5)
        drawn = 1 - won - lost
        self._results[pair] = structs.replace(
            known, won=known.won + won, drawn=known.drawn + drawn, lost=known.lost + lost
        )
        place = next((at for at, one in enumerate(self._pool) if _key(one) == other), None)
        if place is None:
            return judged  # it left the pool during the evaluation
        rival, rate = self._pool[place], self._model.create_rating
        teams = [[rate([judged.mu, judged.sigma])], [rate([rival.mu, rival.sigma])]]
        ranks = [1.0 + lost, 1.0 + won]
        (mine,), (its,) = self._model.rate(teams, ranks=ranks)
        self._pool[place] = structs.replace(rival, mu=float(its.mu), sigma=float(its.sigma))
        return structs.replace(judged, mu=float(mine.mu), sigma=float(mine.sigma))

    def _joins(self, policy: int, member: LeagueMember) -> str:
        """Return the reason for a checkpoint to join the pool; empty if it does not."""
        exploiter = self._exploiters[policy]
        if exploiter is None:
            return "a checkpoint of a main policy"
        rate = self._win_rate(member, exploiter)
        if rate is not None and rate >= exploiter.reset_win_rate:
            return f"it has won {rate:.0%} against {'main' if exploiter.against == 'main' else 'the league'}"
        steps = member.record.env_step - self._began[policy]
        if exploiter.reset_env_steps is not None and steps >= exploiter.reset_env_steps:
            return f"{steps} environment steps have passed since it began"
        return ""

    def _win_rate(self, member: LeagueMember, exploiter: ExploiterConfig) -> float | None:
        """Return the share of won games that counts for an exploiter; None without games."""
        others = [_key(one) for one in self._pool]
        if exploiter.against == "main":
            mains = [index for index, one in self._exploiters.items() if one is None]
            others = list({key[0]: key for key in sorted(others) if key[0] in mains}.values())  # the newest of each
        games = [one for key in others if (one := self._results.get((_key(member), key))) is not None]
        played = sum(one.won + one.drawn + one.lost for one in games)
        return sum(one.won + 0.5 * one.drawn for one in games) / played if played else None

    def _join(self, member: LeagueMember) -> list[str]:
        """Add a member; return lines about a member that leaves."""
        self._pool = [one for one in self._pool if _key(one) != _key(member)]
        self._pool.append(member)
        if len(self._pool) <= self._settings.pool:
            kept, lines = None, list[str]()
        else:
            kept = self._leaves()
            self._pool.remove(kept)
            lines = [f"{self.called(_key(kept))}, rated {_shown(kept)}, leaves the pool"]
        there = {_key(one) for one in (*self._pool, member)}
        self._results = {pair: one for pair, one in self._results.items() if there.issuperset(pair)}
        return lines

    def _leaves(self) -> LeagueMember:
        """Return the member with the fewest environment steps since the previous member of the same policy. The first
        and the newest member of each policy stay, unless no other is left."""
        between: list[tuple[int, int, LeagueMember]] = []
        for index in range(len(self.names)):
            own = [one for one in self._pool if one.policy == index]
            between += [
                (one.record.env_step - before.record.env_step, -len(own), one) for before, one in pairwise(own[:-1])
            ]
        if not between:
            return self._pool[0]
        return min(between, key=lambda each: (*each[:2], _key(each[2])))[2]

    # --- for people ---

    def called(self, key: Key) -> str:
        """Return the name of a checkpoint."""
        name = self.names[key[0]]
        return f"{name}/iteration_{key[1]}" if name else f"iteration_{key[1]}"

    def document(self) -> dict[str, object]:
        """Return the content of league.json."""
        members = [one for index in range(len(self.names)) for one in self._pool if one.policy == index]
        return {
            "policies": [
                {"name": name, "exploits": None if exploiter is None else exploiter.against}
                for name, exploiter in zip(self.names, self._exploiters.values(), strict=True)
            ],
            "games": self._games,
            "members": [self._described(one) for one in members],
            "newest": [None if one is None else self._described(one) for one in self._newest],
            "matrix": [[self._pair(_key(one), _key(other)) for other in members] for one in members],
            "matches": self.all_weights(),
            "resets": [{**structs.asdict(one), "policy": self.names[one.policy]} for one in self._resets],
            "resets_before": self._resets_before,
        }

    def _described(self, one: LeagueMember) -> dict[str, object]:
        low, middle, high = interval(one)
        return {
            "name": self.called(_key(one)),
            "policy": self.names[one.policy],
            "file": one.record.file,
            "sha256": one.record.sha256,
            "train_iter": one.record.train_iter,
            "env_step": one.record.env_step,
            "rating": middle,
            "rating_low": low,
            "rating_high": high,
        }

    def _pair(self, one: Key, other: Key) -> list[int] | None:
        """Return won, drawn and lost games of the first, whichever of both was evaluated against the other."""
        mine, its = self._results.get((one, other)), self._results.get((other, one))
        if mine is None and its is None:
            return None
        won = (mine.won if mine else 0) + (its.lost if its else 0)
        drawn = (mine.drawn if mine else 0) + (its.drawn if its else 0)
        return [won, drawn, (mine.lost if mine else 0) + (its.won if its else 0)]

    # --- over a restart ---

    def snapshot(self) -> LeagueSnapshot:
        """Return the state for a restart."""
        return LeagueSnapshot(
            pool=[*self._pool],
            newest=[*self._newest],
            first=[*self._first],
            began=[*self._began],
            results=[*self._results.values()],
            resets=[*self._resets],
            resets_before=self._resets_before,
            games=self._games,
        )

    def restore(self, snapshot: LeagueSnapshot) -> None:
        """Continue from a snapshot."""
        self._pool, self._newest, self._first = [*snapshot.pool], [*snapshot.newest], [*snapshot.first]
        self._began, self._games = [*snapshot.began], snapshot.games
        self._resets.extend(snapshot.resets)
        self._resets_before = snapshot.resets_before + len(snapshot.resets) - len(self._resets)
        self._results = {(one.judged, one.other): one for one in snapshot.results}


def why_unrated(config: ExperimentConfig) -> str | None:
    """Return the reason why a league cannot be rated in this process; None if it can, or without a league."""
    if config.self_play.league is None or find_spec("openskill") is not None:
        return None
    return "self_play.league rates with openskill, which is not installed here: pip install 'remuda[league]'"


def opponent_of(episode: int, agents: int, opponents: int) -> int:
    """Return the number of the opponent of an episode. Each agent plays once against an opponent, then the next
    opponent comes."""
    return episode // agents % opponents


def interval(member: LeagueMember) -> tuple[float, float, float]:
    """Return lower bound, middle and upper bound of a rating."""
    half = INTERVAL_SIGMAS * member.sigma
    return member.mu - half, member.mu, member.mu + half


def _key(member: LeagueMember) -> Key:
    return member.policy, member.record.train_iter


def _shown(member: LeagueMember) -> str:
    return f"{member.mu:.1f} ± {INTERVAL_SIGMAS * member.sigma:.1f}"
