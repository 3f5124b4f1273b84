// Activations without kinks, by their Hermite coefficients (see SeriesTable).

#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "context.hpp"

namespace ntkit::NTKIT_TARGET {
namespace {

// Writes a_0(s), alpha_0(s), alpha_1(s), ... by Clenshaw's recurrence; NaN where s is beyond the table.
template <class T>
void series_coefficients(const SeriesTable& table, double s, std::vector<double>& scratch, T* to, long to_step) {
    const int count = 1 + table.terms;
    const double place = s / table.piece;
    if (!(place <= static_cast<double>(table.pieces()))) {
        for (int n = 0; n < count; ++n) to[n * to_step] = std::numeric_limits<T>::quiet_NaN();
        return;
    }
    const auto piece = std::min(static_cast<std::int64_t>(place), table.pieces() - 1);
    const double x = 2 * (place - static_cast<double>(piece)) - 1;
    const double* const coefficients = table.coefficients.data() + piece * table.order * count;
    scratch.assign(2 * static_cast<std::size_t>(count), 0.0);
    double *later = scratch.data(), *latest = later + count;
    for (int i = table.order - 1; i > 0; --i) {
        const double* const row = coefficients + static_cast<std::int64_t>(i) * count;
        for (int n = 0; n < count; ++n) later[n] = row[n] - later[n] + 2 * x * latest[n];
        std::swap(later, latest);
    }
    for (int n = 0; n < count; ++n) to[n * to_step] = static_cast<T>(coefficients[n] - later[n] + x * latest[n]);
}

// Stores the coefficients of each input at each position, those of one position contiguously.
template <class T, bool Self>
void keep_series(const Context<T, Self>& context, const Store& op, const Instruction& step) {
    using Lanes = typename Vector<T>::Lanes;
    const long batch = context.tape.batch, count = 1 + op.table->terms;
    const Lanes* const k = context.slot(step.in_slot).k;
    T* const to = context.block.own2 + op.target_at * batch * kLanes<T>;
    std::vector<double> scratch;
    for (long p = 0; p < positions_of(op.size); ++p)
        for (int lane = 0; lane < kLanes<T>; ++lane) {
            const double s = std::sqrt(std::max(static_cast<double>(k[p][lane]), 0.0));
            T* const first = to + (p / batch * count * batch + p % batch) * kLanes<T> + lane;
            series_coefficients(*op.table, s, scratch, first, batch * kLanes<T>);
        }
}

// For a variable with itself: E[phi^2] = a_0^2 + q sum alpha^2, E[phi'^2] = sum n alpha^2.
template <class T, bool Self>
void series_variance(const Context<T, Self>& context, const Series& op, const Instruction& step) {
    using Lanes = typename Vector<T>::Lanes;
    const SeriesTable& table = *op.table;
    const Plane<T> in = context.slot(step.in_slot), out = context.slot(step.out_slot);
    std::vector<double> scratch, found(1 + static_cast<std::size_t>(table.terms));
    rows(Region(op.size, step.out_offset), [&](long first, long last) {
        for (long p = first; p < last; ++p) {
            Lanes value{}, slope{};
            for (int lane = 0; lane < kLanes<T>; ++lane) {
                const double q = std::max(static_cast<double>(in.k[p][lane]), 0.0);
                series_coefficients(table, std::sqrt(q), scratch, found.data(), 1);
                double sum = 0, weighted = 0;
                for (int j = table.terms - 1; j >= 0; --j) {
                    const double square = found[1 + j] * found[1 + j];
                    sum += square;
                    weighted += (table.first + j * table.step) * square;
                }
                value.set(lane, static_cast<T>(found[0] * found[0] + q * sum));
                slope.set(lane, static_cast<T>(weighted));
            }
            if (step.theta_out) out.theta[p] = in.theta[p] * slope;
            out.k[p] = value;
        }
    });
}

// With y = rho^step, R(y) = sum_j alpha_j alpha_j' y^j and l = rho^(first - 1):
// E[phi phi] = a_0 a_0' + K l R, E[phi' phi'] = l (first R + step y R').
template <class T, bool Self>
void series(const Context<T, Self>& context, const Series& op, const Instruction& step) {
    using Lanes = typename Vector<T>::Lanes;
    if (step.covariance_in) return series_variance(context, op, step);
    const SeriesTable& table = *op.table;
    const Plane<T> in = context.slot(step.in_slot), out = context.slot(step.out_slot);
    const long moved = shift(op.size, step.out_offset), batch = context.tape.batch, count = 1 + table.terms;
    const Sides<T, Self> deviation = context.own(op.deviation_at, moved), half = context.own(op.half_at, moved);
    const Lanes* const own2 = reinterpret_cast<const Lanes*>(context.block.own2) + op.series_at * batch;
    const T* const own1 = Self ? nullptr : context.block.own1 + op.series_at;
    const T first_order = static_cast<T>(table.first), step_order = static_cast<T>(table.step);
    rows(Region(op.size, step.out_offset), [&](long begin, long end) {
        for (long p = begin; p < end; ++p) {
            const Lanes s1 = deviation.first(p), s2 = deviation.second(p), difference = s1 - s2, product = s1 * s2;
            const Lanes apart = max(fma(broadcast(T(-0.5)), difference * difference, in.k[p]), Lanes{});
            const Lanes k = max(product - apart, -product);
            const Lanes rho = select(product > T(0), k / product, broadcast(T(1)));
            const Lanes y = table.step == 2 ? rho * rho : rho;
            // Vectors have a single position; blocks of x' take its place.
            const long position1 = batch > 1 ? 0 : p, position2 = batch > 1 ? 0 : p + moved, block = batch > 1 ? p : 0;
            const Lanes* const two = own2 + position2 * count * batch + block;
            const Lanes* const self_one = own2 + position1 * count * batch + block;
            const auto one = [&](long n) {
                if constexpr (Self) return self_one[n * batch];
                else return broadcast(own1[position1 * count + n]);
            };
            Lanes sum = one(table.terms) * two[table.terms * batch], derivative{};
            for (long n = table.terms - 1; n >= 1; --n) {
                derivative = fma(derivative, y, sum);
                sum = fma(sum, y, one(n) * two[n * batch]);
            }
            const Lanes lead = table.first == 2 ? rho : broadcast(T(1));
            const Lanes value = fma(k * lead, sum, one(0) * two[0]);
            if (step.theta_out) out.theta[p] = in.theta[p] * (lead * fma(step_order * y, derivative, first_order * sum));
            const auto equal = (in.k[p] == T(0)) & (s1 == s2);  // H stays zero to the bit
            out.k[p] = step.covariance_out ? value : select(equal, Lanes{}, half.first(p) + half.second(p) - value);
        }
    });
}

}  // namespace
}  // namespace ntkit::NTKIT_TARGET
