// The instructions of whole.cpp: those that mix positions freely, and tokens that all inputs share.

#pragma once

#include "../execute.hpp"

namespace ntkit::NTKIT_TARGET {

template <class T>
void run_whole(const Tape& tape, const Block<T>& block, const Instruction& step, const Operation& op, long row = 0);

}  // namespace ntkit::NTKIT_TARGET
