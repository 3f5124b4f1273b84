// The parts of the Python module.

#pragma once

#include <nanobind/nanobind.h>

namespace ntkit {

void bind_tape(nanobind::module_& m);
void bind_engine(nanobind::module_& m);

}  // namespace ntkit
