#include "engine.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "execute.hpp"

namespace ntkit {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::int64_t kSegment = 32;  // most blocks of columns in one task

struct Free {
    void operator()(double* memory) const { ::operator delete[](memory, std::align_val_t{kAlignment}); }
};
using Buffer = std::unique_ptr<double[], Free>;

Buffer allocate(std::int64_t count) {
    const auto bytes = sizeof(double) * static_cast<std::size_t>(std::max<std::int64_t>(count, 1));
    return Buffer(static_cast<double*>(::operator new[](bytes, std::align_val_t{kAlignment})));
}

// Puts the rows of `width` inputs side by side; the last one fills the places that are left.
void interleave(const double* from, std::int64_t size, std::int64_t first, std::int64_t count, int width, double* to) {
    for (int place = 0; place < width; ++place) {
        const double* row = from + std::min(first + place, count - 1) * size;
        for (std::int64_t i = 0; i < size; ++i) to[i * width + place] = row[i];
    }
}

void repeat(const double* row, std::int64_t size, int width, double* to) {
    for (std::int64_t i = 0; i < size; ++i) std::fill(to + i * width, to + (i + 1) * width, row[i]);
}

// What one thread works in.
struct Workspace {
    Buffer slots, scratch, data, deviation, nngp, ntk;

    explicit Workspace(const Tape& tape)
        : slots(allocate(tape.slots * 2 * tape.slot_positions * kLanes)),
          scratch(allocate(2 * tape.slot_positions * kLanes)),
          data(allocate(tape.data_size * kLanes)),
          deviation(allocate(2 * tape.activation_positions * tape.batch * kLanes)),
          nngp(allocate(tape.batch * kLanes)),
          ntk(allocate(tape.batch * kLanes)) {}
};

// Threads that are joined in any case (std::jthread is missing from some standard libraries).
struct Threads : std::vector<std::thread> {
    void join() {
        for (std::thread& thread : *this) thread.join();
        clear();
    }
    ~Threads() { join(); }
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
    Threads pool;
    for (int i = 0; i < count; ++i) {
        ++running;
        try {
            pool.emplace_back(work);
        } catch (const std::system_error&) {  // no more threads to be had: those that run do the work
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

}  // namespace

bool cross(const Tape& tape, const Batch& rows, const Batch& columns, const Inner& inner, const Result& result, bool upper,
           std::int64_t first_row, std::int64_t first_column, int threads, const Poll& poll) {
    const Execute execute = choose_execute();
    const int width = tape.batch * kLanes;  // columns in a block
    const std::int64_t blocks = (columns.count + width - 1) / width;
    const std::int64_t deviations = 2 * tape.activation_positions;
    const Buffer data = allocate(blocks * tape.data_size * width);
    const Buffer deviation = allocate(blocks * deviations * width);
    for (std::int64_t block = 0; block < blocks; ++block) {
        const std::int64_t first = block * width;
        interleave(columns.data, tape.data_size, first, columns.count, width, &data[first * tape.data_size]);
        interleave(columns.deviation, deviations, first, columns.count, width, &deviation[first * deviations]);
    }
    const std::int64_t length = std::clamp<std::int64_t>(rows.count * blocks / (8 * std::max(threads, 1)), 1, kSegment);
    const std::int64_t segments = (blocks + length - 1) / length;
    std::atomic<std::int64_t> done{0};
    const auto task = [&](std::int64_t index, Workspace& workspace, const std::atomic<bool>& stop) {
        const std::int64_t row = index / segments;
        const std::int64_t from = index % segments * length, to = std::min(blocks, from + length);
        // The first column that is wanted.
        const std::int64_t begin = upper ? std::max<std::int64_t>(0, first_row + row - first_column) : 0;
        if (begin >= to * width) return;
        repeat(rows.data + row * tape.data_size, tape.data_size, kLanes, workspace.data.get());
        repeat(rows.deviation + row * deviations, deviations, width, workspace.deviation.get());
        for (std::int64_t block = std::max(from, begin / width); block < to && !stop; ++block) {
            const std::int64_t first = block * width, end = std::min(first + width, columns.count);
            const double* products = inner.products ? inner.products + row * inner.row_stride + first : nullptr;
            execute(tape, {workspace.data.get(), &data[first * tape.data_size], products, inner.data_stride,
                           workspace.deviation.get(), &deviation[first * deviations], workspace.slots.get(),
                           workspace.scratch.get(), workspace.nngp.get(), workspace.ntk.get()});
            for (std::int64_t column = std::max(first, begin); column < end; ++column) {
                result.nngp[row * result.stride + column] = workspace.nngp[column - first];
                if (result.ntk) result.ntk[row * result.stride + column] = workspace.ntk[column - first];
            }
            done += end - std::max(first, begin);
        }
    };
    return run_tasks(tape, rows.count * segments, threads, done, poll, task);
}

bool self(const Tape& tape, const double* data, std::int64_t count, const Inner& inner, double* deviation, double* nngp, double* ntk,
          int threads, const Poll& poll) {
    const Execute execute = choose_execute();
    const std::int64_t deviations = 2 * tape.activation_positions;
    std::atomic<std::int64_t> done{0};
    const int width = tape.batch * kLanes;
    const auto task = [&](std::int64_t block, Workspace& workspace, const std::atomic<bool>&) {
        const std::int64_t first = block * width;
        if (!inner.products) interleave(data, tape.data_size, first, count, width, workspace.data.get());
        std::fill_n(workspace.nngp.get(), width, 0.0);  // a tape without output leaves them as they are
        std::fill_n(workspace.ntk.get(), width, 0.0);
        execute(tape, {workspace.data.get(), workspace.data.get(), inner.products ? inner.products + first : nullptr,
                       inner.data_stride, workspace.deviation.get(), workspace.deviation.get(), workspace.slots.get(), workspace.scratch.get(), workspace.nngp.get(), workspace.ntk.get()});
        for (std::int64_t row = first; row < std::min(first + width, count); ++row) {
            for (std::int64_t i = 0; i < deviations; ++i)
                deviation[row * deviations + i] = workspace.deviation[i * width + (row - first)];
            nngp[row] = workspace.nngp[row - first];
            ntk[row] = workspace.ntk[row - first];
            ++done;
        }
    };
    return run_tasks(tape, (count + width - 1) / width, threads, done, poll, task);
}

}  // namespace ntkit
