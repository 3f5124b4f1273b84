// Activations by some of their Hermite coefficients (see SeriesTable).

#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "activations.hpp"
#include "context.hpp"
#include "kink.hpp"

namespace ntkit::NTKIT_TARGET {
namespace {

// One step of Clenshaw's recurrence for `count` series at once.
inline void clenshaw(const double* __restrict row, double* __restrict later, const double* __restrict latest, double twice, long count) {
    for (long n = 0; n < count; ++n) later[n] = row[n] - later[n] + twice * latest[n];
}

// Gives a_0(s), alpha(s), ... side by side, in `scratch`; NaN where s is beyond the table.
inline const double* series_coefficients(const SeriesTable& table, double s, std::vector<double>& scratch) {
    const long count = 1 + table.terms();
    const double place = s / table.piece;
    if (!(place <= static_cast<double>(table.pieces()))) {
        scratch.assign(static_cast<std::size_t>(count), std::numeric_limits<double>::quiet_NaN());
        return scratch.data();
    }
    const auto piece = std::min(static_cast<std::int64_t>(place), table.pieces() - 1);
    const double x = 2 * (place - static_cast<double>(piece)) - 1;
    const double* const coefficients = table.coefficients.data() + piece * table.degree * count;
    scratch.assign(2 * static_cast<std::size_t>(count), 0.0);
    double *later = scratch.data(), *latest = later + count;
    for (int i = table.degree - 1; i > 0; --i) {
        clenshaw(coefficients + i * count, later, latest, 2 * x, count);
        std::swap(later, latest);
    }
    clenshaw(coefficients, later, latest, x, count);
    return later;
}

// Stores the coefficients of each input at each position, those of one position contiguously.
template <class T, bool Self>
void keep_series(const Context<T, Self>& context, const Store& op, const Instruction& step) {
    using Lanes = typename Vector<T>::Lanes;
    const long batch = context.tape.batch, count = 1 + op.table->terms();
    const Lanes* const k = context.slot(step.in_slot).k;
    T* const to = context.block.cache2 + op.target_at * batch * kLanes<T>;
    std::vector<double> scratch;
    for (long p = 0; p < positions_of(op.size); ++p)
        for (int lane = 0; lane < kLanes<T>; ++lane) {
            const double s = std::sqrt(std::max(static_cast<double>(k[p][lane]), 0.0));
            const double* const found = series_coefficients(*op.table, s, scratch);
            T* const first = to + (p / batch * count * batch + p % batch) * kLanes<T> + lane;
            for (long n = 0; n < count; ++n) first[n * batch * kLanes<T>] = static_cast<T>(found[n]);
        }
}

// The coefficients of each side of a pair.
template <class T, bool Self>
struct Coefficients {
    using Lanes = typename Vector<T>::Lanes;
    const T* cache1;
    const Lanes* cache2;
    long count, batch, moved;
    long step;  // of the first side, in positions

    Coefficients(const Context<T, Self>& context, const Series& op, long moved)
        : cache1(Self ? nullptr : context.block.cache1 + op.series_at + context.row * (1 + op.table->terms())),
          cache2(reinterpret_cast<const Lanes*>(context.block.cache2) + op.series_at * context.tape.batch),
          count(1 + op.table->terms()), batch(context.tape.batch), moved(moved),
          step(batch > 1 || context.width > 0 ? 0 : 1) {}

    // Vectors have one position, and blocks of x' in its place.
    const Lanes* second(long p) const { return cache2 + (batch > 1 ? p : (p + moved) * count); }
    const Lanes* self(long p) const { return cache2 + (batch > 1 ? p : p * count); }
    const T* first(long p) const { return cache1 + p * step * count; }
};

// One order of a table, and what leads to it from the one before.
template <class T>
struct Term {
    T order, first, second, both;  // n, and the closed products
    int gap;

    // alpha alpha' without the closed products, given s s' and s^2 + s'^2.
    template <Jumps Which, class Lanes>
    [[gnu::always_inline]] Lanes open(const Lanes& product, const Lanes& p, const Lanes& q) const {
        if constexpr (Which == Jumps::none) return product;
        const Lanes rest = fnmadd(p, broadcast(second), product);
        if constexpr (Which == Jumps::second) return rest;
        else return fnmadd(q, broadcast(both), rest - first);
    }
};

template <class T>
std::vector<Term<T>> terms_of(const Series& op) {
    std::vector<Term<T>> terms;
    const auto closed = [&](std::size_t at) { return op.table->closed.empty() ? T(0) : static_cast<T>(op.table->closed[at]); };
    for (std::size_t n = 0; n < op.table->orders.size(); ++n)
        terms.push_back({static_cast<T>(op.table->orders[n]), closed(3 * n), closed(3 * n + 1), closed(3 * n + 2), op.powers.gap[n]});
    return terms;
}

// Of a variable with itself: E[phi^2] = a_0^2 + q sum alpha^2, E[phi'^2] = sum n alpha^2.
template <Jumps Which, class T, bool Self>
void series_variance(const Context<T, Self>& context, const Series& op, const Instruction& step) {
    using Lanes = typename Vector<T>::Lanes;
    const Plane<T> in = context.slot(step.in_slot), out = context.slot(step.out_slot);
    const Coefficients<T, Self> coefficients(context, op, 0);
    const std::vector<Term<T>> terms = terms_of<T>(op);
    rows(Region(op.size, step.out_offset), [&](long first, long last) {
        for (long p = first; p < last; ++p) {
            const Lanes* const own = coefficients.self(p);
            const Lanes q = max(in.k[p], Lanes{}), twice = q + q;
            Lanes sum{}, weighted{};
            for (long j = op.table->terms(); j >= 1; --j) {
                const Lanes alpha = own[j * coefficients.batch], square = terms[j - 1].template open<Which>(alpha * alpha, q, twice);
                sum += square;
                weighted = fma(broadcast(terms[j - 1].order), square, weighted);
            }
            if constexpr (Which != Jumps::none) {
                const auto parts = Kink<T>(*op.table).parts(broadcast(std::numbers::pi_v<T>), broadcast(T(1)), Lanes{}, q, twice);
                const Lanes start = own[coefficients.batch];
                sum += parts.value;
                // Zero has no correlation with itself, as in the rule of two variables.
                weighted = select(q > T(0), weighted + parts.slope, start * start);
            }
            if (step.theta_out) out.theta[p] = in.theta[p] * weighted;
            out.k[p] = fma(q, sum, own[0] * own[0]);
        }
    });
}

// With t = alpha alpha', E[phi phi] = a_0 a_0' + K sum t rho^(n - 1), E[phi' phi'] = sum n t rho^(n - 1), in two loops over a few
// positions: one for the powers of rho and one for the sums. Alone, each position is a long chain of dependent steps.
template <Jumps Which, class T, bool Self>
struct SeriesRule {
    using Lanes = typename Vector<T>::Lanes;
    static constexpr int kStage = 8;     // positions between the two loops
    static constexpr int kTogether = 2;  // positions of the second loop side by side
    static constexpr bool kKinked = Which != Jumps::none;

    Plane<T> in, out;
    Sides<T, Self> deviation, half;
    Coefficients<T, Self> coefficients;
    const Series& op;
    const std::vector<Term<T>>& terms;
    bool theta, covariance;

    [[gnu::always_inline]] Lanes both(long p, long n) const {
        const Lanes two = coefficients.second(p)[n * coefficients.batch];
        if constexpr (Self) return coefficients.self(p)[n * coefficients.batch] * two;
        else return broadcast(coefficients.first(p)[n]) * two;
    }

    // What the first loop passes to the second.
    struct Stage {
        Lanes k[kStage];
        Lanes power[kMostPowers][kStage];
        Lanes product[kKinked ? kStage : 1], squares[kKinked ? kStage : 1];  // s s', s^2 + s'^2
        Lanes value[kKinked ? kStage : 1], slope[kKinked ? kStage : 1];      // what the jumps add to E[phi phi] and E[phi' phi']
    };

    // The first loop.
    void prepare(long first, int count, Stage& stage) const {
        for (int at = 0; at < count; ++at) {
            const long p = first + at;
            const Lanes s1 = deviation.first(p), s2 = deviation.second(p), difference = s1 - s2, product = s1 * s2;
            const Lanes apart = max(fma(broadcast(T(-0.5)), difference * difference, in.k[p]), Lanes{});
            stage.k[at] = max(product - apart, -product);
            // Where a variance is zero the correlation is free for smooth functions; next to a jump, the variables are independent.
            stage.power[1][at] = select(product > T(0), stage.k[at] / product, broadcast(T(kKinked ? 0 : 1)));
        }
        for (int at = count; at < kStage; ++at) stage.power[1][at] = Lanes{};
        for (int u = 0; u < kStage; ++u) stage.power[0][u] = broadcast(T(1));
        auto* next = stage.power + 2;
        for (const Powers::Factors factors : op.powers.made) {
            for (int u = 0; u < kStage; ++u) (*next)[u] = stage.power[factors.one][u] * stage.power[factors.two][u];
            ++next;
        }
        if constexpr (kKinked) prepare_jumps(first, count, stage);
    }

    void prepare_jumps(long first, int count, Stage& stage) const {
        const Kink<T> kink(*op.table);
        Lanes t[kStage], base[kStage], angle[kStage], sine[kStage];
        for (int at = 0; at < count; ++at) {
            const long p = first + at;
            const Lanes s1 = deviation.first(p), s2 = deviation.second(p);
            const auto z = lanes_of(s1, s2, in.k[p], op.rounded);
            const Lanes root = sqrt(z.nearer * fma(broadcast(T(2)), abs(z.k), z.nearer));  // of q1 q2 - k^2
            stage.product[at] = s1 * s2;
            stage.squares[at] = z.q1 + z.q2;
            sine[at] = select(stage.product[at] > T(0), root / stage.product[at], broadcast(T(1)));
            const auto above = angle_above(-stage.power[1][at], sine[at]);
            t[at] = above.t;
            base[at] = above.base;
        }
        for (int at = count; at < kStage; ++at) t[at] = base[at] = Lanes{};
        angles(t, base, angle);
        for (int at = 0; at < count; ++at) {
            const auto parts = kink.parts(angle[at], stage.power[1][at], sine[at], stage.product[at], stage.squares[at]);
            stage.value[at] = stage.product[at] * parts.value;
            stage.slope[at] = parts.slope;
        }
    }

    // t of one position.
    [[gnu::always_inline]] Lanes open(const Stage& stage, long p, int at, long n) const {
        if constexpr (kKinked) return terms[n - 1].template open<Which>(both(p, n), stage.product[at], stage.squares[at]);
        else return both(p, n);
    }

    // The second loop.
    template <int Count>
    [[gnu::always_inline]] void finish(long p, const Stage& stage, int at) const {
        const auto* const term = terms.data();
        const long count = static_cast<long>(terms.size());
        Lanes sum[Count], weighted[Count];
#pragma GCC unroll 8
        for (int u = 0; u < Count; ++u) {
            sum[u] = open(stage, p + u, at + u, count);
            weighted[u] = term[count - 1].order * sum[u];
        }
        for (long n = count - 1; n >= 1; --n) {
            const Lanes* const gap = stage.power[term[n].gap] + at;
            const Lanes order = broadcast(term[n - 1].order);
#pragma GCC unroll 8
            for (int u = 0; u < Count; ++u) {
                const Lanes t = open(stage, p + u, at + u, n);
                sum[u] = fma(sum[u], gap[u], t);
                weighted[u] = fma(weighted[u], gap[u], order * t);
            }
        }
#pragma GCC unroll 8
        for (int u = 0; u < Count; ++u) {
            const long q = p + u;
            const Lanes& lead = stage.power[term[0].gap][at + u];
            Lanes value = fma(stage.k[at + u], sum[u] * lead, both(q, 0)), slope = weighted[u] * lead;
            if constexpr (kKinked) {
                value += stage.value[at + u];
                slope += stage.slope[at + u];
            }
            if (theta) out.theta[q] = in.theta[q] * slope;
            const auto equal = (in.k[q] == T(0)) & (deviation.first(q) == deviation.second(q));  // H stays zero to the bit
            out.k[q] = covariance ? value : select(equal, Lanes{}, half.first(q) + half.second(q) - value);
        }
    }

    void run(long first, long last) const {
        const SeriesRule rule = *this;  // a copy, so that the compiler knows that no write changes it
        Stage stage;
        for (long p = first; p < last; p += kStage) {
            const int count = static_cast<int>(std::min<long>(kStage, last - p));
            rule.prepare(p, count, stage);
            int at = 0;
            for (; at + kTogether <= count; at += kTogether) rule.template finish<kTogether>(p + at, stage, at);
            for (; at < count; ++at) rule.template finish<1>(p + at, stage, at);
        }
    }
};

template <Jumps Which, class T, bool Self>
void series_with(const Context<T, Self>& context, const Series& op, const Instruction& step) {
    if (step.covariance_in) return series_variance<Which>(context, op, step);
    const long moved = shift(op.size, step.out_offset);
    const std::vector<Term<T>> terms = terms_of<T>(op);
    const SeriesRule<Which, T, Self> rule{context.slot(step.in_slot), context.slot(step.out_slot), context.cached(op.deviation_at, moved),
                                          context.cached(op.half_at, moved), Coefficients<T, Self>(context, op, moved), op, terms,
                                          step.theta_out, step.covariance_out};
    rows(Region(op.size, step.out_offset), [&](long first, long last) { rule.run(first, last); });
}

template <class T, bool Self>
void series(const Context<T, Self>& context, const Series& op, const Instruction& step) {
    switch (jumps_of(*op.table)) {
        case Jumps::none: return series_with<Jumps::none>(context, op, step);
        case Jumps::second: return series_with<Jumps::second>(context, op, step);
        case Jumps::first: return series_with<Jumps::first>(context, op, step);
    }
}

}  // namespace
}  // namespace ntkit::NTKIT_TARGET
