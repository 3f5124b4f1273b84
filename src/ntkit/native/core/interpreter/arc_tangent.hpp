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

// The angle of (x, y) in [0, pi / 2], for x, y >= 0 that are not both zero. It is accurate relative to itself.
template <class Lanes>
inline Lanes angle_in_first_quadrant(const Lanes& x, const Lanes& y) {
    using T = typename Lanes::Number;
    const Lanes small = min(x, y), large = max(x, y);
    // Above pi / 8, atan(t) = pi / 4 + atan((t - 1) / (t + 1)).
    const auto wide = small > static_cast<T>(0.41421356237309504880) * large;
    const Lanes t = select(wide, small - large, small) / select(wide, small + large, large);
    const Lanes z = t * t;
    Lanes sum = broadcast(static_cast<T>(kArcTangent[11]));
    for (int n = 10; n >= 0; --n) sum = fma(sum, z, broadcast(static_cast<T>(kArcTangent[n])));
    const Lanes angle = fma(sum, t, select(wide, broadcast(std::numbers::pi_v<T> / 4), Lanes{}));
    return select(y > x, std::numbers::pi_v<T> / 2 - angle, angle);
}

// The angle of (x, y) in [0, pi], for y > 0.
template <class Lanes>
inline Lanes angle_above(const Lanes& x, const Lanes& y) {
    using T = typename Lanes::Number;
    const Lanes angle = angle_in_first_quadrant(abs(x), y);
    return select(x < T(0), std::numbers::pi_v<T> - angle, angle);
}

}  // namespace
}  // namespace ntkit::NTKIT_TARGET
