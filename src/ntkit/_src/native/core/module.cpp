// The Python module: how it was built, the tape (bind_tape.cpp) and the engine (bind_engine.cpp).

#include <nanobind/nanobind.h>

#include "bind.hpp"
#include "simd.hpp"

namespace nb = nanobind;

namespace {

// Clang defines __GNUC__ too, so it is checked first.
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
    // Tapes that caches still hold when the interpreter exits are not leaks.
    nb::set_leak_warnings(false);
    m.doc() = "The compiled core of ntkit. Use it through ntkit.native.";
    m.def("version", [] { return NTKIT_VERSION; }, "Return the version of ntkit that this module was built from.");
    m.def("simd_level", &ntkit::simd_level, "Return the instruction set in use: avx512, avx2, neon or baseline.",
          nb::sig("def simd_level() -> typing.Literal['avx512', 'avx2', 'neon', 'baseline']"));
    m.def("compiler", &compiler_name, "Return the name of the compiler that built this module.");
    m.def("compiler_version", &compiler_version, "Return the version of the compiler that built this module.");
    ntkit::bind_tape(m);
    ntkit::bind_engine(m);
}
