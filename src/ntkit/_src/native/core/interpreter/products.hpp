// Products of independent values.

#pragma once

#include "context.hpp"

namespace ntkit::NTKIT_TARGET {
namespace {

// Multiplies the output plane by the input plane. With m the means and d half the differences of the variances of each value,
// K = m - H, and
//
//     H' = (q1 q2 + q1' q2') / 2 - K1 K2 = d1 d2 + m2 H1 + K1 H2,
//
// which is small where both H are.
template <class T, bool Self>
void multiply(const Context<T, Self>& context, const Product& op, const Instruction& step) {
    using Lanes = typename Vector<T>::Lanes;
    const Plane<T> in = context.slot(step.in_slot), out = context.slot(step.out_slot);
    const long moved = shift(op.size, step.out_offset);
    const Sides<T, Self> half1 = context.cached(op.first_half_at, moved), half2 = context.cached(op.second_half_at, moved);
    rows(Region(op.size, step.out_offset), [&](long first, long last) {
        for (long p = first; p < last; ++p) {
            Lanes k1 = out.k[p], k2 = in.k[p], result = k1 * k2;
            if (!step.covariance_out) {
                const Lanes a1 = half1.first(p), b1 = half1.second(p), a2 = half2.first(p), b2 = half2.second(p);
                const Lanes h1 = k1, h2 = k2;
                k1 = a1 + b1 - h1;
                k2 = a2 + b2 - h2;
                result = max(fma(a2 + b2, h1, fma(k1, h2, (a1 - b1) * (a2 - b2))), Lanes{});
            }
            out.k[p] = result;
            if (step.theta_out) out.theta[p] = fma(out.theta[p], k2, step.theta_in ? k1 * in.theta[p] : Lanes{});
        }
    });
}

}  // namespace
}  // namespace ntkit::NTKIT_TARGET
