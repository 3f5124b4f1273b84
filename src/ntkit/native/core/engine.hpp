// Gram matrices: blocks of pairs, spread over threads.

#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tape.hpp"

namespace ntkit {

// Rows, one for each input: data (count, data_size) with channels before positions, own (count, own_size).
template <class T>
struct Batch {
    const T* data;
    const T* own;
    std::int64_t count;
};

// Inputs as they came, each with its numbers side by side: (count, size).
template <class F>
struct Inputs {
    const F* numbers;
    std::int64_t count, size;
};

// Inner products of vectors, in tiles: (data, tiles of rows, tiles of columns, rows, columns). No values for networks that have
// positions.
template <class T>
struct Products {
    const T* values;
    std::int64_t data_stride, tiles;  // tiles side by side
    std::int64_t rows, columns;       // of a tile

    const T* at(std::int64_t row, std::int64_t column) const {
        if (!values) return nullptr;
        const std::int64_t tile = row / rows * tiles + column / columns;
        return values + (tile * rows + row % rows) * columns + column % columns;
    }
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

// Finds what each input is multiplied with: where `scalable`, what brings the mean of its squares, `bias` added, to one. Writes the
// numbers so multiplied to `data` (null: not wanted), and their squares summed up over each data, whose sizes are given.
template <class F, class T>
bool read(const Inputs<F>& inputs, const std::vector<std::int64_t>& sizes, bool scalable, double bias, T* data, double* squares,
          std::int64_t squares_stride, double* scale, int threads, const Poll& poll);

// Computes what is remembered of each input, multiplied with its scale, on its own (count, own_size), and its K and Theta with itself.
// Where `own_known`, the former is there already, in higher precision, and only what must match the arithmetic of `cross` to the bit
// is computed again. O: in which precision it is kept.
template <class F, class T, class O>
bool self(const Tape& tape, const Inputs<F>& inputs, const double* scale, const Products<T>& products, bool own_known, O* own,
          T* nngp, T* ntk, int threads, const Poll& poll);

}  // namespace ntkit
