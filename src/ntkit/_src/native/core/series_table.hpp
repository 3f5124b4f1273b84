// The table of an activation that is computed by its Hermite series.

#pragma once

#include <cstdint>
#include <memory>
#include <tuple>
#include <vector>

#include "fields.hpp"
#include "powers.hpp"

namespace ntkit {

constexpr std::int32_t kMostOrder = (1 << 17) - 1;  // of a table
constexpr std::size_t kMostPowers = 256;  // of rho, that the orders of a table need

// phi(s x) = a_0(s) + s sum_n alpha_n(s) He_n(x) / sqrt(n!) for Gaussian x: an activation by some of its Hermite coefficients, each
// times the root of a weight that makes up for those left out. The coefficients a_0, alpha, alpha, ... are Chebyshev series in s
// on pieces of equal length.
//
// Where the first three derivatives jump at zero, left minus right, by k_1, k_2, k_3, the coefficients fall slowly with n. From
// alpha alpha' of orders above two, the series then leaves out what these jumps contribute first,
//
//     k_1^2 h_1^2 + s s' k_2^2 h_2^2 + (s^2 + s'^2) k_1 k_3 h_1 h_3,
//
// with h_j the n-th coefficient of x^j / j! for x < 0 and zero for x > 0: the sums over n are closed (see kink.hpp).
struct SeriesTable {
    std::vector<std::int32_t> orders;  // n of each alpha, ascending
    std::int32_t degree = 0;           // Chebyshev coefficients per piece
    double piece = 1;                  // length of a piece; the first begins at zero
    std::vector<double> coefficients;  // (pieces, degree, 1 + terms)
    std::vector<double> jumps;         // k_1, k_2, k_3; empty for none
    std::vector<double> closed;        // (terms, 3): k_1^2 h_1^2, k_2^2 h_2^2, k_1 k_3 h_1 h_3 times the weight; zero for n < 3; empty for none

    std::int64_t terms() const { return static_cast<std::int64_t>(orders.size()); }
    std::int64_t pieces() const {
        const std::int64_t each = degree * (1 + terms());
        return each > 0 ? static_cast<std::int64_t>(coefficients.size()) / each : 0;
    }

    static constexpr const char* name = "SeriesTable";
    static constexpr auto fields() {
        return std::tuple{Field{"orders", &SeriesTable::orders}, Field{"degree", &SeriesTable::degree},
                          Field{"piece", &SeriesTable::piece}, Field{"coefficients", &SeriesTable::coefficients},
                          Field{"jumps", &SeriesTable::jumps}, Field{"closed", &SeriesTable::closed}};
    }
};

}  // namespace ntkit
