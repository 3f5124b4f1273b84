// The Python binding of the compiled core: nothing here but names and argument types.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <vector>

#include "engine.hpp"
#include "simd.hpp"

namespace nb = nanobind;

namespace {

// Clang defines __GNUC__ too, so it is asked first.
constexpr const char* compiler_name() {
#if defined(__apple_build_version__)
    return "apple-clang";
#elif defined(__clang__)
    return "clang";
#elif defined(__GNUC__)
    return "gcc";
#elif defined(_MSC_VER)
    return "msvc";
#else
    return "unknown";
#endif
}

#define NTKIT_TEXT_(x) #x
#define NTKIT_TEXT(x) NTKIT_TEXT_(x)

constexpr const char* compiler_version() {
#if defined(__clang__)
    return NTKIT_TEXT(__clang_major__) "." NTKIT_TEXT(__clang_minor__) "." NTKIT_TEXT(__clang_patchlevel__);
#elif defined(__GNUC__)
    return NTKIT_TEXT(__GNUC__) "." NTKIT_TEXT(__GNUC_MINOR__) "." NTKIT_TEXT(__GNUC_PATCHLEVEL__);
#elif defined(_MSC_VER)
    return NTKIT_TEXT(_MSC_FULL_VER);
#else
    return "";
#endif
}

template <class T, int Dims>
using Array = nb::ndarray<T, nb::numpy, nb::ndim<Dims>, nb::c_contig, nb::device::cpu>;

constexpr int kOperationInts = 7 * ntkit::kAxes + 2;
constexpr int kInstructionInts = 5 + 2 * ntkit::kAxes;

void require(bool condition, const char* message) {
    if (!condition) throw std::invalid_argument(message);
}

ntkit::Tape make_tape(Array<const std::int32_t, 2> operations, Array<const double, 2> constants,
                      const std::vector<std::vector<double>>& factors, Array<const std::int32_t, 2> instructions,
                      Array<const double, 1> instruction_factors, std::int32_t slots, std::int64_t slot_positions,
                      const std::vector<std::int64_t>& activation_positions, const std::vector<std::int64_t>& data_sizes,
                      std::int32_t batch) {
    require(operations.shape(1) == kOperationInts && constants.shape(1) == 4, "operations have another form");
    require(operations.shape(0) == constants.shape(0) && operations.shape(0) == factors.size(), "operations differ in number");
    require(instructions.shape(1) == kInstructionInts && instructions.shape(0) == instruction_factors.shape(0),
            "instructions have another form");
    ntkit::Tape tape;
    for (std::size_t i = 0; i < operations.shape(0); ++i) {
        const std::int32_t* row = operations.data() + i * kOperationInts;
        ntkit::Operation op{};
        std::int32_t* fields[] = {op.in_size, op.out_size, op.kernel, op.stride, op.dilation, op.padding, op.out_stride};
        for (std::int32_t* field : fields)
            for (int axis = 0; axis < ntkit::kAxes; ++axis) field[axis] = *row++;
        op.index = *row++;
        op.channels = *row++;
        for (int j = 0; j < 4; ++j) op.constants[j] = constants.data()[i * 4 + j];
        op.factors = factors[i];
        for (int done = 0; done <= ntkit::kAxes; ++done) {  // a convolution has axes of its output and of its input at once
            std::int64_t positions = 1;
            for (int axis = 0; axis < ntkit::kAxes; ++axis)
                positions *= axis >= ntkit::kAxes - done ? op.out_size[axis] : op.in_size[axis];
            require(positions <= slot_positions, "a plane does not fit into its slot");
        }
        tape.operations.push_back(op);
    }
    for (std::size_t i = 0; i < instructions.shape(0); ++i) {
        const std::int32_t* row = instructions.data() + i * kInstructionInts;
        ntkit::Instruction step{};
        step.kind = static_cast<ntkit::Kind>(row[0]);
        step.operation = row[1];
        step.out = row[2];
        step.in = row[3];
        step.theta = row[4];
        for (int axis = 0; axis < ntkit::kAxes; ++axis) {
            step.in_offset[axis] = row[5 + axis];
            step.out_offset[axis] = row[5 + ntkit::kAxes + axis];
        }
        step.factor = instruction_factors.data()[i];
        require(row[1] >= 0 && row[1] < static_cast<std::int32_t>(tape.operations.size()) && row[2] >= 0 && row[2] < slots &&
                    row[3] >= 0 && row[3] < slots,
                "an instruction names an operation or a slot that is not there");
        tape.instructions.push_back(step);
    }
    tape.batch = batch;
    tape.slots = slots;
    tape.slot_positions = slot_positions;
    for (const std::int64_t size : activation_positions) {
        tape.activation_start.push_back(tape.activation_positions);
        tape.activation_positions += size;
    }
    for (const std::int64_t size : data_sizes) {
        tape.data_start.push_back(tape.data_size);
        tape.data_size += size;
    }
    return tape;
}

// Polls Python: signals (Ctrl-C) and the progress callback, either of which may raise.
ntkit::Poll poll_python(const nb::object& progress, std::optional<nb::python_error>& raised) {
    return [&progress, &raised](std::int64_t done) {
        const nb::gil_scoped_acquire gil;
        try {
            if (PyErr_CheckSignals() != 0) throw nb::python_error();
            if (!progress.is_none()) progress(done);
            return true;
        } catch (nb::python_error& error) {
            raised.emplace(std::move(error));
            return false;
        }
    };
}

template <class Run>
void run_polled(const nb::object& progress, Run run) {
    std::optional<nb::python_error> raised;
    {
        const nb::gil_scoped_release release;
        run(poll_python(progress, raised));
    }
    if (raised) throw nb::python_error(std::move(*raised));
}

// The inner products that a tape of vectors reads: (data, rows, columns padded to whole blocks); empty for other tapes.
ntkit::Inner read_inner(const ntkit::Tape& tape, const Array<const double, 3>& inner, std::size_t rows, std::size_t columns) {
    if (tape.batch == 1) return {nullptr, 0, 0};
    const std::size_t width = static_cast<std::size_t>(tape.batch) * ntkit::kLanes;
    const std::size_t padded = (columns + width - 1) / width * width;
    require(inner.shape(0) == tape.data_start.size() && inner.shape(1) == rows && inner.shape(2) == padded,
            "inner products of another shape");
    return {inner.data(), static_cast<std::int64_t>(rows * padded), static_cast<std::int64_t>(padded)};
}

void cross(const ntkit::Tape& tape, Array<const double, 2> data1, Array<const double, 2> deviation1,
           Array<const double, 2> data2, Array<const double, 2> deviation2, Array<const double, 3> inner, Array<double, 2> nngp,
           std::optional<Array<double, 2>> ntk, bool upper, std::int64_t first_row, std::int64_t first_column, int threads,
           const nb::object& progress) {
    const auto rows = static_cast<std::int64_t>(data1.shape(0)), columns = static_cast<std::int64_t>(data2.shape(0));
    for (const auto& data : {data1, data2})
        require(static_cast<std::int64_t>(data.shape(1)) == tape.data_size, "data of another size");
    for (const auto& deviation : {deviation1, deviation2})
        require(static_cast<std::int64_t>(deviation.shape(1)) == 2 * tape.activation_positions, "deviations of another size");
    require(deviation1.shape(0) == data1.shape(0) && deviation2.shape(0) == data2.shape(0), "deviations of another count");
    require(static_cast<std::int64_t>(nngp.shape(0)) == rows && static_cast<std::int64_t>(nngp.shape(1)) == columns,
            "a result of another shape");
    require(!ntk || (ntk->shape(0) == nngp.shape(0) && ntk->shape(1) == nngp.shape(1)), "a result of another shape");
    const ntkit::Inner products = read_inner(tape, inner, data1.shape(0), data2.shape(0));
    run_polled(progress, [&](const ntkit::Poll& poll) {
        ntkit::cross(tape, {data1.data(), deviation1.data(), rows}, {data2.data(), deviation2.data(), columns}, products,
                     {nngp.data(), ntk ? ntk->data() : nullptr, columns}, upper, first_row, first_column, threads, poll);
    });
}

void self(const ntkit::Tape& tape, Array<const double, 2> data, Array<const double, 3> inner, Array<double, 2> deviation, Array<double, 1> nngp,
          Array<double, 1> ntk, int threads, const nb::object& progress) {
    const auto count = static_cast<std::int64_t>(data.shape(0));
    require(static_cast<std::int64_t>(data.shape(1)) == tape.data_size, "data of another size");
    require(static_cast<std::int64_t>(deviation.shape(0)) == count && static_cast<std::int64_t>(nngp.shape(0)) == count &&
                static_cast<std::int64_t>(ntk.shape(0)) == count &&
                static_cast<std::int64_t>(deviation.shape(1)) == 2 * tape.activation_positions,
            "a result of another shape");
    const ntkit::Inner products = read_inner(tape, inner, 1, data.shape(0));
    run_polled(progress, [&](const ntkit::Poll& poll) {
        ntkit::self(tape, data.data(), count, products, deviation.data(), nngp.data(), ntk.data(), threads, poll);
    });
}

}  // namespace

NB_MODULE(_core, m) {
    // Tapes that caches still hold when the interpreter ends are no leak.
    nb::set_leak_warnings(false);
    m.doc() = "The compiled core of ntkit. Use it through ntkit.native.";
    m.def("version", [] { return NTKIT_VERSION; }, "Give the version of ntkit that this module was built from.");
    m.def("simd_level", &ntkit::simd_level, "Give the widest usable instruction set: avx512, avx2, neon or baseline.");
    m.def("compiler", &compiler_name, "Give the name of the compiler that built this module.");
    m.def("compiler_version", &compiler_version, "Give the version of the compiler that built this module.");
    nb::class_<ntkit::Tape>(m, "Tape", "The instructions of one block of pairs.");
    m.def("make_tape", &make_tape, "Read a tape from arrays.");
    m.def("cross", &cross, nb::arg("tape"), nb::arg("data1"), nb::arg("deviation1"), nb::arg("data2"), nb::arg("deviation2"),
          nb::arg("inner"), nb::arg("nngp"), nb::arg("ntk").none(), nb::arg("upper"), nb::arg("first_row"), nb::arg("first_column"),
          nb::arg("threads"), nb::arg("progress").none(), "Compute the kernels between two batches.");
    m.def("self", &self, nb::arg("tape"), nb::arg("data"), nb::arg("inner"), nb::arg("deviation"), nb::arg("nngp"), nb::arg("ntk"),
          nb::arg("threads"), nb::arg("progress").none(), "Compute the deviations and kernels of each input with itself.");
}
