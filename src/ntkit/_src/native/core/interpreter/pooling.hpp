// Average pooling along one axis.
//
// The pooled plane at offset d sums the planes s d + e, |e| < kernel, one instruction each. For H, with A the sums of H
// inside a window, B the mean variances and N the sum of a window's weights,
//
//     H' = sum - (A + A') / 2 + (N - N') (B - B') / 2,    q' = N B - A.

#pragma once

#include <algorithm>
#include <limits>
#include <type_traits>

#include "context.hpp"
#include "sums.hpp"

namespace ntkit::NTKIT_TARGET {
namespace {

inline long axis_step(const Region& region, int axis) {
    return axis == 2 ? 1 : axis == 1 ? region.size[2] : static_cast<long>(region.size[1]) * region.size[2];
}

template <int Count, class T>
inline void add_columns(const typename Vector<T>::Lanes* from, int first, int last, long step, double factor, Wide<T>* to) {
    typename Vector<T>::Lanes sums[Count] = {};
    for (int p = first; p < last; ++p)
#pragma GCC unroll 4
        for (int u = 0; u < Count; ++u) sums[u] += from[p * step + u];
    for (int u = 0; u < Count; ++u) add<T>(sums[u], factor, to[u]);
}

// The sums over the positions [first, last) along an axis.
template <class T>
[[gnu::always_inline]] inline void sum_window(Plane<T> in, bool theta, long base, int first, int last, long step,
                                              typename Vector<T>::Lanes& k, typename Vector<T>::Lanes& t) {
    if (last - first >= 8) {
        k = sum_along(in.k + base, first, last, step);
        if (theta) t = sum_along(in.theta + base, first, last, step);
        return;
    }
    for (int p = first; p < last; ++p) {
        k += in.k[base + p * step];
        if (theta) t += in.theta[base + p * step];
    }
}

// Adds, for every window q, the sum of the entries whose positions lie in the windows q and q + d.
template <int Axis, class T, bool Self>
void pool_along(const Context<T, Self>& context, const Pool& op, const Instruction& step) {
    using Lanes = typename Vector<T>::Lanes;
    const bool theta = step.theta_in;
    const Region from(op.in_size, step.in_offset), to(op.out_size, step.out_offset);
    const Plane<T> in = context.slot(step.in_slot);
    const int offset = step.out_offset[Axis], stride = op.stride, padding = op.padding;
    const int apart = step.in_offset[Axis] - stride * offset;
    const int begin = std::max(0, -apart), end = std::min(op.kernel, op.kernel - apart);
    const long step_in = axis_step(from, Axis);
    const WidePlane<T> wide = op.wide ? context.accumulator(step.out_slot) : WidePlane<T>{};
    const Plane<T> out = op.wide ? Plane<T>{} : context.slot(step.out_slot);
    const double* const weights = op.weights.data();
    struct Window {
        int first, last;
        double factor;
    };
    const auto window = [&](int q) -> Window {
        const int origin = q * stride - padding;
        return {std::max(origin + begin, from.low[Axis]), std::min(origin + end, from.high[Axis]), weights[q] * weights[q + offset]};
    };
    for (int i = to.low[0]; i < to.high[0]; ++i)
        for (int j = to.low[1]; j < to.high[1]; ++j) {
            const long source = from.row(Axis == 0 ? 0 : i, Axis == 1 ? 0 : j), target = to.row(i, j);
            int l = to.low[2];
            if (Axis != 2 && op.wide) {  // several columns at a time, because a row is contiguous
                constexpr int count = 4;
                const auto [first, last, factor] = window(Axis == 0 ? i : j);
                for (; l + count <= to.high[2]; l += count) {
                    add_columns<count, T>(in.k + source + l, first, last, step_in, factor, wide.k + target + l);
                    if (theta) add_columns<count, T>(in.theta + source + l, first, last, step_in, factor, wide.theta + target + l);
                }
            }
            for (; l < to.high[2]; ++l) {
                const auto [first, last, factor] = window(Axis == 0 ? i : Axis == 1 ? j : l);
                Lanes k = {}, t = {};
                sum_window(in, theta, source + (Axis == 2 ? 0 : l), first, last, step_in, k, t);
                if (op.wide) {
                    add<T>(k, factor, wide.k[target + l]);
                    if (theta) add<T>(t, factor, wide.theta[target + l]);
                } else {
                    out.k[target + l] = fma(k, broadcast(static_cast<T>(factor)), out.k[target + l]);
                    if (theta) out.theta[target + l] = fma(t, broadcast(static_cast<T>(factor)), out.theta[target + l]);
                }
            }
        }
}

template <class T, bool Self>
void pool(const Context<T, Self>& context, const Pool& op, const Instruction& step) {
    switch (op.axis) {
        case 0: return pool_along<0>(context, op, step);
        case 1: return pool_along<1>(context, op, step);
        default: return pool_along<2>(context, op, step);
    }
}

// Op: Pool, or a Map, whose weights may be negative.
template <class T, bool Self, class Op>
void pool_end(const Context<T, Self>& context, const Op& op, const Instruction& step) {
    using Lanes = typename Vector<T>::Lanes;
    const int offset = step.out_offset[op.axis];
    const Plane<T> out = context.slot(step.out_slot);
    const long moved = shift(op.out_size, step.out_offset);
    const Sides<T, Self> inside = context.cached(op.inside_at, moved), mean = context.cached(op.mean_at, moved);
    const Region to(op.out_size, step.out_offset);
    for (int i = to.low[0]; i < to.high[0]; ++i)
        for (int j = to.low[1]; j < to.high[1]; ++j)
            for (int l = to.low[2]; l < to.high[2]; ++l) {
                const int index[kAxes] = {i, j, l};
                const long p = to.row(i, j) + l;
                const Lanes within = T(0.5) * (inside.first(p) + inside.second(p));
                Lanes h = out.k[p] - within;
                // H of inputs that differ by a factor alone is zero but for rounding.
                const Lanes size = std::is_same_v<Op, Map> ? abs(within) : within;
                h = select(abs(h) > 16 * std::numeric_limits<T>::epsilon() * size, h, Lanes{});
                const double uneven = op.totals[index[op.axis]] - op.totals[index[op.axis] + offset];
                if (uneven != 0) h += static_cast<T>(uneven / 2) * (mean.first(p) - mean.second(p));
                out.k[p] = h;
            }
}

// B, and the part of the pooled Theta that comes from equal positions.
template <class T, bool Self>
void variance_pool(const Context<T, Self>& context, const Pool& op, const Instruction& step) {
    const Region from(op.in_size, Axes{}), to(op.out_size, Axes{});
    const Plane<T> in = context.slot(step.in_slot), out = context.slot(step.out_slot);
    const long step_in = axis_step(from, op.axis);
    for (int i = 0; i < to.high[0]; ++i)
        for (int j = 0; j < to.high[1]; ++j)
            for (int l = 0; l < to.high[2]; ++l) {
                int source[kAxes] = {i, j, l};
                const int q = source[op.axis], origin = q * op.stride - op.padding;
                source[op.axis] = 0;
                const long base = from.row(source[0], source[1]) + source[2];
                const T weight = static_cast<T>(op.weights[q]);
                const int first = std::max(origin, 0), last = std::min(origin + op.kernel, from.high[op.axis]);
                typename Vector<T>::Lanes k = {}, t = {};
                sum_window(in, step.theta_in, base, first, last, step_in, k, t);
                out.k[to.row(i, j) + l] = weight * k;
                out.theta[to.row(i, j) + l] = weight * weight * t;
            }
}

// q' = N B - A, in the place of A.
template <class T, bool Self, class Op>
void variance_pool_end(const Context<T, Self>& context, const Op& op, const Instruction& step) {
    const Plane<T> mean = context.slot(step.in_slot), out = context.slot(step.out_slot);
    const Region to(op.out_size, Axes{});
    for (int i = 0; i < to.high[0]; ++i)
        for (int j = 0; j < to.high[1]; ++j)
            for (int l = 0; l < to.high[2]; ++l) {
                const int index[kAxes] = {i, j, l};
                const long p = to.row(i, j) + l;
                out.k[p] = static_cast<T>(op.totals[index[op.axis]]) * mean.k[p] - out.k[p];
                if (step.theta_in) out.theta[p] += mean.theta[p];
            }
}

}  // namespace
}  // namespace ntkit::NTKIT_TARGET
