// Stand-alone activations, and the rule of a rectifier that is fused with a layer.

#pragma once

#include <algorithm>
#include <numbers>

#include "closed_forms.hpp"
#include "context.hpp"
#include "rectifier.hpp"

namespace ntkit::NTKIT_TARGET {
namespace {

// The rule of a rectifier after a layer with the given numbers; without a layer, these are 1, 0, 0, 0 and 0.
template <class T, bool Self>
RectifierRule<T, Self> rectifier_rule(const Context<T, Self>& context, const Rectifier& rectifier, double weight, double bias,
                                      double weight_rate, double bias_rate, std::int32_t unit_at, long moved, double mask) {
    const double a = rectifier.negative_slope, b = rectifier.positive_slope;
    return {context.cached(rectifier.deviation_at, moved), &rectifier.arc_cosine<T>(), static_cast<T>(weight * (b - a) * (b - a) / 2),
            static_cast<T>(weight * a * b), static_cast<T>(weight_rate), static_cast<T>(bias / weight),
            static_cast<T>(bias_rate / weight), static_cast<T>(rectifier.trained_gain * mask), context.unit(unit_at), context.unit_step(),
            rectifier.signed_covariance, rectifier.rounded, Self || context.block.zeros};
}

template <class T, bool Self>
RectifierRule<T, Self> layer_rule(const Context<T, Self>& context, const Layer& op, const Instruction& step) {
    if (!op.activation) return {};
    return rectifier_rule(context, *op.activation, op.weight, op.bias, op.weight_rate, op.bias_rate, op.unit_at,
                          shift(op.out_size, step.out_offset), step.factor);
}

template <class T, bool Self>
void rectified(const Context<T, Self>& context, const Rectified& op, const Instruction& step) {
    using Lanes = typename Vector<T>::Lanes;
    const Plane<T> in = context.slot(step.in_slot), out = context.slot(step.out_slot);
    const bool theta = step.theta_out, theta_in = step.theta_in;
    if (step.covariance_in) {  // a variable with itself: E[phi phi] = (a^2 + b^2) q / 2
        const double a = op.activation.negative_slope, b = op.activation.positive_slope;
        const T factor = static_cast<T>((a * a + b * b) / 2);
        const T gain = static_cast<T>(op.activation.trained_gain * step.factor);
        const T slope_at_zero = static_cast<T>((a + b) * (a + b) / 4);  // where q = 0
        rows(Region(op.size, step.out_offset), [&](long first, long last) {
            for (long p = first; p < last; ++p) {
                const Lanes k = factor * in.k[p];
                const Lanes slopes = select(in.k[p] > T(0), broadcast(factor), broadcast(slope_at_zero));
                if (theta) out.theta[p] = (theta_in ? slopes * in.theta[p] : Lanes{}) + gain * k;
                out.k[p] = k;
            }
        });
        return;
    }
    const auto rule = rectifier_rule(context, op.activation, 1.0, 0.0, 0.0, 0.0, 0, shift(op.size, step.out_offset), step.factor);
    rows(Region(op.size, step.out_offset), [&](long first, long last) {
        const Sums<T> sums{in.k + first, theta_in ? in.theta + first : nullptr};
        rule.run(theta, step.covariance_out, sums, first, last, 0, out.k, out.theta);
    });
}

// Where an activation reads and writes.
template <class T, bool Self>
struct SmoothPlanes {
    using Lanes = typename Vector<T>::Lanes;

    Plane<T> in, out;
    Sides<T, Self> deviation, half;
    T gain;  // the multiple of E[u phi'(u) v phi'(v)] that Theta gets
    bool variances, theta_in, theta_out, covariance;

    [[gnu::always_inline]] void write(long p, const Expectation<Lanes>& e) const {
        if (theta_out) {
            Lanes theta = theta_in ? in.theta[p] * e.slope : Lanes{};
            if (gain != 0) theta = fma(broadcast(gain), e.gained, theta);
            out.theta[p] = theta;
        }
        Lanes value = e.value;
        if (!covariance) {
            value = half.first(p) + half.second(p) - value;
            const auto equal = (in.k[p] == T(0)) & (deviation.first(p) == deviation.second(p));
            value = select(equal, Lanes{}, value);  // H stays zero to the bit
        }
        out.k[p] = value;
    }
};

// erf and GELU, all lanes at once, in three loops over a few entries: up to a root, up to the angle, and from its polynomial on. Alone,
// each entry is a long chain of dependent steps.
template <Function Which, class T, bool Self>
struct SmoothByAngle {
    using Lanes = typename Vector<T>::Lanes;
    static constexpr int kStage = 16;    // entries between the loops
    static constexpr int kTogether = 4;  // entries of the last loop that share the coefficients they load

    SmoothPlanes<T, Self> planes;
    bool rounded;

    [[gnu::always_inline]] ByRoot<Lanes> by_root(long p) const {
        const Lanes k = planes.in.k[p], q = max(k, Lanes{});
        const auto z = planes.variances ? Gaussians<Lanes>{q, q, q, Lanes{}, Lanes{}, Lanes{}}
                                  : lanes_of(planes.deviation.first(p), planes.deviation.second(p), k, rounded);
        if constexpr (Which == Function::gelu) return gelu_by_root(z);
        else return erf_by_root(z);
    }

    template <int Count>
    [[gnu::always_inline]] void finish(const ByAngle<Lanes>* entries, long p) const {
        Lanes t[Count], base[Count], angle[Count];
#pragma GCC unroll 8
        for (int u = 0; u < Count; ++u) {
            t[u] = entries[u].angle.t;
            base[u] = entries[u].angle.base;
        }
        angles(t, base, angle);
        constexpr T turn = std::numbers::inv_pi_v<T> / 2;
#pragma GCC unroll 8
        for (int u = 0; u < Count; ++u) {
            const ByAngle<Lanes>& entry = entries[u];
            Expectation<Lanes> e;
            if constexpr (Which == Function::gelu) {
                e.value = turn * fma(entry.factor, angle[u], entry.rest);
                e.slope = turn * (angle[u] + entry.slope);
                e.gained = planes.gain != 0 ? turn * fma(entry.k, angle[u], entry.gained) : Lanes{};
            } else {
                const Lanes inverse = T(std::numbers::pi_v<T> / 4) * entry.slope;
                e = {4 * turn * angle[u], entry.slope, planes.gain != 0 ? entry.k * entry.slope * (inverse * inverse) : Lanes{}};
            }
            planes.write(p + u, e);
        }
    }

    void run(long first, long last) const {
        const SmoothByAngle rule = *this;  // a copy, so that the compiler knows that no write changes it
        const bool gain = rule.planes.gain != 0;
        ByRoot<Lanes> roots[kStage];
        ByAngle<Lanes> entries[kStage];
        for (long p = first; p < last; p += kStage) {
            const int count = static_cast<int>(std::min<long>(kStage, last - p));
            for (int at = 0; at < count; ++at) roots[at] = rule.by_root(p + at);
            for (int at = 0; at < count; ++at) {
                if constexpr (Which == Function::gelu) entries[at] = gelu_by_angle(roots[at], gain);
                else entries[at] = erf_by_angle(roots[at]);
            }
            int at = 0;
            for (; at + kTogether <= count; at += kTogether) rule.template finish<kTogether>(entries + at, p + at);
            for (; at < count; ++at) rule.template finish<1>(entries + at, p + at);
        }
    }
};

// The others, pair by pair.
template <class T, bool Self>
struct SmoothByPair {
    using Lanes = typename Vector<T>::Lanes;

    SmoothPlanes<T, Self> planes;
    const Smooth& op;

    void run(long first, long last) const {
        for (long p = first; p < last; ++p) {
            const Lanes k = planes.in.k[p];
            Lanes s1{}, s2{};
            if (!planes.variances) {
                s1 = planes.deviation.first(p);
                s2 = planes.deviation.second(p);
            }
            Expectation<Lanes> all{};
            for (int lane = 0; lane < kLanes<T>; ++lane) {
                const T q = std::max(k[lane], T(0));
                const auto e = expectation(op, planes.variances ? Gaussians<T>{q, q, q, 0, 0, 0} : pair_of(s1[lane], s2[lane], k[lane], op.rounded));
                all.value.set(lane, e.value);
                all.slope.set(lane, e.slope);
                all.gained.set(lane, e.gained);
            }
            planes.write(p, all);
        }
    }
};

template <class T, bool Self>
void smooth(const Context<T, Self>& context, const Smooth& op, const Instruction& step) {
    const long moved = shift(op.size, step.out_offset);
    const SmoothPlanes<T, Self> planes{context.slot(step.in_slot), context.slot(step.out_slot), context.cached(op.deviation_at, moved),
                                       context.cached(op.half_at, moved), static_cast<T>(op.trained_gain * step.factor),
                                       step.covariance_in,  // a variable with itself
                                       step.theta_in, step.theta_out, step.covariance_out};
    const auto every_row = [&](const auto& rule) { rows(Region(op.size, step.out_offset), [&](long first, long last) { rule.run(first, last); }); };
    switch (op.function) {
        case Function::gelu: return every_row(SmoothByAngle<Function::gelu, T, Self>{planes, op.rounded});
        case Function::erf: return every_row(SmoothByAngle<Function::erf, T, Self>{planes, op.rounded});
        default: return every_row(SmoothByPair<T, Self>{planes, op});
    }
}

}  // namespace
}  // namespace ntkit::NTKIT_TARGET
