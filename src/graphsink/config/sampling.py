"""How tokens are chosen and when a request ends."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

GREEDY_TEMPERATURE = 1e-5
"""Below this temperature the most likely token is taken (as in the reference sampler)."""


class SamplingParams(BaseModel):
    """Sampling of one request.

    Attributes:
        max_new_tokens: tokens to generate, at least 1.
        temperature: 0 (below ``GREEDY_TEMPERATURE``) is greedy.
        top_k: keep the k most likely tokens; 0 is off.
        top_p: keep the smallest set of tokens whose probability reaches this; 1 is off, 0 keeps one.
        seed: seed of the request's own random generator; ``None`` takes a fresh one.
        ignore_eos: do not end at an end-of-sequence token.
        stop: texts that end the request; the text is cut before them.
        logprobs: number of most likely tokens whose log-probabilities are reported per step.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_new_tokens: int = Field(32, ge=1)
    temperature: float = Field(0.0, ge=0.0, allow_inf_nan=False)
    top_k: int = Field(0, ge=0)
    top_p: float = Field(1.0, ge=0.0, le=1.0)
    seed: int | None = Field(None, ge=0, lt=2**63)
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()
    logprobs: int = Field(0, ge=0, le=100)

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature < GREEDY_TEMPERATURE
