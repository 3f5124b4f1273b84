// The powers of rho that Horner's rule multiplies by when a series has only some orders, and how to make them.

#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace ntkit {

struct Powers {
    struct Factors {
        std::int32_t one, two;  // earlier powers
    };
    std::vector<Factors> made;        // from the third power on: the first two are rho^0 and rho^1
    std::vector<std::int32_t> gap;    // for each order, which power leads from the order before to it; the first from order one

    Powers() = default;
    explicit Powers(const std::vector<std::int32_t>& orders) {
        std::vector<std::int32_t> gaps, known{0, 1};
        for (std::int32_t before = 1; const std::int32_t order : orders) {
            gaps.push_back(order - before);
            before = order;
        }
        std::vector<std::int32_t> wanted = gaps;
        std::sort(wanted.begin(), wanted.end());
        for (const std::int32_t exponent : wanted) make(exponent, known);
        for (const std::int32_t exponent : gaps) gap.push_back(place(exponent, known));
    }

    // How many powers there are.
    std::size_t count() const { return 2 + made.size(); }

private:
    static std::int32_t place(std::int32_t exponent, const std::vector<std::int32_t>& known) {
        return static_cast<std::int32_t>(std::find(known.begin(), known.end(), exponent) - known.begin());
    }
    static bool is_known(std::int32_t exponent, const std::vector<std::int32_t>& known) {
        return std::find(known.begin(), known.end(), exponent) != known.end();
    }

    // One product of powers that are known if there are such, else of the two halves.
    void make(std::int32_t exponent, std::vector<std::int32_t>& known) {
        if (is_known(exponent, known)) return;
        const std::int32_t half = (exponent + 1) / 2;  // equal halves have the fewest roundings
        std::int32_t part = exponent;
        for (const std::int32_t e : known)
            if (e >= half && e < part && is_known(exponent - e, known)) part = e;
        if (part == exponent) part = half;
        make(part, known);
        make(exponent - part, known);
        made.push_back({place(part, known), place(exponent - part, known)});
        known.push_back(exponent);
    }
};

}  // namespace ntkit
