// The tape backwards: what each instruction adds to the adjoints of what it read. `Forward` runs it forwards, one instruction after the
// other, for the values that the adjoints need.

#pragma once

#include <algorithm>
#include <utility>
#include <variant>

#include "../pull_back.hpp"
#include "adjoint_activations.hpp"
#include "context.hpp"
#include "input_cache.hpp"
#include "inputs.hpp"
#include "normalisation.hpp"
#include "pooling.hpp"
#include "sums.hpp"
#include "windows.hpp"

namespace ntkit::NTKIT_TARGET {
namespace {

template <class Op>
const Op& as(const Operation& operation) {
    return *std::get_if<Op>(&operation);
}

template <class T>
struct Forward {
    Context<T, false> context;

    void run(const Instruction& step, const Operation& op) const {
        switch (step.kind) {
            case Kind::input: return InputReader<T, false>{context}.run(as<Input>(op), step);
            case Kind::layer: return Windows<T, false>(context).run(as<Layer>(op), step);
            case Kind::rectified: return rectified(context, as<Rectified>(op), step);
            case Kind::smooth: return smooth(context, as<Smooth>(op), step);
            case Kind::normalize: return normalize(context, as<Normalize>(op), step);
            case Kind::fill: return fill(context, as<Fill>(op), step);
            case Kind::clear: return clear(context, step);
            case Kind::pool: return pool(context, as<Pool>(op), step);
            case Kind::pool_end: return pool_end(context, as<Pool>(op), step);
            case Kind::reduce: return reduce(context, as<Reduce>(op), step);
            case Kind::settle: return settle(context, as<Plain>(op), step);
            case Kind::combine: return combine(context, as<Plain>(op), step);
            case Kind::convert: return convert(context, as<Convert>(op), step);
            case Kind::rescale: return rescale(context, as<Rescale>(op), step);
            default: return;
        }
    }
};

class Backward {
    using T = double;
    using Lanes = typename Vector<T>::Lanes;

public:
    Backward(const Context<T, false>& context, const Adjoints& adjoints) : context_(context), adjoints_(adjoints), vectors_(context.tape.batch > 1) {}

    void run(const Instruction& step, const Operation& op) const {
        switch (step.kind) {
            case Kind::input: return vectors_ ? input_of_vectors(as<Input>(op), step) : input(as<Input>(op), step);
            case Kind::layer: return layer(as<Layer>(op), step);
            case Kind::rectified: return activation(as<Rectified>(op), step);
            case Kind::smooth: return activation(as<Smooth>(op), step);
            case Kind::normalize: return normalisation(as<Normalize>(op), step);
            case Kind::fill: return filled(as<Fill>(op), step);
            case Kind::clear: return cleared(step);
            case Kind::pool: return pooled(as<Pool>(op), step);
            case Kind::pool_end: return pooled_end(as<Pool>(op), step);
            case Kind::reduce: return reduced(as<Reduce>(op), step);
            case Kind::settle: return settled(as<Plain>(op), step);
            case Kind::combine: return combined(as<Plain>(op), step);
            case Kind::convert: return converted(as<Convert>(op), step);
            case Kind::rescale: return rescaled(as<Rescale>(op), step);
            case Kind::output: return result(step);
            default: return;
        }
    }

    // Sets the adjoints of a slot to zero.
    void forget(std::int32_t index) const { std::fill_n(slot(index).k, 2 * context_.tape.slot_positions(index), Lanes{}); }

private:
    Plane<T> slot(int index) const {
        if (index == kNothing) return {};
        const std::int64_t start = context_.tape.slot_start[index];
        Lanes* base = reinterpret_cast<Lanes*>(adjoints_.slots) + 2 * start;
        return {base, base + (context_.tape.slot_start[index + 1] - start)};
    }
    Plane<T> accumulator(int index) const {
        Lanes* base = reinterpret_cast<Lanes*>(adjoints_.accumulators) + 2 * context_.tape.accumulator_positions * index;
        return {base, base + context_.tape.accumulator_positions};
    }
    // The adjoint of the row's cached number for position p; where it reads none, a harmless place.
    Lanes& first(std::int32_t at, long p) const { return reinterpret_cast<Lanes*>(adjoints_.cache)[at + (vectors_ ? 0 : p)]; }

    template <class Visit>
    static void entries(const Axes& size, const Axes& offset, Visit visit) {
        rows(Region(size, offset), [&](long begin, long end) {
            for (long p = begin; p < end; ++p) visit(p);
        });
    }

    void input(const Input& op, const Instruction& step) const {
        const Plane<T> d = slot(step.out_slot);
        const std::int64_t start = context_.tape.data_start[op.data];
        const long positions = positions_of(op.size), moved = shift(op.size, step.out_offset);
        const T* x1 = context_.block.data1 + start;
        const Lanes* x2 = reinterpret_cast<const Lanes*>(context_.block.data2) + start;
        Lanes* to = reinterpret_cast<Lanes*>(adjoints_.data) + start;
        const T share = T(1) / op.channels;
        for (int c = 0; c < op.channels; ++c, x1 += positions, x2 += positions, to += positions)
            entries(op.size, step.out_offset, [&](long p) {
                const Lanes a = share * d.k[p];
                to[p] += step.covariance_out ? a * x2[p + moved] : a * (broadcast(x1[p]) - x2[p + moved]);
            });
    }

    void input_of_vectors(const Input& op, const Instruction& step) const {
        const Plane<T> d = slot(step.out_slot);
        const int batch = context_.tape.batch;
        Lanes* to = reinterpret_cast<Lanes*>(adjoints_.products) + static_cast<long>(op.data) * batch;
        const T share = T(1) / op.channels;
        for (int b = 0; b < batch; ++b) {
            to[b] += (step.covariance_out ? share : -share) * d.k[b];
            if (!step.covariance_out) first(op.half_at, b) += d.k[b];
        }
    }

    // With M the sum over the window: K = w M + b u u', Theta = w M(Theta) + r w M + t u u'; for planes of H, H = w M + b (u - u')^2 / 2
    // and w M(K) = q / 2 + q' / 2 - H - b u u'.
    void layer(const Layer& op, const Instruction& step) const {
        const Region from(op.in_size, step.in_offset), to(op.out_size, step.out_offset);
        if (to.high[2] <= to.low[2]) return;
        const bool pointwise = Windows<T, false>::pointwise(op);
        const Columns columns(op, from, to);
        for (int i = to.low[0]; i < to.high[0]; ++i)
            for (int j = to.low[1]; j < to.high[1]; ++j) {
                const long begin = to.row(i, j) + to.low[2];
                const int width = to.high[2] - to.low[2];
                const Plane<T> row = pointwise ? slot(step.in_slot) : context_.row_buffer(1);
                if (pointwise) {
                    weigh(op, step, begin, width, [&](int q, Lanes k, Lanes theta) {
                        row.k[begin + q] += k;
                        if (step.theta_in) row.theta[begin + q] += theta;
                    });
                } else {
                    weigh(op, step, begin, width, [&](int q, Lanes k, Lanes theta) {
                        row.k[q] = k;
                        row.theta[q] = theta;
                    });
                    spread(op, step, from, i, j, columns, row, width);
                }
            }
    }

    // Gives the adjoints of M and of M(Theta), and adds to those of the layer's numbers.
    template <class Give>
    void weigh(const Layer& op, const Instruction& step, long begin, int width, Give give) const {
        const Plane<T> d = slot(step.out_slot), out = context_.slot(step.out_slot);
        const Sides<T, false> one = context_.unit(op.unit_at), half = context_.cached(op.half_out_at, shift(op.out_size, step.out_offset));
        const int unit_at = context_.unit_step();
        const T w = op.weight, b = op.bias, r = op.weight_rate, t = op.bias_rate;
        Lanes* const gains = adjoints_.gains ? reinterpret_cast<Lanes*>(adjoints_.gains) + static_cast<long>(step.operation) * kGains : nullptr;
        for (int q = 0; q < width; ++q) {
            const long p = begin + q;
            const Lanes theta = step.theta_out ? d.theta[p] : Lanes{};
            Lanes k = d.k[p];
            const bool rate = step.theta_out && !step.covariance_in && r != 0;
            if (step.covariance_in) k = fma(broadcast(r), theta, k);
            else if (rate) {
                k = fnmadd(broadcast(r), theta, k);
                first(op.half_out_at, p) += r * theta;
            }
            if (gains) {
                const Lanes u1 = one.first(p * unit_at), u2 = one.second(p * unit_at), both = u1 * u2, apart = T(0.5) * (u1 - u2) * (u1 - u2);
                const Lanes bias = step.covariance_in ? both : apart, weighed = fnmadd(broadcast(b), bias, out.k[p]);
                const Lanes before = step.covariance_in ? weighed : rate ? half.first(p) + half.second(p) - out.k[p] - b * both : Lanes{};
                const Lanes after = step.theta_out ? out.theta[p] - r * before - t * both : Lanes{};
                gains[0] += k * weighed + theta * after;
                gains[1] += (step.covariance_in ? d.k[p] * both : k * apart - (rate ? r * theta * both : Lanes{}));
                gains[2] += theta * before;
                gains[3] += theta * both;
            }
            give(q, w * k, w * theta);
        }
    }

    // The sum over windows backwards: first along the last axis, then the rows of each window. What `Windows::gather` reads.
    void spread(const Layer& op, const Instruction& step, const Region& region, int i, int j, Columns columns, Plane<T> row, int width) const {
        const auto [begin, end, low, high] = columns;
        const Plane<T> in = slot(step.in_slot), buffer = context_.row_buffer(0), sums = {buffer.k - begin, buffer.theta - begin};
        const bool theta = step.theta_in, differences = !step.covariance_in;
        spread_columns(op, row.k, width, end - begin, buffer.k);
        if (theta) spread_columns(op, row.theta, width, end - begin, buffer.theta);
        const int length = op.in_size[2];
        const auto wrapped = [&](int c) { return op.circular[2] ? modulo(c, length) : c; };
        for (int e0 = 0; e0 < op.kernel[0]; ++e0) {
            const Place a(op, step, 0, i * op.stride[0] + e0 * op.dilation[0] - op.padding[0]);
            for (int e1 = 0; e1 < op.kernel[1]; ++e1) {
                const Place b(op, step, 1, j * op.stride[1] + e1 * op.dilation[1] - op.padding[1]);
                if (!a.in1 || !b.in1) continue;
                const long at = region.row(a.p, b.p);
                if (!a.in2 || !b.in2) {  // x' is padding there, and H half the variance of x
                    if (differences)
                        for (int c = op.circular[2] ? begin : std::max(begin, 0); c < (op.circular[2] ? end : std::min(end, length)); ++c)
                            first(op.half_in_at, at + wrapped(c)) += sums.k[c];
                    continue;
                }
                if (op.circular[2]) {
                    for (int c = begin; c < end; ++c) {
                        in.k[at + wrapped(c)] += sums.k[c];
                        if (theta) in.theta[at + wrapped(c)] += sums.theta[c];
                    }
                    continue;
                }
                add_to(in.k + at, sums.k, low, high);
                if (theta) add_to(in.theta + at, sums.theta, low, high);
                if (differences) {
                    for (int c = std::max(begin, 0); c < std::min(low, length); ++c) first(op.half_in_at, at + c) += sums.k[c];
                    for (int c = std::max(high, 0); c < std::min(end, length); ++c) first(op.half_in_at, at + c) += sums.k[c];
                }
            }
        }
    }

    static void add_to(Lanes* to, const Lanes* from, int low, int high) {
        for (int c = low; c < high; ++c) to[c] += from[c];
    }

    static void spread_columns(const Layer& op, const Lanes* from, int width, int columns, Lanes* to) {
        if (op.stride[2] == 1 && op.dilation[2] == 1 && op.kernel[2] == 3 && width > 1) {
            to[0] = from[0];
            to[1] = from[0] + from[1];
            for (int c = 2; c < width; ++c) to[c] = (from[c - 2] + from[c - 1]) + from[c];
            to[width] = from[width - 2] + from[width - 1];
            to[width + 1] = from[width - 1];
            return;
        }
        std::fill(to, to + columns, Lanes{});
        for (int q = 0; q < width; ++q)
            for (int e = 0; e < op.kernel[2]; ++e) to[static_cast<long>(q) * op.stride[2] + e * op.dilation[2]] += from[q];
    }

    void activation(const Rectified& op, const Instruction& step) const {
        const Plane<T> in = context_.slot(step.in_slot), d = slot(step.out_slot), d_in = slot(step.in_slot);
        const Sides<T, false> deviation = context_.cached(op.activation.deviation_at, shift(op.size, step.out_offset));
        const RectifierAdjoint<T> rule{op.activation};
        const T gain = op.activation.trained_gain * step.factor;
        entries(op.size, step.out_offset, [&](long p) {
            const Lanes after = step.theta_out ? d.theta[p] : Lanes{}, direct = gain * after;
            const Lanes value = step.covariance_out ? d.k[p] + direct : direct, difference = step.covariance_out ? Lanes{} : d.k[p];
            const EntryAdjoint<Lanes> found = rule.of(deviation.first(p), deviation.second(p), in.k[p],
                                                      step.theta_in ? in.theta[p] : Lanes{}, value, difference, after);
            d_in.k[p] += found.h;
            if (step.theta_in) d_in.theta[p] += found.theta;
            first(op.activation.deviation_at, p) += found.deviation;
        });
    }

    void activation(const Smooth& op, const Instruction& step) const {
        const Plane<T> in = context_.slot(step.in_slot), d = slot(step.out_slot), d_in = slot(step.in_slot);
        const Sides<T, false> deviation = context_.cached(op.deviation_at, shift(op.size, step.out_offset));
        entries(op.size, step.out_offset, [&](long p) {
            const Lanes s1 = deviation.first(p), after = step.theta_out ? d.theta[p] : Lanes{};
            const Slopes<Lanes> s = slopes<T>(op, s1, deviation.second(p), in.k[p]);
            const Lanes value = step.covariance_out ? d.k[p] : -d.k[p], tangent = step.theta_in ? after * in.theta[p] : Lanes{};
            if (!step.covariance_out) first(op.half_at, p) += d.k[p];
            d_in.k[p] += -(value * s.d) - tangent * s.d_k;
            if (step.theta_in) d_in.theta[p] += after * s.d;
            first(op.deviation_at, p) += s1 * (value * fma(broadcast(T(2)), s.value_q, s.d) + tangent * fma(broadcast(T(2)), s.d_q, s.d_k));
        });
    }

    // With i the scales, d the deviations and A = H - (d - d')^2 / 2: K' = (d d' - A) i i', H' = A i i' + (d i - d' i')^2 / 2.
    void normalisation(const Normalize& op, const Instruction& step) const {
        const Plane<T> in = context_.slot(step.in_slot), d = slot(step.out_slot), d_in = slot(step.in_slot);
        const auto deviation_at = static_cast<std::int32_t>(op.scale_at + positions_of(op.size) / context_.tape.batch);
        const long moved = shift(op.size, step.out_offset);
        const Sides<T, false> scale = context_.cached(op.scale_at, moved), deviation = context_.cached(deviation_at, moved);
        const T weight = op.weight_rate * step.factor;
        entries(op.size, step.out_offset, [&](long p) {
            const Lanes i1 = scale.first(p), i2 = scale.second(p), both = i1 * i2, theta = step.theta_out ? d.theta[p] : Lanes{};
            const Lanes k = step.covariance_out ? fma(broadcast(weight), theta, d.k[p]) : weight * theta;
            Lanes by_scale = step.theta_in ? theta * in.theta[p] * i2 : Lanes{};
            if (step.covariance_in) {
                d_in.k[p] += k * both;
                by_scale += k * in.k[p] * i2;
            } else {
                const Lanes h = step.covariance_out ? Lanes{} : d.k[p], d1 = deviation.first(p), d2 = deviation.second(p);
                const Lanes difference = d1 - d2, after = d1 * i1 - d2 * i2, apart = fma(broadcast(T(-0.5)), difference * difference, in.k[p]);
                const Lanes a = (h - k) * both;
                d_in.k[p] += a;
                first(deviation_at, p) += k * d2 * both + h * after * i1 - a * difference;
                by_scale += (k * (d1 * d2 - apart) + h * apart) * i2 + h * after * d1;
            }
            first(op.scale_at, p) += by_scale;
            if (step.theta_in) d_in.theta[p] += theta * both;
        });
    }

    void filled(const Fill& op, const Instruction& step) const {
        const Plane<T> d = slot(step.out_slot), d_in = slot(step.in_slot);
        if (step.theta_in) entries(op.size, step.out_offset, [&](long p) { d_in.theta[p] += d.theta[p]; });
    }

    void cleared(const Instruction& step) const {
        std::fill_n(accumulator(step.out_slot).k, 2 * context_.tape.accumulator_positions, Lanes{});
    }

    void pooled(const Pool& op, const Instruction& step) const {
        const Region from(op.in_size, step.in_offset), to(op.out_size, step.out_offset);
        const Plane<T> d = op.wide ? accumulator(step.out_slot) : slot(step.out_slot), d_in = slot(step.in_slot);
        const int axis = op.axis, offset = step.out_offset[axis], apart = step.in_offset[axis] - op.stride * offset;
        const int begin = std::max(0, -apart), end = std::min(op.kernel, op.kernel - apart);
        const long step_in = axis_step(from, axis);
        for (int i = to.low[0]; i < to.high[0]; ++i)
            for (int j = to.low[1]; j < to.high[1]; ++j)
                for (int l = to.low[2]; l < to.high[2]; ++l) {
                    int at[kAxes] = {i, j, l};
                    const int q = std::exchange(at[axis], 0), origin = q * op.stride - op.padding;
                    const long target = to.row(i, j) + l, source = from.row(at[0], at[1]) + at[2];
                    const T factor = op.weights[q] * op.weights[q + offset];
                    const Lanes k = factor * d.k[target], theta = factor * d.theta[target];
                    for (int p = std::max(origin + begin, from.low[axis]); p < std::min(origin + end, from.high[axis]); ++p) {
                        d_in.k[source + p * step_in] += k;
                        if (step.theta_in) d_in.theta[source + p * step_in] += theta;
                    }
                }
    }

    void pooled_end(const Pool& op, const Instruction& step) const {
        const Plane<T> d = slot(step.out_slot);
        const Region to(op.out_size, step.out_offset);
        for (int i = to.low[0]; i < to.high[0]; ++i)
            for (int j = to.low[1]; j < to.high[1]; ++j)
                for (int l = to.low[2]; l < to.high[2]; ++l) {
                    const int index[kAxes] = {i, j, l}, q = index[op.axis];
                    const long p = to.row(i, j) + l;
                    first(op.inside_at, p) += T(-0.5) * d.k[p];
                    const T uneven = op.totals[q] - op.totals[q + step.out_offset[op.axis]];
                    if (uneven != 0) first(op.mean_at, p) += uneven / 2 * d.k[p];
                }
    }

    void reduced(const Reduce& op, const Instruction& step) const {
        const Region from(op.in_size, step.in_offset);
        const Plane<T> d = accumulator(step.out_slot), d_in = slot(step.in_slot);
        const T factor = op.factor;
        for (int i = from.low[0]; i < from.high[0]; ++i)
            for (int j = from.low[1]; j < from.high[1]; ++j)
                for (int l = from.low[2]; l < from.high[2]; ++l) {
                    const long q = static_cast<long>(i) * op.out_stride[0] + static_cast<long>(j) * op.out_stride[1] + static_cast<long>(l) * op.out_stride[2];
                    d_in.k[from.row(i, j) + l] += factor * d.k[q];
                    if (step.theta_in) d_in.theta[from.row(i, j) + l] += factor * d.theta[q];
                }
    }

    void settled(const Plain& op, const Instruction& step) const {
        const Plane<T> d = slot(step.out_slot), d_in = accumulator(step.in_slot);
        entries(op.size, step.out_offset, [&](long p) {
            d_in.k[p] += d.k[p];
            d_in.theta[p] += d.theta[p];
        });
    }

    void combined(const Plain& op, const Instruction& step) const {
        const Plane<T> d = slot(step.out_slot), d_in = slot(step.in_slot);
        const T factor = step.factor;
        entries(op.size, step.out_offset, [&](long p) {
            d_in.k[p] += factor * d.k[p];
            if (step.theta_in) d_in.theta[p] += factor * d.theta[p];
        });
    }

    void converted(const Convert& op, const Instruction& step) const {
        const Plane<T> d = slot(step.out_slot), d_in = slot(step.in_slot);
        entries(op.size, step.out_offset, [&](long p) {
            d_in.k[p] += -d.k[p];
            first(op.half_at, p) += d.k[p];
            if (step.theta_in) d_in.theta[p] += d.theta[p];
        });
    }

    void rescaled(const Rescale& op, const Instruction& step) const {
        const Plane<T> d = slot(step.out_slot), d_in = slot(step.in_slot);
        const Sides<T, false> ratio = context_.unit(op.ratio_at);
        const int unit_step = context_.unit_step();
        entries(op.size, step.out_offset, [&](long p) {
            const Lanes a1 = ratio.first(p * unit_step), a2 = ratio.second(p * unit_step), both = a1 * a2;
            d_in.k[p] += both * d.k[p];
            if (!step.covariance_out) first(op.half_at, p) += (a1 - a2) * a1 * d.k[p];
            if (step.theta_in) d_in.theta[p] += both * d.theta[p];
        });
    }

    void result(const Instruction& step) const {
        const Plane<T> d = slot(step.in_slot);
        const Sides<T, false> one = context_.unit();
        for (int b = 0; b < context_.tape.batch; ++b) {
            const Lanes scale = T(1) / (one.first(b) * one.second(b));
            if (adjoints_.nngp) d.k[b] += load(adjoints_.nngp + b * kLanes<T>) * scale;
            if (adjoints_.ntk && step.theta_in) d.theta[b] += load(adjoints_.ntk + b * kLanes<T>) * scale;
        }
    }

    Context<T, false> context_;
    Adjoints adjoints_;
    bool vectors_;
};

}  // namespace
}  // namespace ntkit::NTKIT_TARGET
