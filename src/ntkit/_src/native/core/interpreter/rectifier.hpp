// The ReLU family, a min(z, 0) + b max(z, 0), after a linear layer: nearly all of the arithmetic of nearly all kernels.
//
// Let s, s' be the standard deviations, A = s s' - K = H - (s - s')^2 / 2, t = A / (s s' - c A), and for rho >= 0
//
//     E[relu relu] = K / 2 + A sqrt(t) g(t),    P(u > 0, v > 0) = 1 / 2 - sqrt(t) p(t),
//     H' = A (1 / 2 - sqrt(t) g(t)) + (s - s')^2 / 4,
//
// where nothing cancels for small A. For rho < 0, with A = s s' + K,
//
//     E[relu relu] = A sqrt(t) g(t),    P(u > 0, v > 0) = sqrt(t) p(t),    H' = A (1 / 2 - sqrt(t) g(t)) - K / 2 + (s - s')^2 / 4.
//
// The layer's factor (its weight variance over the window's size) is part of the deviations, which are divided by its root, and of
// the coefficients: a window is summed and never scaled.

#pragma once

#include <algorithm>
#include <limits>

#include "../arc_cosine.hpp"
#include "context.hpp"

namespace ntkit::NTKIT_TARGET {
namespace {

// Each activation takes two loops over a few entries, one up to the division and one from the square root on. A single loop takes
// 8 % longer in float32 and 18 % in float64, because each entry is a long chain of dependent steps.
constexpr int kStage = 16;  // entries between the two loops
constexpr int kTogether = 2;  // entries of the second loop that share the coefficients they load

// The sums over the windows of a row.
template <class T>
struct Sums {
    const typename Vector<T>::Lanes* k;
    const typename Vector<T>::Lanes* theta;  // null where Theta is zero
};

template <class T, bool Self>
struct RectifierRule {
    using Lanes = typename Vector<T>::Lanes;

    Sides<T, Self> deviation;              // of the layer's output, divided by the root of its factor
    const ScaledArcCosine<T>* arc_cosine;  // times the factor and (b - a)^2
    T half;                                // the factor times (b - a)^2 / 2
    T slope;                               // the factor times a b
    T r, bias, rest;                       // Theta + r (K - bias) + rest of the linear layer, in units of its factor
    T gain;                                // Theta + gain K' for a trained gain in between
    Sides<T, Self> unit;                   // the scales of the inputs: what the value one became
    int unit_step;
    bool negative;                         // rho may be negative
    bool rounded;                          // an earlier operation rounded H to the precision of the variances
    bool zeros;                            // a deviation may be zero

    template <int Count, int Terms>
    static void polynomial(const T (&coefficients)[Terms], const Lanes (&t)[Count], Lanes (&value)[Count]) {
#pragma GCC unroll 8
        for (int u = 0; u < Count; ++u) value[u] = broadcast(coefficients[Terms - 1]);
#pragma GCC unroll 32
        for (int i = Terms - 2; i >= 0; --i) {
            const Lanes coefficient = broadcast(coefficients[i]);
#pragma GCC unroll 8
            for (int u = 0; u < Count; ++u) value[u] = fma(value[u], t[u], coefficient);
        }
    }

    // What the first loop passes to the second.
    struct Entry {
        Lanes t;       // with the sign of rho
        Lanes nearer;  // A
        Lanes start;   // the part of the result without the square root
        Lanes before;  // Theta of the linear layer
        Lanes k;       // set only if there is a gain
    };

    // What the first loop found about its entries.
    struct Found {
        bool beyond = false;  // some rho is negative
        Lanes doubt = {};     // negative where the quick version may be wrong for an entry
    };

    // The first loop. For two inputs that differ only by a factor, A is zero, but the rounding of s and s' turns it into a small number
    // whose square root is not small; so A is set to zero up to `blur`. And where rho >= 0, only rounding can make A larger than s s'.
    //
    // Both corrections take time, and few entries need them. Quick omits them, and marks an entry as doubtful unless A is far above
    // the noise times
    //
    //     |s^2 - s'^2| <= (s - s')^2 + 2 s s' = 2 (H - A + s s').
    //
    // Above it, rounding has changed A by a few percent at most, neither correction would apply, and the bits are the same.
    //
    // Care handles biases, gains, zero deviations and `rounded`. Without any of these it changes no bit.
    template <bool Quick, bool Relu, bool Theta, bool Covariance, bool Negative, bool Care>
    [[gnu::always_inline]] void prepare(long p, Lanes h, Lanes theta, Entry& entry, Found& found) const {
        constexpr T noise = 4 * std::numeric_limits<T>::epsilon(), c = T(ArcCosine<T>::c);
        const Lanes s1 = deviation.first(p), s2 = deviation.second(p);
        const Lanes difference = s1 - s2, sum = s1 + s2;
        const Lanes square = difference * difference, product = s1 * s2;
        const Lanes limit = noise * sum;
        if (Care && bias != 0) {  // H of the bias: half the squared difference of the scales
            const Lanes other = unit.first(p * unit_step) - unit.second(p * unit_step);
            h = fma(broadcast(bias / 2), other * other, h);
        }
        Lanes apart = fma(broadcast(T(-0.5)), square, h);
        if constexpr (Quick) {
            found.doubt = bit_or(found.doubt, fnmadd(broadcast(256 * noise), h + product, apart));
        } else {
            const Lanes blur = Care && rounded ? limit * sum : abs(difference * limit);
            apart = select(apart > blur, apart, Lanes{});
            if constexpr (!Negative) apart = min(apart, T(1.25) * product);
            else if constexpr (Care) apart = select(product > T(0), apart, Lanes{});
        }
        const Lanes k = product - apart;
        Lanes start = Covariance ? half * k : half * T(0.5) * square;
        Lanes nearer = apart;
        // In most networks nearly no pair, or nearly every pair, has a negative correlation: the branch is well predicted.
        const auto opposite = apart > product;
        const bool beyond = Negative && any(opposite);
        if (beyond) {
            Lanes together = fma(broadcast(T(2)), product, -apart);  // s s' + K
            together = select(together > limit * sum, together, Lanes{});
            nearer = select(opposite, together, nearer);
            start = Covariance ? half * max(k, Lanes{}) : fma(broadcast(half), max(-k, Lanes{}), start);
            found.beyond = true;
        }
        if constexpr (!Relu) start = fma(broadcast(slope), Covariance ? k : h, start);
        Lanes t = nearer / fnmadd(broadcast(c), nearer, product);
        if constexpr (Care) t = select(product > T(0), t, broadcast(1 / (1 - c)));
        if (beyond) t = select(opposite, -t, t);
        entry.t = t;
        entry.nearer = nearer;
        entry.start = start;
        if constexpr (Theta) {
            Lanes before = fma(broadcast(r), k, theta);
            if (Care && (bias != 0 || rest != 0)) {
                const Lanes one = unit.first(p * unit_step) * unit.second(p * unit_step);
                before += (rest - r * bias) * one;
            }
            entry.before = before;
            if constexpr (Care) entry.k = k;
        }
    }

    template <bool Quick, bool Relu, bool Theta, bool Covariance, bool Negative, bool Care>
    [[gnu::always_inline]] Found prepare(const Sums<T>& sums, long q, long p, int count, Entry* entries) const {
        Found found;
        for (int at = 0; at < count; ++at) {
            const Lanes theta = Theta && sums.theta ? sums.theta[q + at] : Lanes{};
            prepare<Quick, Relu, Theta, Covariance, Negative, Care>(p + at, sums.k[q + at], theta, entries[at], found);
        }
        return found;
    }

    // The second loop. Entries with rho >= 0 get the same bits whether Beyond holds or not.
    template <int Count, bool Relu, bool Theta, bool Covariance, bool Beyond, bool Care>
    [[gnu::always_inline]] void finish(const Entry* entries, Lanes* out, Lanes* out_theta) const {
        Lanes t[Count], root[Count], moment[Count], angle[Count];
#pragma GCC unroll 8
        for (int u = 0; u < Count; ++u) {
            t[u] = Beyond ? abs(entries[u].t) : entries[u].t;
            root[u] = sqrt(t[u]);
        }
        polynomial(arc_cosine->g, t, moment);
        if constexpr (Theta) polynomial(arc_cosine->p, t, angle);
#pragma GCC unroll 8
        for (int u = 0; u < Count; ++u) {
            if constexpr (Theta) {
                Lanes together = fnmadd(root[u], angle[u], broadcast(half));  // P(u > 0, v > 0)
                if constexpr (Beyond) together = select(is_negative(entries[u].t), root[u] * angle[u], together);
                Lanes after = entries[u].before * (Relu ? together : together + slope);
                if (Care && gain != 0) {
                    const Lanes k = entries[u].k;
                    const Lanes value = fma(broadcast(half), Beyond ? max(k, Lanes{}) : k, entries[u].nearer * (root[u] * moment[u]));
                    after = fma(broadcast(gain), fma(broadcast(slope), k, value), after);
                }
                out_theta[u] = after;
            }
            out[u] = fma(entries[u].nearer, Covariance ? root[u] * moment[u] : fnmadd(root[u], moment[u], broadcast(half)), entries[u].start);
        }
    }

    template <bool Relu, bool Theta, bool Covariance, bool Beyond, bool Care>
    [[gnu::always_inline]] void finish(const Entry* entries, int count, Lanes* out, Lanes* out_theta) const {
        int at = 0;
        if constexpr (!Self)  // not worth the code for pairs of an input with itself, which are few
            for (; at + kTogether <= count; at += kTogether)
                finish<kTogether, Relu, Theta, Covariance, Beyond, Care>(entries + at, out + at, out_theta + at);
        for (; at < count; ++at) finish<1, Relu, Theta, Covariance, Beyond, Care>(entries + at, out + at, out_theta + at);
    }

    // Writes the results `moved` places from their positions.
    template <bool Relu, bool Theta, bool Covariance, bool Negative, bool Care>
    void run(const Sums<T>& sums, long first, long last, long moved, Lanes* out, Lanes* out_theta) const {
        const RectifierRule rule = *this;  // copies, so that the compiler knows that no write changes it
        const Sums<T> read = sums;
        Entry entries[kStage];
        for (long p = first; p < last; p += kStage) {
            const int count = static_cast<int>(std::min<long>(kStage, last - p));
            Found found;
            if constexpr (!Care) found = rule.template prepare<true, Relu, Theta, Covariance, Negative, Care>(read, p - first, p, count, entries);
            if (Care || any(is_negative(found.doubt)))
                found = rule.template prepare<false, Relu, Theta, Covariance, Negative, Care>(read, p - first, p, count, entries);
            Lanes *const to = out + p + moved, *const to_theta = out_theta + p + moved;
            if (Negative && found.beyond) rule.template finish<Relu, Theta, Covariance, true, Care>(entries, count, to, to_theta);
            else rule.template finish<Relu, Theta, Covariance, false, Care>(entries, count, to, to_theta);
        }
    }

    template <bool Relu, bool Theta, bool Covariance, bool Care>
    void run(const Sums<T>& sums, long first, long last, long moved, Lanes* out, Lanes* out_theta) const {
        if (negative) run<Relu, Theta, Covariance, true, Care>(sums, first, last, moved, out, out_theta);
        else run<Relu, Theta, Covariance, false, Care>(sums, first, last, moved, out, out_theta);
    }

    void run(bool with_theta, bool covariance, const Sums<T>& sums, long first, long last, long moved, Lanes* out, Lanes* out_theta) const {
        if constexpr (!Self) {
            if (slope == 0 && with_theta && bias == 0 && rest == 0 && gain == 0 && !rounded && !zeros) {
                if (covariance) run<true, true, true, false>(sums, first, last, moved, out, out_theta);
                else run<true, true, false, false>(sums, first, last, moved, out, out_theta);
                return;
            }
        }
        if (with_theta && covariance) run<false, true, true, true>(sums, first, last, moved, out, out_theta);
        else if (with_theta) run<false, true, false, true>(sums, first, last, moved, out, out_theta);
        else if (covariance) run<false, false, true, true>(sums, first, last, moved, out, out_theta);
        else run<false, false, false, true>(sums, first, last, moved, out, out_theta);
    }
};

}  // namespace
}  // namespace ntkit::NTKIT_TARGET
