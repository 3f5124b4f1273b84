// The interpreter of vector-Jacobian products for one instruction set, which NTKIT_TARGET names.

#include "adjoints.hpp"

namespace ntkit::NTKIT_TARGET {

void pull_back_block(const Tape& tape, const std::vector<Segment>& segments, const Block<double>& block, const Adjoints& adjoints) {
    const Context<double, false> context{tape, block};
    const Forward<double> forward{context};
    const Backward backward(context, adjoints);
    const auto run_forwards = [&](const Segment& segment) {
        for (std::int64_t i = segment.first; i < segment.last; ++i) forward.run(tape.instructions[i], tape.operations[tape.instructions[i].operation]);
    };
    // The derivatives by a layer's numbers read its output, and the last layers read sums over all segments.
    const bool all = adjoints.gains && segments.size() > 1;
    if (all)
        for (const Segment& segment : segments) run_forwards(segment);
    for (auto segment = segments.rbegin(); segment != segments.rend(); ++segment) {
        if (!all || segment != segments.rbegin()) run_forwards(*segment);
        for (std::int64_t i = segment->last; i-- > segment->first;) backward.run(tape.instructions[i], tape.operations[tape.instructions[i].operation]);
        for (const std::int32_t slot : segment->slots) backward.forget(slot);
    }
}

}  // namespace ntkit::NTKIT_TARGET
