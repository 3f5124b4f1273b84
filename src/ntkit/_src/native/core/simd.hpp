// Which instruction set this machine has.

#pragma once

namespace ntkit {

// The widest instruction set that the processor and the operating system both support, detected at run time; the build assumes
// only the baseline.
inline const char* simd_level() {
#if defined(__aarch64__) || defined(_M_ARM64)
    return "neon";  // part of every 64-bit ARM processor
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

}  // namespace ntkit
