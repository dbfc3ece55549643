#include "cpu_features.h"

#include <array>
#include <cstring>
#include <iterator>
#include <stdexcept>
#include <utility>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>

#include <cstdio>
#include <fstream>
#endif

namespace graphsink {

namespace {

constexpr std::pair<IsaLevel, const char*> kLevelNames[] = {
    {IsaLevel::scalar, "scalar"},           {IsaLevel::avx2, "avx2"}, {IsaLevel::avx512, "avx512"},
    {IsaLevel::avx512_bf16, "avx512_bf16"}, {IsaLevel::amx, "amx"},   {IsaLevel::neon, "neon"},
};

#if defined(__x86_64__)

struct CpuidRegisters {
    unsigned a = 0, b = 0, c = 0, d = 0;
};

// All zeros for a leaf that the processor does not have.
CpuidRegisters cpuid(unsigned leaf, unsigned subleaf = 0) {
    CpuidRegisters r;
    if (!__get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d)) return {};
    return r;
}

// Register file state that the operating system saves on a context switch (XCR0). Written as
// assembly because the intrinsic needs -mxsave, and this file is built for the baseline.
std::uint64_t enabled_state() {
    constexpr unsigned osxsave = 1u << 27;
    if (!(cpuid(1).c & osxsave)) return 0;
    std::uint32_t low = 0, high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (static_cast<std::uint64_t>(high) << 32) | low;
}

// Linux gives tile registers only to processes that asked. The request can be refused (old kernel,
// seccomp, an alternate signal stack that is too small), and then the first tile instruction would
// be SIGILL; so the answer is part of detection. Asking twice is harmless.
bool request_tile_permission() {
    constexpr long arch_req_xcomp_perm = 0x1023;
    constexpr long xfeature_xtiledata = 18;
    return syscall(SYS_arch_prctl, arch_req_xcomp_perm, xfeature_xtiledata) == 0;
}

constexpr std::uint64_t kStateAvx = 0x6;        // XMM and YMM
constexpr std::uint64_t kStateAvx512 = 0xe6;    // + opmask, ZMM0-15 upper halves, ZMM16-31
constexpr std::uint64_t kStateAmx = 0x3 << 17;  // tile configuration and tile data

struct FeatureBit {
    const char* name;
    unsigned leaf, subleaf;
    unsigned CpuidRegisters::* reg;
    int bit;
    std::uint64_t state;  // register state the operating system must have enabled
};

// Names are those of /proc/cpuinfo. Bit positions: Intel SDM volume 2A, CPUID; AMD APM volume 3,
// appendix E.
constexpr FeatureBit kFeatureBits[] = {
    {"sse4_2", 1, 0, &CpuidRegisters::c, 20, 0},
    {"fma", 1, 0, &CpuidRegisters::c, 12, kStateAvx},
    {"avx", 1, 0, &CpuidRegisters::c, 28, kStateAvx},
    {"f16c", 1, 0, &CpuidRegisters::c, 29, kStateAvx},
    {"avx2", 7, 0, &CpuidRegisters::b, 5, kStateAvx},
    {"avx_vnni", 7, 1, &CpuidRegisters::a, 4, kStateAvx},
    {"avx512f", 7, 0, &CpuidRegisters::b, 16, kStateAvx512},
    {"avx512dq", 7, 0, &CpuidRegisters::b, 17, kStateAvx512},
    {"avx512bw", 7, 0, &CpuidRegisters::b, 30, kStateAvx512},
    {"avx512vl", 7, 0, &CpuidRegisters::b, 31, kStateAvx512},
    {"avx512vbmi", 7, 0, &CpuidRegisters::c, 1, kStateAvx512},
    {"avx512_vnni", 7, 0, &CpuidRegisters::c, 11, kStateAvx512},
    {"avx512_fp16", 7, 0, &CpuidRegisters::d, 23, kStateAvx512},
    {"avx512_bf16", 7, 1, &CpuidRegisters::a, 5, kStateAvx512},
    {"amx_bf16", 7, 0, &CpuidRegisters::d, 22, kStateAmx},
    {"amx_tile", 7, 0, &CpuidRegisters::d, 24, kStateAmx},
    {"amx_int8", 7, 0, &CpuidRegisters::d, 25, kStateAmx},
};

struct LevelRule {
    IsaLevel level;
    std::vector<const char*> needs;
};

// Each level includes the one before it.
const std::vector<LevelRule>& level_rules() {
    static const std::vector<LevelRule> rules = {
        {IsaLevel::avx2, {"avx2", "fma", "f16c"}},
        {IsaLevel::avx512, {"avx512f", "avx512bw", "avx512dq", "avx512vl"}},
        {IsaLevel::avx512_bf16, {"avx512_bf16"}},
        {IsaLevel::amx, {"amx_tile", "amx_bf16"}},
    };
    return rules;
}

std::string text_of(std::initializer_list<unsigned> registers) {
    std::string text;
    for (unsigned value : registers) {
        std::array<char, 4> bytes;
        std::memcpy(bytes.data(), &value, 4);
        text.append(bytes.data(), 4);
    }
    return text.substr(0, text.find('\0'));
}

std::string trimmed(const std::string& text) {
    const auto first = text.find_first_not_of(' ');
    if (first == std::string::npos) return "";
    return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

std::string brand_string() {
    std::string brand;
    for (unsigned leaf = 0x80000002u; leaf <= 0x80000004u; ++leaf) {
        const auto r = cpuid(leaf);
        brand += text_of({r.a, r.b, r.c, r.d});
    }
    return trimmed(brand);
}

bool contains(const std::vector<std::string>& features, const char* name) {
    for (const auto& feature : features) {
        if (feature == name) return true;
    }
    return false;
}

CpuFeatures detect() {
    CpuFeatures found;
    found.architecture = "x86_64";
    const auto identity = cpuid(0);
    found.vendor = text_of({identity.b, identity.d, identity.c});
    found.brand = brand_string();
    if (found.brand.empty()) found.brand = "x86_64 processor (" + found.vendor + ")";

    const std::uint64_t state = enabled_state();
    for (const auto& row : kFeatureBits) {
        const bool reported = (cpuid(row.leaf, row.subleaf).*row.reg >> row.bit) & 1u;
        if (reported && (state & row.state) == row.state) found.features.emplace_back(row.name);
    }
    if (contains(found.features, "amx_tile") && !request_tile_permission()) {
        std::erase_if(found.features, [](const std::string& name) { return name.starts_with("amx"); });
    }
    for (const auto& rule : level_rules()) {
        for (const char* name : rule.needs) {
            if (!contains(found.features, name)) return found;
        }
        found.level = rule.level;
    }
    return found;
}

#elif defined(__aarch64__)

struct FeatureBit {
    const char* name;
    unsigned long kind;  // AT_HWCAP or AT_HWCAP2
    int bit;
};

// Bit positions: Linux, arch/arm64/include/uapi/asm/hwcap.h.
constexpr FeatureBit kFeatureBits[] = {
    {"asimd", AT_HWCAP, 1}, {"asimdhp", AT_HWCAP, 10}, {"asimddp", AT_HWCAP, 20}, {"sve", AT_HWCAP, 22},
    {"sve2", AT_HWCAP2, 1}, {"i8mm", AT_HWCAP2, 13},   {"bf16", AT_HWCAP2, 14},
};

CpuFeatures detect() {
    CpuFeatures found;
    found.architecture = "aarch64";
    // MIDR: implementer in bits 24-31, part in 4-15. Arm processors carry no brand string.
    std::uint64_t midr = 0;
    std::ifstream file("/sys/devices/system/cpu/cpu0/regs/identification/midr_el1");
    file >> std::hex >> midr;
    char text[64];
    std::snprintf(text, sizeof text, "ARM 0x%02x", static_cast<unsigned>(midr >> 24 & 0xff));
    found.vendor = text;
    std::snprintf(text, sizeof text, "aarch64 processor (implementer 0x%02x, part 0x%03x)",
                  static_cast<unsigned>(midr >> 24 & 0xff), static_cast<unsigned>(midr >> 4 & 0xfff));
    found.brand = text;
    for (const auto& row : kFeatureBits) {
        if (getauxval(row.kind) >> row.bit & 1u) found.features.emplace_back(row.name);
        if (std::strcmp(row.name, "asimd") == 0 && !found.features.empty()) found.level = IsaLevel::neon;
    }
    return found;
}

#else
#error "graphsink supports x86_64 and aarch64"
#endif

}  // namespace

const char* isa_level_name(IsaLevel level) {
    for (const auto& [value, name] : kLevelNames) {
        if (value == level) return name;
    }
    throw std::invalid_argument("isa_level_name: not a level");
}

IsaLevel isa_level_from_name(const std::string& name) {
    for (const auto& [value, text] : kLevelNames) {
        if (name == text) return value;
    }
    throw std::invalid_argument("unknown ISA level '" + name + "'");
}

const CpuFeatures& cpu_features() {
    static const CpuFeatures features = detect();
    return features;
}

bool isa_level_runs_here(IsaLevel level) {
    const IsaLevel detected = cpu_features().level;
    if (level == IsaLevel::scalar || level == detected) return true;
    if (level == IsaLevel::neon || detected == IsaLevel::neon) return false;
    return level < detected;
}

}  // namespace graphsink
