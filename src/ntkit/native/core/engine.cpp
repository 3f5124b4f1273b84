#include "engine.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "execute.hpp"

namespace ntkit {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::int64_t kSegment = 32;  // blocks of columns in one task

struct Free {
    void operator()(double* memory) const { ::operator delete[](memory, std::align_val_t{kAlignment}); }
};
using Buffer = std::unique_ptr<double[], Free>;

Buffer allocate(std::int64_t count) {
    const auto bytes = sizeof(double) * static_cast<std::size_t>(std::max<std::int64_t>(count, 1));
    return Buffer(static_cast<double*>(::operator new[](bytes, std::align_val_t{kAlignment})));
}

// Puts the rows of up to kLanes inputs side by side; the last one fills the lanes that are left.
void interleave(const double* from, std::int64_t size, std::int64_t first, std::int64_t count, double* to) {
    for (int lane = 0; lane < kLanes; ++lane) {
        const double* row = from + std::min(first + lane, count - 1) * size;
        for (std::int64_t i = 0; i < size; ++i) to[i * kLanes + lane] = row[i];
    }
}

void repeat(const double* row, std::int64_t size, double* to) {
    for (std::int64_t i = 0; i < size; ++i)
        for (int lane = 0; lane < kLanes; ++lane) to[i * kLanes + lane] = row[i];
}

// What one thread works in.
struct Workspace {
    Buffer slots, scratch, data, deviation;

    explicit Workspace(const Tape& tape)
        : slots(allocate(tape.slots * 2 * tape.slot_positions * kLanes)),
          scratch(allocate(2 * tape.slot_positions * kLanes)),
          data(allocate(tape.data_size * kLanes)),
          deviation(allocate(2 * tape.activation_positions * kLanes)) {}
};

// Runs tasks 0, 1, ... on threads while the calling thread polls. An exception of a task is thrown here.
template <class Task>
bool run_tasks(const Tape& tape, std::int64_t tasks, int threads, const std::atomic<std::int64_t>& done, const Poll& poll,
               Task task) {
    std::atomic<std::int64_t> next{0};
    std::atomic<bool> stop{false};
    std::atomic<int> running{0};
    std::mutex mutex;
    std::condition_variable finished;
    std::exception_ptr failure;
    const auto work = [&] {
        try {
            Workspace workspace(tape);
            while (!stop) {
                const std::int64_t index = next++;
                if (index >= tasks) break;
                task(index, workspace, stop);
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
    running = count;
    std::vector<std::jthread> pool;
    for (int i = 0; i < count; ++i) pool.emplace_back(work);
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
    pool.clear();
    if (failure) std::rethrow_exception(failure);
    return go_on && poll(done);
}

}  // namespace

bool cross(const Tape& tape, const Batch& rows, const Batch& columns, const Result& result, bool upper,
           std::int64_t first_row, std::int64_t first_column, int threads, const Poll& poll) {
    const Execute execute = choose_execute();
    const std::int64_t blocks = (columns.count + kLanes - 1) / kLanes;
    const std::int64_t deviations = 2 * tape.activation_positions;
    const Buffer data = allocate(blocks * tape.data_size * kLanes);
    const Buffer deviation = allocate(blocks * deviations * kLanes);
    for (std::int64_t block = 0; block < blocks; ++block) {
        interleave(columns.data, tape.data_size, block * kLanes, columns.count, &data[block * tape.data_size * kLanes]);
        interleave(columns.deviation, deviations, block * kLanes, columns.count, &deviation[block * deviations * kLanes]);
    }
    const std::int64_t segments = (blocks + kSegment - 1) / kSegment;
    std::atomic<std::int64_t> done{0};
    const auto task = [&](std::int64_t index, Workspace& workspace, const std::atomic<bool>& stop) {
        const std::int64_t row = index / segments, segment = index % segments;
        const std::int64_t last = std::min(blocks, (segment + 1) * kSegment);
        const std::int64_t begin = upper ? std::max<std::int64_t>(0, first_row + row - first_column) : 0;
        if (begin >= last * kLanes) return;
        repeat(rows.data + row * tape.data_size, tape.data_size, workspace.data.get());
        repeat(rows.deviation + row * deviations, deviations, workspace.deviation.get());
        double nngp[kLanes], ntk[kLanes];
        for (std::int64_t block = std::max(segment * kSegment, begin / kLanes); block < last && !stop; ++block) {
            execute(tape, {workspace.data.get(), &data[block * tape.data_size * kLanes], workspace.deviation.get(),
                           &deviation[block * deviations * kLanes], workspace.slots.get(), workspace.scratch.get(), nngp, ntk});
            std::int64_t written = 0;
            for (int lane = 0; lane < kLanes; ++lane) {
                const std::int64_t column = block * kLanes + lane;
                if (column < begin || column >= columns.count) continue;
                result.nngp[row * result.stride + column] = nngp[lane];
                if (result.ntk) result.ntk[row * result.stride + column] = ntk[lane];
                ++written;
            }
            done += written;
        }
    };
    return run_tasks(tape, rows.count * segments, threads, done, poll, task);
}

bool self(const Tape& tape, const double* data, std::int64_t count, double* deviation, double* nngp, double* ntk,
          int threads, const Poll& poll) {
    const Execute execute = choose_execute();
    const std::int64_t deviations = 2 * tape.activation_positions;
    std::atomic<std::int64_t> done{0};
    const auto task = [&](std::int64_t block, Workspace& workspace, const std::atomic<bool>&) {
        interleave(data, tape.data_size, block * kLanes, count, workspace.data.get());
        double k[kLanes] = {}, theta[kLanes] = {};
        execute(tape, {workspace.data.get(), workspace.data.get(), workspace.deviation.get(), workspace.deviation.get(),
                       workspace.slots.get(), workspace.scratch.get(), k, theta});
        for (int lane = 0; lane < kLanes; ++lane) {
            const std::int64_t row = block * kLanes + lane;
            if (row >= count) continue;
            for (std::int64_t i = 0; i < deviations; ++i)
                deviation[row * deviations + i] = workspace.deviation[i * kLanes + lane];
            nngp[row] = k[lane];
            ntk[row] = theta[lane];
            ++done;
        }
    };
    return run_tasks(tape, (count + kLanes - 1) / kLanes, threads, done, poll, task);
}

}  // namespace ntkit
