// Binds the tape: every operation with the fields in its `fields()`, the instruction, the enums, and the tape itself.

#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <cctype>
#include <string>

#include "bind.hpp"
#include "tape.hpp"

namespace nb = nanobind;

namespace {

// The Python types of fields, for the signatures of constructors.
const char* python_type(std::int32_t) { return "int"; }
const char* python_type(double) { return "float"; }
const char* python_type(bool) { return "bool"; }
const char* python_type(const ntkit::Axes&) { return "collections.abc.Sequence[int]"; }
const char* python_type(const std::array<bool, ntkit::kAxes>&) { return "collections.abc.Sequence[bool]"; }
const char* python_type(const std::vector<double>&) { return "collections.abc.Sequence[float]"; }
const char* python_type(const std::vector<std::int32_t>&) { return "collections.abc.Sequence[int]"; }
const char* python_type(ntkit::Cached) { return "Cached"; }
const char* python_type(ntkit::Function) { return "Function"; }
const char* python_type(const ntkit::Rectifier&) { return "Rectifier"; }
const char* python_type(const std::optional<ntkit::Rectifier>&) { return "Rectifier | None"; }

const char* python_type(const std::shared_ptr<const ntkit::SeriesTable>&) { return "SeriesTable | None"; }

// Binds a struct with a constructor that takes its fields by name; omitted ones keep their defaults.
template <class Struct>
void bind_struct(nb::module_& m, const char* doc) {
    static const std::string signature = [] {
        const Struct defaults{};
        std::string all = "def __init__(self, *";
        ntkit::for_each_field<Struct>(
            [&](const char* name, auto member) { all += std::string(", ") + name + ": " + python_type(defaults.*member) + " = ..."; });
        return all + ") -> None";
    }();
    auto bound = nb::class_<Struct>(m, Struct::name, doc);
    bound.def("__init__", [](Struct* self, const nb::kwargs& given) {
        new (self) Struct{};
        std::size_t used = 0;
        ntkit::for_each_field<Struct>([&](const char* name, auto member) {
            if (!given.contains(name)) return;
            self->*member = nb::cast<std::remove_cvref_t<decltype(self->*member)>>(given[name]);
            ++used;
        });
        if (used == given.size()) return;
        for (const auto& [key, value] : given) {
            const std::string name = nb::cast<std::string>(key);
            bool known = false;
            ntkit::for_each_field<Struct>([&](const char* field, auto) { known |= name == field; });
            if (!known) throw nb::type_error((std::string(Struct::name) + " has no field " + name).c_str());
        }
    }, nb::sig(signature.c_str()));
    ntkit::for_each_field<Struct>([&](const char* name, auto member) { bound.def_ro(name, member); });
}

template <class Struct>
void bind_operation(nb::module_& m, const char* doc) {
    bind_struct<Struct>(m, doc);
    nb::borrow<nb::object>(m.attr(Struct::name)).attr("__repr__") = nb::cpp_function(
        [](const Struct& self) { return ntkit::text_of(ntkit::Operation(self)); }, nb::is_method(), nb::scope(m.attr(Struct::name)),
        nb::name("__repr__"));
}

template <class Enum>
void bind_enum(nb::module_& m, const char* name, const char* doc, Enum last) {
    auto bound = nb::enum_<Enum>(m, name, doc, nb::is_arithmetic());
    for (int i = 0; i <= static_cast<int>(last); ++i) {
        std::string upper = ntkit::name_of(static_cast<Enum>(i));
        for (char& letter : upper) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
        bound.value(upper.c_str(), static_cast<Enum>(i));
    }
}

void bind_instruction(nb::module_& m) {
    using ntkit::Axes;
    using ntkit::Instruction;
    using ntkit::Kind;
    constexpr Axes none{};
    nb::class_<Instruction>(m, "Instruction", "One step of a tape; core/tape.hpp describes the fields.")
        .def("__init__", [](Instruction* self, Kind kind, std::int32_t operation, std::int32_t out_slot, std::int32_t in_slot, Axes out_offset,
                            Axes in_offset, double factor, bool theta_in, bool theta_out, bool covariance_in, bool covariance_out,
                            bool cache_only, std::int32_t whole, bool chained) {
            new (self) Instruction{kind, operation, out_slot, in_slot, in_offset, out_offset, factor, theta_in, theta_out,
                                   covariance_in, covariance_out, cache_only, whole, chained};
        }, nb::arg("kind"), nb::arg("operation"), nb::kw_only(), nb::arg("out_slot") = ntkit::kNothing, nb::arg("in_slot") = ntkit::kNothing,
           nb::arg("out_offset") = none, nb::arg("in_offset") = none, nb::arg("factor") = 1.0, nb::arg("theta_in") = false,
           nb::arg("theta_out") = false, nb::arg("covariance_in") = false, nb::arg("covariance_out") = false,
           nb::arg("cache_only") = false, nb::arg("whole") = 0, nb::arg("chained") = false)
        .def_ro("kind", &Instruction::kind)
        .def_ro("operation", &Instruction::operation)
        .def_ro("out_slot", &Instruction::out_slot)
        .def_ro("in_slot", &Instruction::in_slot)
        .def_ro("out_offset", &Instruction::out_offset)
        .def_ro("in_offset", &Instruction::in_offset)
        .def_ro("factor", &Instruction::factor)
        .def_ro("theta_in", &Instruction::theta_in)
        .def_ro("theta_out", &Instruction::theta_out)
        .def_ro("covariance_in", &Instruction::covariance_in)
        .def_ro("covariance_out", &Instruction::covariance_out)
        .def_ro("cache_only", &Instruction::cache_only)
        .def_ro("whole", &Instruction::whole)
        .def_rw("chained", &Instruction::chained)
        .def("__repr__", [](const Instruction& self) { return ntkit::text_of(self); });
}

}  // namespace

void ntkit::bind_tape(nb::module_& m) {
    bind_enum(m, "Kind", "What an instruction does.", Kind::output);
    bind_enum(m, "Cached", "Cached data: what is computed for each input alone and kept.", Cached::weights);
    bind_enum(m, "Function", "Activations that are smooth at rho = 1.", Function::polynomial);
    bind_struct<Rectifier>(m, "a min(z, 0) + b max(z, 0).");
    bind_operation<Input>(m, "Data.");
    bind_operation<Layer>(m, "A linear layer or convolution, and perhaps the activation after it.");
    bind_operation<Rectified>(m, "A rectifier that stands alone.");
    bind_operation<Smooth>(m, "An activation that is smooth at rho = 1.");
    bind_struct<SeriesTable>(m, "Hermite coefficients of an activation, as functions of the standard deviation.");
    bind_operation<Series>(m, "An activation by its Hermite coefficients.");
    bind_operation<Normalize>(m, "A normalisation.");
    bind_operation<Product>(m, "The product of two independent values.");
    bind_operation<Fill>(m, "A constant.");
    bind_operation<Pool>(m, "Average pooling along one axis.");
    bind_operation<Select>(m, "Positions read from elsewhere.");
    bind_operation<Map>(m, "A linear map of the positions along one axis.");
    bind_operation<Reduce>(m, "A sum over some axes.");
    bind_operation<Convert>(m, "K from H.");
    bind_operation<Rescale>(m, "From the scale of the data to the common one.");
    bind_operation<Store>(m, "Cached data to keep.");
    bind_operation<Plain>(m, "Only the positions of a plane.");
    bind_operation<Matrix>(m, "A linear map of all positions.");
    bind_operation<Weights>(m, "The weights of attention.");
    bind_operation<Lookup>(m, "Integers.");
    bind_operation<Table>(m, "Numbers that all pairs of inputs share.");
    bind_instruction(m);
    nb::class_<Tape>(m, "Tape", "The instructions of one block of pairs, checked.")
        .def(nb::init<std::vector<Operation>, std::vector<Instruction>, std::int32_t, const std::vector<std::int64_t>&, std::int32_t,
                      std::int64_t, std::int64_t, const std::vector<std::int64_t>&>(),
             nb::arg("operations"), nb::arg("instructions"), nb::arg("batch"), nb::arg("slots"), nb::arg("accumulators"),
             nb::arg("accumulator_positions"), nb::arg("cache_size"), nb::arg("data_sizes"))
        .def("with_gains", &Tape::with_gains, nb::arg("layers"), "Return the same tape for other gains of the network's layers.")
        .def_ro("operations", &Tape::operations)
        .def_ro("instructions", &Tape::instructions)
        .def_ro("batch", &Tape::batch)
        .def_ro("accumulators", &Tape::accumulators)
        .def_ro("accumulator_positions", &Tape::accumulator_positions)
        .def_ro("cache_size", &Tape::cache_size)
        .def_ro("data_size", &Tape::data_size)
        .def_prop_ro("slots", [](const Tape& self) {
            std::vector<std::int64_t> positions;
            for (std::int32_t slot = 0; slot < self.slots(); ++slot) positions.push_back(self.slot_positions(slot));
            return positions;
        })
        .def("__str__", [](const Tape& self) { return text_of(self); });
    m.attr("NOTHING") = kNothing;
    m.attr("AXES") = kAxes;
}
