// Gram matrices: the pairs of two batches in blocks, spread over threads.

#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tape.hpp"

namespace ntkit {

// One row per input: data (count, data_size) with channels before positions, cached data (count, cache_size).
template <class T>
struct Batch {
    const T* data;
    const T* cache;
    std::int64_t count;
};

// Inputs as the caller passes them, one contiguous row per input: (count, size).
template <class F>
struct Inputs {
    const F* numbers;
    std::int64_t count, size;
};

// Inner products of vectors, in tiles: (data, tiles of rows, tiles of columns, rows, columns). Null for networks with positions.
template <class T>
struct Products {
    const T* values;
    std::int64_t data_stride;    // from one of the network's inputs to the next
    std::int64_t tiles;          // in a row of tiles
    std::int64_t rows, columns;  // of a tile

    const T* at(std::int64_t row, std::int64_t column) const {
        if (!values) return nullptr;
        const std::int64_t tile = row / rows * tiles + column / columns;
        return values + (tile * rows + row % rows) * columns + column % columns;
    }
};

// Row-major results; null: not requested.
template <class T>
struct Result {
    T* nngp;
    T* ntk;
    std::int64_t stride;
};

// Called several times a second, from the calling thread, with the number of finished pairs; returns false to stop.
using Poll = std::function<bool(std::int64_t)>;

// Computes K and Theta for all pairs of rows and columns; if `upper`, only those with first_row + row <= first_column +
// column. Returns false if it was stopped.
template <class T>
bool cross(const Tape& tape, const Batch<T>& rows, const Batch<T>& columns, const Products<T>& products, const Result<T>& result,
           bool upper, std::int64_t first_row, std::int64_t first_column, int threads, const Poll& poll);

// The first cached numbers of each input, (count, numbers). One number: the unit, what the value one becomes, which is the scale of the
// data too. Three: the unit, the scale of the data, and the unit divided by the scale.
template <class U>
struct Units {
    U* values;
    std::int64_t numbers;

    U* of(std::int64_t input) const { return values + input * numbers; }
    double scale(std::int64_t input) const { return of(input)[numbers > 1 ? 1 : 0]; }
};

// Finds the unit of each input: one or, if `scalable`, the factor that makes the mean of its squares plus `bias` one; and the scale
// of its data, if that is another: the factor that makes the mean of its squares one. Writes the scaled numbers to `data` (null: not
// requested), and the sum of their squares over each of the network's inputs, whose sizes are given.
template <class F, class T>
bool read(const Inputs<F>& inputs, const std::vector<std::int64_t>& sizes, bool scalable, double bias, T* data, double* squares,
          std::int64_t squares_stride, const Units<double>& units, int threads, const Poll& poll);

// Computes the cached data of each scaled input (count, cache_size), and its K and Theta with itself. If `cache_known`, cached data are known
// from a run in higher precision, and only those that must match the arithmetic of `cross` to the bit are recomputed.
// O: the type in which cached data are kept.
template <class F, class T, class O>
bool self(const Tape& tape, const Inputs<F>& inputs, const Units<const double>& units, const Products<T>& products, bool cache_known, O* cache,
          T* nngp, T* ntk, int threads, const Poll& poll);

}  // namespace ntkit
