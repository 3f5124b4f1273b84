// How fast the arithmetic of a 3 x 3 convolution and a ReLU runs on data in the first-level cache: the bound for a whole kernel.

#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

#include "rectifier.hpp"
#include "window_sums.hpp"

namespace ntkit::NTKIT_TARGET {
namespace {

template <class T>
double measure_roofline(double seconds) {
    using Lanes = typename Vector<T>::Lanes;
    int width = 32;
    asm volatile("" : "+r"(width));  // hides the number from the compiler, as in real runs
    std::vector<T> deviations(width);
    std::vector<Lanes> lanes(15 * width);
    for (int p = 0; p < width; ++p) {
        deviations[p] = T(1) + T(p) / 64;
        lanes[p] = broadcast(T(1.25) - T(p) / 128);
    }
    for (int q = 0; q < 8 * width; ++q) lanes[width + q] = broadcast(T(1) / 16 + T(q % 7) / 256);
    Lanes *k = &lanes[width], *theta = k + 4 * width, *sums = theta + 4 * width, *out = sums + 4 * width;
    const ScaledArcCosine<T> arc_cosine(2.0 / 9);
    const Sides<T, false> deviation{deviations.data(), lanes.data(), 1};
    const RectifierRule<T, false> rule{deviation, &arc_cosine, T(1) / 9, T(0), T(1), T(0), T(0), T(0), deviation, 0, false, false, false};
    double best = 0;
    const auto now = [] { return std::chrono::steady_clock::now(); };
    for (const auto begin = now(); std::chrono::duration<double>(now() - begin).count() < seconds;) {
        constexpr int repeats = 1000;
        const auto start = now();
        for (int repeat = 0; repeat < repeats; ++repeat) {
            // Two rows of a plane: sums over windows of three by three, then the activation.
            const auto none = [](int, int) { return Lanes{}; };
            sum_windows<Lanes>({k, k + width, k + 2 * width, k + 3 * width}, -1, width + 1, 0, width, sums, sums + width, none);
            sum_windows<Lanes>({theta, theta + width, theta + 2 * width, theta + 3 * width}, -1, width + 1, 0, width, sums + 2 * width,
                               sums + 3 * width, none);
            asm volatile("" : : "r"(sums) : "memory");
            for (int row = 0; row < 2; ++row)
                rule.run(true, false, {sums + row * width, sums + (2 + row) * width}, 0, width, 0, out, out + width);
            asm volatile("" : : "r"(out) : "memory");
        }
        const double elapsed = std::chrono::duration<double>(now() - start).count();
        best = std::max(best, repeats * 2.0 * width * kLanes<T> / elapsed);
    }
    return best;
}

}  // namespace
}  // namespace ntkit::NTKIT_TARGET
