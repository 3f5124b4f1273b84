// Binds the engine: arrays in, arrays out, and the poll that lets Python interrupt a run. Shapes are checked here, because the core
// sees only pointers.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <vector>

#include "bind.hpp"
#include "engine.hpp"
#include "execute.hpp"
#include "pull_back.hpp"

namespace nb = nanobind;

namespace {

template <class T, int Dims>
using Array = nb::ndarray<T, nb::numpy, nb::ndim<Dims>, nb::c_contig, nb::device::cpu>;

// Part of a matrix whose columns are contiguous.
template <class T>
using Part = nb::ndarray<T, nb::numpy, nb::ndim<2>, nb::device::cpu>;

void require(bool condition, const char* message) {
    if (!condition) throw std::invalid_argument(message);
}

// Asks Python for signals (Ctrl-C) and calls the progress callback; either may raise.
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

// The inner products that a tape of vectors reads, in tiles of whole blocks; empty for other tapes.
template <class T>
ntkit::Products<T> read_products(const ntkit::Tape& tape, const Array<const T, 5>& products, std::size_t rows, std::size_t columns) {
    if (tape.batch == 1) return {nullptr, 0, 0, 1, 1};
    const std::size_t width = static_cast<std::size_t>(tape.batch) * ntkit::kLanes<T>;
    require(products.shape(0) == tape.data_start.size() && products.shape(1) * products.shape(3) >= rows &&
                products.shape(2) * products.shape(4) >= columns && products.shape(4) % width == 0,
            "the inner products of vectors have the wrong shape");
    std::int64_t sizes[5];
    for (int axis = 0; axis < 5; ++axis) sizes[axis] = static_cast<std::int64_t>(products.shape(axis));
    return {products.data(), sizes[1] * sizes[2] * sizes[3] * sizes[4], sizes[2], sizes[3], sizes[4]};
}

template <class T>
void cross(const ntkit::Tape& tape, Array<const T, 2> data1, Array<const T, 2> cache1, Array<const T, 2> data2, Array<const T, 2> cache2,
           Array<const T, 5> products, std::optional<Part<T>> nngp, std::optional<Part<T>> ntk, bool upper,
           std::int64_t first_row, std::int64_t first_column, int threads, const nb::object& progress) {
    const std::size_t rows = cache1.shape(0), columns = cache2.shape(0);
    for (const auto& cache : {cache1, cache2})
        require(static_cast<std::int64_t>(cache.shape(1)) == tape.cache_size, "cached data have the wrong size");
    for (const auto& data : {data1, data2})
        require(static_cast<std::int64_t>(data.shape(1)) == tape.data_size, "data have the wrong size");
    // Blocks of vectors read their data in place, so the data are padded to whole blocks.
    const std::size_t width = tape.batch > 1 ? static_cast<std::size_t>(tape.batch) * ntkit::kLanes<T> : 1;
    require(data1.shape(0) >= rows && data2.shape(0) >= (columns + width - 1) / width * width, "there are too few rows of data");
    std::int64_t stride = 0;
    for (const auto& result : {nngp, ntk}) {
        if (!result) continue;
        require(result->shape(0) == rows && result->shape(1) == columns, "a result has the wrong shape");
        require(result->stride(1) == 1 || columns == 1, "the columns of a result must be contiguous");
        require(stride == 0 || result->stride(0) == stride || rows == 1, "both results must have the same stride");
        stride = result->stride(0);
    }
    const ntkit::Products<T> read = read_products<T>(tape, products, rows, columns);
    run_polled(progress, [&](const ntkit::Poll& poll) {
        ntkit::cross<T>(tape, {data1.data(), cache1.data(), static_cast<std::int64_t>(rows)},
                        {data2.data(), cache2.data(), static_cast<std::int64_t>(columns)}, read,
                        {nngp ? nngp->data() : nullptr, ntk ? ntk->data() : nullptr, stride}, upper,
                        first_row, first_column, threads, poll);
    });
}

template <class F, class T>
void read(Array<const F, 2> numbers, const std::vector<std::int64_t>& sizes, bool scalable, double bias,
          std::optional<Array<T, 2>> data, Array<double, 5> squares, Array<double, 2> units, int threads, const nb::object& progress) {
    const std::size_t count = numbers.shape(0), size = numbers.shape(1);
    require(static_cast<std::size_t>(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0})) == size, "data have the wrong size");
    require(!data || (data->shape(0) >= count && data->shape(1) == size), "a result has the wrong shape");
    require(squares.shape(0) == sizes.size() && squares.shape(4) >= count && squares.size() == squares.shape(0) * squares.shape(4),
            "the squares have the wrong shape");
    require(units.shape(0) == count && (units.shape(1) == 1 || units.shape(1) == 3), "there must be one unit per input, or three");
    run_polled(progress, [&](const ntkit::Poll& poll) {
        ntkit::read<F, T>({numbers.data(), static_cast<std::int64_t>(count), static_cast<std::int64_t>(size)}, sizes, scalable, bias,
                          data ? data->data() : nullptr, squares.data(), static_cast<std::int64_t>(squares.shape(4)),
                          {units.data(), static_cast<std::int64_t>(units.shape(1))}, threads, poll);
    });
}

template <class F, class T, class O>
void self(const ntkit::Tape& tape, Array<const F, 2> numbers, Array<const double, 2> units, Array<const T, 5> products, bool cache_known,
          Array<O, 2> cache, Array<T, 1> nngp, Array<T, 1> ntk, int threads, const nb::object& progress) {
    const std::size_t count = cache.shape(0);
    require(numbers.shape(0) == count && static_cast<std::int64_t>(numbers.shape(1)) == tape.data_size, "data have the wrong size");
    require(nngp.shape(0) == count && ntk.shape(0) == count && static_cast<std::int64_t>(cache.shape(1)) == tape.cache_size,
            "a result has the wrong shape");
    require(units.shape(0) == count && (units.shape(1) == 1 || units.shape(1) == 3) && static_cast<std::int64_t>(units.shape(1)) <= tape.cache_size,
            "there must be one unit per input, or three");
    const ntkit::Products<T> read = read_products<T>(tape, products, 1, count);
    run_polled(progress, [&](const ntkit::Poll& poll) {
        ntkit::self<F, T, O>(tape, {numbers.data(), static_cast<std::int64_t>(count), tape.data_size},
                             {units.data(), static_cast<std::int64_t>(units.shape(1))}, read, cache_known, cache.data(), nngp.data(), ntk.data(), threads, poll);
    });
}

void pull_back(const ntkit::Tape& tape, const std::vector<std::int64_t>& segments, Array<const double, 2> data1, Array<const double, 2> cache1, Array<const double, 2> data2,
               Array<const double, 2> cache2, Array<const double, 5> products, std::optional<Array<const double, 2>> nngp,
               std::optional<Array<const double, 2>> ntk, Array<double, 2> to_data, Array<double, 2> to_cache, Array<double, 3> to_products,
               std::optional<Array<double, 3>> to_gains, int threads) {
    const std::size_t rows = cache1.shape(0), columns = cache2.shape(0), inputs = tape.data_start.size();
    const auto size = [](std::int64_t count) { return static_cast<std::size_t>(count); };
    const bool vectors = tape.batch > 1;
    for (const auto& cache : {cache1, cache2}) require(cache.shape(1) == size(tape.cache_size), "cached data have the wrong size");
    for (const auto& data : {data1, data2}) require(data.shape(1) == size(tape.data_size), "data have the wrong size");
    const std::size_t width = vectors ? size(tape.batch) * ntkit::kLanes<double> : 1;
    require(data1.shape(0) >= rows && data2.shape(0) >= (columns + width - 1) / width * width, "there are too few rows of data");
    for (const auto& given : {nngp, ntk}) require(!given || (given->shape(0) == rows && given->shape(1) == columns), "derivatives have the wrong shape");
    require(to_cache.shape(0) == rows && to_cache.shape(1) == size(tape.cache_size) &&
                (vectors ? to_products.shape(0) == inputs && to_products.shape(1) == rows && to_products.shape(2) == columns
                         : to_data.shape(0) == rows && to_data.shape(1) == size(tape.data_size)) &&
                (!to_gains || (to_gains->shape(0) == rows && to_gains->shape(1) == tape.operations.size() && to_gains->shape(2) == ntkit::kGains)),
            "a result has the wrong shape");
    for (const ntkit::Instruction& step : tape.instructions) require(ntkit::has_adjoint(tape, step), "an instruction has no adjoint");
    require(!segments.empty() && segments.front() >= 0 && std::is_sorted(segments.begin(), segments.end()) &&
                segments.back() == static_cast<std::int64_t>(tape.instructions.size()),
            "segments must end in order, the last one with the tape");
    const ntkit::Products<double> read = read_products<double>(tape, products, rows, columns);
    run_polled(nb::none(), [&](const ntkit::Poll& poll) {
        ntkit::pull_back(tape, segments, {data1.data(), cache1.data(), static_cast<std::int64_t>(rows)},
                         {data2.data(), cache2.data(), static_cast<std::int64_t>(columns)}, read,
                         {nngp ? nngp->data() : nullptr, ntk ? ntk->data() : nullptr, to_data.data(), to_cache.data(), to_products.data(),
                          to_gains ? to_gains->data() : nullptr},
                         threads, poll);
    });
}

template <class T>
void define_cross(nb::module_& m) {
    m.def("cross", &cross<T>, nb::arg("tape"), nb::kw_only(), nb::arg("data1"), nb::arg("cache1"), nb::arg("data2"), nb::arg("cache2"),
          nb::arg("products"), nb::arg("nngp").none(), nb::arg("ntk").none(), nb::arg("upper"), nb::arg("first_row"),
          nb::arg("first_column"), nb::arg("threads"), nb::arg("progress").none(), "Compute the kernels between two batches.");
}

template <class F, class T>
void define_read(nb::module_& m) {
    m.def("read", &read<F, T>, nb::arg("numbers"), nb::kw_only(), nb::arg("sizes"), nb::arg("scalable"), nb::arg("bias"), nb::arg("data").none(),
          nb::arg("squares"), nb::arg("units"), nb::arg("threads"), nb::arg("progress").none(),
          "Find the units of each input, and scale it.");
}

template <class F, class T, class O>
void define_self(nb::module_& m) {
    m.def("self", &self<F, T, O>, nb::arg("tape"), nb::kw_only(), nb::arg("numbers"), nb::arg("units"), nb::arg("products"), nb::arg("cache_known"),
          nb::arg("cache"), nb::arg("nngp"), nb::arg("ntk"), nb::arg("threads"), nb::arg("progress").none(),
          "Compute cached data of each input, and its kernels with itself.");
}

template <class F>
void define_from(nb::module_& m) {
    define_read<F, float>(m);
    define_read<F, double>(m);
    define_self<F, float, float>(m);
    define_self<F, double, float>(m);
    define_self<F, double, double>(m);
}

}  // namespace

void ntkit::bind_engine(nb::module_& m) {
    define_cross<float>(m);
    define_cross<double>(m);
    define_from<float>(m);
    define_from<double>(m);
    m.def("has_adjoint", &ntkit::has_adjoint, nb::arg("tape"), nb::arg("step"), "Return whether `pull_back` knows the adjoint of an instruction.");
    m.def("pull_back", &::pull_back, nb::arg("tape"), nb::kw_only(), nb::arg("segments"), nb::arg("data1"), nb::arg("cache1"), nb::arg("data2"), nb::arg("cache2"),
          nb::arg("products"), nb::arg("nngp").none(), nb::arg("ntk").none(), nb::arg("to_data"), nb::arg("to_cache"), nb::arg("to_products"),
          nb::arg("to_gains").none(), nb::arg("threads"),
          "Compute the derivatives of a weighted sum of kernels by what each row gives to its pairs; no slot may be used twice in a segment of the tape.");
    m.def("roofline", [](bool single, double seconds) {
        const nb::gil_scoped_release release;
        return single ? ntkit::roofline<float>(seconds) : ntkit::roofline<double>(seconds);
    }, nb::arg("single"), nb::arg("seconds"), "Measure how many entries of a covariance one thread can update per second.");
}
