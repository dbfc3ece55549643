"""Affinity and control-group limits, against fake control-group trees."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from graphsink import _native


class FakeGroups:
    """A /proc/self directory and the control-group trees that it points to."""

    def __init__(self, root: Path) -> None:
        self.proc_self = root / "self"
        self.proc_self.mkdir(parents=True)
        self.root = root
        self._mounts: list[str] = ["22 1 0:5 / /proc rw,relatime - proc proc rw"]

    def mount(self, name: str, kind: str, controllers: str, mount_root: str = "/") -> Path:
        directory = self.root / name
        directory.mkdir(parents=True)
        where = str(directory).replace("\\", "\\134").replace(" ", "\\040")
        self._mounts.append(f"31 22 0:28 {mount_root} {where} rw shared:9 - {kind} {kind} rw,{controllers}")
        (self.proc_self / "mountinfo").write_text("\n".join(self._mounts) + "\n")
        return directory

    def member_of(self, *lines: str) -> None:
        (self.proc_self / "cgroup").write_text("\n".join(lines) + "\n")


def write(directory: Path, **files: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name.replace("__", ".")).write_text(text + "\n")


@pytest.fixture
def groups(tmp_path: Path) -> FakeGroups:
    return FakeGroups(tmp_path)


def test_affinity_is_that_of_the_calling_thread() -> None:
    allowed = _native.allowed_cores()
    assert allowed.affinity == sorted(os.sched_getaffinity(0))
    assert 1 <= allowed.usable <= len(allowed.affinity)


def test_narrowed_affinity_is_seen() -> None:
    before = os.sched_getaffinity(0)
    last = max(before)
    os.sched_setaffinity(0, {last})
    try:
        allowed = _native.allowed_cores()
    finally:
        os.sched_setaffinity(0, before)
    assert (allowed.affinity, allowed.usable) == ([last], 1)


def test_no_control_groups_no_limit(tmp_path: Path) -> None:
    allowed = _native.allowed_cores(str(tmp_path))
    assert allowed.quota is None
    assert allowed.usable == len(allowed.affinity)
    assert _native.tightest_memory_limit(str(tmp_path)) is None


def test_v2_quota_of_an_ancestor_counts(groups: FakeGroups) -> None:
    root = groups.mount("fs", "cgroup2", "nsdelegate")
    groups.member_of("0::/pod/container/job")
    write(root / "pod", cpu__max="150000 100000")
    write(root / "pod/container", cpu__max="max 100000")
    write(root / "pod/container/job", cpu__max="400000 100000")
    allowed = _native.allowed_cores(str(groups.proc_self))
    assert allowed.quota is not None
    assert (allowed.quota.quota_us, allowed.quota.period_us) == (150000, 100000)
    assert allowed.quota.directory == str(root / "pod")
    assert allowed.usable == 1  # one and a half cores carry one worker


def test_v2_unlimited(groups: FakeGroups) -> None:
    root = groups.mount("fs", "cgroup2", "")
    groups.member_of("0::/")
    write(root, cpu__max="max 100000", memory__max="max", memory__current="5")
    assert _native.allowed_cores(str(groups.proc_self)).quota is None
    assert _native.tightest_memory_limit(str(groups.proc_self)) is None


def test_v1_quota(groups: FakeGroups) -> None:
    root = groups.mount("cpu,cpuacct", "cgroup", "cpu,cpuacct")
    groups.mount("memory", "cgroup", "memory")
    groups.member_of("4:memory:/other", "2:cpuacct,cpu:/job", "1:name=systemd:/")
    write(root, cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    write(root / "job", cpu__cfs_quota_us="50000", cpu__cfs_period_us="100000")
    allowed = _native.allowed_cores(str(groups.proc_self))
    assert allowed.quota is not None
    assert (allowed.quota.quota_us, allowed.quota.directory) == (50000, str(root / "job"))
    assert allowed.usable == 1  # never less than one


def test_wide_quota_does_not_add_cores(groups: FakeGroups) -> None:
    root = groups.mount("fs", "cgroup2", "")
    groups.member_of("0::/")
    write(root, cpu__max="100000000 100000")
    allowed = _native.allowed_cores(str(groups.proc_self))
    assert allowed.quota is not None
    assert allowed.usable == len(allowed.affinity)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_quota_is_rounded_down_to_whole_cores(groups: FakeGroups) -> None:
    root = groups.mount("fs", "cgroup2", "")
    groups.member_of("0::/")
    write(root, cpu__max="200000 100000")
    assert _native.allowed_cores(str(groups.proc_self)).usable == 2
    write(root, cpu__max="199999 100000")
    assert _native.allowed_cores(str(groups.proc_self)).usable == 1


def test_container_that_sees_the_path_of_the_host(groups: FakeGroups) -> None:
    # Without a cgroup namespace, /proc/self/cgroup has the host's path and the mount is its subtree.
    root = groups.mount("fs", "cgroup2", "", mount_root="/docker/abc")
    groups.member_of("0::/docker/abc/inner")
    write(root, cpu__max="max 100000")
    write(root / "inner", cpu__max="100000 100000")
    quota = _native.allowed_cores(str(groups.proc_self)).quota
    assert quota is not None
    assert quota.directory == str(root / "inner")


@pytest.mark.parametrize("path", ["/elsewhere", "/docker/abcdef", "/../sibling"])
def test_group_outside_the_mount_uses_what_is_visible(groups: FakeGroups, path: str) -> None:
    root = groups.mount("fs", "cgroup2", "", mount_root="/docker/abc")
    groups.member_of(f"0::{path}")
    write(root, cpu__max="100000 100000")
    write(root / "sibling", cpu__max="1000 100000")
    quota = _native.allowed_cores(str(groups.proc_self)).quota
    assert quota is not None
    assert quota.directory == str(root)


def test_parent_of_a_namespace_root_is_not_followed(groups: FakeGroups) -> None:
    root = groups.mount("fs", "cgroup2", "")
    groups.member_of("0::/../../host")
    write(root, cpu__max="100000 100000")
    quota = _native.allowed_cores(str(groups.proc_self)).quota
    assert quota is not None
    assert quota.directory == str(root)


def test_mount_point_with_a_space(groups: FakeGroups) -> None:
    root = groups.mount("control groups", "cgroup2", "")
    groups.member_of("0::/")
    write(root, cpu__max="100000 100000")
    quota = _native.allowed_cores(str(groups.proc_self)).quota
    assert quota is not None
    assert quota.directory == str(root)


@pytest.mark.parametrize("text", ["", "garbage", "max", "-5 100000", "0 100000", "100000 0", "100000"])
def test_unreadable_quota_is_no_quota(groups: FakeGroups, text: str) -> None:
    root = groups.mount("fs", "cgroup2", "")
    groups.member_of("0::/")
    write(root, cpu__max=text)
    assert _native.allowed_cores(str(groups.proc_self)).quota is None


def test_v2_memory_limit_with_the_least_left(groups: FakeGroups) -> None:
    root = groups.mount("fs", "cgroup2", "")
    groups.member_of("0::/outer/inner")
    write(root / "outer", memory__max="1000", memory__current="900", memory__stat="anon 1\ninactive_file 50")
    write(root / "outer/inner", memory__max="800", memory__current="100", memory__stat="inactive_file 0")
    limit = _native.tightest_memory_limit(str(groups.proc_self))
    assert limit is not None
    assert (limit.limit_bytes, limit.used_bytes, limit.directory) == (1000, 850, str(root / "outer"))


def test_v1_memory_limit(groups: FakeGroups) -> None:
    root = groups.mount("memory", "cgroup", "memory")
    groups.member_of("4:memory:/job")
    write(root, memory__limit_in_bytes="9223372036854771712", memory__usage_in_bytes="5")
    write(
        root / "job",
        memory__limit_in_bytes="4096",
        memory__usage_in_bytes="1024",
        memory__stat="inactive_file 7\ntotal_inactive_file 24",
    )
    limit = _native.tightest_memory_limit(str(groups.proc_self))
    assert limit is not None
    assert (limit.limit_bytes, limit.used_bytes) == (4096, 1000)


def test_hybrid_hierarchy_takes_the_controller_from_v1(groups: FakeGroups) -> None:
    groups.mount("unified", "cgroup2", "")
    root = groups.mount("cpu", "cgroup", "cpu")
    groups.member_of("1:cpu:/", "0::/")
    write(root, cpu__cfs_quota_us="100000", cpu__cfs_period_us="100000")
    quota = _native.allowed_cores(str(groups.proc_self)).quota
    assert quota is not None
    assert quota.directory == str(root)
