// The interpreter of vector-Jacobian products for one instruction set, which NTKIT_TARGET names.

#include "adjoints.hpp"

namespace ntkit::NTKIT_TARGET {

void pull_back_block(const Tape& tape, const Block<double>& block, const Adjoints& adjoints) {
    const Context<double, false> context{tape, block};
    const Forward<double> forward{context};
    for (const Instruction& step : tape.instructions) forward.run(step, tape.operations[step.operation]);
    const Backward backward(context, adjoints);
    for (auto step = tape.instructions.rbegin(); step != tape.instructions.rend(); ++step) backward.run(*step, tape.operations[step->operation]);
}

}  // namespace ntkit::NTKIT_TARGET
