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
[[gnu::always_inline]] inline Gaussians<Lanes> lanes_of(const Lanes& s1, const Lanes& s2, const Lanes& h, bool rounded) {
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

// What is known of E[phi phi] = factor angle + rest and of E[phi' phi'] before the polynomial of the angle, up to constants.
template <class Lanes>
struct ByAngle {
    Angle<Lanes> angle;
    Lanes factor, rest, slope;
};

// z Phi(z). With A = 1 + q1, B = 1 + q2, det = q1 q2 - k^2 and D = AB - k^2 = 1 + q1 + q2 + det,
//
//     2 pi E  = 2 pi k P + (q1 q2 D + k^2) / (AB sqrt(D)),    2 pi P = atan2(sqrt(D), -k),
//     2 pi E' = 2 pi P + k / sqrt(D) ((2 + q1 + q2) / (AB) + 1 / D),
//
// where all terms are positive for k >= 0. For k < 0 the first two of E cancel where t = sqrt(D) / |k| is small; then
//
//     2 pi E = |k| (t - atan(t)) + (k^2 - (1 + q1 + q2) D) / (AB sqrt(D)).
template <class Lanes>
[[gnu::always_inline]] inline ByAngle<Lanes> gelu_by_angle(const Gaussians<Lanes>& z) {
    using T = typename Lanes::Number;
    const Lanes size = abs(z.k), det = z.nearer * fma(broadcast(T(2)), size, z.nearer), sums = T(1) + z.q1 + z.q2, d = sums + det;
    const Lanes product = z.q1 * z.q2, ab = sums + product, root = sqrt(d), per_both = T(1) / (root * ab);
    const Lanes inverse = ab * per_both, per_ab = root * per_both, squares = z.k * z.k;
    ByAngle<Lanes> result{angle_above(-z.k, root), z.k, fma(product, d, squares) * per_both,
                          z.k * inverse * fma(T(1) + sums, per_ab, inverse * inverse)};
    if (const auto cancels = (z.k < T(0)) & (T(4) * root < size); any(cancels)) {
        result.factor = select(cancels, Lanes{}, z.k);
        result.rest = select(cancels, fma(size, beyond_arc(root / size), fnmadd(sums, d, squares) * per_both), result.rest);
    }
    return result;
}

template <class Lanes>
[[gnu::always_inline]] inline ByAngle<Lanes> erf_by_angle(const Gaussians<Lanes>& z) {
    using T = typename Lanes::Number;
    const Lanes determinant = z.apart * fma(broadcast(T(2)), z.k, z.apart);  // q1 q2 - k^2
    const Lanes root = sqrt(fma(broadcast(T(4)), determinant, T(1) + T(2) * z.q1 + T(2) * z.q2));
    return {angle_in_first_quadrant(root, T(2) * abs(z.k)).negated(z.k < T(0)), {}, {}, T(4) * std::numbers::inv_pi_v<T> / root};
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

// erf and GELU, all lanes at once, in two loops over a few entries: one up to the angle and one from its polynomial on. Alone, each
// entry is a long chain of dependent steps.
template <Function Which, class T, bool Self>
struct SmoothByAngle {
    using Lanes = typename Vector<T>::Lanes;
    static constexpr int kStage = 16;    // entries between the two loops
    static constexpr int kTogether = 4;  // entries of the second loop that share the coefficients they load

    Plane<T> in, out;
    Sides<T, Self> deviation, half;
    bool rounded, own, theta, covariance;

    [[gnu::always_inline]] ByAngle<Lanes> prepare(long p) const {
        const Lanes k = in.k[p], q = max(k, Lanes{});
        const auto z = own ? Gaussians<Lanes>{q, q, q, Lanes{}, Lanes{}, Lanes{}} : lanes_of(deviation.first(p), deviation.second(p), k, rounded);
        if constexpr (Which == Function::gelu) return gelu_by_angle(z);
        else return erf_by_angle(z);
    }

    template <int Count>
    [[gnu::always_inline]] void finish(const ByAngle<Lanes>* entries, long p) const {
        Lanes t[Count], base[Count], angle[Count];
#pragma GCC unroll 8
        for (int u = 0; u < Count; ++u) {
            t[u] = entries[u].angle.t;
            base[u] = entries[u].angle.base;
        }
        angles(t, base, angle);
        constexpr T turn = std::numbers::inv_pi_v<T> / 2;
#pragma GCC unroll 8
        for (int u = 0; u < Count; ++u) {
            const long at = p + u;
            Lanes value, slope;
            if constexpr (Which == Function::gelu) {
                value = turn * fma(entries[u].factor, angle[u], entries[u].rest);
                slope = turn * (angle[u] + entries[u].slope);
            } else {
                value = 4 * turn * angle[u];
                slope = entries[u].slope;
            }
            if (theta) out.theta[at] = in.theta[at] * slope;
            if (!covariance) {
                const auto equal = (in.k[at] == T(0)) & (deviation.first(at) == deviation.second(at));  // H stays zero to the bit
                value = select(equal, Lanes{}, half.first(at) + half.second(at) - value);
            }
            out.k[at] = value;
        }
    }

    void run(long first, long last) const {
        const SmoothByAngle rule = *this;  // a copy, so that the compiler knows that no write changes it
        ByAngle<Lanes> entries[kStage];
        for (long p = first; p < last; p += kStage) {
            const int count = static_cast<int>(std::min<long>(kStage, last - p));
            for (int at = 0; at < count; ++at) entries[at] = rule.prepare(p + at);
            int at = 0;
            for (; at + kTogether <= count; at += kTogether) rule.template finish<kTogether>(entries + at, p + at);
            for (; at < count; ++at) rule.template finish<1>(entries + at, p + at);
        }
    }
};

// The others, pair by pair.
template <class T, bool Self>
struct SmoothByPair {
    using Lanes = typename Vector<T>::Lanes;

    const Smooth& op;
    Plane<T> in, out;
    Sides<T, Self> deviation, half;
    bool own, theta, covariance;

    void run(long first, long last) const {
        for (long p = first; p < last; ++p) {
            Lanes s1{}, s2{};
            if (!own) {
                s1 = deviation.first(p);
                s2 = deviation.second(p);
            }
            Lanes value{}, slope{};
            const auto equal = (in.k[p] == T(0)) & (s1 == s2);  // H stays zero to the bit
            for (int lane = 0; lane < kLanes<T>; ++lane) {
                const T q = std::max(in.k[p][lane], T(0));
                const auto e = expectation(op, own ? Gaussians<T>{q, q, q, 0, 0, 0} : pair_of(s1[lane], s2[lane], in.k[p][lane], op.rounded));
                value.set(lane, e.value);
                slope.set(lane, e.slope);
            }
            if (theta) out.theta[p] = in.theta[p] * slope;
            out.k[p] = covariance ? value : select(equal, Lanes{}, half.first(p) + half.second(p) - value);
        }
    }
};

template <class T, bool Self>
void smooth(const Context<T, Self>& context, const Smooth& op, const Instruction& step) {
    const Plane<T> in = context.slot(step.in_slot), out = context.slot(step.out_slot);
    const long moved = shift(op.size, step.out_offset);
    const Sides<T, Self> deviation = context.own(op.deviation_at, moved), half = context.own(op.half_at, moved);
    const bool own = step.covariance_in;  // a variable with itself
    const auto every_row = [&](const auto& rule) { rows(Region(op.size, step.out_offset), [&](long first, long last) { rule.run(first, last); }); };
    if (op.function == Function::gelu)
        every_row(SmoothByAngle<Function::gelu, T, Self>{in, out, deviation, half, op.rounded, own, step.theta_out, step.covariance_out});
    else if (op.function == Function::erf)
        every_row(SmoothByAngle<Function::erf, T, Self>{in, out, deviation, half, op.rounded, own, step.theta_out, step.covariance_out});
    else every_row(SmoothByPair<T, Self>{op, in, out, deviation, half, own, step.theta_out, step.covariance_out});
}

}  // namespace
}  // namespace ntkit::NTKIT_TARGET
