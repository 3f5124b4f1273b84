// Expectations of activations that have a closed form, for two Gaussians.

#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "arc_tangent.hpp"
#include "context.hpp"

namespace ntkit::NTKIT_TARGET {
namespace {

// E[phi phi], E[phi' phi'] and, for a trained gain before the activation, E[u phi'(u) v phi'(v)].
template <class T>
struct Expectation {
    T value, slope, gained;
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
// amplify. H of the data is rounded like s and s'; H computed by an activation (`rounded`), like q.
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

// What is known of E[phi phi] = factor angle + rest and of E[phi' phi'] before the polynomial of the angle, up to constants; `gained` is
// that of E[u phi'(u) v phi'(v)] = k angle + gained, which a trained gain before the activation needs.
template <class Lanes>
struct ByAngle {
    Angle<Lanes> angle;
    Lanes k, factor, rest, slope, gained;
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
        result.gained = sum * per_ab * per_ab * (per_d * per_d * inverse);
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
    result.gained = gain ? polynomial_expectation(op.gain_terms, q1, q2, k).value : T(0);
    return result;
}

}  // namespace
}  // namespace ntkit::NTKIT_TARGET
