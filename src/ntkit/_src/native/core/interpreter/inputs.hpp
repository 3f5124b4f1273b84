// The first covariance: K = x . x' / C, or H = |x - x'|^2 / (2 C), of the data.

#pragma once

#include "context.hpp"

namespace ntkit::NTKIT_TARGET {
namespace {

template <class T, bool Self>
struct InputReader {
    using Lanes = typename Vector<T>::Lanes;
    Context<T, Self> context;

    void run(const Input& op, const Instruction& step) const {
        const Plane<T> out = context.slot(step.out_slot);
        if (context.tape.batch > 1) return vectors(op, step.covariance_out, out.k);
        const Region region(op.size, step.out_offset);
        for (int i = region.low[0]; i < region.high[0]; ++i)
            for (int j = region.low[1]; j < region.high[1]; ++j) row(op, step, region, i, j, out);
    }

    void row(const Input& op, const Instruction& step, const Region& region, int i, int j, Plane<T> out) const {
        const bool covariance = step.covariance_out;
        const T scale = (covariance ? T(1) : T(0.5)) / op.channels;
        const std::int64_t start = context.tape.data_start[op.data];
        const Lanes* x2 = reinterpret_cast<const Lanes*>(context.block.data2) + start;
        const T* x1 = Self ? reinterpret_cast<const T*>(x2) : context.block.data1 + start;
        const long positions = positions_of(op.size);
        const Sides<T, Self> x{x1, x2 + shift(op.size, step.out_offset), 1};
        const long begin = region.row(i, j);
        Lanes* const to = out.k + (out.row(region, i, j) - begin);
        const long first = begin + region.low[2], last = begin + region.high[2];
        if (covariance) products(x, op.channels, positions, scale, first, last, to);
        else if (op.channels == 3) differences<3>(x, 3, positions, scale, first, last, to);
        else if (op.channels == 1) differences<1>(x, 1, positions, scale, first, last, to);
        else differences<0>(x, op.channels, positions, scale, first, last, to);
    }

private:
    static void products(Sides<T, Self> x, int channels, long positions, T scale, long first, long last, Lanes* to) {
        for (long p = first; p < last; ++p) {
            Lanes sum = {};
            for (int c = 0; c < channels; ++c) sum = fma(x.first(c * positions + p), x.second(c * positions + p), sum);
            to[p] = sum * scale;
        }
    }

    // Channels: their number if it is a compile-time constant, otherwise 0.
    template <int Channels>
    static void differences(Sides<T, Self> x, int channels, long positions, T scale, long first, long last, Lanes* to) {
        const int count = Channels ? Channels : channels;
        for (long p = first; p < last; ++p) {
            Lanes sum = {};
#pragma GCC unroll 4
            for (int c = 0; c < count; ++c) {
                const Lanes difference = x.first(c * positions + p) - x.second(c * positions + p);
                sum = fma(difference, difference, sum);
            }
            to[p] = sum * scale;
        }
    }

    // A matrix product has computed x . x'. Where x and x' are close, H is computed from their difference instead; if inputs are
    // not scaled to the same norm, also where one is nearly a multiple of the other: K^2 > (1 - near)^2 q q'.
    void vectors(const Input& op, bool covariance, Lanes* k) const {
        const Block<T>& block = context.block;
        const int batch = context.tape.batch;
        const T* products = block.products + op.data * block.products_stride;
        const T share = T(1) / op.channels;
        if (covariance || Self) {
            for (int b = 0; b < batch; ++b) k[b] = share * load(products + b * kLanes<T>);
            return;
        }
        constexpr T near = sizeof(T) == 4 ? T(0.03) : T(1e-5);
        const Sides<T, Self> half = context.cached(op.half_at, 0);
        for (int b = 0; b < batch; ++b) {
            const Lanes total = half.first(b) + half.second(b);
            k[b] = fnmadd(load(products + b * kLanes<T>), broadcast(share), total);
            Lanes nearest = k[b];
            if (op.sizes_matter) {
                const Lanes product = share * load(products + b * kLanes<T>), squares = T(4) * half.first(b) * half.second(b);
                nearest = select(product * max(product, Lanes{}) > (1 - 2 * near) * squares, Lanes{}, nearest);
            }
            const auto close = nearest < near * total;
            if (!any(close)) continue;
            for (int lane = 0; lane < kLanes<T>; ++lane)
                if (close[lane]) k[b].set(lane, half_squared_distance(op, b * kLanes<T> + lane));
        }
    }

    // |x - x'|^2 / (2 C) in double precision, four sums at a time because each addition depends on the previous one.
    T half_squared_distance(const Input& op, int column) const {
        const std::int64_t start = context.tape.data_start[op.data];
        const T* x1 = context.block.data1 + start;
        const T* x2 = context.block.data2 + column * context.tape.data_size + start;
        double sums[4] = {};
        int c = 0;
        for (; c + 4 <= op.channels; c += 4)
            for (int i = 0; i < 4; ++i) {
                const double difference = static_cast<double>(x1[c + i]) - x2[c + i];
                sums[i] += difference * difference;
            }
        for (; c < op.channels; ++c) {
            const double difference = static_cast<double>(x1[c]) - x2[c];
            sums[0] += difference * difference;
        }
        return static_cast<T>(((sums[0] + sums[1]) + (sums[2] + sums[3])) / (2.0 * op.channels));
    }
};

}  // namespace
}  // namespace ntkit::NTKIT_TARGET
