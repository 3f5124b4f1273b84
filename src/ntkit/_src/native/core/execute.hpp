// Runs a tape on a block of pairs. Compiled once for each instruction set: see interpreter/.

#pragma once

#include <cstdint>

#include "tape.hpp"

namespace ntkit {

constexpr int kRingPositions = 1024;   // positions of the rows that a chain of layers keeps: an eighth of a second-level cache
constexpr int kPlanePositions = 1024;  // planes up to this size run without chains: two of them fit into a second-level cache

// One block: one input x against batch * kLanes<T> inputs x'; or, if cache1 is null, that many inputs, each with itself. Arrays of
// the second side have the lanes innermost, and the batch before them.
template <class T>
struct Block {
    const T* data1;        // (data_size)
    const T* data2;        // (data_size, kLanes); vectors: (batch * kLanes, data_size), one row per input
    const T* products;     // vectors: x . x', batch * kLanes of them for each of the network's inputs
    std::int64_t products_stride;  // from one of the network's inputs to the next
    const T* cache1;         // (cache_size); null: each input with itself
    T* cache2;               // (cache_size, batch, kLanes)
    T* slots;              // for each slot (2, positions, kLanes)
    T* rows;               // (2, 2, row_positions, kLanes)
    T* rings;              // (kRingPositions, kLanes)
    double* accumulators;  // (accumulators, 2, accumulator_positions, kLanes)
    const void** lines;    // (2, window_rows)
    long* places;          // (4, window_rows)
    T* nngp;               // (batch, kLanes)
    T* ntk;
    bool zeros;            // some variance may be zero
    bool cache_known;        // cached data are known, except sums inside pooling windows
};

template <class T>
using Execute = void (*)(const Tape&, const Block<T>&);

// The version for the widest instruction set of this machine.
template <class T>
Execute<T> choose_execute();

// Covariance entries per second that one thread updates by a 3 x 3 window and a ReLU when all data are in the first-level cache and
// no plane has a border: the bound set by arithmetic alone.
template <class T>
double roofline(double seconds);

#define NTKIT_DECLARE(target)                                \
    namespace target {                                       \
    template <class T>                                       \
    void execute(const Tape&, const Block<T>&);              \
    template <class T>                                       \
    double roofline(double seconds);                         \
    }
NTKIT_DECLARE(baseline)
#if defined(NTKIT_X86)
NTKIT_DECLARE(avx2)
NTKIT_DECLARE(avx512)
#endif
#undef NTKIT_DECLARE

}  // namespace ntkit
