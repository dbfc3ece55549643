#include "cgroup.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

namespace graphsink {

namespace {

namespace fs = std::filesystem;

struct Hierarchy {
    bool unified = false;  // cgroup v2
    fs::path mount_point;
    std::string mount_root;  // the group that is visible at the mount point
    std::vector<std::string> controllers;
};

std::vector<std::string> split(const std::string& text, char separator) {
    std::vector<std::string> parts;
    std::istringstream stream(text);
    for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
    return parts;
}

// mountinfo writes space, tab, newline and backslash as \ooo.
std::string unescaped(const std::string& text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        int code = 0;
        if (text[i] == '\\' && i + 3 < text.size() &&
            std::from_chars(&text[i + 1], &text[i + 1] + 3, code, 8).ptr == &text[i + 1] + 3) {
            out.push_back(static_cast<char>(code));
            i += 3;
        } else {
            out.push_back(text[i]);
        }
    }
    return out;
}

// A line: "id parent dev root mount-point options [optional...] - type source super-options".
std::vector<Hierarchy> mounted_hierarchies(const fs::path& proc_self) {
    std::vector<Hierarchy> found;
    std::ifstream file(proc_self / "mountinfo");
    for (std::string line; std::getline(file, line);) {
        const auto separator = line.find(" - ");
        if (separator == std::string::npos) continue;
        const auto left = split(line.substr(0, separator), ' ');
        const auto right = split(line.substr(separator + 3), ' ');
        if (left.size() < 5 || right.empty()) continue;
        if (right[0] != "cgroup" && right[0] != "cgroup2") continue;
        Hierarchy hierarchy;
        hierarchy.unified = right[0] == "cgroup2";
        hierarchy.mount_root = unescaped(left[3]);
        hierarchy.mount_point = unescaped(left[4]);
        if (right.size() >= 3) hierarchy.controllers = split(right[2], ',');
        found.push_back(std::move(hierarchy));
    }
    return found;
}

bool has(const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

// The process's group in a hierarchy, from lines "id:controllers:path" ("0::path" is v2).
std::optional<std::string> group_of_process(const fs::path& proc_self, bool unified,
                                            const std::string& controller) {
    std::ifstream file(proc_self / "cgroup");
    for (std::string line; std::getline(file, line);) {
        const auto first = line.find(':');
        const auto second = line.find(':', first == std::string::npos ? first : first + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        const bool match = unified ? controllers.empty() : has(split(controllers, ','), controller);
        if (match) return line.substr(second + 1);
    }
    return std::nullopt;
}

// Directories from the process's group up to the mount point. In a container without a cgroup
// namespace the path is the host's, and the mount shows only a part of the tree: the part that
// `mount_root` names is cut off, and if it does not match, the mount point is all we can see.
std::vector<fs::path> directories_upwards(const Hierarchy& hierarchy, std::string group) {
    if (hierarchy.mount_root != "/") {
        const bool inside = group == hierarchy.mount_root || group.starts_with(hierarchy.mount_root + "/");
        group = inside ? group.substr(hierarchy.mount_root.size()) : "";
    }
    std::vector<fs::path> found = {hierarchy.mount_point};
    for (const auto& part : fs::path(group).relative_path()) {
        if (part == "..") return {hierarchy.mount_point};  // outside our cgroup namespace
        if (!part.empty()) found.push_back(found.back() / part);
    }
    std::reverse(found.begin(), found.end());
    return found;
}

// Whole numbers in a file; "max" and anything unreadable end the list.
std::vector<std::int64_t> numbers_in(const fs::path& path) {
    std::vector<std::int64_t> numbers;
    std::ifstream file(path);
    for (std::int64_t value = 0; file >> value;) numbers.push_back(value);
    return numbers;
}

// The value of a "name value" line, 0 if there is none.
std::int64_t field_in(const fs::path& path, const std::string& name) {
    std::ifstream file(path);
    std::string key;
    for (std::int64_t value = 0; file >> key >> value;) {
        if (key == name) return value;
    }
    return 0;
}

std::optional<CpuQuota> cpu_quota_of(const fs::path& directory, bool unified) {
    std::vector<std::int64_t> numbers;
    if (unified) {
        numbers = numbers_in(directory / "cpu.max");  // "quota period" or "max period"
    } else {
        numbers = numbers_in(directory / "cpu.cfs_quota_us");  // -1: no limit
        const auto period = numbers_in(directory / "cpu.cfs_period_us");
        numbers.insert(numbers.end(), period.begin(), period.end());
    }
    if (numbers.size() < 2 || numbers[0] <= 0 || numbers[1] <= 0) return std::nullopt;
    return CpuQuota{numbers[0], numbers[1], directory.string()};
}

std::optional<MemoryLimit> memory_limit_of(const fs::path& directory, bool unified) {
    const auto limit = numbers_in(directory / (unified ? "memory.max" : "memory.limit_in_bytes"));
    const auto used = numbers_in(directory / (unified ? "memory.current" : "memory.usage_in_bytes"));
    // v1 writes "no limit" as the largest multiple of the page size.
    constexpr std::int64_t unlimited = std::int64_t{1} << 62;
    if (limit.empty() || used.empty() || limit[0] >= unlimited) return std::nullopt;
    const auto droppable =
        field_in(directory / "memory.stat", unified ? "inactive_file" : "total_inactive_file");
    return MemoryLimit{limit[0], std::max<std::int64_t>(0, used[0] - droppable), directory.string()};
}

// Calls `visit(directory, unified)` for every group that can limit `controller` for this process.
template <class Visit>
void for_each_group(const fs::path& proc_self, const std::string& controller, Visit visit) {
    for (const auto& hierarchy : mounted_hierarchies(proc_self)) {
        if (!hierarchy.unified && !has(hierarchy.controllers, controller)) continue;
        const auto group = group_of_process(proc_self, hierarchy.unified, controller);
        if (!group) continue;
        for (const auto& directory : directories_upwards(hierarchy, *group)) {
            visit(directory, hierarchy.unified);
        }
    }
}

}  // namespace

std::optional<CpuQuota> tightest_cpu_quota(const std::string& proc_self) {
    std::optional<CpuQuota> tightest;
    for_each_group(proc_self, "cpu", [&](const fs::path& directory, bool unified) {
        const auto quota = cpu_quota_of(directory, unified);
        if (!quota) return;
        // Ratios compared as doubles: a quota is at most 2^44 microseconds or so.
        const auto cores = [](const CpuQuota& q) {
            return static_cast<double>(q.quota_us) / static_cast<double>(q.period_us);
        };
        if (!tightest || cores(*quota) < cores(*tightest)) tightest = quota;
    });
    return tightest;
}

std::optional<MemoryLimit> tightest_memory_limit(const std::string& proc_self) {
    std::optional<MemoryLimit> tightest;
    for_each_group(proc_self, "memory", [&](const fs::path& directory, bool unified) {
        const auto limit = memory_limit_of(directory, unified);
        if (!limit) return;
        const auto left = [](const MemoryLimit& m) { return m.limit_bytes - m.used_bytes; };
        if (!tightest || left(*limit) < left(*tightest)) tightest = limit;
    });
    return tightest;
}

}  // namespace graphsink
