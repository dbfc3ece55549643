#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>

#include "cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace graphsink {

namespace {

namespace fs = std::filesystem;

struct CacheInstance {
    int level = 0;
    std::int64_t bytes = 0;
    std::string shared_by;  // the cores that share it; identifies the instance
};

std::string first_word(const fs::path& file) {
    std::ifstream stream(file);
    std::string word;
    stream >> word;
    return word;
}

// "48K", "2048K", "300M"; empty for anything else.
std::optional<std::int64_t> size_of(const std::string& text) {
    std::int64_t value = 0;
    std::size_t digits = 0;
    while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9' && digits < 12) {
        value = value * 10 + (text[digits++] - '0');
    }
    if (digits == 0) return std::nullopt;
    const std::string unit = text.substr(digits);
    if (unit.empty()) return value;
    if (unit == "K") return value << 10;
    if (unit == "M") return value << 20;
    if (unit == "G") return value << 30;
    return std::nullopt;
}

std::vector<CacheInstance> from_sysfs(int core, const fs::path& sysfs_cpu) {
    std::vector<CacheInstance> found;
    const fs::path directory = sysfs_cpu / ("cpu" + std::to_string(core)) / "cache";
    for (int index = 0; fs::exists(directory / ("index" + std::to_string(index))); ++index) {
        const fs::path entry = directory / ("index" + std::to_string(index));
        if (first_word(entry / "type") == "Instruction") continue;
        const auto level = size_of(first_word(entry / "level"));
        const auto bytes = size_of(first_word(entry / "size"));
        if (!level || !bytes) continue;
        std::string shared_by = first_word(entry / "shared_cpu_list");
        if (shared_by.empty()) shared_by = std::to_string(core);
        found.push_back({static_cast<int>(*level), *bytes, std::move(shared_by)});
    }
    return found;
}

#if defined(__x86_64__)
// Leaf 4 (Intel) and 0x8000001d (AMD) have the same layout. They describe the core this thread runs
// on; which cores share an instance cannot be told, so one instance of each level is assumed.
std::vector<CacheInstance> from_processor() {
    for (const unsigned leaf : {4u, 0x8000001du}) {
        std::vector<CacheInstance> found;
        unsigned a = 0, b = 0, c = 0, d = 0;
        for (unsigned index = 0; __get_cpuid_count(leaf, index, &a, &b, &c, &d) && index < 16; ++index) {
            const unsigned type = a & 0x1f;  // 0 none, 1 data, 2 instruction, 3 unified
            if (type == 0) break;
            if (type == 2) continue;
            const std::int64_t ways = (b >> 22) + 1, partitions = (b >> 12 & 0x3ff) + 1;
            const std::int64_t line = (b & 0xfff) + 1, sets = static_cast<std::int64_t>(c) + 1;
            found.push_back({static_cast<int>(a >> 5 & 7), ways * partitions * line * sets, "all"});
        }
        if (!found.empty()) return found;
    }
    return {};
}
#else
std::vector<CacheInstance> from_processor() {
    return {};
}
#endif

}  // namespace

CacheSizes cache_sizes(const std::vector<int>& cores, const std::string& sysfs_cpu) {
    CacheSizes sizes;
    int last_level = 0;
    std::map<int, std::map<std::string, std::int64_t>> instances;  // level -> shared_by -> bytes
    for (std::size_t i = 0; i < cores.size(); ++i) {
        auto found = from_sysfs(cores[i], sysfs_cpu);
        if (found.empty()) found = from_processor();
        for (const auto& cache : found) {
            instances[cache.level][cache.shared_by] = cache.bytes;
            last_level = std::max(last_level, cache.level);
            if (i != 0) continue;
            if (cache.level == 1) sizes.l1d_bytes = cache.bytes;
            if (cache.level == 2) sizes.l2_bytes = cache.bytes;
            if (cache.level == 3) sizes.l3_bytes = cache.bytes;
        }
    }
    if (last_level == 0) return sizes;
    for (const auto& [shared_by, bytes] : instances[last_level]) sizes.last_level_total_bytes += bytes;
    return sizes;
}

}  // namespace graphsink
