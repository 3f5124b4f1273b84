// Own data of each input, the conversion from H to K, and the result.

#pragma once

#include "context.hpp"
#include "series.hpp"

namespace ntkit::NTKIT_TARGET {
namespace {

// K = (q + q') / 2 - H.
template <class T, bool Self>
void convert(const Context<T, Self>& context, const Convert& op, const Instruction& step) {
    const Plane<T> in = context.slot(step.in_slot), out = context.slot(step.out_slot);
    const Sides<T, Self> half = context.own(op.half_at, shift(op.size, step.out_offset));
    rows(Region(op.size, step.out_offset), [&](long first, long last) {
        for (long p = first; p < last; ++p) {
            out.k[p] = half.first(p) + half.second(p) - in.k[p];
            if (step.theta_in) out.theta[p] = in.theta[p];
        }
    });
}

template <class T, bool Self>
void keep(const Context<T, Self>& context, const Store& op, const Instruction& step) {
    using Lanes = typename Vector<T>::Lanes;
    if (op.what == Own::series) return keep_series(context, op, step);
    const long positions = positions_of(op.size);
    Lanes* to = reinterpret_cast<Lanes*>(context.block.own2) + op.target_at * context.tape.batch;
    const Lanes* k = context.slot(step.in_slot).k;
    const T factor = static_cast<T>(op.factor), eps = static_cast<T>(op.eps);
    Lanes mean{};
    if (op.what == Own::scale && op.over_positions)
        for (long p = 0; p < positions; ++p) mean += k[p] / static_cast<T>(positions);
    for (long p = 0; p < positions; ++p) {
        switch (op.what) {
            case Own::deviation: to[p] = sqrt(max(factor * k[p], Lanes{})); break;
            case Own::half: to[p] = T(0.5) * k[p]; break;
            case Own::scale:
                to[p] = T(1) / sqrt((op.over_positions ? mean : k[p]) + eps);
                to[positions + p] = sqrt(max(k[p], Lanes{}));
                break;
            case Own::inside:
            case Own::mean: to[p] = k[p]; break;
            case Own::series: break;
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
