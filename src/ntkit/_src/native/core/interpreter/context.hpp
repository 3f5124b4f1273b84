// What every instruction works on: planes, accumulators and cached data of one block of pairs.

#pragma once

#include <algorithm>

#include "../execute.hpp"
#include "lanes.hpp"

namespace ntkit::NTKIT_TARGET {
namespace {

// The positions of a plane: those p for which p + offset is a position too.
struct Region {
    Axes size, low, high;

    Region(const Axes& sizes, const Axes& offset) : size(sizes) {
        for (int axis = 0; axis < kAxes; ++axis) {
            low[axis] = std::max(0, -offset[axis]);
            high[axis] = std::min(sizes[axis], sizes[axis] - offset[axis]);
        }
    }
    // The index of the first position of a row along the last axis.
    long row(int i, int j) const { return (static_cast<long>(i) * size[1] + j) * size[2]; }
};

// Calls visit(first, last) with the range of positions of every row of a region along the last axis.
template <class Visit>
inline void rows(const Region& region, Visit visit) {
    for (int i = region.low[0]; i < region.high[0]; ++i)
        for (int j = region.low[1]; j < region.high[1]; ++j) {
            const long row = region.row(i, j);
            visit(row + region.low[2], row + region.high[2]);
        }
}

// The distance in memory between p and p + offset.
inline long shift(const Axes& size, const Axes& offset) {
    return (static_cast<long>(offset[0]) * size[1] + offset[1]) * size[2] + offset[2];
}

inline int modulo(int a, int b) { return a % b < 0 ? a % b + b : a % b; }

// Cached data of both sides of a pair, at the positions p of x and p + offset of x'. Self: both are the same input.
template <class T, bool Self>
struct Sides {
    using Lanes = typename Vector<T>::Lanes;
    const T* cache1;
    const Lanes* cache2;
    int step;  // stride of the first side: 0 for vectors, where the positions are blocks of x'

    Lanes first(long p) const {
        if constexpr (Self)
            return reinterpret_cast<const Lanes*>(cache1)[p];
        else
            return broadcast(cache1[p * step]);
    }
    Lanes second(long p) const { return cache2[p]; }
};

template <class T>
struct Plane {
    using Lanes = typename Vector<T>::Lanes;
    Lanes* k = nullptr;  // K or H
    Lanes* theta = nullptr;
    int ring = 0;  // how many of its rows are stored at a time; 0: all

    long row(const Region& region, int i, int j) const {
        if (!ring) return region.row(i, j);
        return static_cast<long>(ring == 5 ? j % 5 : j % ring) * region.size[2];  // a division by a constant is cheap
    }
};

// Sums in double precision. Not vector types: the compiler would split those wider than its registers through memory.
template <class T>
struct Wide {
    double numbers[kLanes<T>];
};
template <class T>
struct WidePlane {
    Wide<T>* k = nullptr;
    Wide<T>* theta = nullptr;
};

template <class T>
inline void add(const typename Vector<T>::Lanes& x, double factor, Wide<T>& to) {
    T numbers[kLanes<T>];
    store(x, numbers);
    for (int lane = 0; lane < kLanes<T>; ++lane) to.numbers[lane] += numbers[lane] * factor;
}
template <class T>
inline typename Vector<T>::Lanes narrow(const Wide<T>& x) {
    T numbers[kLanes<T>];
    for (int lane = 0; lane < kLanes<T>; ++lane) numbers[lane] = static_cast<T>(x.numbers[lane]);
    return load(numbers);
}

template <class T, bool Self>
struct Context {
    using Lanes = typename Vector<T>::Lanes;
    const Tape& tape;
    const Block<T>& block;
    // Of whole covariances: one row of them, the position of x, and how many positions x' has. A row is a plane of offset zero where the
    // cached data of x are those of its position everywhere.
    long row = 0, width = 0;

    [[gnu::always_inline]] Plane<T> slot(int index) const {
        if (index == kNothing) return {};
        const std::int64_t start = tape.slot_start[index];
        Lanes* base = reinterpret_cast<Lanes*>(block.slots) + 2 * start + row * width;
        return {base, base + (tape.slot_start[index + 1] - start)};
    }

    WidePlane<T> accumulator(int index) const {
        Wide<T>* base = reinterpret_cast<Wide<T>*>(block.accumulators) + 2 * tape.accumulator_positions * index;
        return {base, base + tape.accumulator_positions};
    }

    // Buffers for the sums over a window along all axes but the last; there are two.
    Plane<T> row_buffer(int index) const {
        Lanes* base = reinterpret_cast<Lanes*>(block.rows) + 2 * tape.row_positions * index;
        return {base, base + tape.row_positions};
    }

    // The cached data that begin at `at`, for positions p of x and p + moved of x'; a harmless pointer if there are none.
    [[gnu::always_inline]] Sides<T, Self> cached(std::int64_t at, long moved) const {
        const Lanes* cache2 = reinterpret_cast<const Lanes*>(block.cache2) + std::max<std::int64_t>(at, 0) * tape.batch;
        const T* cache1 = Self ? reinterpret_cast<const T*>(cache2) : block.cache1 + std::max<std::int64_t>(at, 0) + row;
        return {cache1, cache2 + moved, tape.batch > 1 || width > 0 ? 0 : 1};
    }

    // Every input is scaled to norm one, so that the values of two inputs have the same magnitude. The first cached number of each input
    // is its unit: what the value one became. Where the data have a scale of their own, another cached number holds it.
    Sides<T, Self> unit(std::int32_t at = 0) const { return Context{tape, block}.cached(at, 0); }
    int unit_step() const { return tape.batch > 1 ? 1 : 0; }
};

}  // namespace
}  // namespace ntkit::NTKIT_TARGET
