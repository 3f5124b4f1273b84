// Runs a tape on blocks of pairs. Compiled once for each instruction set, see execute.inc.

#pragma once

#include <cstdint>

#include "tape.hpp"

namespace ntkit {

// One block: batch * kLanes inputs on each side. All arrays have the lanes innermost, and the batch before them.
struct Block {
    const double* data1;      // (data_size, kLanes); not read where batch > 1
    const double* data2;
    const double* inner;      // where batch > 1: inner products / C, batch * kLanes of them for each data
    std::int64_t inner_stride;  // from one data to the next
    double* deviation1;       // (2, activation_positions, batch, kLanes): standard deviations, and their inverses
    double* deviation2;
    double* slots;            // (slots, 2, slot_positions, kLanes)
    double* scratch;          // (2, slot_positions, kLanes)
    double* nngp;             // (batch, kLanes)
    double* ntk;
};

using Execute = void (*)(const Tape&, const Block&);

// The version for the widest instruction set of this machine, chosen once.
Execute choose_execute();

namespace baseline { void execute(const Tape&, const Block&); }
#if defined(NTKIT_X86)
namespace avx2 { void execute(const Tape&, const Block&); }
namespace avx512 { void execute(const Tape&, const Block&); }
#endif

}  // namespace ntkit
