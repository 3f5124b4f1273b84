// What jumps of derivatives at zero add to a Hermite series (see SeriesTable).

#pragma once

#include <numbers>
#include <vector>

#include "lanes.hpp"

namespace ntkit::NTKIT_TARGET {
namespace {

// Which derivatives jump.
enum class Jumps { none, second, first };

inline Jumps jumps_of(const SeriesTable& table) {
    return table.jumps.empty() ? Jumps::none : table.jumps[0] == 0 ? Jumps::second : Jumps::first;
}

// With k_1, k_2, k_3 the jumps, p = s s', Q = s^2 + s'^2, w = pi - psi, rho = cos(psi) and z = sin(psi), the parts
// (k_1^2, p k_2^2, Q k_1 k_3) of E[phi' phi'] are, by the sectors where both variables are negative (Cho and Saul 2009),
//
//     w / 2 pi,    (w rho + z) / 2 pi,    (w + rho z) / 4 pi,
//
// and those of E[phi phi] / p their integrals in rho. Orders n = 1 and 2 are left to the series, and n = 0 to a_0 a_0'.
template <class T>
struct Kink {
    T first, second, both;  // k_1^2, k_2^2, k_1 k_3

    explicit Kink(const SeriesTable& table)
        : first(static_cast<T>(table.jumps[0] * table.jumps[0])), second(static_cast<T>(table.jumps[1] * table.jumps[1])),
          both(static_cast<T>(table.jumps[0] * table.jumps[2])) {}

    template <class Lanes>
    struct Parts {
        Lanes value, slope;  // of E[phi phi] / (s s') and of E[phi' phi']
    };

    template <class Lanes>
    [[gnu::always_inline]] Parts<Lanes> parts(const Lanes& w, const Lanes& rho, const Lanes& z, const Lanes& p, const Lanes& q) const {
        constexpr T turn = std::numbers::inv_pi_v<T> / 2;  // 1 / 2 pi
        const Lanes one = broadcast(first), two = second * p, three = both * q, square = rho * rho;
        const Lanes constant = turn * (one + T(1.0 / 3) * three) + T(1.0 / 16) * two;                    // n = 0
        const Lanes line = T(0.25) * one + turn * two + T(0.125) * three;                               // n = 1
        const Lanes parabola = T(turn / 2) * one + T(0.125) * two + T(turn / 2) * three;                // n = 2
        const Lanes slope = w * (one + two * rho + T(0.5) * three) + z * (two + T(0.5) * three * rho);
        const Lanes value = w * (rho * (one + T(0.5) * three) + two * (T(0.25) + T(0.5) * square)) +
                            z * (one + T(0.75) * two * rho + three * (T(1.0 / 3) + T(1.0 / 6) * square));
        return {turn * value - constant - rho * line - square * parabola, turn * slope - line - T(2) * rho * parabola};
    }
};

}  // namespace
}  // namespace ntkit::NTKIT_TARGET
