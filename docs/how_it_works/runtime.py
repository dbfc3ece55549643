"""How the runtime works, in small steps. Every statement below is executed by the tests.

python docs/how_it_works/runtime.py [TRACE.json]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

from graphsink.errors import ExecutionTimeoutError, TaskFailedError
from graphsink.runtime.device import Device
from graphsink.runtime.graph_instance import GraphInstance
from graphsink.runtime.tasks import HostTask, KernelTask, Parameter, Task, While, prebuilt_kernel
from graphsink.runtime.trace import Trace

# A device is a set of cores with memory of its own. The thread that executes a graph is one of the cores;
# the device has a thread for each of the others. They spin for a moment after a run, then they sleep.
device = Device()
isa = str(device.isa)
print(f"{device.num_cores} cores, kernels for {isa}")

# Memory is 64-byte aligned; numpy sees it without a copy.
numbers = device.allocate(8 * 8)
view = numbers.as_array(np.int64, 8)
view[:] = 0

# ---- A graph of two kernels
#
# A kernel is a plain C function, called once per block: `count_block` adds 1 to the element of its block,
# `add_to` adds a value to one element. Each task waits for the one before it, unless it says otherwise. The
# value is a parameter, so it can change between executions without loading anything again.
tasks: list[Task] = [
    KernelTask(kernel=prebuilt_kernel("count_block", isa), slots=[numbers], block_dim=8),
    KernelTask(kernel=prebuilt_kernel("add_to", isa), slots=[numbers, Parameter("step")]),
]
graph = GraphInstance(device, tasks, parameters={"step": 10}, name="two kernels")

# Loading turned the list into one program per core: which blocks to run, and how far other cores must have
# come before. The second task runs on core 0 and waits once for every other core.
print(f"{graph.num_tasks} tasks, {graph.num_waits} waits between cores, state {graph.state}")
assert graph.num_waits == device.num_cores - 1

# One call runs all of it. Python is not involved again until it returns.
graph.execute()
assert view.tolist() == [11, 1, 1, 1, 1, 1, 1, 1]
graph.set("step", 100)
graph.execute()
assert view.tolist() == [112, 2, 2, 2, 2, 2, 2, 2]

# ---- A loop on the device
#
# WHILE reads a variable in memory before each round, so the whole loop is one submission.
left = device.allocate(8)
left.as_array(np.int64)[0] = 1000
view[:] = 0
body: list[Task] = [
    KernelTask(kernel=prebuilt_kernel("count_block", isa), slots=[numbers], block_dim=2, name="work"),
    KernelTask(kernel=prebuilt_kernel("add_to", isa), slots=[left, -1], name="one round less"),
]
loop = GraphInstance(device, [While(variable=left, body=body)], name="loop")

# ---- A trace of it
#
# What every core did and when. The host appears once; the device has 2000 tasks, some of them on two cores.
with Trace(device, [loop]) as trace:
    loop.execute()
assert view[:2].tolist() == [1000, 1000]
assert len(trace.host) == 1
assert sum(event.task == "one round less" for event in trace.tasks) == 1000

summary = trace.summarise()
print(f"{summary.span_ns / 1e3:.0f} us, {summary.busy_fraction:.0%} busy; the longest gap:")
print(f"  {summary.longest_gaps[0]}")

# Perfetto (ui.perfetto.dev) opens the file: host and device tracks, and an arrow from the submission.
path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()) / "trace.json"
trace.write_chrome_trace(path)
print(f"wrote {path.name}, {path.stat().st_size >> 10} KiB")

# ---- When something goes wrong
#
# An error names the task, where it came from, and what it reported. The instance can be used again.
bad = KernelTask(kernel=prebuilt_kernel("fail", isa), slots=[7], name="gather", module_path="model.embed")
failing = GraphInstance(device, [bad])
try:
    failing.execute()
except TaskFailedError as error:
    print(error)
    assert (error.task, error.module_path, error.code) == ("gather", "model.embed", 7)
assert failing.state == "READY"

# A loop that never ends is ended by a time-out, an abort from another thread, or Ctrl-C.
left.as_array(np.int64)[0] = -1  # counts away from 0
try:
    loop.execute(timeout=0.05)
except ExecutionTimeoutError as error:
    print(error)

# ---- Asynchronous executions
#
# They run in order on threads of the device; `wait` raises what went wrong. A Python function can be a task,
# but it stops all cores and takes Python's lock: the last resort.
order: list[str] = []
graphs = [
    GraphInstance(device, [HostTask(function=lambda name=name: order.append(name))])
    for name in ("a", "b", "c")
]
for each in graphs:
    each.execute_async()
for each in graphs:
    each.wait()
assert order == ["a", "b", "c"]

device.close()
print("done")
