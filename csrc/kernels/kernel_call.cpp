#include "kernels/kernel_call.h"

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <new>
#include <stdexcept>

#include "pinned_team.h"

namespace graphsink {

namespace {

// Scratch of one core; 64-byte aligned as the kernel interface promises.
class Scratch {
  public:
    explicit Scratch(std::uint64_t bytes)
        : bytes_(bytes), memory_(::operator new(static_cast<std::size_t>(bytes), std::align_val_t{64})) {}
    ~Scratch() { ::operator delete(memory_, std::align_val_t{64}); }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

    gs_args arguments(const std::vector<gs_slot>& slots, std::uint32_t core, std::uint32_t* error) const {
        return {slots.data(), memory_, bytes_, error, static_cast<std::uint32_t>(slots.size()), core};
    }

  private:
    std::uint64_t bytes_;
    void* memory_;
};

}  // namespace

std::uint32_t call_kernel(const KernelBuild& kernel, const std::vector<gs_slot>& slots,
                          std::uint32_t block_dim, std::uint64_t scratch_bytes) {
    const Scratch scratch(scratch_bytes);
    std::uint32_t error = 0;
    const gs_args args = scratch.arguments(slots, 0, &error);
    for (std::uint32_t block = 0; block < block_dim && error == 0; ++block)
        kernel.function(&args, block, block_dim);
    return error;
}

std::vector<double> time_kernel(const KernelBuild& kernel, const std::vector<gs_slot>& slots,
                                std::uint32_t block_dim, std::uint64_t scratch_bytes,
                                const std::vector<int>& cores, int rounds) {
    using Clock = std::chrono::steady_clock;
    std::vector<Clock::time_point> marks(static_cast<std::size_t>(rounds) + 1);
    std::atomic<std::uint32_t> first_error{0};
    std::barrier sync(static_cast<std::ptrdiff_t>(cores.size()));
    const auto members = static_cast<std::uint32_t>(cores.size());
    run_pinned(cores, [&](int member) {
        const auto core = static_cast<std::uint32_t>(member);
        const Scratch scratch(scratch_bytes);
        std::uint32_t error = 0;
        const gs_args args = scratch.arguments(slots, core, &error);
        sync.arrive_and_wait();
        if (member == 0) marks[0] = Clock::now();
        for (std::size_t round = 1; round < marks.size(); ++round) {
            for (std::uint32_t block = core; block < block_dim; block += members) {
                kernel.function(&args, block, block_dim);
            }
            sync.arrive_and_wait();
            if (member == 0) marks[round] = Clock::now();
        }
        if (error != 0) first_error.store(error);
    });
    if (first_error.load() != 0) {
        throw std::runtime_error("kernel '" + kernel.name + "' reported error " +
                                 std::to_string(first_error.load()));
    }
    std::vector<double> seconds;
    for (std::size_t round = 1; round < marks.size(); ++round) {
        seconds.push_back(std::chrono::duration<double>(marks[round] - marks[round - 1]).count());
    }
    return seconds;
}

}  // namespace graphsink
