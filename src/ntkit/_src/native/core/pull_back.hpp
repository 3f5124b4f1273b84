// Vector-Jacobian products of kernels: the derivatives of sum_ij G_ij K(x_i, x'_j) with respect to what the pairs read of each x_i.
//
// A block of pairs runs its tape forwards and then backwards: every plane has a plane of adjoints, and each instruction adds those of
// what it read. That takes the planes of activations, so no slot is used twice within a segment of the tape. Between two segments only
// sums of covariances go on, whose adjoints need no values: each segment, from the last to the first, runs forwards and backwards by
// itself. The results are adjoints of the scaled data, of the cached data of each row and of the
// numbers of each layer; how cached data depend on an input concerns one input at a time, and Python differentiates it.
// Everything is computed in double precision, because derivatives near rho = 1 are differences of large terms.

#pragma once

#include <cstdint>
#include <vector>

#include "engine.hpp"
#include "execute.hpp"

namespace ntkit {

constexpr int kGains = 4;  // adjoints per Layer: of weight (times the weight), bias, weight_rate and bias_rate

// The adjoints of one block, with lanes innermost, each added to; those of the row are summed over its blocks.
struct Adjoints {
    double* slots;         // as those of the block; zero before and after
    double* accumulators;
    double* cache;         // (cache_size, kLanes), of the row; for vectors all blocks of the batch are added
    double* data;          // (data_size, kLanes), of the row; not for vectors
    double* products;      // (inputs, batch, kLanes): of x . x', for vectors
    double* gains;         // (operations, kGains, kLanes); null: not requested
    const double* nngp;    // (batch, kLanes): G for K; null: zero
    const double* ntk;     // likewise for Theta
};

// Some consecutive instructions, and the slots that they write.
struct Segment {
    std::int64_t first, last;
    std::vector<std::int32_t> slots;
};

using PullBack = void (*)(const Tape&, const std::vector<Segment>&, const Block<double>&, const Adjoints&);

// Whether `pull_back` has the adjoint of an instruction.
bool has_adjoint(const Tape& tape, const Instruction& step);

// What is known and what is wanted of all pairs. Row-major; the numbers of columns are those of the two batches.
struct Pulled {
    const double* nngp;   // (rows, columns), G for K; null: zero
    const double* ntk;
    double* data;         // (rows, data_size): set; null for vectors
    double* cache;        // (rows, cache_size): set
    double* products;     // (inputs, rows, columns): set, for vectors
    double* gains;        // (rows, operations, kGains): set; null: not requested
};

// `segments`: where each ends. Returns false if it was stopped.
bool pull_back(const Tape& tape, const std::vector<std::int64_t>& segments, const Batch<double>& rows, const Batch<double>& columns, const Products<double>& products,
               const Pulled& pulled, int threads, const Poll& poll);

#define NTKIT_DECLARE(target) \
    namespace target {        \
    void pull_back_block(const Tape&, const std::vector<Segment>&, const Block<double>&, const Adjoints&); \
    }
NTKIT_DECLARE(baseline)
#if defined(NTKIT_X86)
NTKIT_DECLARE(avx2)
NTKIT_DECLARE(avx512)
#endif
#undef NTKIT_DECLARE

}  // namespace ntkit
