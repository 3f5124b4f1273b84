// Chooses the version of the interpreter for this machine.

#include <string_view>

#include "execute.hpp"
#include "simd.hpp"

namespace ntkit {

template <class T>
Execute<T> choose_execute() {
#if defined(NTKIT_X86)
    const std::string_view level = simd_level();
    if (level == "avx512") return avx512::execute<T>;
    if (level == "avx2") return avx2::execute<T>;
#endif
    return baseline::execute<T>;
}

template <class T>
double roofline(double seconds) {
#if defined(NTKIT_X86)
    const std::string_view level = simd_level();
    if (level == "avx512") return avx512::roofline<T>(seconds);
    if (level == "avx2") return avx2::roofline<T>(seconds);
#endif
    return baseline::roofline<T>(seconds);
}

template Execute<float> choose_execute<float>();
template Execute<double> choose_execute<double>();
template double roofline<float>(double);
template double roofline<double>(double);

}  // namespace ntkit
