"""One device for all tests of the runtime; torch only checks results, on one thread."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

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


@pytest.fixture(autouse=True)
def _one_torch_thread() -> Iterator[None]:
    """Small tensors: more threads only wait for each other, for seconds where the cores are busy."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
