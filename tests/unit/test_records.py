"""Decision records: what is accepted, and the way through JSON."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from graphsink.errors import GraphsinkError, InternalError
from graphsink.records import Decision, DecisionLog, Subject, Verdict

ADD = Subject("aten.add.Tensor", "model.py:12")


def example(**changes: Any) -> Decision:
    values: dict[str, Any] = {
        "rule": "fusion.vertical",
        "subjects": (ADD, Subject("aten.mul.Tensor")),
        "verdict": Verdict.REFUSED,
        "reason": "dtype_unsupported",
        "detail": "int64 has no vector form",
        "estimated_bytes": -4096,
        "estimated_ns": 1.5,
    }
    return Decision(**{**values, **changes})


def test_json_form() -> None:
    assert json.loads(DecisionLog([example()]).to_json()) == [
        {
            "rule": "fusion.vertical",
            "subjects": [
                {"name": "aten.add.Tensor", "source": "model.py:12"},
                {"name": "aten.mul.Tensor", "source": None},
            ],
            "verdict": "refused",
            "reason": "dtype_unsupported",
            "detail": "int64 has no vector form",
            "estimated_bytes": -4096,
            "estimated_ns": 1.5,
        }
    ]


CODES = st.from_regex(r"\A[a-z][a-z0-9]*([_.-][a-z0-9]+)*\Z").filter(lambda code: code != "unknown")
TEXTS = st.text(st.characters(codec="utf-8"))
SUBJECTS = st.builds(Subject, st.text(st.characters(codec="utf-8"), min_size=1), st.none() | TEXTS)
DECISIONS = st.builds(
    Decision,
    CODES,
    st.lists(SUBJECTS, min_size=1, max_size=3).map(tuple),
    st.sampled_from(Verdict),
    CODES,
    TEXTS,
    st.none() | st.integers(-(2**62), 2**62),
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
)


@given(st.lists(DECISIONS, max_size=4))
def test_json_round_trip(decisions: list[Decision]) -> None:
    assert list(DecisionLog.from_json(DecisionLog(decisions).to_json())) == decisions


@pytest.mark.parametrize(
    "changes",
    [
        {"reason": "unknown"},
        {"reason": "Not A Code"},
        {"reason": ""},
        {"rule": ""},
        {"subjects": ()},
        {"verdict": "maybe"},
        {"detail": None},
        {"estimated_bytes": 1.5},
        {"estimated_ns": float("nan")},
    ],
    ids=str,
)
def test_records_that_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        example(**changes)


def test_an_empty_subject_is_refused() -> None:
    with pytest.raises(ValidationError):
        Subject("")


def test_records_do_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        example().detail = "other"  # type: ignore[misc]


def test_log_collects_in_order() -> None:
    log = DecisionLog()
    log.record("lowering", "aten.sort", Verdict.REFUSED, "no_lowering", "sort has no lowering")
    log.record("lowering", ADD, Verdict.ACCEPTED, "lowered", "one loop", estimated_bytes=8)
    log.record("lowering", (ADD, ADD), Verdict.REFUSED, "no_lowering", "again")
    log.record("fusion", ADD, Verdict.REFUSED, "too_large", "2 MiB, limit 1 MiB")
    assert len(log) == 4
    assert [decision.reason for decision in log] == ["no_lowering", "lowered", "no_lowering", "too_large"]
    assert log.reason_counts(Verdict.REFUSED) == {"no_lowering": 2, "too_large": 1}
    assert log.reason_counts(Verdict.NOTED) == {}
    assert [decision.estimated_bytes for decision in log.with_verdict(Verdict.ACCEPTED)] == [8]
    assert next(iter(log)).subjects == (Subject("aten.sort"),)


def test_a_rule_that_records_nonsense_is_a_bug() -> None:
    with pytest.raises(InternalError, match="'unknown' is not a reason") as caught:
        DecisionLog().record("fusion", ADD, Verdict.REFUSED, "unknown", "")
    assert caught.value.where == "rule 'fusion', reason 'unknown'"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Invalid JSON"),
        ("{}", "the whole text"),
        ('[{"rule": "a"}]', "0.subjects: Field required"),
        ('[{"rule": "a", "extra": 1}]', "fault"),
    ],
)
def test_damaged_json(text: str, message: str) -> None:
    with pytest.raises(GraphsinkError, match=message) as caught:
        DecisionLog.from_json(text, where="plan.json")
    assert caught.value.where == "plan.json"


def test_logs_are_independent() -> None:
    first, second = DecisionLog(), DecisionLog()
    first.add(example())
    assert (len(first), len(second)) == (1, 0)
