// Stand-alone activations, and the rule of a rectifier that is fused with a layer.

#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "arc_tangent.hpp"
#include "context.hpp"
#include "rectifier.hpp"

namespace ntkit::NTKIT_TARGET {
namespace {

// The rule of a rectifier after a layer with the given numbers; without a layer, these are 1, 0, 0 and 0.
template <class T, bool Self>
RectifierRule<T, Self> rectifier_rule(const Context<T, Self>& context, const Rectifier& rectifier, double weight, double bias,
                                      double weight_rate, double bias_rate, long moved, double mask) {
    const double a = rectifier.negative_slope, b = rectifier.positive_slope;
    return {context.own(rectifier.deviation_at, moved), &rectifier.arc_cosine<T>(), static_cast<T>(weight * (b - a) * (b - a) / 2),
            static_cast<T>(weight * a * b), static_cast<T>(weight_rate), static_cast<T>(bias / weight),
            static_cast<T>(bias_rate / weight), static_cast<T>(rectifier.trained_gain * mask), context.unit(), context.unit_step(),
            rectifier.signed_covariance, rectifier.rounded, Self || context.block.zeros};
}

template <class T, bool Self>
RectifierRule<T, Self> layer_rule(const Context<T, Self>& context, const Layer& op, const Instruction& step) {
    if (!op.activation) return {};
    return rectifier_rule(context, *op.activation, op.weight, op.bias, op.weight_rate, op.bias_rate,
                          shift(op.out_size, step.out_offset), step.factor);
}

template <class T, bool Self>
void rectified(const Context<T, Self>& context, const Rectified& op, const Instruction& step) {
    using Lanes = typename Vector<T>::Lanes;
    const Plane<T> in = context.slot(step.in_slot), out = context.slot(step.out_slot);
    const bool theta = step.theta_out, theta_in = step.theta_in;
    if (step.covariance_in) {  // a variable with itself: E[phi phi] = (a^2 + b^2) q / 2
        const double a = op.activation.negative_slope, b = op.activation.positive_slope;
        const T factor = static_cast<T>((a * a + b * b) / 2);
        const T gain = static_cast<T>(op.activation.trained_gain * step.factor);
        const T slope_at_zero = static_cast<T>((a + b) * (a + b) / 4);  // where q = 0
        rows(Region(op.size, step.out_offset), [&](long first, long last) {
            for (long p = first; p < last; ++p) {
                const Lanes k = factor * in.k[p];
                const Lanes slopes = select(in.k[p] > T(0), broadcast(factor), broadcast(slope_at_zero));
                if (theta) out.theta[p] = (theta_in ? slopes * in.theta[p] : Lanes{}) + gain * k;
                out.k[p] = k;
            }
        });
        return;
    }
    const auto rule = rectifier_rule(context, op.activation, 1.0, 0.0, 0.0, 0.0, shift(op.size, step.out_offset), step.factor);
    rows(Region(op.size, step.out_offset), [&](long first, long last) {
        const Sums<T> sums{in.k + first, theta_in ? in.theta + first : nullptr};
        rule.run(theta, step.covariance_out, sums, first, last, 0, out.k, out.theta);
    });
}

// E[phi phi] and E[phi' phi'].
template <class T>
struct Expectation {
    T value, slope;
};

// sum_j k^j j! h_j(q1) h_j(q2), h_j(q) = sum_m c[m] C(m, j) (m - j - 1)!! q^((m - j) / 2).
template <class T>
Expectation<T> polynomial_expectation(const Smooth& op, T q1, T q2, T k) {
    int terms = 0;
    while (static_cast<std::size_t>(terms) * terms < op.hermite_terms.size()) ++terms;
    T value = 0, slope = 0, power = 1, before = 0, factorial = 1;  // k^j, k^(j - 1), j!
    const auto side = [&](int j, T q) {
        T sum = 0, qs = 1;
        for (int m = j; m < terms; m += 2, qs *= q) sum += static_cast<T>(op.hermite_terms[j * terms + m]) * qs;
        return sum;
    };
    for (int j = 0; j < terms; ++j) {
        const T both = factorial * side(j, q1) * side(j, q2);
        value += power * both;
        slope += static_cast<T>(j) * before * both;
        before = power;
        power *= k;
        factorial *= static_cast<T>(j + 1);
    }
    return {value, slope};
}

// Two Gaussians. `pair_of` computes these numbers from two deviations s1, s2 and H without cancellation.
template <class T>
struct Gaussians {
    T q1, q2, k;  // variances and covariance
    T apart;      // s1 s2 - k
    T nearer;     // s1 s2 - |k|, and zero where it is rounding
    T spread;     // (s1 - s2)^2 / 2
};

// For two inputs that differ only by a factor, `nearer` is zero, but rounding turns it into a small number, which large variances
// // amplify. H of the data is rounded like s and s'; H computed by an activation (`rounded`), like q.
template <class T>
Gaussians<T> pair_of(T s1, T s2, T h, bool rounded) {
    constexpr T noise = 4 * std::numeric_limits<T>::epsilon();
    const T difference = s1 - s2, sum = s1 + s2, product = s1 * s2;
    const T apart = std::max(h - difference * difference / 2, T(0)), k = product - apart;
    const T blur = noise * sum * (rounded || k < 0 ? sum : std::abs(difference)), nearer = k < 0 ? product + k : apart;
    return {s1 * s1, s2 * s2, k, apart, nearer > blur ? nearer : T(0), difference * difference / 2};
}

// The same for all lanes at once.
template <class Lanes>
Gaussians<Lanes> lanes_of(const Lanes& s1, const Lanes& s2, const Lanes& h, bool rounded) {
    using T = typename Lanes::Number;
    constexpr T noise = 4 * std::numeric_limits<T>::epsilon();
    const Lanes difference = s1 - s2, sum = s1 + s2, product = s1 * s2, spread = difference * difference * T(0.5);
    const Lanes apart = max(h - spread, Lanes{}), k = product - apart;
    const auto opposite = k < T(0);
    const Lanes blur = noise * sum * (rounded ? sum : select(opposite, sum, abs(difference)));
    const Lanes nearer = select(opposite, product + k, apart);
    return {s1 * s1, s2 * s2, k, apart, select(nearer > blur, nearer, Lanes{}), spread};
}

// t - atan(t) for 0 <= t < 1/4, where the difference would cancel.
template <class Lanes>
Lanes beyond_arc(const Lanes& t) {
    using T = typename Lanes::Number;
    const Lanes square = t * t;
    Lanes sum{};
    for (int n = 14; n >= 0; --n) sum = fnmadd(square, sum, broadcast(T(1) / (2 * n + 3)));
    return t * square * sum;
}

// z Phi(z). With A = 1 + q1, B = 1 + q2, det = q1 q2 - k^2 and D = AB - k^2 = 1 + q1 + q2 + det,
//
//     2 pi E  = 2 pi k P + (q1 q2 sqrt(D) + k^2 / sqrt(D)) / (AB),    2 pi P = atan2(sqrt(D), -k),
//     2 pi E' = 2 pi P + k / sqrt(D) ((1 + q1 + q2)(1 + 2 / D) + (q1 q2 + det) / D) / (AB),
//
// where all terms are positive for k >= 0. For k < 0 the first two of E cancel where t = sqrt(D) / |k| is small; then
//
//     2 pi E = |k| (t - atan(t)) + (k^2 - (1 + q1 + q2) D) / (AB sqrt(D)).
template <class Lanes>
Expectation<Lanes> gelu_expectation(const Gaussians<Lanes>& z) {
    using T = typename Lanes::Number;
    constexpr T turn = std::numbers::inv_pi_v<T> / 2;
    const Lanes size = abs(z.k), det = z.nearer * fma(broadcast(T(2)), size, z.nearer), sums = T(1) + z.q1 + z.q2, d = sums + det;
    const Lanes root = sqrt(d), inverse = T(1) / root, per_d = inverse * inverse;
    const Lanes per_ab = T(1) / ((T(1) + z.q1) * (T(1) + z.q2)), q = z.q1 * z.q2 * per_ab, squares = z.k * z.k * per_ab;
    const Lanes both = angle_above(-z.k, root);
    Lanes value = fma(z.k, both, fma(q, root, squares * inverse));
    if (const auto cancels = (z.k < T(0)) & (T(4) * root < size); any(cancels))
        value = select(cancels, fma(size, beyond_arc(root / size), (squares - sums * per_ab * d) * inverse), value);
    const Lanes bracket = fma(sums * per_ab, fma(broadcast(T(2)), per_d, broadcast(T(1))), fma(det, per_ab, q) * per_d);
    return {turn * value, turn * fma(z.k * inverse, bracket, both)};
}

template <class Lanes>
Expectation<Lanes> erf_expectation(const Gaussians<Lanes>& z) {
    using T = typename Lanes::Number;
    const Lanes determinant = z.apart * fma(broadcast(T(2)), z.k, z.apart);  // q1 q2 - k^2
    const Lanes root = sqrt(fma(broadcast(T(4)), determinant, T(1) + T(2) * z.q1 + T(2) * z.q2));
    const Lanes angle = angle_in_first_quadrant(root, T(2) * abs(z.k));
    return {T(2) * std::numbers::inv_pi_v<T> * select(z.k < T(0), -angle, angle), T(4) * std::numbers::inv_pi_v<T> / root};
}

// Of the functions that are computed pair by pair.
template <class T>
Expectation<T> expectation(const Smooth& op, const Gaussians<T>& z) {
    const auto [q1, q2, k, apart, nearer, spread] = z;
    switch (op.function) {
        case Function::sine:
        case Function::cosine: {
            // exp(|k| - (q1 + q2) / 2) without the cancellation of the exponent
            const T size = std::abs(k), largest = std::exp(-(spread + nearer)) / 2;
            const T odd = std::copysign(largest, k) * -std::expm1(-2 * size), even = largest * (T(1) + std::exp(-2 * size));
            return op.function == Function::sine ? Expectation<T>{odd, even} : Expectation<T>{even, odd};
        }
        case Function::exponential: {
            const T value = std::exp((q1 + q2) / 2 + k);
            return {value, value};
        }
        case Function::erf:
        case Function::gelu:
        case Function::polynomial: break;
    }
    return polynomial_expectation(op, q1, q2, k);
}

template <class T, bool Self>
void smooth(const Context<T, Self>& context, const Smooth& op, const Instruction& step) {
    using Lanes = typename Vector<T>::Lanes;
    const Plane<T> in = context.slot(step.in_slot), out = context.slot(step.out_slot);
    const long moved = shift(op.size, step.out_offset);
    const Sides<T, Self> deviation = context.own(op.deviation_at, moved), half = context.own(op.half_at, moved);
    const bool own = step.covariance_in;  // a variable with itself
    const bool together = op.function == Function::gelu || op.function == Function::erf;  // all lanes at once
    rows(Region(op.size, step.out_offset), [&](long first, long last) {
        for (long p = first; p < last; ++p) {
            Lanes s1{}, s2{};
            if (!own) {
                s1 = deviation.first(p);
                s2 = deviation.second(p);
            }
            Lanes value{}, slope{};
            const auto equal = (in.k[p] == T(0)) & (s1 == s2);  // H stays zero to the bit
            if (together) {
                const Lanes q = max(in.k[p], Lanes{});
                const auto z = own ? Gaussians<Lanes>{q, q, q, Lanes{}, Lanes{}, Lanes{}} : lanes_of(s1, s2, in.k[p], op.rounded);
                const auto e = op.function == Function::gelu ? gelu_expectation(z) : erf_expectation(z);
                value = e.value;
                slope = e.slope;
            } else
                for (int lane = 0; lane < kLanes<T>; ++lane) {
                    const T q = std::max(in.k[p][lane], T(0));
                    const auto e = expectation(op, own ? Gaussians<T>{q, q, q, 0, 0, 0} : pair_of(s1[lane], s2[lane], in.k[p][lane], op.rounded));
                    value.set(lane, e.value);
                    slope.set(lane, e.slope);
                }
            if (step.theta_out) out.theta[p] = in.theta[p] * slope;
            out.k[p] = step.covariance_out ? value : select(equal, Lanes{}, half.first(p) + half.second(p) - value);
        }
    });
}

}  // namespace
}  // namespace ntkit::NTKIT_TARGET
