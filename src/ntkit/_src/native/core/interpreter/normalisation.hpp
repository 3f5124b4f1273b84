// LayerNorm and GroupNorm: y = x / s with s^2 = q + eps, once the mean is subtracted.

#pragma once

#include <limits>

#include "context.hpp"

namespace ntkit::NTKIT_TARGET {
namespace {

// K' = K / (s s'), Theta' = Theta / (s s') + the terms of trained gains and shifts, and, with deviations d and A = d d' - K,
//
//     A = H - (d - d')^2 / 2,    K' = (d d' - A) / (s s'),    H' = A / (s s') + (d / s - d' / s')^2 / 2.
//
// Dividing A loses no digits; computing H' as a difference of H and terms of similar size would. For inputs that differ only by a
// factor, A is zero up to the rounding of d and d'; for opposite inputs it is 2 d d' up to that of H.
template <class T, bool Self>
void normalize(const Context<T, Self>& context, const Normalize& op, const Instruction& step) {
    using Lanes = typename Vector<T>::Lanes;
    constexpr T noise = 4 * std::numeric_limits<T>::epsilon();
    const Plane<T> in = context.slot(step.in_slot), out = context.slot(step.out_slot);
    const std::int64_t positions = positions_of(op.size) / context.tape.batch;
    const long moved = shift(op.size, step.out_offset);
    const Sides<T, Self> scale = context.cached(op.scale_at, moved), deviation = context.cached(op.scale_at + positions, moved);
    const T bias = static_cast<T>(op.bias_rate * step.factor), weight = static_cast<T>(op.weight_rate * step.factor);
    rows(Region(op.size, step.out_offset), [&](long first, long last) {
        for (long p = first; p < last; ++p) {
            const Lanes i1 = scale.first(p), i2 = scale.second(p), both = i1 * i2;
            Lanes k = in.k[p] * both, h = {};
            if (!step.covariance_in) {
                const Lanes d1 = deviation.first(p), d2 = deviation.second(p), difference = d1 - d2, after = d1 * i1 - d2 * i2;
                Lanes apart = fma(broadcast(T(-0.5)), difference * difference, in.k[p]);
                const Lanes product = d1 * d2, sum = d1 + d2, limit = noise * sum;
                apart = select(apart > limit * abs(difference), apart, Lanes{});
                apart = select(apart > max(product, T(2) * product - limit * sum), T(2) * product, apart);
                k = (product - apart) * both;
                h = fma(broadcast(T(0.5)), after * after, apart * both);
            }
            if (step.theta_out) out.theta[p] = (step.theta_in ? in.theta[p] * both : Lanes{}) + (weight * k + bias);
            out.k[p] = step.covariance_out ? k : h;
        }
    });
}

}  // namespace
}  // namespace ntkit::NTKIT_TARGET
