// Linear layers and convolutions: sums over windows, then the layer's arithmetic and perhaps a fused activation.

#pragma once

#include "activations.hpp"
#include "context.hpp"
#include "rectifier.hpp"
#include "window_sums.hpp"

namespace ntkit::NTKIT_TARGET {
namespace {

template <class T, bool Self>
class Windows {
    using Lanes = typename Vector<T>::Lanes;
    using Rule = RectifierRule<T, Self>;

public:
    explicit Windows(const Context<T, Self>& context)
        : context_(context), rows_k_(reinterpret_cast<const Lanes**>(context.block.lines)),
          rows_theta_(rows_k_ + context.tape.window_rows), firsts_(context.block.places), seconds_(firsts_ + context.tape.window_rows),
          lost_firsts_(seconds_ + context.tape.window_rows), lost_seconds_(lost_firsts_ + context.tape.window_rows) {}

    // One layer and its planes.
    struct Job {
        const Layer& op;
        const Instruction& step;
        const Rule& rule;
        const Region &from, &to;
        Plane<T> in, out;
    };

    void run(const Layer& op, const Instruction& step) {
        const Region from(op.in_size, step.in_offset), to(op.out_size, step.out_offset);
        if (to.high[2] <= to.low[2]) return;
        const Rule rule = layer_rule(context_, op, step);
        const Job job{op, step, rule, from, to, context_.slot(step.in_slot), context_.slot(step.out_slot)};
        const Columns columns(op, from, to);
        const bool twice = three_by_three(op);
        for (int i = to.low[0]; i < to.high[0]; ++i)
            for (int j = to.low[1]; j < to.high[1]; ++j) {
                if (twice && four_rows(op, from, to, j)) two_rows(job, j++, columns);
                else one_row(job, i, j, columns);
            }
    }

    static bool pointwise(const Layer& op) {
        for (int axis = 0; axis < kAxes; ++axis)
            if (op.kernel[axis] != 1 || op.stride[axis] != 1 || op.padding[axis] != 0 || op.in_size[axis] != op.out_size[axis])
                return false;
        return true;
    }

    static bool three_by_three(const Layer& op) {
        return op.in_size[0] == 1 && op.out_size[0] == 1 && op.kernel[0] == 1 && op.padding[0] == 0 && op.kernel[1] == 3 &&
               op.stride[1] == 1 && op.dilation[1] == 1 && op.kernel[2] == 3 && op.stride[2] == 1 && op.dilation[2] == 1 &&
               !op.circular[1] && !op.circular[2];
    }

    // Whether rows j and j + 1 read four rows that both inputs have.
    static bool four_rows(const Layer& op, const Region& from, const Region& to, int j) {
        const int first = j - op.padding[1];
        return j + 1 < to.high[1] && first >= from.low[1] && first + 4 <= from.high[1];
    }

    void one_row(const Job& job, int i, int j, Columns columns) {
        const auto& [op, step, rule, from, to, in, out] = job;
        if (pointwise(op)) {
            const long first = in.row(from, i, j) + to.low[2];
            const Lanes* theta = step.theta_in ? in.theta + first : nullptr;
            return finish(job, {in.k + first, theta}, row_of(to, i, j, out));
        }
        gather(job, i, j, columns);
        const Plane<T> sums = context_.row_buffer(0);
        const Row row = row_of(to, i, j, out);
        sum_columns(op, row.width, sums.k);
        if (step.theta_in) sum_columns(op, row.width, sums.theta);
        finish(job, {sums.k, step.theta_in ? sums.theta : nullptr}, row);
    }

    // Rows j and j + 1 of windows of three by three whose four rows both inputs have: two of them are read once for both.
    void two_rows(const Job& job, int j, Columns columns) {
        const auto& [op, step, rule, from, to, in, out] = job;
        const int first = j - op.padding[1], width = op.in_size[2];
        const bool theta = step.theta_in;
        long firsts[4], seconds[4];
        for (int e = 0; e < 4; ++e) {
            firsts[e] = from.row(0, first + e);
            seconds[e] = firsts[e] + static_cast<long>(step.in_offset[1]) * width;
        }
        const Plane<T> one = context_.row_buffer(0), two = context_.row_buffer(1);
        const auto [begin, end, low, high] = columns;
        long at[4];
        for (int e = 0; e < 4; ++e) at[e] = in.row(from, 0, first + e);
        const Lanes* const k[] = {in.k + at[0], in.k + at[1], in.k + at[2], in.k + at[3]};
        sum_windows<Lanes>(k, begin, end, low, high, one.k, two.k, [&](int r, int column) __attribute__((always_inline)) {
            return step.covariance_in ? Lanes{} : outside(op, step, firsts + r, 3, seconds + r, 3, column);
        });
        if (theta) {
            const Lanes* const theta_rows[] = {in.theta + at[0], in.theta + at[1], in.theta + at[2], in.theta + at[3]};
            sum_windows<Lanes>(theta_rows, begin, end, low, high, one.theta, two.theta, [](int, int) { return Lanes{}; });
        }
        finish(job, {one.k, theta ? one.theta : nullptr}, row_of(to, 0, j, out));
        finish(job, {two.k, theta ? two.theta : nullptr}, row_of(to, 0, j + 1, out));
    }

private:
    // A row of the output: its first position, how far from there it is stored, and its length.
    struct Row {
        long first, moved;
        int width;
    };
    static Row row_of(const Region& to, int i, int j, Plane<T> out) {
        const long row = to.row(i, j);
        return {row + to.low[2], out.row(to, i, j) - row, to.high[2] - to.low[2]};
    }

    // Sums over the window along all axes but the last, into the columns [begin, end) that the window along the last axis reads.
    // In the padding one or both of the two values are zero, and H is half the variance of the other.
    void gather(const Job& job, int i, int j, Columns columns) {
        const auto& [op, step, rule, region, to_region, in, out] = job;
        const auto [begin, end, low, high] = columns;
        const bool covariance = step.covariance_in, with_theta = step.theta_in;
        int there = 0, firsts = 0, seconds = 0, lost_firsts = 0, lost_seconds = 0;
        for (int e0 = 0; e0 < op.kernel[0]; ++e0) {
            const Place a(op, step, 0, i * op.stride[0] + e0 * op.dilation[0] - op.padding[0]);
            for (int e1 = 0; e1 < op.kernel[1]; ++e1) {
                const Place b(op, step, 1, j * op.stride[1] + e1 * op.dilation[1] - op.padding[1]);
                const bool in1 = a.in1 && b.in1, in2 = a.in2 && b.in2;
                const long row1 = region.row(a.p, b.p), row2 = region.row(a.other, b.other);
                if (in1) firsts_[firsts++] = row1;
                if (in2) seconds_[seconds++] = row2;
                if (in1 && in2) {
                    const long stored = in.row(region, a.p, b.p);
                    rows_k_[there] = in.k + stored;
                    rows_theta_[there++] = in.theta + stored;
                } else if (in1) {
                    lost_firsts_[lost_firsts++] = row1;
                } else if (in2) {
                    lost_seconds_[lost_seconds++] = row2;
                }
            }
        }
        const Plane<T> buffer = context_.row_buffer(0), to = {buffer.k - begin, buffer.theta - begin};
        const Sides<T, Self> half = context_.cached(op.half_in_at, 0);
        const int width = op.in_size[2], moved = step.in_offset[2];
        if (op.circular[2]) {
            for (int c = begin; c < end;) {  // pieces between two wraps
                const int wrapped = modulo(c, width), piece = std::min(end, c + width - wrapped);
                sum_rows(rows_k_, there, c, piece, to.k, wrapped - c);
                if (with_theta) sum_rows(rows_theta_, there, c, piece, to.theta, wrapped - c);
                c = piece;
            }
            if (covariance) return;
            for (int c = begin; c < end; ++c) {
                for (int e = 0; e < lost_firsts; ++e) to.k[c] += half.first(lost_firsts_[e] + modulo(c, width));
                for (int e = 0; e < lost_seconds; ++e) to.k[c] += half.second(lost_seconds_[e] + modulo(c + moved, width));
            }
            return;
        }
        sum_rows(rows_k_, there, low, high, to.k);
        if (with_theta) sum_rows(rows_theta_, there, low, high, to.theta);
        if (with_theta) {
            std::fill(to.theta + begin, to.theta + low, Lanes{});
            std::fill(to.theta + high, to.theta + end, Lanes{});
        }
        if (covariance) {
            std::fill(to.k + begin, to.k + low, Lanes{});
            std::fill(to.k + high, to.k + end, Lanes{});
            return;
        }
        for (int c = begin; c < low; ++c) to.k[c] = outside(op, step, firsts_, firsts, seconds_, seconds, c);
        for (int c = high; c < end; ++c) to.k[c] = outside(op, step, firsts_, firsts, seconds_, seconds, c);
        for (int e = 0; e < lost_firsts; ++e)
            for (int c = low; c < high; ++c) to.k[c] += half.first(lost_firsts_[e] + c);
        for (int e = 0; e < lost_seconds; ++e)
            for (int c = low; c < high; ++c) to.k[c] += half.second(lost_seconds_[e] + c + moved);
    }

    // The sum of H over the rows of a window, given for each input, in a column that one or both inputs lack.
    [[gnu::always_inline]] Lanes outside(const Layer& op, const Instruction& step, const long* firsts, int first_count,
                                         const long* seconds, int second_count, int column) const {
        const Sides<T, Self> half = context_.cached(op.half_in_at, 0);
        const int width = op.in_size[2], other = column + step.in_offset[2];
        Lanes sum = {};
        if (column >= 0 && column < width)
            for (int e = 0; e < first_count; ++e) sum += half.first(firsts[e] + column);
        if (other >= 0 && other < width)
            for (int e = 0; e < second_count; ++e) sum += half.second(seconds[e] + other);
        return sum;
    }

    // What follows the sums over the windows of a row.
    void finish(const Job& job, const Sums<T>& sums, Row row) const {
        const auto& [op, step, rule, from, to_region, in, out] = job;
        const bool theta = step.theta_out;
        if (op.activation) {
            rule.run(theta, step.covariance_out, sums, row.first, row.first + row.width, row.moved, out.k, out.theta);
            return;
        }
        const long moved = shift(op.out_size, step.out_offset);
        const T w = static_cast<T>(op.weight), b = static_cast<T>(op.bias);
        const T r = static_cast<T>(op.weight_rate), t = static_cast<T>(op.bias_rate);
        const Sides<T, Self> one = context_.unit(op.unit_at), half = context_.cached(op.half_out_at, moved);
        const int unit_at = context_.unit_step();
        for (int q = 0; q < row.width; ++q) {
            const long p = row.first + q, to = p + row.moved;
            Lanes k = w * sums.k[q];
            const Lanes before = sums.theta ? sums.theta[q] : Lanes{};
            const Lanes u1 = one.first(p * unit_at), u2 = one.second(p * unit_at), both = u1 * u2, apart = u1 - u2;
            if (step.covariance_in) {
                if (theta) out.theta[to] = fma(broadcast(w), before, fma(broadcast(r), k, t * both));
                out.k[to] = fma(broadcast(b), both, k);
            } else {
                k = fma(broadcast(b / 2), apart * apart, k);
                if (theta) {
                    Lanes trained = t * both;
                    if (r != 0) trained = fma(broadcast(r), half.first(p) + half.second(p) - k - b * both, trained);
                    out.theta[to] = fma(broadcast(w), before, trained);
                }
                out.k[to] = k;
            }
        }
    }

    Context<T, Self> context_;
    // The rows of a window: of the plane, if both inputs have them; of each input; of each input if the other lacks them.
    const Lanes **rows_k_, **rows_theta_;
    long *firsts_, *seconds_, *lost_firsts_, *lost_seconds_;
};

}  // namespace
}  // namespace ntkit::NTKIT_TARGET
