// The memory that one thread works in.

#pragma once

#include <algorithm>
#include <memory>
#include <new>

#include "execute.hpp"

namespace ntkit {

constexpr std::size_t kAlignment = 64;

struct Free {
    void operator()(void* memory) const { ::operator delete[](memory, std::align_val_t{kAlignment}); }
};
template <class T>
using Buffer = std::unique_ptr<T[], Free>;

template <class T>
Buffer<T> allocate(std::int64_t count) {
    const auto bytes = sizeof(T) * static_cast<std::size_t>(std::max<std::int64_t>(count, 1));
    return Buffer<T>(static_cast<T*>(::operator new[](bytes, std::align_val_t{kAlignment})));
}

template <class T>
struct Workspace {
    Buffer<T> slots, rows, rings, data, cache, nngp, ntk;
    Buffer<double> accumulators;
    Buffer<const void*> lines;
    Buffer<long> places;

    explicit Workspace(const Tape& tape)
        : slots(allocate<T>(2 * tape.slot_start.back() * kLanes<T>)),
          rows(allocate<T>(4 * tape.row_positions * kLanes<T>)),
          rings(allocate<T>(tape.batch > 1 ? 0 : kRingPositions * kLanes<T>)),
          data(allocate<T>(tape.batch > 1 ? 0 : tape.data_size * kLanes<T>)),
          cache(allocate<T>(tape.cache_size * tape.batch * kLanes<T>)),
          nngp(allocate<T>(tape.batch * kLanes<T>)),
          ntk(allocate<T>(tape.batch * kLanes<T>)),
          accumulators(allocate<double>(tape.accumulators * 2 * tape.accumulator_positions * kLanes<T>)),
          lines(allocate<const void*>(2 * tape.window_rows)),
          places(allocate<long>(4 * tape.window_rows)) {}
};

}  // namespace ntkit
