// Gram matrices: blocks of pairs, spread over threads.

#pragma once

#include <cstdint>
#include <functional>

#include "tape.hpp"

namespace ntkit {

// Rows, one for each input: data (count, data_size) with channels before positions, own (count, own_size).
template <class T>
struct Batch {
    const T* data;
    const T* own;
    std::int64_t count;
};

// Inner products of vectors divided by C, for each data a matrix; no values for networks that have positions.
template <class T>
struct Products {
    const T* values;
    std::int64_t data_stride, row_stride;
};

// Row-major results; null: not wanted.
template <class T>
struct Result {
    T* nngp;
    T* ntk;
    std::int64_t stride;
};

// Called now and then from the calling thread with the number of finished pairs; false: stop.
using Poll = std::function<bool(std::int64_t)>;

// Computes K and Theta for all pairs of rows and columns; where `upper`, only those with first_row + row <= first_column +
// column. Returns false if it was stopped.
template <class T>
bool cross(const Tape& tape, const Batch<T>& rows, const Batch<T>& columns, const Products<T>& products, const Result<T>& result,
           bool upper, std::int64_t first_row, std::int64_t first_column, int threads, const Poll& poll);

// Computes what is remembered of each input on its own (count, own_size), and its K and Theta with itself.
// The first number of each must be there. Where `own_known`, the others are too, in higher precision, and only what must match the
// arithmetic of `cross` to the bit is computed again. O: in which precision they are kept.
template <class T, class O>
bool self(const Tape& tape, const T* data, std::int64_t count, const Products<T>& products, bool own_known, O* own, T* nngp, T* ntk,
          int threads, const Poll& poll);

}  // namespace ntkit
