"""One device for all tests of the runtime, and short ways to kernels and tasks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from graphsink.runtime.device import Device


@pytest.fixture(scope="session")
def device() -> Iterator[Device]:
    with Device() as made:
        yield made


@pytest.fixture
def two_cores(device: Device) -> Device:
    if device.num_cores < 2:
        pytest.skip("this machine allows one core")
    return device
