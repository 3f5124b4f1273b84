// Chooses the version of the interpreter for this machine.

#include <string_view>

#include "execute.hpp"
#include "simd.hpp"

namespace ntkit {

Execute choose_execute() {
#if defined(NTKIT_X86)
    const std::string_view level = simd_level();
    if (level == "avx512") return avx512::execute;
    if (level == "avx2") return avx2::execute;
#endif
    return baseline::execute;
}

}  // namespace ntkit
