// Which instruction set the core uses.

#pragma once

#if defined(_MSC_VER)
#include <immintrin.h>
#include <intrin.h>
#endif

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

namespace ntkit {

#if defined(_MSC_VER) && defined(_M_X64)
// What the processor has (CPUID) and the operating system saves (XGETBV): Intel's manual, volume 1, 14.3 and 15.2.
__attribute__((target("xsave"))) inline const char* level_by_cpuid() {
    int first[4], seventh[4];
    __cpuid(first, 1);
    __cpuidex(seventh, 7, 0);
    const auto has = [](int bits, int bit) { return (bits >> bit & 1) != 0; };
    if (!has(first[2], 27) || !has(first[2], 12) || !has(seventh[1], 5)) return "baseline";  // OSXSAVE, FMA, AVX2
    const unsigned long long saved = _xgetbv(0);
    if ((saved & 0x6) != 0x6) return "baseline";
    const bool wide = has(seventh[1], 16) && has(seventh[1], 17) && has(seventh[1], 30) && has(seventh[1], 31);  // F, DQ, BW, VL
    return wide && (saved & 0xe6) == 0xe6 ? "avx512" : "avx2";
}
#endif

// The widest instruction set that the processor and the operating system both support, detected at run time; the build assumes
// only the baseline.
inline const char* widest_simd_level() {
#if defined(__aarch64__) || defined(_M_ARM64)
    return "neon";  // part of every 64-bit ARM processor
#elif defined(_MSC_VER) && defined(_M_X64)
    return level_by_cpuid();  // clang-cl has no run-time library behind __builtin_cpu_supports
#elif (defined(__x86_64__) || defined(__i386__)) && (defined(__GNUC__) || defined(__clang__))
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
        return "avx512";
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        return "avx2";
    }
    return "baseline";
#else
    return "baseline";  // there is no portable way to detect more, and the baseline always works
#endif
}

// The instruction set in use: the widest, or a narrower one that NTKIT_INSTRUCTION_SET names, so that one machine can compute what
// another does. It is read once, as an entry must have the same bits throughout a process.
inline const char* simd_level() {
    static const char* const level = [] {
        const char* const widest = widest_simd_level();
        const char* const given = std::getenv("NTKIT_INSTRUCTION_SET");
        const std::string_view most = given == nullptr ? "" : given;
        if (most.empty() || most == "avx512") return widest;
        if (most != "baseline" && most != "avx2") {
            throw std::invalid_argument("NTKIT_INSTRUCTION_SET must be baseline, avx2 or avx512, not '" + std::string(most) + "'.");
        }
        const bool narrower = most == "baseline" ? std::string_view(widest) != "neon" : std::string_view(widest) == "avx512";
        return !narrower ? widest : most == "avx2" ? "avx2" : "baseline";
    }();
    return level;
}

}  // namespace ntkit
