// Shared by the two halves of the tape checker.

#pragma once

#include <stdexcept>
#include <string>

#include "tape.hpp"

namespace ntkit {

// What is wrong; check_tape.cpp adds where.
struct Wrong : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// A macro, so that a message is built only when it is needed.
#define NTKIT_REQUIRE(condition, message)       \
    do {                                        \
        if (!(condition)) throw Wrong(message); \
    } while (false)

inline std::string text(std::int64_t value) { return std::to_string(value); }
inline std::string text(const Axes& value) { return text(value[0]) + "x" + text(value[1]) + "x" + text(value[2]); }

// check_operations.cpp
void check_operation(const Tape& tape, const Operation& operation);

}  // namespace ntkit
