"""What a trace records, writes and says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphsink.errors import DeviceError
from graphsink.runtime.device import Device
from graphsink.runtime.graph_instance import GraphInstance
from graphsink.runtime.tasks import If, While
from graphsink.runtime.trace import Trace
from support.graphs import integers, run


def test_events_of_every_task_and_execution(two_cores: Device) -> None:
    tasks = [
        run("empty", blocks=2, label="wide", module="model.embed"),
        run("empty", cores=(1,), label="thin"),
    ]
    graph = GraphInstance(two_cores, tasks, name="step")
    graph.execute()  # not recorded
    with Trace(two_cores, [graph]) as trace:
        graph.execute()
        graph.execute_async()
        graph.wait()
    graph.execute()  # not recorded
    first_run = [event for event in trace.tasks if event.run == trace.host[0].run]
    assert sorted((event.task, event.core, event.kind, event.module_path) for event in first_run) == [
        ("thin", 1, "kernel", ""),
        ("wide", 0, "kernel", "model.embed"),
        ("wide", 1, "kernel", "model.embed"),
    ]
    assert len(trace.tasks) == 6
    assert [event.instance for event in trace.host] == ["step", "step"]
    assert trace.host[1].run == trace.host[0].run + 1
    for host in trace.host:
        assert host.submit_ns <= host.start_ns <= host.end_ns
        for event in trace.tasks:
            if event.run == host.run:
                assert host.start_ns <= event.ready_ns <= event.begin_ns <= event.end_ns <= host.end_ns
    assert trace.dropped == 0


def test_a_wait_names_the_task_that_was_waited_for(two_cores: Device) -> None:
    tasks = [
        run("delay", 1, 5_000_000, cores=(1,), after=(), label="slow"),
        run("empty", cores=(0,), after=(), label="early"),
        run("empty", cores=(0,), after=(0,), label="late"),
    ]
    graph = GraphInstance(two_cores, tasks)
    with Trace(two_cores, [graph]) as trace:
        graph.execute()
    by_name = {event.task: event for event in trace.tasks}
    assert by_name["late"].waited_for == "slow"
    assert by_name["early"].waited_for is None
    summary = trace.summarise()
    assert (summary.longest_gaps[0].before, summary.longest_gaps[0].waited_for) == ("late", "slow")
    assert 0 < summary.busy_fraction < 1
    assert summary.gap_total_ns == sum(gap.duration_ns for gap in summary.longest_gaps)


def test_a_loop_on_the_device_is_one_submission(device: Device) -> None:
    """1000 rounds: one event of the host around 2000 of the device."""
    buffer, values = integers(device, [1000, 0])
    body = [run("count_block", buffer.address + 8), run("add_to", buffer, -1)]
    graph = GraphInstance(device, [While(variable=buffer, body=body)])
    with Trace(device, [graph]) as trace:
        graph.execute()
    assert values.tolist() == [0, 1000]
    assert len(trace.host) == 1
    kernels = [event for event in trace.tasks if event.kind == "kernel"]
    assert len(kernels) == 2000
    assert {event.run for event in kernels} == {trace.host[0].run}
    assert {event.waited_for for event in kernels if event.task == "count_block"} == {"while"}


def test_the_chrome_trace_has_tracks_and_arrows(device: Device, tmp_path: Path) -> None:
    graph = GraphInstance(device, [run("empty", label="a"), run("empty", label="b")], name="step")
    with Trace(device, [graph]) as trace:
        graph.execute()
        graph.execute()
    trace.write_chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    phases = [event["ph"] for event in events]
    assert phases.count("X") == 2 * 2 + 2 * 2
    assert [event["args"]["name"] for event in events if event["ph"] == "M"][:2] == ["host", "device"]
    slices = [event for event in events if event["ph"] == "X"]
    starts = [event for event in events if event["ph"] == "s"]
    ends = [event for event in events if event["ph"] == "f"]
    assert [event["id"] for event in starts] == [event["id"] for event in ends] == [h.run for h in trace.host]
    for arrow in (*starts, *ends):  # an arrow binds to the slice around it
        assert any(
            (one["pid"], one["tid"]) == (arrow["pid"], arrow["tid"])
            and one["ts"] <= arrow["ts"] <= one["ts"] + one["dur"]
            for one in slices
        )
    for start, end in zip(starts, ends, strict=True):
        assert start["ts"] <= end["ts"]


def test_a_full_ring_keeps_the_newest(device: Device) -> None:
    graph = GraphInstance(device, [run("empty", label=f"t{number}") for number in range(10)])
    with Trace(device, [graph], events_per_core=4) as trace:
        graph.execute()
    assert [event.task for event in trace.tasks] == ["t6", "t7", "t8", "t9"]
    assert trace.dropped == 6


def test_an_empty_trace(device: Device) -> None:
    with Trace(device, []) as trace:
        pass
    summary = trace.summarise()
    assert (trace.tasks, trace.host) == ([], [])
    assert (summary.span_ns, summary.busy_fraction, summary.longest_gaps) == (0, 0.0, ())


def test_an_instance_that_is_gone_or_unknown_has_a_number(device: Device) -> None:
    graph = GraphInstance(device, [run("empty")], name="known")
    with Trace(device, []) as trace:
        graph.execute()
    assert trace.tasks[0].task == "task 0"
    assert trace.host[0].instance.startswith("instance ")


def test_only_one_trace_at_a_time(device: Device) -> None:
    with Trace(device, []), pytest.raises(DeviceError, match="is being traced already"), Trace(device, []):
        pass
    with Trace(device, []):
        pass
    with pytest.raises(DeviceError, match="a trace of 0 events"):
        Trace(device, [], events_per_core=0)


def test_control_tasks_and_branches_not_taken(device: Device) -> None:
    buffer, _ = integers(device, [0])
    graph = GraphInstance(
        device, [If(variable=buffer, then=[run("empty", label="no")]), run("empty", label="yes")]
    )
    with Trace(device, [graph]) as trace:
        graph.execute()
    assert [event.task for event in trace.tasks if event.kind == "kernel"] == ["yes"]
