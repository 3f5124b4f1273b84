// Positions read from elsewhere: up-sampling by nearest neighbours, flips, padding that repeats the input, zeros between positions,
// axes that change their place.
//
// With x'[q] = x[s(q)] the plane of offset d is K'[q, q + d] = K[s(q), s(q + d)], an entry of the plane s(q + d) - s(q): each plane
// that occurs is one instruction, which copies its entries. What no plane gives are zeros and, of H, half the variance where one of
// both values is zero.

#pragma once

#include <algorithm>

#include "context.hpp"

namespace ntkit::NTKIT_TARGET {
namespace {

template <class T, bool Self>
class Selection {
    using Lanes = typename Vector<T>::Lanes;

public:
    Selection(const Context<T, Self>& context, const Select& op, const Instruction& step)
        : context_(context), op_(op), step_(step), to_(op.out_size, step.out_offset), out_(context.slot(step.out_slot)) {}

    // Copies the entries that the plane of the input gives.
    void copy() const {
        const Plane<T> in = context_.slot(step_.in_slot);
        for (int i = to_.low[0]; i < to_.high[0]; ++i) {
            if (!given(0, i)) continue;
            for (int j = to_.low[1]; j < to_.high[1]; ++j) {
                if (!given(1, j)) continue;
                const long row = along(0, i) + along(1, j), target = to_.row(i, j);
                copy_row(in.k + row, out_.k + target);
                if (step_.theta_in) copy_row(in.theta + row, out_.theta + target);
            }
        }
    }

    // Writes what the entries are where no plane gives them.
    void clear() const {
        const Sides<T, Self> half = context_.cached(op_.half_in_at, 0);
        const Axes& d = step_.out_offset;
        for (int i = to_.low[0]; i < to_.high[0]; ++i)
            for (int j = to_.low[1]; j < to_.high[1]; ++j)
                for (int l = to_.low[2]; l < to_.high[2]; ++l) {
                    const long q = to_.row(i, j) + l;
                    const bool first = inside(0, i) && inside(1, j) && inside(2, l);
                    const bool second = inside(0, i + d[0]) && inside(1, j + d[1]) && inside(2, l + d[2]);
                    Lanes k = {};
                    if (!step_.covariance_out && first != second)
                        k = first ? half.first(along(0, i) + along(1, j) + along(2, l))
                                  : half.second(along(0, i + d[0]) + along(1, j + d[1]) + along(2, l + d[2]));
                    out_.k[q] = k;
                    if (step_.theta_out) out_.theta[q] = Lanes{};
                }
    }

private:
    // Whether a position along an axis is one of the input's, not a zero.
    bool inside(int axis, int q) const { return axis != op_.axis || op_.index[q] >= 0; }

    // Where the input is read for a position along an axis.
    long along(int axis, int q) const { return static_cast<long>(axis == op_.axis ? op_.index[q] : q) * op_.in_stride[axis]; }

    // Whether q and q + d along an axis read positions that are as far apart as those of the plane.
    bool given(int axis, int q) const {
        if (axis != op_.axis) return true;
        const int p = op_.index[q], other = op_.index[q + step_.out_offset[axis]];
        return p >= 0 && other >= 0 && other - p == step_.in_offset[axis];
    }

    void copy_row(const Lanes* from, Lanes* to) const {
        if (op_.axis != 2 && op_.in_stride[2] == 1) {
            std::copy(from + to_.low[2], from + to_.high[2], to + to_.low[2]);
            return;
        }
        for (int l = to_.low[2]; l < to_.high[2]; ++l)
            if (given(2, l)) to[l] = from[along(2, l)];
    }

    const Context<T, Self>& context_;
    const Select& op_;
    const Instruction& step_;
    Region to_;
    Plane<T> out_;
};

template <class T, bool Self>
void select_positions(const Context<T, Self>& context, const Select& op, const Instruction& step) {
    const Selection<T, Self> selection(context, op, step);
    if (step.in_slot == kNothing) selection.clear();
    else selection.copy();
}

}  // namespace
}  // namespace ntkit::NTKIT_TARGET
