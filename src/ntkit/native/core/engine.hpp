// Gram matrices block by block, on threads.

#pragma once

#include <cstdint>
#include <functional>

#include "tape.hpp"

namespace ntkit {

// One batch of inputs: what the tape reads of each.
struct Batch {
    const double* data;        // (count, data_size)
    const double* deviation;   // (count, 2, activation_positions)
    std::int64_t count;
};

// Where batch > 1, the inner products / C of vectors: of data d, row i and column j at d * data_stride + i * row_stride + j.
// Columns are padded to whole blocks.
struct Inner {
    const double* products;
    std::int64_t data_stride;
    std::int64_t row_stride;
};

// Where results go: entry (i, j) at i * stride + j; ntk may be null.
struct Result {
    double* nngp;
    double* ntk;
    std::int64_t stride;
};

// Called now and then on the calling thread with the entries done; returns false to stop.
using Poll = std::function<bool(std::int64_t)>;

// Computes all entries, or those with first_row + i <= first_column + j where `upper`. False if it was stopped.
bool cross(const Tape& tape, const Batch& rows, const Batch& columns, const Inner& inner, const Result& result, bool upper,
           std::int64_t first_row, std::int64_t first_column, int threads, const Poll& poll);

// Computes the deviations (count, 2, activation_positions) and K and Theta of each input with itself.
bool self(const Tape& tape, const double* data, std::int64_t count, const Inner& inner, double* deviation, double* nngp, double* ntk,
          int threads, const Poll& poll);

}  // namespace ntkit
