// Threads pinned to given cores, for measurements.
#pragma once

#include <functional>
#include <thread>
#include <vector>

namespace graphsink {

// Binds a thread to a core; any core id works, not only the first 1024. Returns an errno value, 0 for
// success.
int pin_thread(std::thread::native_handle_type thread, int core);

// Runs `work(member)` on one new thread per entry of `cores`, each pinned to its core, all released
// together once every thread exists; returns when all are done. If a thread cannot be created or
// pinned, no work starts and std::system_error is thrown. `work` must not throw.
void run_pinned(const std::vector<int>& cores, const std::function<void(int)>& work);

}  // namespace graphsink
