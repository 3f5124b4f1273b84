// Tasks spread over threads, while the calling thread polls.

#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "engine.hpp"

namespace ntkit {

// Threads that are always joined (some standard libraries lack std::jthread).
struct Threads : std::vector<std::thread> {
    void join() {
        for (std::thread& thread : *this) thread.join();
        clear();
    }
    ~Threads() { join(); }
};

constexpr double kSmall = 1 << 18;  // numbers to be computed that take less time than a thread takes to start

// Runs tasks 0, 1, ... on threads while the calling thread polls, or, if they compute few `numbers` in all, on the calling thread.
// `start` creates the state of each thread. An exception in a task is rethrown here.
template <class Start, class Task>
bool run_tasks(std::int64_t tasks, double numbers, int threads, const std::atomic<std::int64_t>& done, const Poll& poll, Start start,
               Task task) {
    std::atomic<std::int64_t> next{0};
    std::atomic<bool> stop{false};
    if (numbers < kSmall) {
        auto state = start();
        for (std::int64_t index = 0; index < tasks; ++index) task(index, state, stop);
        return poll(done);
    }
    std::atomic<int> running{0};
    std::mutex mutex;
    std::condition_variable finished;
    std::exception_ptr failure;
    const auto work = [&] {
        try {
            auto state = start();
            while (!stop) {
                const std::int64_t index = next++;
                if (index >= tasks) break;
                task(index, state, stop);
            }
        } catch (...) {
            const std::lock_guard lock(mutex);
            failure = std::current_exception();
            stop = true;
        }
        const std::lock_guard lock(mutex);
        --running;
        finished.notify_all();
    };
    const int count = static_cast<int>(std::clamp<std::int64_t>(threads, 1, std::max<std::int64_t>(tasks, 1)));
    Threads pool;
    for (int i = 0; i < count; ++i) {
        ++running;
        try {
            pool.emplace_back(work);
        } catch (const std::system_error&) {  // the system refuses more threads: those already running do the work
            --running;
            if (i == 0) throw;
            break;
        }
    }
    bool go_on = true;
    {
        std::unique_lock lock(mutex);
        while (!finished.wait_for(lock, std::chrono::milliseconds(100), [&] { return running == 0; })) {
            lock.unlock();
            if (go_on && !poll(done)) {
                go_on = false;
                stop = true;
            }
            lock.lock();
        }
    }
    pool.join();
    if (failure) std::rethrow_exception(failure);
    return go_on && poll(done);
}

}  // namespace ntkit
