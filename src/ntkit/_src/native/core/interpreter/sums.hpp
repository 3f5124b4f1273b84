// Sums of planes, and sums over positions.

#pragma once

#include <algorithm>

#include "context.hpp"

namespace ntkit::NTKIT_TARGET {
namespace {

// Four sums at a time, because each addition depends on the previous one.
template <class Lanes>
inline Lanes sum_along(const Lanes* from, int low, int high, long step) {
    Lanes sums[4] = {};
    int p = low;
    for (; p + 4 <= high; p += 4)
        for (int i = 0; i < 4; ++i) sums[i] += from[(p + i) * step];
    for (int i = 0; p < high; ++p, ++i) sums[i] += from[p * step];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// A constant, which is scaled with each input. Theta is copied from the input plane, or zero.
template <class T, bool Self>
void fill(const Context<T, Self>& context, const Fill& op, const Instruction& step) {
    using Lanes = typename Vector<T>::Lanes;
    const Plane<T> in = context.slot(step.in_slot), out = context.slot(step.out_slot);
    const Sides<T, Self> one = context.unit();
    const int unit_step = context.unit_step();
    const T square = static_cast<T>(op.square);
    rows(Region(op.size, step.out_offset), [&](long first, long last) {
        for (long p = first; p < last; ++p) {
            const Lanes u1 = one.first(p * unit_step), u2 = one.second(p * unit_step), apart = u1 - u2;
            out.k[p] = step.covariance_out ? square * (u1 * u2) : square / 2 * (apart * apart);
        }
        if (step.theta_in) std::copy(in.theta + first, in.theta + last, out.theta + first);
        else if (step.theta_out) std::fill(out.theta + first, out.theta + last, Lanes{});
    });
}

template <class T, bool Self>
void clear(const Context<T, Self>& context, const Instruction& step) {
    const WidePlane<T> out = context.accumulator(step.out_slot);
    const std::int64_t positions = context.tape.accumulator_positions;
    std::fill(out.k, out.k + positions, Wide<T>{});
    std::fill(out.theta, out.theta + positions, Wide<T>{});
}

template <class T, bool Self>
void reduce_row(const Context<T, Self>& context, const Reduce& op, const Instruction& step, const Region& from, int i, int j, Plane<T> in) {
    const WidePlane<T> out = context.accumulator(step.out_slot);
    const long row = in.row(from, i, j);
    const long target = static_cast<long>(i) * op.out_stride[0] + static_cast<long>(j) * op.out_stride[1];
    if (op.out_stride[2]) {
        for (int l = from.low[2]; l < from.high[2]; ++l) {
            const long q = target + static_cast<long>(l) * op.out_stride[2];
            add<T>(in.k[row + l], op.factor, out.k[q]);
            if (step.theta_in) add<T>(in.theta[row + l], op.factor, out.theta[q]);
        }
        return;
    }
    const int low = from.low[2], high = from.high[2];
    add<T>(sum_along(in.k + row, low, high, 1), op.factor, out.k[target]);
    if (step.theta_in) add<T>(sum_along(in.theta + row, low, high, 1), op.factor, out.theta[target]);
}

template <class T, bool Self>
void reduce(const Context<T, Self>& context, const Reduce& op, const Instruction& step) {
    const Region from(op.in_size, step.in_offset);
    const Plane<T> in = context.slot(step.in_slot);
    for (int i = from.low[0]; i < from.high[0]; ++i)
        for (int j = from.low[1]; j < from.high[1]; ++j) reduce_row(context, op, step, from, i, j, in);
}

template <class T, bool Self>
void settle(const Context<T, Self>& context, const Plain& op, const Instruction& step) {
    const WidePlane<T> in = context.accumulator(step.in_slot);
    const Plane<T> out = context.slot(step.out_slot);
    rows(Region(op.size, step.out_offset), [&](long first, long last) {
        for (long p = first; p < last; ++p) {
            out.k[p] = narrow<T>(in.k[p]);
            out.theta[p] = narrow<T>(in.theta[p]);
        }
    });
}

template <class T, bool Self>
void combine(const Context<T, Self>& context, const Plain& op, const Instruction& step) {
    const Plane<T> in = context.slot(step.in_slot), out = context.slot(step.out_slot);
    const auto factor = broadcast(static_cast<T>(step.factor));
    rows(Region(op.size, step.out_offset), [&](long first, long last) {
        for (long p = first; p < last; ++p) out.k[p] = fma(in.k[p], factor, out.k[p]);
        if (step.theta_in)
            for (long p = first; p < last; ++p) out.theta[p] = fma(in.theta[p], factor, out.theta[p]);
    });
}

}  // namespace
}  // namespace ntkit::NTKIT_TARGET
