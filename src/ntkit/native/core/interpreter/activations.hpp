// Stand-alone activations, and the rule of a rectifier that is fused with a layer.

#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

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

// E[phi phi], E[phi' phi'] and, for a trained gain before the activation, E[u phi'(u) v phi'(v)].
template <class T>
struct Expectation {
    T value, slope, own;
};

// sum_j k^j j! h_j(q1) h_j(q2), h_j(q) = sum_m c[m] C(m, j) (m - j - 1)!! q^((m - j) / 2).
template <class T>
Expectation<T> polynomial_expectation(const std::vector<double>& hermite_terms, T q1, T q2, T k) {
    int terms = 0;
    while (static_cast<std::size_t>(terms) * terms < hermite_terms.size()) ++terms;
    T value = 0, slope = 0, power = 1, before = 0, factorial = 1;  // k^j, k^(j - 1), j!
    const auto side = [&](int j, T q) {
        T sum = 0, qs = 1;
        for (int m = j; m < terms; m += 2, qs *= q) sum += static_cast<T>(hermite_terms[j * terms + m]) * qs;
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
    return {value, slope, T(0)};
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

// What is known of two Gaussians once D, see below, and its root are.
template <class Lanes>
struct ByRoot {
    Lanes k, sums, product, d, root;  // `sums` = 1 + q1 + q2 and `product` = q1 q2, for GELU
};

// What is known of E[phi phi] = factor angle + rest and of E[phi' phi'] before the polynomial of the angle, up to constants; `own` is
// that of E[u phi'(u) v phi'(v)] = k angle + own, which a trained gain before the activation needs.
template <class Lanes>
struct ByAngle {
    Angle<Lanes> angle;
    Lanes k, factor, rest, slope, own;
};

// z Phi(z). With A = 1 + q1, B = 1 + q2, det = q1 q2 - k^2 and D = AB - k^2 = 1 + q1 + q2 + det,
//
//     2 pi E  = 2 pi k P + (q1 q2 D + k^2) / (AB sqrt(D)),    2 pi P = atan2(sqrt(D), -k),
//     2 pi E' = 2 pi P + k / sqrt(D) ((2 + q1 + q2) / (AB) + 1 / D),
//
// where all terms are positive for k >= 0. For k < 0 the first two of E cancel where t = sqrt(D) / |k| is small; then
//
//     2 pi E = |k| (t - atan(t)) + (k^2 - (1 + q1 + q2) D) / (AB sqrt(D)).
//
// With c = AB, m = k^2 and e = (A^2 - 1) (B^2 - 1), and s d/ds s' d/ds' of E at a fixed correlation,
//
//     2 pi E[u phi'(u) v phi'(v)] = 2 pi k P + (c^3 e + c^2 (c^2 + 6 - 4 e) m + c (5 e - 2 c^2 - 5) m^2 + (c^2 + 2 - 2 e) m^3) / (c^2 D^(5/2)).
template <class Lanes>
[[gnu::always_inline]] inline ByRoot<Lanes> gelu_by_root(const Gaussians<Lanes>& z) {
    using T = typename Lanes::Number;
    const Lanes det = z.nearer * fma(broadcast(T(2)), abs(z.k), z.nearer), sums = T(1) + z.q1 + z.q2, d = sums + det;
    return {z.k, sums, z.q1 * z.q2, d, sqrt(d)};
}
template <class Lanes>
[[gnu::always_inline]] inline ByAngle<Lanes> gelu_by_angle(const ByRoot<Lanes>& z, bool gain) {
    using T = typename Lanes::Number;
    const Lanes size = abs(z.k), ab = z.sums + z.product, per_both = T(1) / (z.root * ab);
    const Lanes inverse = ab * per_both, per_ab = z.root * per_both, per_d = inverse * inverse, squares = z.k * z.k;
    ByAngle<Lanes> result{angle_above(-z.k, z.root), z.k, z.k, fma(z.product, z.d, squares) * per_both,
                          z.k * inverse * fma(T(1) + z.sums, per_ab, per_d), {}};
    if (const auto cancels = (z.k < T(0)) & (T(4) * z.root < size); any(cancels)) {
        result.factor = select(cancels, Lanes{}, z.k);
        result.rest = select(cancels, fma(size, beyond_arc(z.root / size), fnmadd(z.sums, z.d, squares) * per_both), result.rest);
    }
    if (gain) {
        const Lanes c2 = ab * ab, e = z.product * (T(2) * z.sums + T(2) + z.product);  // q1 q2 (2 + q1) (2 + q2)
        Lanes sum = fma(broadcast(T(-2)), e, c2 + T(2));
        sum = fma(sum, squares, ab * fma(broadcast(T(5)), e, T(-2) * c2 - T(5)));
        sum = fma(sum, squares, c2 * fma(broadcast(T(-4)), e, c2 + T(6)));
        sum = fma(sum, squares, c2 * ab * e);
        result.own = sum * per_ab * per_ab * (per_d * per_d * inverse);
    }
    return result;
}

// With D = (1 + 2 q1) (1 + 2 q2) - 4 k^2, E = 2 / pi atan(2 k / sqrt(D)), E' = 4 / (pi sqrt(D)), E[u phi'(u) v phi'(v)] = k E' / D.
template <class Lanes>
[[gnu::always_inline]] inline ByRoot<Lanes> erf_by_root(const Gaussians<Lanes>& z) {
    using T = typename Lanes::Number;
    const Lanes determinant = z.apart * fma(broadcast(T(2)), z.k, z.apart);  // q1 q2 - k^2
    const Lanes d = fma(broadcast(T(4)), determinant, T(1) + T(2) * z.q1 + T(2) * z.q2);
    return {z.k, {}, {}, d, sqrt(d)};
}
template <class Lanes>
[[gnu::always_inline]] inline ByAngle<Lanes> erf_by_angle(const ByRoot<Lanes>& z) {
    using T = typename Lanes::Number;
    return {angle_in_first_quadrant(z.root, T(2) * abs(z.k)).negated(z.k < T(0)), z.k, {}, {}, T(4) * std::numbers::inv_pi_v<T> / z.root, {}};
}

// Of the functions that are computed pair by pair.
template <class T>
Expectation<T> expectation(const Smooth& op, const Gaussians<T>& z) {
    const auto [q1, q2, k, apart, nearer, spread] = z;
    const bool gain = op.trained_gain != 0;
    switch (op.function) {
        case Function::sine:
        case Function::cosine: {
            // exp(|k| - (q1 + q2) / 2) without the cancellation of the exponent
            const T size = std::abs(k), largest = std::exp(-(spread + nearer)) / 2;
            const T odd = std::copysign(largest, k) * -std::expm1(-2 * size), even = largest * (T(1) + std::exp(-2 * size));
            const T squares = q1 * q2 + k * k, rest = k * (T(1) - q1 - q2);
            if (op.function == Function::sine) return {odd, even, squares * odd + rest * even};
            return {even, odd, squares * even + rest * odd};
        }
        case Function::exponential: {
            const T value = std::exp((q1 + q2) / 2 + k);
            return {value, value, gain ? value * (k + (q1 + k) * (q2 + k)) : T(0)};
        }
        case Function::erf:
        case Function::gelu:
        case Function::polynomial: break;
    }
    auto result = polynomial_expectation(op.hermite_terms, q1, q2, k);
    result.own = gain ? polynomial_expectation(op.gain_terms, q1, q2, k).value : T(0);
    return result;
}

// Where an activation reads and writes.
template <class T, bool Self>
struct SmoothPlanes {
    using Lanes = typename Vector<T>::Lanes;

    Plane<T> in, out;
    Sides<T, Self> deviation, half;
    T gain;  // the multiple of E[u phi'(u) v phi'(v)] that Theta gets
    bool own, theta_in, theta_out, covariance;

    [[gnu::always_inline]] void write(long p, const Expectation<Lanes>& e) const {
        if (theta_out) {
            Lanes theta = theta_in ? in.theta[p] * e.slope : Lanes{};
            if (gain != 0) theta = fma(broadcast(gain), e.own, theta);
            out.theta[p] = theta;
        }
        Lanes value = e.value;
        if (!covariance) {
            value = half.first(p) + half.second(p) - value;
            const auto equal = (in.k[p] == T(0)) & (deviation.first(p) == deviation.second(p));
            value = select(equal, Lanes{}, value);  // H stays zero to the bit
        }
        out.k[p] = value;
    }
};

// erf and GELU, all lanes at once, in three loops over a few entries: up to a root, up to the angle, and from its polynomial on. Alone,
// each entry is a long chain of dependent steps.
template <Function Which, class T, bool Self>
struct SmoothByAngle {
    using Lanes = typename Vector<T>::Lanes;
    static constexpr int kStage = 16;    // entries between the loops
    static constexpr int kTogether = 4;  // entries of the last loop that share the coefficients they load

    SmoothPlanes<T, Self> planes;
    bool rounded;

    [[gnu::always_inline]] ByRoot<Lanes> by_root(long p) const {
        const Lanes k = planes.in.k[p], q = max(k, Lanes{});
        const auto z = planes.own ? Gaussians<Lanes>{q, q, q, Lanes{}, Lanes{}, Lanes{}}
                                  : lanes_of(planes.deviation.first(p), planes.deviation.second(p), k, rounded);
        if constexpr (Which == Function::gelu) return gelu_by_root(z);
        else return erf_by_root(z);
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
            const ByAngle<Lanes>& entry = entries[u];
            Expectation<Lanes> e;
            if constexpr (Which == Function::gelu) {
                e.value = turn * fma(entry.factor, angle[u], entry.rest);
                e.slope = turn * (angle[u] + entry.slope);
                e.own = planes.gain != 0 ? turn * fma(entry.k, angle[u], entry.own) : Lanes{};
            } else {
                const Lanes inverse = T(std::numbers::pi_v<T> / 4) * entry.slope;
                e = {4 * turn * angle[u], entry.slope, planes.gain != 0 ? entry.k * entry.slope * (inverse * inverse) : Lanes{}};
            }
            planes.write(p + u, e);
        }
    }

    void run(long first, long last) const {
        const SmoothByAngle rule = *this;  // a copy, so that the compiler knows that no write changes it
        const bool gain = rule.planes.gain != 0;
        ByRoot<Lanes> roots[kStage];
        ByAngle<Lanes> entries[kStage];
        for (long p = first; p < last; p += kStage) {
            const int count = static_cast<int>(std::min<long>(kStage, last - p));
            for (int at = 0; at < count; ++at) roots[at] = rule.by_root(p + at);
            for (int at = 0; at < count; ++at) {
                if constexpr (Which == Function::gelu) entries[at] = gelu_by_angle(roots[at], gain);
                else entries[at] = erf_by_angle(roots[at]);
            }
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

    SmoothPlanes<T, Self> planes;
    const Smooth& op;

    void run(long first, long last) const {
        for (long p = first; p < last; ++p) {
            const Lanes k = planes.in.k[p];
            Lanes s1{}, s2{};
            if (!planes.own) {
                s1 = planes.deviation.first(p);
                s2 = planes.deviation.second(p);
            }
            Expectation<Lanes> all{};
            for (int lane = 0; lane < kLanes<T>; ++lane) {
                const T q = std::max(k[lane], T(0));
                const auto e = expectation(op, planes.own ? Gaussians<T>{q, q, q, 0, 0, 0} : pair_of(s1[lane], s2[lane], k[lane], op.rounded));
                all.value.set(lane, e.value);
                all.slope.set(lane, e.slope);
                all.own.set(lane, e.own);
            }
            planes.write(p, all);
        }
    }
};

template <class T, bool Self>
void smooth(const Context<T, Self>& context, const Smooth& op, const Instruction& step) {
    const long moved = shift(op.size, step.out_offset);
    const SmoothPlanes<T, Self> planes{context.slot(step.in_slot), context.slot(step.out_slot), context.own(op.deviation_at, moved),
                                       context.own(op.half_at, moved), static_cast<T>(op.trained_gain * step.factor),
                                       step.covariance_in,  // a variable with itself
                                       step.theta_in, step.theta_out, step.covariance_out};
    const auto every_row = [&](const auto& rule) { rows(Region(op.size, step.out_offset), [&](long first, long last) { rule.run(first, last); }); };
    switch (op.function) {
        case Function::gelu: return every_row(SmoothByAngle<Function::gelu, T, Self>{planes, op.rounded});
        case Function::erf: return every_row(SmoothByAngle<Function::erf, T, Self>{planes, op.rounded});
        default: return every_row(SmoothByPair<T, Self>{planes, op});
    }
}

}  // namespace
}  // namespace ntkit::NTKIT_TARGET
