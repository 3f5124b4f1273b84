// LayerNorm and GroupNorm: y = x / s with s^2 = q + eps, once the mean is subtracted.

#pragma once

#include <limits>

#include "context.hpp"

namespace ntkit::NTKIT_TARGET {
namespace {

// K' = K / (s s'), Theta' = Theta / (s s') + the terms of trained gains and shifts.
template <class T, bool Self>
void normalize(const Context<T, Self>& context, const Normalize& op, const Instruction& step) {
    using Lanes = typename Vector<T>::Lanes;
    const Plane<T> in = context.slot(step.in_slot), out = context.slot(step.out_slot);
    const std::int64_t positions = positions_of(op.size) / context.tape.batch;
    const long moved = shift(op.size, step.out_offset);
    const Sides<T, Self> scale = context.own(op.scale_at, moved), scaled = context.own(op.scale_at + positions, moved);
    const T bias = static_cast<T>(op.bias_rate * step.factor), weight = static_cast<T>(op.weight_rate * step.factor);
    rows(Region(op.size, step.out_offset), [&](long first, long last) {
        for (long p = first; p < last; ++p) {
            const Lanes i1 = scale.first(p), i2 = scale.second(p), both = i1 * i2;
            const Lanes k = step.covariance_in ? in.k[p] * both
                                               : T(0.5) * (scaled.first(p) * i2 + scaled.second(p) * i1) - in.k[p] * both;
            if (step.theta_out) out.theta[p] = (step.theta_in ? in.theta[p] * both : Lanes{}) + (weight * k + bias);
            if (step.covariance_out) out.k[p] = k;
            else {
                const Lanes whole = in.k[p] * both, h = whole + T(0.5) * (i1 - i2) * (scaled.first(p) - scaled.second(p));
                // H of inputs that differ by a factor alone is zero but for rounding.
                out.k[p] = select(h > 8 * std::numeric_limits<T>::epsilon() * whole, h, Lanes{});
            }
        }
    });
}

}  // namespace
}  // namespace ntkit::NTKIT_TARGET
