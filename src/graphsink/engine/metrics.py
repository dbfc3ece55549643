"""What is measured while generating, each figure defined once.

Definitions follow section 8 of the source text on graph mode. Every time is wall time; the time of a
forward covers its completion (on the CPU a forward returns when it is done).

==========================  =====================================================================
ttft_ms                     prefill forward (mean, if prompts were prefilled in several steps)
tpot_ms                     mean of the decode forwards whose token was returned
decode_mean_ms              mean of all decode forwards
forward_tokens_per_s        returned tokens / sum of all prefill and decode forwards
generate_tokens_per_s       returned tokens / wall time of ``generate()``: forwards, scheduling,
                            sampling, detokenising and the caller's callbacks; not loading or warm-up
bandwidth_fraction          bytes of weights and KV that a decode step must read / ``decode_mean_ms``,
                            as a share of the measured read bandwidth
==========================  =====================================================================

TTFT and TPOT are proxies of model execution: queueing, tokenising and network time are not in them.
This engine stops after the last returned token, so every decode forward returns tokens and ``tpot_ms``
equals ``decode_mean_ms``; the source's scheduler runs one more decode whose token it drops.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class GenerationMetrics:
    """Measurements of one ``generate()`` call.

    Attributes:
        prefill_ms, decode_ms: time of each forward, in order.
        step_overhead_ms: engine work per step outside the forward: scheduling, metadata, sampling,
            detokenising. Callbacks of the user are not in it.
        decode_kv_bytes: bytes of keys and values that each decode step had to read.
        generated_tokens: tokens returned, over all requests.
        wall_s: wall time of the call.
    """

    prefill_ms: list[float] = field(default_factory=list)
    decode_ms: list[float] = field(default_factory=list)
    step_overhead_ms: list[float] = field(default_factory=list)
    decode_kv_bytes: list[int] = field(default_factory=list)
    generated_tokens: int = 0
    wall_s: float = 0.0

    @property
    def ttft_ms(self) -> float | None:
        """Mean prefill forward in ms; ``None`` without one."""
        return _mean(self.prefill_ms)

    @property
    def decode_mean_ms(self) -> float | None:
        """Mean decode forward in ms; ``None`` without one."""
        return _mean(self.decode_ms)

    @property
    def tpot_ms(self) -> float | None:
        """Mean of the decode forwards that returned a token, in ms; ``None`` without one."""
        return self.decode_mean_ms

    @property
    def forward_tokens_per_s(self) -> float | None:
        """Returned tokens per second of forward time; ``None`` without forwards."""
        total_ms = sum(self.prefill_ms) + sum(self.decode_ms)
        return self.generated_tokens / total_ms * 1e3 if total_ms else None

    @property
    def generate_tokens_per_s(self) -> float | None:
        """Returned tokens per second of wall time; ``None`` before the call has ended."""
        return self.generated_tokens / self.wall_s if self.wall_s else None

    def bandwidth_fraction(self, weight_bytes: int, read_bandwidth_gbps: float) -> float | None:
        """Share of the read bandwidth (1e9 bytes/s) that decode reached; ``None`` without decode steps."""
        if self.decode_mean_ms is None:
            return None
        kv_bytes = sum(self.decode_kv_bytes) / len(self.decode_kv_bytes)
        reached_gbps = (weight_bytes + kv_bytes) / (self.decode_mean_ms * 1e-3) / 1e9
        return reached_gbps / read_bandwidth_gbps


@dataclass(frozen=True, slots=True)
class WarmupReport:
    """What warm-up did: one packing check, one prefill, one decode.

    Attributes:
        seconds: wall time.
        tasks_per_step: operators that one decode step dispatches; paged attention counts as one.
    """

    seconds: float
    tasks_per_step: int


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
