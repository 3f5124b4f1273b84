// The derivatives of activations by H (or K) of their input, by its Theta and by the deviation of the row's value.
//
// With D = E[phi' phi'] = dE/dK, an activation maps (H, Theta) to (E or H', Theta D), and K = (s^2 + s'^2) / 2 - H, so
//
//     dE/dH = -D,    dE/ds = 2 s (E_q + D / 2),    dD/dH = -D_K,    dD/ds = 2 s (D_q + D_K / 2)
//
// with partial derivatives in K and in q = s^2 at fixed K.

#pragma once

#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "activations.hpp"
#include "closed_forms.hpp"

namespace ntkit::NTKIT_TARGET {
namespace {

// What an activation adds to the adjoints of an entry.
template <class Lanes>
struct EntryAdjoint {
    Lanes h, theta, deviation;
};

// The ReLU family. With psi the angle, A = s s' - K, C = s s' + K, kappa = (b - a)^2 / (2 pi) and sqrt(A C) = s s' sin(psi),
//
//     dD/dH = -kappa / sqrt(A C),    dD/ds = kappa (s - s' + A / s) / sqrt(A C),    dE/ds = s D + kappa sqrt(A C) / s,
//     dH'/dH = D,                    dH'/ds = kappa (psi s - sqrt(A C) / s).
//
// Where the values are parallel or opposite (A or C is zero, as rounded in rectifier.hpp), D has no derivative; it is taken as zero,
// as is that of D and of the correlation where a variance vanishes. The reference engine has the same conventions.
template <class T>
struct RectifierAdjoint {
    using Lanes = typename Vector<T>::Lanes;
    const Rectifier& op;
    T square = static_cast<T>((op.positive_slope - op.negative_slope) * (op.positive_slope - op.negative_slope));
    T slope = static_cast<T>(op.positive_slope * op.negative_slope), own = static_cast<T>(op.positive_slope * op.positive_slope + op.negative_slope * op.negative_slope);

    // `value`: the adjoint of E, `difference`: that of H', `after`: that of Theta'.
    [[gnu::always_inline]] EntryAdjoint<Lanes> of(Lanes s1, Lanes s2, Lanes h, Lanes theta, Lanes value, Lanes difference, Lanes after) const {
        constexpr T noise = 4 * std::numeric_limits<T>::epsilon(), c = T(ArcCosine<T>::c);
        const Lanes between = s1 - s2, sum = s1 + s2, product = s1 * s2, limit = noise * sum;
        const auto there = product > T(0);
        Lanes apart = fma(broadcast(T(-0.5)), between * between, h);
        apart = select(apart > (op.rounded ? limit * sum : abs(between * limit)), apart, Lanes{});
        if (!op.signed_covariance) apart = min(apart, T(1.25) * product);
        apart = select(there, apart, Lanes{});
        Lanes together = fma(broadcast(T(2)), product, -apart);
        const auto opposite = apart > product;
        together = select(opposite & (together < limit * sum), Lanes{}, together);
        const Lanes nearer = select(opposite, together, apart);
        Lanes t = nearer / fnmadd(broadcast(c), nearer, product);
        t = select(there, t, broadcast(1 / (1 - c)));
        Lanes polynomial[1], at[1] = {t};
        RectifierRule<T, false>::polynomial(op.arc_cosine<T>().p, at, polynomial);
        const Lanes angle = sqrt(t) * polynomial[0], rest = square / 2 - angle;
        const Lanes both = select(opposite, angle, rest), psi = select(there, select(opposite, rest, angle), broadcast(square / 2));
        const Lanes d = both + slope, dk = select(there, d, broadcast(slope));
        const Lanes area = apart * together, root = sqrt(area);
        const Lanes kappa = broadcast(static_cast<T>(square * std::numbers::inv_pi_v<T> / 2));
        const Lanes per_root = select(root > T(0), kappa / select(root > T(0), root, broadcast(T(1))), Lanes{});
        const Lanes per_s = T(1) / select(there, s1, broadcast(T(1))), edge = select(there, kappa * root * per_s, Lanes{});
        const Lanes tangent = after * theta * per_root;
        EntryAdjoint<Lanes> result;
        result.h = dk * (difference - value) - tangent;
        result.theta = after * d;
        result.deviation = value * fma(s1, dk, edge) + difference * (psi * s1 - edge) + tangent * fma(apart, per_s, between);
        return result;
    }
};

// D, E_q, D_K and D_q.
template <class T>
struct Slopes {
    T d, value_q, d_k, d_q;
};

template <class Lanes>
[[gnu::always_inline]] inline Slopes<Lanes> erf_slopes(const Gaussians<Lanes>& z) {
    using T = typename Lanes::Number;
    const ByRoot<Lanes> by = erf_by_root(z);
    const Lanes d = T(4) * std::numbers::inv_pi_v<T> / by.root, per_d = d / by.d;
    return {d, -d * z.k / (T(1) + T(2) * z.q1), T(4) * z.k * per_d, -(T(1) + T(2) * z.q2) * per_d};
}

// With A = 1 + q, B = 1 + q', D = AB - k^2, c = 1 / A + 1 / B and N = q q' D + k^2, times 2 pi:
//
//     E_q = -k^2 / (2 A sqrt(D)) + (q' D + q q' B - N / A - N B / (2 D)) / (AB sqrt(D)),
//     E'_k = 1 / sqrt(D) + AB (c + 1 / D) / D^(3/2) + 2 k^2 / D^(5/2),
//     E'_q = -k / sqrt(D) (1 / (2 A) + B (c + 1 / D) / (2 D) + 1 / A^2 + B / D^2).
template <class Lanes>
[[gnu::always_inline]] inline Slopes<Lanes> gelu_slopes(const Gaussians<Lanes>& z) {
    using T = typename Lanes::Number;
    constexpr T turn = std::numbers::inv_pi_v<T> / 2;
    const ByRoot<Lanes> by = gelu_by_root(z);
    const Angle<Lanes> above = angle_above(-z.k, by.root);
    Lanes t[1] = {above.t}, base[1] = {above.base}, angle[1];
    angles(t, base, angle);
    const Lanes a = T(1) + z.q1, b = T(1) + z.q2, ab = a * b, per_root = T(1) / by.root, per_d = per_root * per_root;
    const Lanes per_a = T(1) / a, squares = z.k * z.k, c = per_a + T(1) / b, cd = c + per_d, n = fma(by.product, by.d, squares);
    Slopes<Lanes> result;
    result.d = turn * (angle[0] + z.k * per_root * cd);
    result.value_q = turn * per_root * ((z.q2 * by.d + by.product * b - n * per_a - T(0.5) * n * b * per_d) / ab - T(0.5) * squares * per_a);
    result.d_k = turn * per_root * (T(1) + per_d * (ab * cd + T(2) * squares * per_d));
    result.d_q = -turn * z.k * per_root * (T(0.5) * per_a + T(0.5) * b * per_d * cd + per_a * per_a + b * per_d * per_d);
    return result;
}

// sum_j k^j j! h_j(q) h_j(q'), as in closed_forms.hpp.
template <class T>
Slopes<T> polynomial_slopes(const std::vector<double>& hermite_terms, T q1, T q2, T k) {
    int terms = 0;
    while (static_cast<std::size_t>(terms) * terms < hermite_terms.size()) ++terms;
    Slopes<T> result{};
    T power = 1, before = 0, earlier = 0, factorial = 1;  // k^j, k^(j - 1), k^(j - 2), j!
    for (int j = 0; j < terms; ++j) {
        T one = 0, derived = 0, two = 0, qs1 = 1, last = 0, qs2 = 1;
        for (int m = j, n = 0; m < terms; m += 2, ++n) {
            const T term = static_cast<T>(hermite_terms[j * terms + m]);
            one += term * qs1;
            derived += static_cast<T>(n) * term * last;
            two += term * qs2;
            last = qs1;
            qs1 *= q1;
            qs2 *= q2;
        }
        const T both = factorial * one * two, moved = factorial * derived * two, order = static_cast<T>(j);
        result.d += order * before * both;
        result.value_q += power * moved;
        result.d_k += order * (order - 1) * earlier * both;
        result.d_q += order * before * moved;
        earlier = before;
        before = power;
        power *= k;
        factorial *= static_cast<T>(j + 1);
    }
    return result;
}

template <class T>
Slopes<T> slopes_of_pair(const Smooth& op, const Gaussians<T>& z) {
    if (op.function == Function::polynomial) return polynomial_slopes(op.hermite_terms, z.q1, z.q2, z.k);
    const Expectation<T> e = expectation(op, z);
    const T half = op.function == Function::exponential ? T(0.5) : T(-0.5);
    return {e.slope, half * e.value, e.value, half * e.slope};
}

template <class T>
[[gnu::always_inline]] inline Slopes<typename Vector<T>::Lanes> slopes(const Smooth& op, const typename Vector<T>::Lanes& s1,
                                                                      const typename Vector<T>::Lanes& s2, const typename Vector<T>::Lanes& h) {
    if (op.function == Function::erf) return erf_slopes(lanes_of(s1, s2, h, op.rounded));
    if (op.function == Function::gelu) return gelu_slopes(lanes_of(s1, s2, h, op.rounded));
    Slopes<typename Vector<T>::Lanes> all;
    for (int lane = 0; lane < kLanes<T>; ++lane) {
        const Slopes<T> one = slopes_of_pair(op, pair_of(s1[lane], s2[lane], h[lane], op.rounded));
        all.d.set(lane, one.d);
        all.value_q.set(lane, one.value_q);
        all.d_k.set(lane, one.d_k);
        all.d_q.set(lane, one.d_q);
    }
    return all;
}

}  // namespace
}  // namespace ntkit::NTKIT_TARGET
