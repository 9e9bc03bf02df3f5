"""What the loop is set to do, knows of the baseline, and tells while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum

from kernel_compass.records.comparison import MINIMUM_EFFECT
from kernel_compass.records.profile import Regime
from kernel_compass.records.selection import Selected
from kernel_compass.records.study import StudyRequest
from kernel_compass.records.trial import Trial

SANITIZER_TOOLS = ("memcheck", "racecheck")
"""Of compute-sanitizer: those that finalists run under, one after the other."""


@dataclass(frozen=True)
class RegimeTime:
    """The baseline in one regime."""

    regime: Regime
    time_us: float
    floor_us: float | None
    """Of the product as it stands; `None` = not known here."""


@dataclass(frozen=True)
class Baseline:
    """What is to be beaten, for one workload."""

    workload: str
    regimes: tuple[RegimeTime, ...]

    def time_us(self, regime: Regime) -> float:
        """Its time."""
        return self.of(regime).time_us

    def of(self, regime: Regime) -> RegimeTime:
        """Time and floor."""
        return next(one for one in self.regimes if one.regime is regime)

    @property
    def times_us(self) -> Mapping[Regime, float]:
        """By regime."""
        return {one.regime: one.time_us for one in self.regimes}


@dataclass(frozen=True)
class LoopOptions:
    """How the loop works; all of it decides the study, and is kept with it."""

    minimum_effect: float = MINIMUM_EFFECT
    """The least speedup worth the name."""
    width: int = 1
    """Candidates of a workload that are screened before the next are asked for; as it stands here,
    a study of one workload on several GPUs takes one for each of them."""
    patience: int = 24
    """Screens of a workload without an improvement by the minimum effect until it is left."""
    finalists: int = 1
    """Of a workload, the most that go into the hold-out together."""
    finalists_within: float = 0.05
    """... and only those that the screen saw this near to the best."""
    rounds: int = 2
    """Of the hold-out: where nothing of a workload passed, the next best get a second one."""
    processes: int = 5
    """Fresh ones of a hold-out."""
    pairs: int = 40
    """Of a hold-out, in each process and regime."""
    finals_share: float = 0.25
    """Of the minutes, what the hold-out gets at least."""
    compile_timeout_s: float = 90.0
    run_timeout_s: float = 60.0
    finals_timeout_s: float = 300.0
    static: int = 0
    """Of a space, how many of the best by estimate are compiled before anything is measured."""
    static_share: float = 0.1
    """Of the minutes, what compiling them may take."""
    counters_share: float = 0.0
    """Of the minutes, what diagnosing baselines and the best so far may take; 0 = not done."""
    sanitize: bool = False
    """Whether finalists run under compute-sanitizer, too."""
    guide_margin: float = 1.5
    """Formats whose Gaussian error is so many times the budget are not tried."""

    @classmethod
    def of(cls, request: StudyRequest) -> LoopOptions:
        """As they were when a study was begun."""
        known = {one.name for one in fields(cls)}
        return cls(**{k: v for k, v in request.options.items() if k in known})  # type: ignore[arg-type]


class Stage(StrEnum):
    """Where the loop is."""

    PROOF = "proof"
    """The judge proves itself, once an environment."""
    BASELINE = "baseline"
    SELECT = "select"
    STATIC = "static"
    """Compiled without being run."""
    SCREEN = "screen"
    DIAGNOSE = "diagnose"
    """What limits the baselines and the best so far, by counters."""
    FINALS = "finals"
    ENDED = "ended"


@dataclass(frozen=True)
class LoopEvent:
    """Something a watcher may want to see."""

    stage: Stage
    text: str
    """In a line."""
    trial: Trial | None = None
    """The one that ended, where it is about one."""
    done: int = 0
    """Screens that ended, those of earlier runs too."""
    planned: int | None = None
    """... and how many there will be at most; `None` = there is no such limit."""
    best: Mapping[str, Trial] = field(default_factory=dict)
    """The best of each workload so far: screened, or accepted."""
    left_s: float | None = None
    """Until the minutes are over."""


class Why(StrEnum):
    """Why the loop ended."""

    FINISHED = "finished"
    """Nothing is left that could improve by the minimum effect."""
    MINUTES = "minutes"
    TRIALS = "trials"
    STOPPED = "stopped"
    """By the user."""


@dataclass(frozen=True)
class FormatRoom:
    """What a number format could win at most."""

    format: str
    weight_bytes: int
    """As it is stored, scales included."""
    most: Mapping[Regime, float]
    """The baseline's time over the floor of this format's bytes and arithmetic."""
    bounds: Mapping[Regime, str] = field(default_factory=dict)
    """What decides that floor: `dram`, `l2`, `compute`, `launch`."""


@dataclass(frozen=True)
class FewerBytes:
    """What quantizing a workload's weight can win, and what it cannot."""

    weight_bytes: int
    """Of the largest format, 16 bits."""
    l2_bytes: float | None
    """What L2 effectively holds here; `None` = not known."""
    stays_in_l2: bool | None
    """Whether that weight is still there at the next launch: warm, fewer bytes then save no DRAM
    traffic; `None` = not known."""
    formats: tuple[FormatRoom, ...]


@dataclass(frozen=True)
class LoopEnd:
    """How a run of the loop ended."""

    why: Why
    detail: str
    selected: tuple[Selected, ...]
    """Where to work, and what was passed over."""
    baselines: Mapping[str, Baseline] = field(default_factory=dict)
    best: Mapping[str, Trial] = field(default_factory=dict)
    """Of each workload: accepted, or where there is none the best that passed the screen."""
    fewer_bytes: Mapping[str, FewerBytes] = field(default_factory=dict)
    """Of each workload whose weight and floors are known."""
