// Rows of inputs as blocks of lanes.

#pragma once

#include <algorithm>
#include <cstdint>

namespace ntkit {

constexpr std::int64_t kPart = 64;  // numbers of each input in a block moved at a time, so that they stay in the cache

// Interleaves the rows of `width` inputs, after `change`; the last input fills the remaining places.
template <class From, class To, class Change>
void interleave(const From* from, std::int64_t size, std::int64_t first, std::int64_t count, int width, To* to, Change change) {
    for (std::int64_t begin = 0; begin < size; begin += kPart)
        for (int place = 0; place < width; ++place) {
            const std::int64_t input = std::min(first + place, count - 1);
            const From* row = from + input * size;
            for (std::int64_t i = begin; i < std::min(begin + kPart, size); ++i)
                to[i * width + place] = static_cast<To>(change(row[i], input));
        }
}

template <class From, class To>
void interleave(const From* from, std::int64_t size, std::int64_t first, std::int64_t count, int width, To* to) {
    interleave(from, size, first, count, width, to, [](From number, std::int64_t) { return number; });
}

}  // namespace ntkit
