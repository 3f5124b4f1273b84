// Activations that stand alone, and the rule of one that is fused with a layer.

#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

#include "context.hpp"
#include "rectifier.hpp"

namespace ntkit::NTKIT_TARGET {
namespace {

// The rule of a rectifier after a layer with the given numbers; after none, these are 1, 0, 0 and 0.
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

// For variances q1, q2 >= 0, covariance k, and apart = sqrt(q1 q2) - k.
template <class T>
Expectation<T> expectation(const Smooth& op, T q1, T q2, T k, T apart) {
    constexpr T pi = std::numbers::pi_v<T>;
    const T determinant = apart * (T(2) * k + apart);  // q1 q2 - k^2
    switch (op.function) {
        case Function::erf: {
            const T root = std::sqrt(T(1) + 2 * q1 + 2 * q2 + 4 * determinant);
            return {T(2) / pi * std::atan2(2 * k, root), T(4) / pi / root};
        }
        case Function::gelu: {
            const T ab = (T(1) + q1) * (T(1) + q2), q = q1 * q2;
            const T root = std::sqrt(T(1) + q1 + q2 + determinant);
            const T ratio = (T(1) - q) / ab, n = q + k * k * ratio;
            const T both = T(0.25) + std::atan2(k, root) / (2 * pi);
            return {k * both + n / (2 * pi * root), both + k / (2 * pi * root) * (T(1) + 2 * ratio + n / (root * root))};
        }
        case Function::sine:
        case Function::cosine: {
            const T size = std::abs(k), largest = std::exp(size - (q1 + q2) / 2) / 2;
            const T odd = std::copysign(largest, k) * -std::expm1(-2 * size), even = largest * (T(1) + std::exp(-2 * size));
            return op.function == Function::sine ? Expectation<T>{odd, even} : Expectation<T>{even, odd};
        }
        case Function::exponential: {
            const T value = std::exp((q1 + q2) / 2 + k);
            return {value, value};
        }
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
    rows(Region(op.size, step.out_offset), [&](long first, long last) {
        for (long p = first; p < last; ++p) {
            Lanes s1{}, s2{};
            if (!own) {
                s1 = deviation.first(p);
                s2 = deviation.second(p);
            }
            Lanes value{}, slope{};
            const auto equal = (in.k[p] == T(0)) & (s1 == s2);  // H stays zero to the bit
            for (int lane = 0; lane < kLanes<T>; ++lane) {
                Expectation<T> e;
                if (own) {
                    const T q = std::max(in.k[p][lane], T(0));
                    e = expectation(op, q, q, q, T(0));
                } else {
                    const T difference = s1[lane] - s2[lane];
                    const T apart = std::max(in.k[p][lane] - difference * difference / 2, T(0));
                    e = expectation(op, s1[lane] * s1[lane], s2[lane] * s2[lane], s1[lane] * s2[lane] - apart, apart);
                }
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
