#include "pinned_team.h"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <string>
#include <system_error>
#include <thread>

namespace graphsink {

namespace {

struct CpuSetDeleter {
    void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};

}  // namespace

int pin_thread(std::thread::native_handle_type thread, int core) {
    if (core < 0) return EINVAL;
    const std::unique_ptr<cpu_set_t, CpuSetDeleter> set(CPU_ALLOC(static_cast<std::size_t>(core) + 1));
    if (!set) return ENOMEM;
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(core) + 1);
    CPU_ZERO_S(bytes, set.get());
    CPU_SET_S(static_cast<std::size_t>(core), bytes, set.get());
    return pthread_setaffinity_np(thread, bytes, set.get());
}

namespace {

enum Gate : int { closed = 0, open = 1, cancelled = 2 };

struct Start {
    std::atomic<int> gate = closed;
    std::atomic<std::size_t> ready = 0;
    std::atomic<int> pin_error = 0;
    std::atomic<int> pin_error_core = -1;
};

void member_main(Start& start, int member, int core, const std::function<void(int)>& work) {
    if (const int error = pin_thread(pthread_self(), core); error != 0) {
        start.pin_error_core = core;
        start.pin_error = error;
    }
    start.ready.fetch_add(1);
    start.ready.notify_one();
    start.gate.wait(closed);
    if (start.gate.load() == open) work(member);
}

void release(Start& start, Gate gate) {
    start.gate = gate;
    start.gate.notify_all();
}

}  // namespace

void run_pinned(const std::vector<int>& cores, const std::function<void(int)>& work) {
    Start start;
    std::vector<std::jthread> threads;  // joined when it goes out of scope, also after a throw
    threads.reserve(cores.size());
    try {
        for (std::size_t i = 0; i < cores.size(); ++i) {
            threads.emplace_back([&start, &work, member = static_cast<int>(i), core = cores[i]] {
                member_main(start, member, core, work);
            });
        }
    } catch (...) {
        release(start, cancelled);
        throw;
    }
    for (std::size_t ready = start.ready; ready < cores.size(); ready = start.ready) start.ready.wait(ready);
    if (const int error = start.pin_error; error != 0) {
        release(start, cancelled);
        threads.clear();
        throw std::system_error(error, std::generic_category(),
                                "cannot pin a thread to core " + std::to_string(start.pin_error_core));
    }
    release(start, open);
}

}  // namespace graphsink
