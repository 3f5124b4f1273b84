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
    struct Term {
        T order;
        int gap;  // which power leads from the order before to this one
    };
    int count = 0;                            // different gaps
    std::vector<std::vector<int>> with_bit;  // the gaps, as binary numbers, that have each bit
    std::vector<Term> terms;

    explicit Horner(const std::vector<std::int32_t>& orders) {
        std::vector<unsigned> gaps;
        std::int32_t before = 1;
        for (const std::int32_t order : orders) {
            const auto gap = static_cast<unsigned>(order - before);
            const auto found = std::find(gaps.begin(), gaps.end(), gap);
            terms.push_back({static_cast<T>(order), static_cast<int>(found - gaps.begin())});
            if (found == gaps.end()) gaps.push_back(gap);
            before = order;
        }
        count = static_cast<int>(gaps.size());
        with_bit.resize(std::bit_width(*std::max_element(gaps.begin(), gaps.end())));
        for (int i = 0; i < count; ++i)
            for (std::size_t bit = 0; bit < with_bit.size(); ++bit)
                if (gaps[i] >> bit & 1) with_bit[bit].push_back(i);
    }

    template <class Lanes>
    void powers(const Lanes& rho, Lanes* to) const {
        for (int i = 0; i < count; ++i) to[i] = broadcast(T(1));
        Lanes square = rho;
        for (const std::vector<int>& which : with_bit) {
            for (const int i : which) to[i] = to[i] * square;
            square = square * square;
        }
    }
};

// With t = alpha alpha', E[phi phi] = a_0 a_0' + K sum t rho^(n - 1), E[phi' phi'] = sum n t rho^(n - 1).
template <class T, bool Self>
void series(const Context<T, Self>& context, const Series& op, const Instruction& step) {
    using Lanes = typename Vector<T>::Lanes;
    if (step.covariance_in) return series_variance(context, op, step);
    const Plane<T> in = context.slot(step.in_slot), out = context.slot(step.out_slot);
    const long moved = shift(op.size, step.out_offset);
    const Sides<T, Self> deviation = context.own(op.deviation_at, moved), half = context.own(op.half_at, moved);
    const Coefficients<T, Self> coefficients(context, op, moved);
    const long batch = coefficients.batch, count = op.table->terms();
    const Horner<T> horner(op.table->orders);
    const auto* const terms = horner.terms.data();
    rows(Region(op.size, step.out_offset), [&](long begin, long end) {
        for (long p = begin; p < end; ++p) {
            const Lanes s1 = deviation.first(p), s2 = deviation.second(p), difference = s1 - s2, product = s1 * s2;
            const Lanes apart = max(fma(broadcast(T(-0.5)), difference * difference, in.k[p]), Lanes{});
            const Lanes k = max(product - apart, -product);
            const Lanes rho = select(product > T(0), k / product, broadcast(T(1)));
            Lanes power[kMostGaps];
            horner.powers(rho, power);
            const Lanes* const two = coefficients.second(p);
            const auto both = [&](long n) {
                if constexpr (Self) return coefficients.self(p)[n * batch] * two[n * batch];
                else return broadcast(coefficients.first(p)[n]) * two[n * batch];
            };
            Lanes sum = both(count), weighted = terms[count - 1].order * sum;
            for (long n = count - 1; n >= 1; --n) {
                const Lanes t = both(n), &gap = power[terms[n].gap];
                sum = fma(sum, gap, t);
                weighted = fma(weighted, gap, terms[n - 1].order * t);
            }
            const Lanes& lead = power[terms[0].gap];
            const Lanes value = fma(k, sum * lead, both(0));
            if (step.theta_out) out.theta[p] = in.theta[p] * (weighted * lead);
            const auto equal = (in.k[p] == T(0)) & (s1 == s2);  // H stays zero to the bit
            out.k[p] = step.covariance_out ? value : select(equal, Lanes{}, half.first(p) + half.second(p) - value);
        }
    });
}

}  // namespace
}  // namespace ntkit::NTKIT_TARGET
