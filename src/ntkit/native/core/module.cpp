// The Python binding of the compiled core: nothing here but names and argument types.

#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace {

// The widest instruction set that the processor and the operating system both offer, asked at run time:
// the build itself assumes the baseline only.
const char* simd_level() {
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
    return "baseline";  // no portable way to ask: the baseline is always right
#endif
}

// Clang defines __GNUC__ too, so it is asked first.
constexpr const char* compiler_name() {
#if defined(__apple_build_version__)
    return "apple-clang";
#elif defined(__clang__)
    return "clang";
#elif defined(__GNUC__)
    return "gcc";
#elif defined(_MSC_VER)
    return "msvc";
#else
    return "unknown";
#endif
}

#define NTKIT_TEXT_(x) #x
#define NTKIT_TEXT(x) NTKIT_TEXT_(x)

constexpr const char* compiler_version() {
#if defined(__clang__)
    return NTKIT_TEXT(__clang_major__) "." NTKIT_TEXT(__clang_minor__) "." NTKIT_TEXT(__clang_patchlevel__);
#elif defined(__GNUC__)
    return NTKIT_TEXT(__GNUC__) "." NTKIT_TEXT(__GNUC_MINOR__) "." NTKIT_TEXT(__GNUC_PATCHLEVEL__);
#elif defined(_MSC_VER)
    return NTKIT_TEXT(_MSC_FULL_VER);
#else
    return "";
#endif
}

}  // namespace

NB_MODULE(_core, m) {
    m.doc() = "The compiled core of ntkit. Use it through ntkit.native.";
    m.def("version", [] { return NTKIT_VERSION; }, "Give the version of ntkit that this module was built from.");
    m.def("simd_level", &simd_level, "Give the widest usable instruction set: avx512, avx2, neon or baseline.");
    m.def("compiler", &compiler_name, "Give the name of the compiler that built this module.");
    m.def("compiler_version", &compiler_version, "Give the version of the compiler that built this module.");
}
