// The interpreter for one instruction set and one type of numbers. The build compiles this file once for each pair of both:
// NTKIT_TARGET names the instruction set and its namespace, NTKIT_NUMBER the type.

#include "machine.hpp"
#include "roofline.hpp"

namespace ntkit::NTKIT_TARGET {

template <class T>
void execute(const Tape& tape, const Block<T>& block) {
    if (block.cache1) Machine<T, false>(tape, block).run();
    else Machine<T, true>(tape, block).run();
}

template <class T>
double roofline(double seconds) {
    return measure_roofline<T>(seconds);
}

template void execute<NTKIT_NUMBER>(const Tape&, const Block<NTKIT_NUMBER>&);
template double roofline<NTKIT_NUMBER>(double);

}  // namespace ntkit::NTKIT_TARGET
