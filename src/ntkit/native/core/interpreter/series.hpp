// Activations by some of their Hermite coefficients (see SeriesTable).

#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "context.hpp"

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
    T* const to = context.block.own2 + op.target_at * batch * kLanes<T>;
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
    const T* own1;
    const Lanes* own2;
    long count, batch, moved;

    Coefficients(const Context<T, Self>& context, const Series& op, long moved)
        : own1(Self ? nullptr : context.block.own1 + op.series_at),
          own2(reinterpret_cast<const Lanes*>(context.block.own2) + op.series_at * context.tape.batch),
          count(1 + op.table->terms()), batch(context.tape.batch), moved(moved) {}

    // Vectors have one position, and blocks of x' in its place.
    const Lanes* second(long p) const { return own2 + (batch > 1 ? p : (p + moved) * count); }
    const Lanes* self(long p) const { return own2 + (batch > 1 ? p : p * count); }
    const T* first(long p) const { return own1 + (batch > 1 ? 0 : p * count); }
};

// Of a variable with itself: E[phi^2] = a_0^2 + q sum alpha^2, E[phi'^2] = sum n alpha^2.
template <class T, bool Self>
void series_variance(const Context<T, Self>& context, const Series& op, const Instruction& step) {
    using Lanes = typename Vector<T>::Lanes;
    const Plane<T> in = context.slot(step.in_slot), out = context.slot(step.out_slot);
    const Coefficients<T, Self> coefficients(context, op, 0);
    const std::vector<std::int32_t>& orders = op.table->orders;
    rows(Region(op.size, step.out_offset), [&](long first, long last) {
        for (long p = first; p < last; ++p) {
            const Lanes* const own = coefficients.self(p);
            Lanes sum{}, weighted{};
            for (long j = op.table->terms(); j >= 1; --j) {
                const Lanes alpha = own[j * coefficients.batch], square = alpha * alpha;
                sum += square;
                weighted = fma(broadcast(static_cast<T>(orders[j - 1])), square, weighted);
            }
            if (step.theta_out) out.theta[p] = in.theta[p] * weighted;
            out.k[p] = fma(max(in.k[p], Lanes{}), sum, own[0] * own[0]);
        }
    });
}

// The powers of rho that Horner's rule multiplies by: rho^(n - 1) of the first order of a table, and from each order to the next.
template <class T>
struct Horner {
    static constexpr int kMost = 2 + 2 * kMostGaps * std::bit_width(static_cast<unsigned>(kMostOrder));  // with those that others are made of
    struct Term {
        T order;
        int gap;  // which power leads from the order before to this one
    };
    struct Factors {
        int one, two;  // earlier powers
    };
    std::vector<Factors> made;  // from the third power on: the first two are rho^0 and rho^1
    std::vector<Term> terms;

    explicit Horner(const std::vector<std::int32_t>& orders) {
        std::vector<std::int32_t> gaps, known{0, 1};
        for (std::int32_t before = 1; const std::int32_t order : orders) {
            gaps.push_back(order - before);
            before = order;
        }
        std::vector<std::int32_t> wanted = gaps;
        std::sort(wanted.begin(), wanted.end());
        for (const std::int32_t exponent : wanted) make(exponent, known);
        for (std::size_t n = 0; n < orders.size(); ++n)
            terms.push_back({static_cast<T>(orders[n]), static_cast<int>(std::find(known.begin(), known.end(), gaps[n]) - known.begin())});
    }

    // to[1] is given.
    template <class Lanes, int Count>
    [[gnu::always_inline]] void powers(Lanes (*to)[Count]) const {
        for (int u = 0; u < Count; ++u) to[0][u] = broadcast(T(1));
        auto* next = to + 2;
        for (const Factors factors : made) {
            for (int u = 0; u < Count; ++u) (*next)[u] = to[factors.one][u] * to[factors.two][u];
            ++next;
        }
    }

private:
    // One product of powers that are known if there are such, else of the two halves.
    void make(std::int32_t exponent, std::vector<std::int32_t>& known) {
        const auto place = [&](std::int32_t e) { return static_cast<int>(std::find(known.begin(), known.end(), e) - known.begin()); };
        const auto is_known = [&](std::int32_t e) { return std::find(known.begin(), known.end(), e) != known.end(); };
        if (is_known(exponent)) return;
        std::int32_t part = (exponent + 1) / 2;  // equal halves have the fewest roundings
        for (std::int32_t e = part; e < exponent; ++e)
            if (is_known(e) && is_known(exponent - e)) {
                part = e;
                break;
            }
        make(part, known);
        make(exponent - part, known);
        made.push_back({place(part), place(exponent - part)});
        known.push_back(exponent);
    }
};

// With t = alpha alpha', E[phi phi] = a_0 a_0' + K sum t rho^(n - 1), E[phi' phi'] = sum n t rho^(n - 1), in two loops over a few
// positions: one for the powers of rho and one for the sums. Alone, each position is a long chain of dependent steps.
template <class T, bool Self>
struct SeriesRule {
    using Lanes = typename Vector<T>::Lanes;
    static constexpr int kStage = 8;     // positions between the two loops
    static constexpr int kTogether = 2;  // positions of the second loop side by side

    Plane<T> in, out;
    Sides<T, Self> deviation, half;
    Coefficients<T, Self> coefficients;
    const Horner<T>& horner;
    bool theta, covariance;

    [[gnu::always_inline]] Lanes both(long p, long n) const {
        const Lanes two = coefficients.second(p)[n * coefficients.batch];
        if constexpr (Self) return coefficients.self(p)[n * coefficients.batch] * two;
        else return broadcast(coefficients.first(p)[n]) * two;
    }

    // What the first loop passes to the second.
    struct Stage {
        Lanes k[kStage];
        Lanes power[Horner<T>::kMost][kStage];
    };

    // The first loop.
    void prepare(long first, int count, Stage& stage) const {
        for (int at = 0; at < count; ++at) {
            const long p = first + at;
            const Lanes s1 = deviation.first(p), s2 = deviation.second(p), difference = s1 - s2, product = s1 * s2;
            const Lanes apart = max(fma(broadcast(T(-0.5)), difference * difference, in.k[p]), Lanes{});
            stage.k[at] = max(product - apart, -product);
            stage.power[1][at] = select(product > T(0), stage.k[at] / product, broadcast(T(1)));
        }
        for (int at = count; at < kStage; ++at) stage.power[1][at] = Lanes{};
        horner.powers(stage.power);
    }

    // The second loop.
    template <int Count>
    [[gnu::always_inline]] void finish(long p, const Stage& stage, int at) const {
        const auto* const terms = horner.terms.data();
        const long count = static_cast<long>(horner.terms.size());
        Lanes sum[Count], weighted[Count];
#pragma GCC unroll 8
        for (int u = 0; u < Count; ++u) {
            sum[u] = both(p + u, count);
            weighted[u] = terms[count - 1].order * sum[u];
        }
        for (long n = count - 1; n >= 1; --n) {
            const Lanes* const gap = stage.power[terms[n].gap] + at;
            const Lanes order = broadcast(terms[n - 1].order);
#pragma GCC unroll 8
            for (int u = 0; u < Count; ++u) {
                const Lanes t = both(p + u, n);
                sum[u] = fma(sum[u], gap[u], t);
                weighted[u] = fma(weighted[u], gap[u], order * t);
            }
        }
#pragma GCC unroll 8
        for (int u = 0; u < Count; ++u) {
            const long q = p + u;
            const Lanes& lead = stage.power[terms[0].gap][at + u];
            const Lanes value = fma(stage.k[at + u], sum[u] * lead, both(q, 0));
            if (theta) out.theta[q] = in.theta[q] * (weighted[u] * lead);
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

template <class T, bool Self>
void series(const Context<T, Self>& context, const Series& op, const Instruction& step) {
    if (step.covariance_in) return series_variance(context, op, step);
    const long moved = shift(op.size, step.out_offset);
    const Horner<T> horner(op.table->orders);
    const SeriesRule<T, Self> rule{context.slot(step.in_slot), context.slot(step.out_slot), context.own(op.deviation_at, moved),
                                   context.own(op.half_at, moved), Coefficients<T, Self>(context, op, moved), horner,
                                   step.theta_out, step.covariance_out};
    rows(Region(op.size, step.out_offset), [&](long first, long last) { rule.run(first, last); });
}

}  // namespace
}  // namespace ntkit::NTKIT_TARGET
