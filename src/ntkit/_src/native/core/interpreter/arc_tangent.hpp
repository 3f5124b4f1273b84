// The angle of a point, for all lanes at once.

#pragma once

#include <numbers>

#include "lanes.hpp"

namespace ntkit::NTKIT_TARGET {
namespace {

// atan(sqrt(z)) / sqrt(z) for z up to tan(pi / 8)^2: Chebyshev interpolation, whose error is below 2e-18.
constexpr double kArcTangent[] = {
    0.999999999999999999,    -0.333333333333331212,  0.199999999999408915,   -0.142857142792502449,
    0.111111107449196582,    -0.0909089680906402708, 0.0769204533090222495,  -0.0666295181362919009,
    0.0584687829733087252,   -0.0503510245660155184, 0.0379652574538659362,  -0.0178053972054194452};

// An angle before its polynomial: base + atan(t), |t| <= tan(pi / 8).
template <class Lanes>
struct Angle {
    Lanes t, base;

    // Its multiple by -1 where the mask holds.
    template <class Mask>
    Angle negated(const Mask& where) const {
        return {select(where, -t, t), select(where, -base, base)};
    }
};

// The angle of (x, y) in [0, pi / 2], for x, y >= 0 that are not both zero. It is accurate relative to itself.
template <class Lanes>
[[gnu::always_inline]] inline Angle<Lanes> angle_in_first_quadrant(const Lanes& x, const Lanes& y) {
    using T = typename Lanes::Number;
    const Lanes small = min(x, y), large = max(x, y);
    // Above pi / 8, atan(t) = pi / 4 + atan((t - 1) / (t + 1)).
    const auto wide = small > static_cast<T>(0.41421356237309504880) * large;
    const Lanes t = select(wide, small - large, small) / select(wide, small + large, large);
    const auto above = y > x;
    const Lanes base = select(wide, broadcast(std::numbers::pi_v<T> / 4), select(above, broadcast(std::numbers::pi_v<T> / 2), Lanes{}));
    return {select(above, -t, t), base};
}

// The angle of (x, y) in [0, pi], for y > 0.
template <class Lanes>
[[gnu::always_inline]] inline Angle<Lanes> angle_above(const Lanes& x, const Lanes& y) {
    using T = typename Lanes::Number;
    const Angle<Lanes> angle = angle_in_first_quadrant(abs(x), y);
    const auto left = x < T(0);
    return {select(left, -angle.t, angle.t), select(left, std::numbers::pi_v<T> - angle.base, angle.base)};
}

// The values of some angles. Each is a long chain of dependent steps, so several are computed side by side.
template <int Count, class Lanes>
[[gnu::always_inline]] inline void angles(const Lanes (&t)[Count], const Lanes (&base)[Count], Lanes (&to)[Count]) {
    using T = typename Lanes::Number;
    Lanes z[Count];
#pragma GCC unroll 8
    for (int u = 0; u < Count; ++u) {
        z[u] = t[u] * t[u];
        to[u] = broadcast(static_cast<T>(kArcTangent[11]));
    }
#pragma GCC unroll 16
    for (int n = 10; n >= 0; --n) {
        const Lanes coefficient = broadcast(static_cast<T>(kArcTangent[n]));
#pragma GCC unroll 8
        for (int u = 0; u < Count; ++u) to[u] = fma(to[u], z[u], coefficient);
    }
#pragma GCC unroll 8
    for (int u = 0; u < Count; ++u) to[u] = fma(to[u], t[u], base[u]);
}

}  // namespace
}  // namespace ntkit::NTKIT_TARGET
