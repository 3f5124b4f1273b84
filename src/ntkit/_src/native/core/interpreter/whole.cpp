// Operations that mix positions freely: attention, matrices that inputs bring, tokens that all inputs share. Like execute.cpp, the build
// compiles this file once for each instruction set and type of numbers.
//
// They read K[p, p'] for all p and p' at once: planes are copied to their places in a slot of P x P' entries (gather), the slot is
// multiplied from both sides, K' = A(x) K A(x')^T, and planes are copied out of the result (scatter).

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "context.hpp"
#include "whole.hpp"

namespace ntkit::NTKIT_TARGET {
namespace {

// Calls visit(p, place) for every position of a plane with its place in the whole covariance.
template <class Visit>
inline void places(const Axes& size, const Axes& offset, Visit visit) {
    const long count = static_cast<long>(positions_of(size)), moved = shift(size, offset);
    rows(Region(size, offset), [&](long first, long last) {
        for (long p = first; p < last; ++p) visit(p, p * (count + 1) + moved);
    });
}

template <class T, bool Self>
void gather(const Context<T, Self>& context, const Convert& op, const Instruction& step) {
    using Lanes = typename Vector<T>::Lanes;
    const Plane<T> in = context.slot(step.in_slot), out = context.slot(step.out_slot);
    const Sides<T, Self> half = context.cached(op.half_at, shift(op.size, step.in_offset));
    places(op.size, step.in_offset, [&](long p, long place) {
        out.k[place] = step.covariance_in || !step.covariance_out ? in.k[p] : half.first(p) + half.second(p) - in.k[p];
        if (step.theta_out) out.theta[place] = step.theta_in ? in.theta[p] : Lanes{};
    });
}

template <class T, bool Self>
void scatter(const Context<T, Self>& context, const Convert& op, const Instruction& step) {
    using Lanes = typename Vector<T>::Lanes;
    const Plane<T> in = context.slot(step.in_slot), out = context.slot(step.out_slot);
    const Sides<T, Self> half = context.cached(op.half_at, shift(op.size, step.out_offset));
    places(op.size, step.out_offset, [&](long p, long place) {
        out.k[p] = step.covariance_out || !step.covariance_in ? in.k[place] : half.first(p) + half.second(p) - in.k[place];
        if (step.theta_out) out.theta[p] = step.theta_in ? in.theta[place] : Lanes{};
    });
}

template <class T, bool Self>
void place(const Context<T, Self>& context, const Select& op, const Instruction& step) {
    const Plane<T> in = context.slot(step.in_slot), out = context.slot(step.out_slot);
    const long start = std::find(op.index.begin(), op.index.end(), 0) - op.index.begin(), count = positions_of(op.in_size), width = positions_of(op.out_size);
    for (long p = 0; p < count; ++p) {
        const long to = (start + p) * width + start;
        std::copy_n(in.k + p * count, count, out.k + to);
        if (step.theta_in) std::copy_n(in.theta + p * count, count, out.theta + to);
    }
}

// K = x . x' / C or H = |x - x'|^2 / (2 C) between all positions, with the arithmetic of inputs.hpp.
template <int Rows, int Columns, bool Covariance, class T, class Lanes>
[[gnu::always_inline]] inline void input_tile(const T* x1, const Lanes* x2, long count, int channels, T scale, Lanes* out) {
    Lanes sums[Rows][Columns] = {};
    for (int c = 0; c < channels; ++c)
#pragma GCC unroll 4
        for (int u = 0; u < Rows; ++u) {
            const Lanes a = broadcast(x1[c * count + u]);
#pragma GCC unroll 4
            for (int v = 0; v < Columns; ++v) {
                const Lanes b = x2[c * count + v], difference = a - b;
                sums[u][v] = Covariance ? fma(a, b, sums[u][v]) : fma(difference, difference, sums[u][v]);
            }
        }
    for (int u = 0; u < Rows; ++u)
        for (int v = 0; v < Columns; ++v) out[u * count + v] = sums[u][v] * scale;
}

// K = 0 between independent values.
template <class T, bool Self>
void independent(const Context<T, Self>& context, const Convert& op, const Instruction& step) {
    using Lanes = typename Vector<T>::Lanes;
    const Plane<T> out = context.slot(step.out_slot);
    const Sides<T, Self> half = context.cached(op.half_at, shift(op.size, step.out_offset));
    rows(Region(op.size, step.out_offset), [&](long first, long last) {
        for (long p = first; p < last; ++p) {
            out.k[p] = step.covariance_out ? Lanes{} : half.first(p) + half.second(p);
            if (step.theta_out) out.theta[p] = Lanes{};
        }
    });
}

template <class T, bool Self>
void relabel(const Context<T, Self>& context, const Select& op, const Instruction& step) {
    const Plane<T> in = context.slot(step.in_slot), out = context.slot(step.out_slot);
    rows(Region(op.in_size, step.in_offset), [&](long first, long last) {
        std::copy(in.k + first, in.k + last, out.k + first);
        if (step.theta_in) std::copy(in.theta + first, in.theta + last, out.theta + first);
    });
}

// Writes K or H of two integers, and returns K.
template <class Lanes, class T>
[[gnu::always_inline]] inline Lanes equal_tokens(const Lanes& a, const Lanes& b, T padding, bool covariance, Lanes& to) {
    const Lanes one = broadcast(T(1)), there = select(a == padding, Lanes{}, one), other = select(b == padding, Lanes{}, one);
    const Lanes k = select(a == b, there, Lanes{});
    to = covariance ? k : T(0.5) * (there + other) - k;
    return k;
}

template <class T, bool Self>
void lookup(const Context<T, Self>& context, const Lookup& op, const Instruction& step) {
    using Lanes = typename Vector<T>::Lanes;
    const std::int64_t start = context.tape.data_start[op.data];
    const Lanes* const x2 = reinterpret_cast<const Lanes*>(context.block.data2) + start;
    const Sides<T, Self> x{Self ? reinterpret_cast<const T*>(x2) : context.block.data1 + start, x2 + shift(op.size, step.out_offset), 1};
    const Plane<T> out = context.slot(step.out_slot);
    rows(Region(op.size, step.out_offset), [&](long first, long last) {
        for (long p = first; p < last; ++p) {
            const Lanes k = equal_tokens(x.first(p), x.second(p), static_cast<T>(op.padding), step.covariance_out, out.k[p]);
            if (step.theta_out) out.theta[p] = k;
        }
    });
}

// What a table adds to K between two positions, or to H.
inline double table_entry(const Table& op, long count, long p, long q, bool covariance) {
    const double* const c = op.covariance.data();
    return covariance ? c[p * count + q] : (c[p * (count + 1)] + c[q * (count + 1)]) / 2 - c[p * count + q];
}

template <class T, bool Self>
void add_table(const Context<T, Self>& context, const Table& op, const Instruction& step) {
    const Plane<T> out = context.slot(step.out_slot);
    const long count = static_cast<long>(positions_of(op.size)), moved = shift(op.size, step.out_offset);
    places(op.size, step.out_offset, [&](long p, long place) {
        if (!op.covariance.empty()) out.k[p] = out.k[p] + static_cast<T>(table_entry(op, count, p, p + moved, step.covariance_out));
        if (step.theta_out && !op.tangent.empty()) out.theta[p] = out.theta[p] + static_cast<T>(op.tangent[place]);
    });
}

// The numbers of a matrix, in every lane.
template <class T>
struct Shared {
    const double* numbers;
    typename Vector<T>::Lanes operator()(long i) const { return broadcast(static_cast<T>(numbers[i])); }
};
template <class T>
struct OfFirst {
    const T* numbers;
    typename Vector<T>::Lanes operator()(long i) const { return broadcast(numbers[i]); }
};
template <class T>
struct OfSecond {
    const typename Vector<T>::Lanes* numbers;
    const typename Vector<T>::Lanes& operator()(long i) const { return numbers[i]; }
};

// Calls run(numbers) with the numbers of A of the first side of the pairs, or of the second.
template <class T, bool Self, class Run>
void with_matrix(const Context<T, Self>& context, const Matrix& op, bool second, Run run) {
    using Lanes = typename Vector<T>::Lanes;
    if (!op.numbers.empty()) return run(Shared<T>{op.numbers.data()});
    const bool cached = op.cached_at != kNothing;
    const std::int64_t start = cached ? op.cached_at : context.tape.data_start[op.data];
    if (Self || second) return run(OfSecond<T>{(cached ? reinterpret_cast<const Lanes*>(context.block.cache2) : reinterpret_cast<const Lanes*>(context.block.data2)) + start});
    run(OfFirst<T>{(cached ? context.block.cache1 : context.block.data1) + start});
}

constexpr int kTile = 2;  // rows and columns of a product that are summed together, because each addition depends on the previous one

// out[q, j] = sum_p A[q, p] in[p, j]: `Rows` times `Columns` sums. The order of the additions does not depend on either.
template <int Rows, int Columns, class A, class Lanes>
[[gnu::always_inline]] inline void sums_from_left(const A& a, long row, long column, long count, long width, const Lanes* in, Lanes* out) {
    Lanes sums[Rows][Columns] = {};
    for (long p = 0; p < count; ++p)
#pragma GCC unroll 4
        for (int u = 0; u < Rows; ++u) {
            const Lanes factor = a(u * row + p * column);
#pragma GCC unroll 4
            for (int v = 0; v < Columns; ++v) sums[u][v] = fma(factor, in[p * width + v], sums[u][v]);
        }
    for (int u = 0; u < Rows; ++u)
        for (int v = 0; v < Columns; ++v) out[u * width + v] = sums[u][v];
}

// out[q, r] = sum_p in[q, p] A[r, p]
template <int Rows, int Columns, class A, class Lanes>
[[gnu::always_inline]] inline void sums_from_right(const A& a, long row, long column, long count, long width, const Lanes* in, Lanes* out) {
    Lanes sums[Rows][Columns] = {};
    for (long p = 0; p < count; ++p)
#pragma GCC unroll 4
        for (int v = 0; v < Columns; ++v) {
            const Lanes factor = a(v * row + p * column);
#pragma GCC unroll 4
            for (int u = 0; u < Rows; ++u) sums[u][v] = fma(factor, in[u * count + p], sums[u][v]);
        }
    for (int u = 0; u < Rows; ++u)
        for (int v = 0; v < Columns; ++v) out[u * width + v] = sums[u][v];
}

// A, from a number on.
template <class A>
struct From {
    const A& numbers;
    long start;
    decltype(auto) operator()(long i) const { return numbers(start + i); }
};

// Calls run(tile rows, tile columns, first row, first column) for all tiles of a product.
template <class Run>
void tiles(long rows, long columns, Run run) {
    using One = std::integral_constant<int, 1>;
    using Some = std::integral_constant<int, kTile>;
    for (long q = 0; q < rows; q += kTile) {
        const bool few = q + kTile > rows;
        for (long j = 0; j < columns; j += kTile) {
            const bool narrow = j + kTile > columns;
            if (few && narrow) run(One{}, One{}, q, j);
            else if (few) run(One{}, Some{}, q, j);
            else if (narrow) run(Some{}, One{}, q, j);
            else run(Some{}, Some{}, q, j);
        }
    }
}

template <class T, bool Self>
void multiply_left(const Context<T, Self>& context, const Matrix& op, const Instruction& step) {
    using Lanes = typename Vector<T>::Lanes;
    const Plane<T> in = context.slot(step.in_slot), out = context.slot(step.out_slot);
    const long row = op.transposed ? 1 : op.columns, column = op.transposed ? op.rows : 1, count = op.columns;
    with_matrix(context, op, false, [&](const auto& a) {
        const auto product = [&](const Lanes* from, Lanes* to) {
            tiles(op.rows, count, [&](auto rows, auto columns, long q, long j) {
                sums_from_left<rows(), columns()>(From<std::remove_cvref_t<decltype(a)>>{a, q * row}, row, column, count, count, from + j, to + q * count + j);
            });
        };
        product(in.k, out.k);
        if (step.theta_in) product(in.theta, out.theta);
        else if (step.theta_out) std::fill(out.theta, out.theta + op.rows * count, Lanes{});
    });
}

template <class T, bool Self>
void multiply_right(const Context<T, Self>& context, const Matrix& op, const Instruction& step) {
    using Lanes = typename Vector<T>::Lanes;
    const Plane<T> in = context.slot(step.in_slot), out = context.slot(step.out_slot);
    const long row = op.transposed ? 1 : op.columns, column = op.transposed ? op.rows : 1, count = op.columns, width = op.rows;
    with_matrix(context, op, true, [&](const auto& a) {
        const auto product = [&](const Lanes* from, Lanes* to) {
            tiles(width, width, [&](auto rows, auto columns, long q, long r) {
                sums_from_right<rows(), columns()>(From<std::remove_cvref_t<decltype(a)>>{a, r * row}, row, column, count, width, from + q * count, to + q * width + r);
            });
        };
        product(in.k, out.k);
        if (step.theta_in) product(in.theta, out.theta);
    });
}

// Once for each input, so lane by lane.
template <class T, bool Self>
void keep_weights(const Context<T, Self>& context, const Weights& op, const Instruction& step) {
    using Lanes = typename Vector<T>::Lanes;
    const Lanes* const k = context.slot(step.in_slot).k;
    Lanes* const to = reinterpret_cast<Lanes*>(context.block.cache2) + op.target_at;
    const long count = op.tokens;
    const auto hidden = [&](long i) { return !op.mask.empty() && std::isinf(op.mask[i]) && op.mask[i] < 0; };
    for (long start = 0; start < count * count; start += count)
        for (int lane = 0; lane < kLanes<T>; ++lane) {
            double most = -std::numeric_limits<double>::infinity(), sum = 0;
            const auto logit = [&](long i) { return op.factor * static_cast<double>(k[i][lane]) + (op.mask.empty() ? 0.0 : op.mask[i]); };
            if (op.softmax)
                for (long i = start; i < start + count; ++i) most = std::max(most, logit(i));
            for (long i = start; i < start + count; ++i) {
                double weight = 0;
                if (op.softmax) sum += weight = std::exp(logit(i) - most);
                else if (!hidden(i)) {
                    const double z = op.factor * static_cast<double>(k[i][lane]);
                    weight = op.low * std::min(z, 0.0) + op.high * std::max(z, 0.0);
                }
                to[i].set(lane, static_cast<T>(weight));
            }
            if (op.softmax)
                for (long i = start; i < start + count; ++i) to[i].set(lane, static_cast<T>(to[i][lane] / sum));
        }
}

// Every K[p, p'] of data, integers and tables at once; row by row of independent values and merged axes.
template <class T, bool Self>
void run_all(const Context<T, Self>& context, const Instruction& step, const Operation& operation) {
    using Lanes = typename Vector<T>::Lanes;
    const long count = step.whole;
    const Plane<T> out = context.slot(step.out_slot);
    if (const Input* const op = std::get_if<Input>(&operation)) {
        const std::int64_t start = context.tape.data_start[op->data];
        const T* const x1 = context.block.data1 + start;
        const Lanes* const x2 = reinterpret_cast<const Lanes*>(context.block.data2) + start;
        const T scale = (step.covariance_out ? T(1) : T(0.5)) / op->channels;
        tiles(count, count, [&](auto rows, auto columns, long p, long q) {
            Lanes* const to = out.k + p * count + q;
            if (step.covariance_out) input_tile<rows(), columns(), true>(x1 + p, x2 + q, count, op->channels, scale, to);
            else input_tile<rows(), columns(), false>(x1 + p, x2 + q, count, op->channels, scale, to);
        });
    } else if (const Lookup* const op = std::get_if<Lookup>(&operation)) {
        const std::int64_t start = context.tape.data_start[op->data];
        const T* const x1 = context.block.data1 + start;
        const Lanes* const x2 = reinterpret_cast<const Lanes*>(context.block.data2) + start;
        for (long p = 0; p < count; ++p)
            for (long q = 0; q < count; ++q) {
                const Lanes k = equal_tokens(broadcast(x1[p]), x2[q], static_cast<T>(op->padding), step.covariance_out, out.k[p * count + q]);
                if (step.theta_out) out.theta[p * count + q] = k;
            }
    } else if (const Table* const op = std::get_if<Table>(&operation)) {
        for (long p = 0; p < count; ++p)
            for (long q = 0; q < count; ++q) {
                const long place = p * count + q;
                if (!op->covariance.empty()) out.k[place] = out.k[place] + static_cast<T>(table_entry(*op, count, p, q, step.covariance_out));
                if (step.theta_out && !op->tangent.empty()) out.theta[place] = out.theta[place] + static_cast<T>(op->tangent[place]);
            }
    }
}

template <class T, bool Self>
void run(const Tape& tape, const Block<T>& block, const Instruction& step, const Operation& op, long row) {
    const Context<T, Self> context{tape, block, row, step.whole};
    if constexpr (!Self)
        if (step.whole && step.kind != Kind::relabel && step.kind != Kind::independent) return run_all(context, step, op);
    switch (step.kind) {
        case Kind::relabel: return relabel(context, *std::get_if<Select>(&op), step);
        case Kind::place: return place(context, *std::get_if<Select>(&op), step);
        case Kind::independent: return independent(context, *std::get_if<Convert>(&op), step);
        case Kind::lookup: return lookup(context, *std::get_if<Lookup>(&op), step);
        case Kind::table: return add_table(context, *std::get_if<Table>(&op), step);
        case Kind::gather: return gather(context, *std::get_if<Convert>(&op), step);
        case Kind::left: return multiply_left(context, *std::get_if<Matrix>(&op), step);
        case Kind::right: return multiply_right(context, *std::get_if<Matrix>(&op), step);
        case Kind::scatter: return scatter(context, *std::get_if<Convert>(&op), step);
        case Kind::weights: return keep_weights(context, *std::get_if<Weights>(&op), step);
        default: return;  // the other kinds are in machine.hpp
    }
}

}  // namespace

template <class T>
void run_whole(const Tape& tape, const Block<T>& block, const Instruction& step, const Operation& op, long row) {
    if (block.cache1) run<T, false>(tape, block, step, op, row);
    else run<T, true>(tape, block, step, op, row);
}

template void run_whole<NTKIT_NUMBER>(const Tape&, const Block<NTKIT_NUMBER>&, const Instruction&, const Operation&, long);

}  // namespace ntkit::NTKIT_TARGET
