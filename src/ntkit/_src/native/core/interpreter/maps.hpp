// Linear maps of the positions along one axis, x'[q] = sum_p A[q, p] x[p]: interpolation, fixed filters, uneven windows.
//
// The plane of offset d is K'[q, q + d] = sum over p, e of A[q, p] A[q + d, p + e] K[p, p + e]: each plane e of the input is one
// instruction. Planes of H need the same corrections as those of average pooling (pooling.hpp), with the rows of A for the windows.

#pragma once

#include <algorithm>

#include "context.hpp"
#include "pooling.hpp"

namespace ntkit::NTKIT_TARGET {
namespace {

// The products A[q, p] A[q + d, p + e] for the positions p in [first, last), outside of which they are zero.
struct Products {
    const double* matrix;
    long row, other;  // where the entries of p = 0 are
    int first, last;

    Products(const Map& op, const Instruction& step, const Region& from, int q) : matrix(op.matrix.data()) {
        const int apart = step.in_offset[op.axis], second = q + step.out_offset[op.axis];
        row = static_cast<long>(q) * op.in_size[op.axis];
        other = static_cast<long>(second) * op.in_size[op.axis] + apart;
        first = std::max({op.first[q], op.first[second] - apart, from.low[op.axis]});
        last = std::min({op.last[q], op.last[second] - apart, from.high[op.axis]});
    }
    double at(int p) const { return matrix[row + p] * matrix[other + p]; }
};

// Adds a multiple of an entry to a sum, in double precision where the operation is wide.
template <class T>
struct MapSum {
    using Lanes = typename Vector<T>::Lanes;
    Plane<T> out;
    WidePlane<T> wide;

    void add_k(const Lanes& x, double factor, long q) const {
        if (wide.k) add<T>(x, factor, wide.k[q]);
        else out.k[q] = fma(x, broadcast(static_cast<T>(factor)), out.k[q]);
    }
    void add_theta(const Lanes& x, double factor, long q) const {
        if (wide.k) add<T>(x, factor, wide.theta[q]);
        else out.theta[q] = fma(x, broadcast(static_cast<T>(factor)), out.theta[q]);
    }
};

template <class T, bool Self>
void map_positions(const Context<T, Self>& context, const Map& op, const Instruction& step) {
    const Region from(op.in_size, step.in_offset), to(op.out_size, step.out_offset);
    const Plane<T> in = context.slot(step.in_slot);
    const MapSum<T> sum = {op.wide ? Plane<T>{} : context.slot(step.out_slot),
                           op.wide ? context.accumulator(step.out_slot) : WidePlane<T>{}};
    const int axis = op.axis;
    const long step_in = axis_step(from, axis);
    for (int i = to.low[0]; i < to.high[0]; ++i)
        for (int j = to.low[1]; j < to.high[1]; ++j) {
            const long source = from.row(axis == 0 ? 0 : i, axis == 1 ? 0 : j), target = to.row(i, j);
            if (axis == 2) {
                for (int l = to.low[2]; l < to.high[2]; ++l) {
                    const Products products(op, step, from, l);
                    for (int p = products.first; p < products.last; ++p) {
                        sum.add_k(in.k[source + p], products.at(p), target + l);
                        if (step.theta_in) sum.add_theta(in.theta[source + p], products.at(p), target + l);
                    }
                }
                continue;
            }
            const Products products(op, step, from, axis == 0 ? i : j);
            for (int p = products.first; p < products.last; ++p) {
                const double factor = products.at(p);
                if (factor == 0) continue;
                const long row = source + p * step_in;
                for (int l = to.low[2]; l < to.high[2]; ++l) sum.add_k(in.k[row + l], factor, target + l);
                if (step.theta_in)
                    for (int l = to.low[2]; l < to.high[2]; ++l) sum.add_theta(in.theta[row + l], factor, target + l);
            }
        }
}

// B = sum_p A[q, p] q_p, and the part of the mapped Theta that comes from equal positions.
template <class T, bool Self>
void variance_map(const Context<T, Self>& context, const Map& op, const Instruction& step) {
    using Lanes = typename Vector<T>::Lanes;
    const Region from(op.in_size, Axes{}), to(op.out_size, Axes{});
    const Plane<T> in = context.slot(step.in_slot), out = context.slot(step.out_slot);
    const long step_in = axis_step(from, op.axis);
    for (int i = 0; i < to.high[0]; ++i)
        for (int j = 0; j < to.high[1]; ++j)
            for (int l = 0; l < to.high[2]; ++l) {
                int source[kAxes] = {i, j, l};
                const int q = source[op.axis];
                source[op.axis] = 0;
                const long base = from.row(source[0], source[1]) + source[2];
                const double* const row = op.matrix.data() + static_cast<long>(q) * op.in_size[op.axis];
                Lanes k = {}, t = {};
                for (int p = op.first[q]; p < op.last[q]; ++p) {
                    k = fma(in.k[base + p * step_in], broadcast(static_cast<T>(row[p])), k);
                    if (step.theta_in) t = fma(in.theta[base + p * step_in], broadcast(static_cast<T>(row[p] * row[p])), t);
                }
                out.k[to.row(i, j) + l] = k;
                out.theta[to.row(i, j) + l] = t;
            }
}

}  // namespace
}  // namespace ntkit::NTKIT_TARGET
