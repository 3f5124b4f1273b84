// Cached data of each input, the conversion from H to K, and the result.

#pragma once

#include <vector>

#include "context.hpp"
#include "series.hpp"

namespace ntkit::NTKIT_TARGET {
namespace {

// K = (q + q') / 2 - H.
template <class T, bool Self>
void convert(const Context<T, Self>& context, const Convert& op, const Instruction& step) {
    const Plane<T> in = context.slot(step.in_slot), out = context.slot(step.out_slot);
    const Sides<T, Self> half = context.cached(op.half_at, shift(op.size, step.out_offset));
    rows(Region(op.size, step.out_offset), [&](long first, long last) {
        for (long p = first; p < last; ++p) {
            out.k[p] = half.first(p) + half.second(p) - in.k[p];
            if (step.theta_in) out.theta[p] = in.theta[p];
        }
    });
}

// With a = unit / scale of each input, K' = a a' K, Theta' = a a' Theta, H' = a a' H + (a - a') (a q - a' q') / 2: where two inputs
// are nearly parallel, q and q' are nearly equal, both terms are positive, and nothing cancels.
template <class T, bool Self>
void rescale(const Context<T, Self>& context, const Rescale& op, const Instruction& step) {
    using Lanes = typename Vector<T>::Lanes;
    const Plane<T> in = context.slot(step.in_slot), out = context.slot(step.out_slot);
    const Sides<T, Self> ratio = context.unit(op.ratio_at), half = context.cached(op.half_at, shift(op.size, step.out_offset));
    const int unit_step = context.unit_step();
    const bool covariance = step.covariance_out, theta = step.theta_in;
    Lanes a1 = ratio.first(0), a2 = ratio.second(0), both = a1 * a2, apart = a1 - a2;
    rows(Region(op.size, step.out_offset), [&](long first, long last) {
        for (long p = first; p < last; ++p) {
            if (unit_step) {  // vectors: another input at every place
                a1 = ratio.first(p), a2 = ratio.second(p);
                both = a1 * a2, apart = a1 - a2;
            }
            Lanes k = both * in.k[p];
            if (!covariance) k += apart * (a1 * half.first(p) - a2 * half.second(p));
            out.k[p] = k;
            if (theta) out.theta[p] = both * in.theta[p];
        }
    });
}

// Which mean the position p belongs to: positions that differ only along the axes averaged over share one.
inline long mean_of(const Store& op, long p) {
    const long l = p % op.size[2], j = p / op.size[2] % op.size[1], i = p / op.size[2] / op.size[1];
    long at = op.mean_over[0] ? 0 : i;
    at = op.mean_over[1] ? at : at * op.size[1] + j;
    return op.mean_over[2] ? at : at * op.size[2] + l;
}

// The means of the variances over some axes; none where there are no such axes.
template <class Lanes>
std::vector<Lanes> averaged(const Store& op, const Lanes* k) {
    const auto& over = op.mean_over;
    if (!over[0] && !over[1] && !over[2]) return {};
    long count = 1;
    for (int axis = 0; axis < kAxes; ++axis)
        if (over[axis]) count *= op.size[axis];
    std::vector<Lanes> means(static_cast<std::size_t>(positions_of(op.size) / count), Lanes{});
    for (long p = 0; p < positions_of(op.size); ++p) means[mean_of(op, p)] += k[p] / static_cast<typename Lanes::Number>(count);
    return means;
}

template <class T, bool Self>
void keep(const Context<T, Self>& context, const Store& op, const Instruction& step) {
    using Lanes = typename Vector<T>::Lanes;
    if (op.what == Cached::series) return keep_series(context, op, step);
    const long positions = positions_of(op.size);
    Lanes* to = reinterpret_cast<Lanes*>(context.block.cache2) + op.target_at * context.tape.batch;
    const Lanes* k = context.slot(step.in_slot).k;
    const T factor = static_cast<T>(op.factor), eps = static_cast<T>(op.eps);
    const Sides<T, Self> one = context.unit(op.unit_at);
    const int unit_step = context.unit_step();
    const std::vector<Lanes> means = op.what == Cached::scale ? averaged(op, k) : std::vector<Lanes>{};
    for (long p = 0; p < positions; ++p) {
        switch (op.what) {
            case Cached::deviation: to[p] = sqrt(max(factor * k[p], Lanes{})); break;
            case Cached::half: to[p] = T(0.5) * k[p]; break;
            case Cached::scale:
                to[p] = T(1) / sqrt((means.empty() ? k[p] : means[mean_of(op, p)]) + eps * (one.second(p * unit_step) * one.second(p * unit_step)));
                to[positions + p] = sqrt(max(k[p], Lanes{}));
                break;
            case Cached::inside:
            case Cached::mean: to[p] = k[p]; break;
            case Cached::series:
            case Cached::weights: break;
        }
    }
}

// Undoes the scaling of the inputs.
template <class T, bool Self>
void output(const Context<T, Self>& context, const Instruction& step) {
    using Lanes = typename Vector<T>::Lanes;
    const Plane<T> in = context.slot(step.in_slot);
    const Block<T>& block = context.block;
    const Sides<T, Self> one = context.unit();
    for (int b = 0; b < context.tape.batch; ++b) {
        const Lanes scale = T(1) / (one.first(b) * one.second(b));
        if (block.nngp) store(in.k[b] * scale, block.nngp + b * kLanes<T>);
        if (block.ntk) store(step.theta_in ? in.theta[b] * scale : Lanes{}, block.ntk + b * kLanes<T>);
    }
}

}  // namespace
}  // namespace ntkit::NTKIT_TARGET
