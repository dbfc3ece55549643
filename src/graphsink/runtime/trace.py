"""What a device did and when: recording, a Chrome trace for Perfetto, and a summary."""

from __future__ import annotations

import json
import weakref
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from graphsink.errors import DeviceError
from graphsink.runtime.device import Device
from graphsink.runtime.graph_instance import GraphInstance

HOST_PROCESS = 1
DEVICE_PROCESS = 2
LONGEST_GAPS = 10


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """One task on one core; times in ns of the steady clock.

    Attributes:
        run: number of the execution on the device.
        instance, task, kind, module_path: what ran.
        core: where.
        ready_ns: the core could look at the task's dependencies.
        begin_ns, end_ns: it ran.
        waited_for: the last task on another core that it waited for, or the control task just before it;
            ``None`` if it did not wait.
    """

    run: int
    instance: str
    task: str
    kind: str
    module_path: str
    core: int
    ready_ns: int
    begin_ns: int
    end_ns: int
    waited_for: str | None


@dataclass(frozen=True, slots=True)
class HostEvent:
    """One execution as the host sees it; times in ns of the steady clock."""

    run: int
    instance: str
    submit_ns: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Gap:
    """Time in which a core ran nothing.

    Attributes:
        core, begin_ns, duration_ns: where and when.
        before: the task that the core ran next.
        waited_for: the task on another core that it waited for, ``"host"`` between two executions, or
            ``"nothing"`` (the time from one task to the next).
    """

    core: int
    begin_ns: int
    duration_ns: int
    before: str
    waited_for: str


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """A trace in figures.

    Attributes:
        span_ns: from the first task's begin to the last one's end.
        busy_fraction: share of ``span_ns`` times cores in which tasks ran.
        gap_total_ns: sum of all gaps over all cores.
        longest_gaps: the ten longest, longest first.
    """

    span_ns: int
    busy_fraction: float
    gap_total_ns: int
    longest_gaps: tuple[Gap, ...]


class Trace:
    """Records a device while the ``with`` block runs.

    Args:
        device: what to record.
        instances: graphs whose task names the trace should show.
        events_per_core: size of each core's ring; the newest events are kept, ``dropped`` counts the others.

    Raises:
        DeviceError: a ring without room; on entering, the device is closed or traced already.
    """

    def __init__(
        self, device: Device, instances: Iterable[GraphInstance], *, events_per_core: int = 1 << 16
    ) -> None:
        if events_per_core < 1:
            raise DeviceError(f"a trace of {events_per_core} events per core was asked for")
        self._device = device
        self._instances = {i._native.id: weakref.ref(i) for i in instances}
        self._events_per_core = events_per_core
        self.tasks: list[TaskEvent] = []
        self.host: list[HostEvent] = []
        self.dropped = 0

    def __enter__(self) -> Self:
        self._device.check_usable()
        self._device.check_outside_of_run("Trace")
        if not self._device._native.start_trace(self._events_per_core):
            raise DeviceError("the device is being traced already", hint="end the other trace first")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        native = self._device._native
        native.stop_trace()
        self.tasks = [self._task_event(event) for event in native.step_events()]
        self.host = [
            HostEvent(run, self._instance_name(instance), submit, start, end)
            for run, instance, submit, start, end in native.host_events()
        ]
        self.dropped = native.dropped_events()

    def write_chrome_trace(self, path: Path) -> None:
        """Write the trace in the JSON format that Perfetto and chrome://tracing open."""
        path.write_text(json.dumps({"traceEvents": self.chrome_events(), "displayTimeUnit": "ns"}))

    def chrome_events(self) -> list[dict[str, Any]]:
        """Host and device tracks, with an arrow from each submission to the first task that it started."""
        names = [_process_name(HOST_PROCESS, "host"), _process_name(DEVICE_PROCESS, "device")]
        cores = sorted({event.core for event in self.tasks})
        names += [_thread_name(DEVICE_PROCESS, core, f"core {core}") for core in cores]
        events = [*names, *(_task_slice(event) for event in self.tasks)]
        first_task: dict[int, TaskEvent] = {}
        for event in self.tasks:
            known = first_task.get(event.run)
            if known is None or event.begin_ns < known.begin_ns:
                first_task[event.run] = event
        for host in self.host:
            events += _host_slices(host)
            if host.run in first_task:
                events += _arrow(host, first_task[host.run])
        return events

    def summarise(self) -> TraceSummary:
        """Busy share, gaps, and what the device waited for in the longest of them."""
        if not self.tasks:
            return TraceSummary(0, 0.0, 0, ())
        by_core: dict[int, list[TaskEvent]] = defaultdict(list)
        for event in sorted(self.tasks, key=lambda event: event.begin_ns):
            by_core[event.core].append(event)
        begin = min(event.begin_ns for event in self.tasks)
        span = max(event.end_ns for event in self.tasks) - begin
        busy = sum(event.end_ns - event.begin_ns for event in self.tasks)
        gaps = [gap for events in by_core.values() for gap in _gaps(events)]
        gaps.sort(key=lambda gap: -gap.duration_ns)
        return TraceSummary(
            span_ns=span,
            busy_fraction=busy / (span * len(by_core)) if span else 1.0,
            gap_total_ns=sum(gap.duration_ns for gap in gaps),
            longest_gaps=tuple(gaps[:LONGEST_GAPS]),
        )

    def _task_event(self, event: Sequence[int]) -> TaskEvent:
        run, instance_id, task_id, core, ready, begin, end, waited_for = event
        kind, task, module_path = self._label(instance_id, task_id)
        return TaskEvent(
            run, self._instance_name(instance_id), task, kind, module_path, core, ready, begin, end,
            None if waited_for < 0 else self._label(instance_id, waited_for)[1],
        )  # fmt: skip

    def _label(self, instance_id: int, task_id: int) -> tuple[str, str, str]:
        """Kind, name and module path of a task, also of an instance that is gone."""
        reference = self._instances.get(instance_id)
        instance = reference() if reference is not None else None
        return instance.task_label(task_id) if instance is not None else ("task", f"task {task_id}", "")

    def _instance_name(self, instance_id: int) -> str:
        reference = self._instances.get(instance_id)
        instance = reference() if reference is not None else None
        return instance.name if instance is not None else f"instance {instance_id}"


def _gaps(events: Sequence[TaskEvent]) -> list[Gap]:
    """The gaps between the tasks of one core, which are in order."""
    gaps = []
    for previous, event in pairwise(events):
        duration = event.begin_ns - previous.end_ns
        if duration > 0:
            waited_for = "host" if previous.run != event.run else event.waited_for or "nothing"
            gaps.append(Gap(event.core, previous.end_ns, duration, event.task, waited_for))
    return gaps


def _microseconds(nanoseconds: int) -> float:
    return nanoseconds / 1e3


def _process_name(process: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": process, "tid": 0, "name": "process_name", "args": {"name": name}}


def _thread_name(process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": process, "tid": thread, "name": "thread_name", "args": {"name": name}}


def _task_slice(event: TaskEvent) -> dict[str, Any]:
    return {
        "ph": "X",
        "pid": DEVICE_PROCESS,
        "tid": event.core,
        "name": event.task,
        "cat": event.kind,
        "ts": _microseconds(event.begin_ns),
        "dur": _microseconds(event.end_ns - event.begin_ns),
        "args": {
            "run": event.run,
            "graph": event.instance,
            "module": event.module_path,
            "wait_us": _microseconds(event.begin_ns - event.ready_ns),
            "waited_for": event.waited_for,
        },
    }


def _host_slices(event: HostEvent) -> list[dict[str, Any]]:
    common = {"ph": "X", "pid": HOST_PROCESS, "tid": 0, "args": {"run": event.run}}
    submit, start, end = map(_microseconds, (event.submit_ns, event.start_ns, event.end_ns))
    return [
        {**common, "name": f"submit {event.instance}", "cat": "submit", "ts": submit, "dur": start - submit},
        {**common, "name": f"wait for {event.instance}", "cat": "wait", "ts": start, "dur": end - start},
    ]


def _arrow(host: HostEvent, task: TaskEvent) -> list[dict[str, Any]]:
    common = {"cat": "launch", "name": "launch", "id": host.run}
    return [
        {**common, "ph": "s", "pid": HOST_PROCESS, "tid": 0, "ts": _microseconds(host.submit_ns)},
        {
            **common,
            "ph": "f",
            "bp": "e",
            "pid": DEVICE_PROCESS,
            "tid": task.core,
            "ts": _microseconds(task.begin_ns),
        },
    ]
