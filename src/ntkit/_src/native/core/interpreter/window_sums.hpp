// Which rows and columns the windows of a layer read, and their sums.

#pragma once

#include <algorithm>

#include "context.hpp"

namespace ntkit::NTKIT_TARGET {
namespace {

// The position of a window's entry along an axis, in x and in x', and whether it lies inside.
struct Place {
    int p, other;
    bool in1 = true, in2 = true;

    Place(const Layer& op, const Instruction& step, int axis, int at) : p(at), other(at + step.in_offset[axis]) {
        const int size = op.in_size[axis];
        if (op.circular[axis]) {
            p = modulo(p, size);
            other = modulo(other, size);
        } else {
            in1 = p >= 0 && p < size;
            in2 = other >= 0 && other < size;
        }
    }
};

// The columns that the windows of a row read, [begin, end); both inputs have those of [low, high).
struct Columns {
    int begin, end, low, high;

    Columns(const Layer& op, const Region& from, const Region& to)
        : begin(to.low[2] * op.stride[2] - op.padding[2]),
          end(begin + (to.high[2] - to.low[2] - 1) * op.stride[2] + (op.kernel[2] - 1) * op.dilation[2] + 1),
          low(std::clamp(from.low[2], begin, end)), high(std::clamp(from.high[2], low, end)) {}
};

// The sums over windows of three by three whose rows are rows 0 to 2, and those whose rows are rows 1 to 3, for the columns
// [begin, end) that they read. The rows have the columns [low, high); `outside(r, column)` gives the sum over the three rows of
// another column.
template <class Lanes, class Outside>
inline void sum_windows(const Lanes* const (&rows)[4], int begin, int end, int low, int high, Lanes* first, Lanes* second, Outside outside) {
    const Lanes *a = rows[0], *b = rows[1], *c = rows[2], *d = rows[3];
    struct Column {
        Lanes one, two;
    };
    const auto inside = [&](int q) {
        const Lanes bq = b[q], cq = c[q];
        return Column{(a[q] + bq) + cq, (bq + cq) + d[q]};
    };
    const auto any = [&](int q) __attribute__((always_inline)) {
        return q >= low && q < high ? inside(q) : Column{outside(0, q), outside(1, q)};
    };
    Column before = any(begin), last = any(begin + 1);
    const auto slide = [&](int q, const Column& next) {
        first[q - begin - 2] = (before.one + last.one) + next.one;
        second[q - begin - 2] = (before.two + last.two) + next.two;
        before = last;
        last = next;
    };
    int q = begin + 2;
    for (; q < std::min(low, end); ++q) slide(q, any(q));
    for (; q < high; ++q) slide(q, inside(q));
    for (; q < end; ++q) slide(q, any(q));
}

// The sum of `count` rows in the columns [low, high); each is read at a distance of `moved` from where it is written.
template <class Lanes>
inline void sum_rows(const Lanes* const* from, int count, int low, int high, Lanes* to, int moved = 0) {
    if (low >= high) return;  // rows without columns may have no memory to point into
    const auto row = [&](int r) { return from[r] + moved; };
    switch (count) {
        case 0: std::fill(to + low, to + high, Lanes{}); return;
        case 1: std::copy(row(0) + low, row(0) + high, to + low); return;
        case 2: {
            const Lanes *a = row(0), *b = row(1);
            for (int q = low; q < high; ++q) to[q] = a[q] + b[q];
            return;
        }
        default: {
            const Lanes *a = row(0), *b = row(1), *c = row(2);
            for (int q = low; q < high; ++q) to[q] = (a[q] + b[q]) + c[q];
        }
    }
    for (int r = 3; r < count; ++r)
        for (int q = low; q < high; ++q) to[q] += row(r)[q];
}

// Replaces a row by the sums over the window along it, in place: a sum reads only entries not yet overwritten.
template <class Lanes>
inline void sum_columns(const Layer& op, int width, Lanes* row) {
    for (int q = 0; q < width; ++q) {
        const Lanes* from = row + static_cast<long>(q) * op.stride[2];
        Lanes total = from[0];
        for (int e = 1; e < op.kernel[2]; ++e) total += from[e * op.dilation[2]];
        row[q] = total;
    }
}

}  // namespace
}  // namespace ntkit::NTKIT_TARGET
