"""Decisions: why something was done, or was not done.

Every accept and every refusal, in every layer, is one `Decision`. Records are stored with the plan
they led to, so a plan that comes from the cache explains itself exactly as one made just now.
Reports only render them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Annotated, Final

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from graphsink.errors import GraphsinkError, InternalError


class Verdict(StrEnum):
    """How a decision went."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    NOTED = "noted"
    """Nothing was decided; something worth knowing was seen."""


def _real_reason(code: str) -> str:
    if code == "unknown":
        raise ValueError("'unknown' is not a reason")
    return code


Code = Annotated[str, Field(pattern=r"^[a-z][a-z0-9]*([_.-][a-z0-9]+)*$")]
"""Lower-case words joined by ``_``, ``.`` or ``-``: stable names that a program can count by."""

_CONFIG: Final = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


@dataclass(frozen=True, slots=True, config=_CONFIG)
class Subject:
    """What a decision is about.

    Attributes:
        name: an operator, a buffer, a module path, a configuration key.
        source: where it comes from in the user's files, as ``file:line``, if that is known.
    """

    name: Annotated[str, Field(min_length=1)]
    source: str | None = None


@dataclass(frozen=True, slots=True, config=_CONFIG)
class Decision:
    """One decision.

    Attributes:
        rule: the rule or pass that decided (``fusion.vertical``).
        subjects: what it decided about, at least one.
        verdict: accepted, refused or noted.
        reason: stable code of the reason (``dtype_unsupported``); ``unknown`` is not allowed.
        detail: the reason in words, with the numbers that led to it.
        estimated_bytes: memory traffic saved (positive) or added (negative), if it was estimated.
        estimated_ns: time saved (positive) or added (negative), if it was estimated.

    A field of the wrong type, an ill-formed code or an empty subject list raises
    ``pydantic.ValidationError``, a ``ValueError``.
    """

    rule: Code
    subjects: Annotated[tuple[Subject, ...], Field(min_length=1)]
    verdict: Verdict
    reason: Annotated[Code, AfterValidator(_real_reason)]
    detail: str
    estimated_bytes: int | None = None
    estimated_ns: float | None = None


_ADAPTER: Final = TypeAdapter(tuple[Decision, ...])


class DecisionLog:
    """Collects the decisions of one run, in order. Not safe for use from several threads at once."""

    def __init__(self, decisions: Iterable[Decision] = ()) -> None:
        self._decisions = list(decisions)

    def add(self, decision: Decision) -> None:
        """Append a decision."""
        self._decisions.append(decision)

    def record(
        self,
        rule: str,
        subject: str | Subject | Iterable[Subject],
        verdict: Verdict,
        reason: str,
        detail: str,
        *,
        estimated_bytes: int | None = None,
        estimated_ns: float | None = None,
    ) -> Decision:
        """Make a decision, append it and return it.

        Raises:
            InternalError: a field is not acceptable (see `Decision`).
        """
        try:
            if isinstance(subject, str):
                subject = Subject(subject)
            subjects = (subject,) if isinstance(subject, Subject) else tuple(subject)
            decision = Decision(rule, subjects, verdict, reason, detail, estimated_bytes, estimated_ns)
        except ValidationError as error:
            raise InternalError(
                f"a decision record is not acceptable: {_first_fault(error)}",
                where=f"rule {rule!r}, reason {reason!r}",
                hint="report this as a bug of graphsink",
            ) from error
        self._decisions.append(decision)
        return decision

    def __len__(self) -> int:
        return len(self._decisions)

    def __iter__(self) -> Iterator[Decision]:
        return iter(self._decisions)

    def with_verdict(self, verdict: Verdict) -> tuple[Decision, ...]:
        """The decisions with one verdict, in order."""
        return tuple(decision for decision in self._decisions if decision.verdict is verdict)

    def reason_counts(self, verdict: Verdict) -> dict[str, int]:
        """How often each reason led to ``verdict``, most frequent first."""
        return dict(Counter(decision.reason for decision in self.with_verdict(verdict)).most_common())

    def to_json(self) -> str:
        """The decisions as a JSON array of objects; `from_json` gives an equal log back."""
        return _ADAPTER.dump_json(tuple(self._decisions)).decode()

    @classmethod
    def from_json(cls, text: str | bytes, *, where: str | None = None) -> DecisionLog:
        """Read what `to_json` wrote.

        Args:
            text: the JSON.
            where: the file it came from, for the message.

        Raises:
            GraphsinkError: the text is damaged or was written by an incompatible version.
        """
        try:
            return cls(_ADAPTER.validate_json(text))
        except ValidationError as error:
            raise GraphsinkError(
                f"decision records cannot be read: {_first_fault(error)}",
                where=where,
                hint="delete the stored plan; it is made again when it is needed",
            ) from error


def _first_fault(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or "the whole text"
    return f"{place}: {first['msg']} ({error.error_count()} fault(s) in all)"
