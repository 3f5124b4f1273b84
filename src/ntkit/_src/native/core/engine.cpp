#include "engine.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <type_traits>
#include <vector>

#include "execute.hpp"
#include "interleave.hpp"
#include "tasks.hpp"
#include "workspace.hpp"

namespace ntkit {
namespace {

constexpr std::int64_t kSegment = 64;  // most rows in one task
constexpr std::int64_t kTasks = 128;   // tasks per thread, if there are enough rows: at the end, threads wait for the last task

// Eight sums at a time, because each addition depends on the previous one.
template <class From>
double sum_of_squares(const From* numbers, std::int64_t count) {
    double sums[8] = {};
    std::int64_t i = 0;
    for (; i + 8 <= count; i += 8)
        for (int j = 0; j < 8; ++j) sums[j] += static_cast<double>(numbers[i + j]) * static_cast<double>(numbers[i + j]);
    for (int j = 0; i < count; ++i, ++j) sums[j] += static_cast<double>(numbers[i]) * static_cast<double>(numbers[i]);
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// The factor that makes a mean of squares one, if it is not zero.
double norm_one(double mean) { return mean > 0 ? std::clamp(1 / std::sqrt(mean), 0x1p-100, 0x1p100) : 1.0; }

// About how many numbers a tape computes for some pairs.
double work(const Tape& tape, std::int64_t pairs) {
    std::int64_t largest = 0;
    for (std::int64_t slot = 0; slot < tape.slots(); ++slot) largest = std::max(largest, tape.slot_positions(static_cast<std::int32_t>(slot)));
    const double entries = static_cast<double>(std::ssize(tape.instructions)) * static_cast<double>(largest) / tape.batch;
    return static_cast<double>(pairs) * (entries + static_cast<double>(tape.batch > 1 ? 0 : tape.data_size));
}

template <class T>
bool has_zeros(const T* numbers, std::int64_t count) {
    return std::find(numbers, numbers + count, T(0)) != numbers + count;
}

}  // namespace

template <class T>
bool cross(const Tape& tape, const Batch<T>& rows, const Batch<T>& columns, const Products<T>& products, const Result<T>& result,
           bool upper, std::int64_t first_row, std::int64_t first_column, int threads, const Poll& poll) {
    const Execute<T> execute = choose_execute<T>();
    const bool vectors = tape.batch > 1;
    const int width = tape.batch * kLanes<T>;  // columns in a block
    const std::int64_t blocks = (columns.count + width - 1) / width;
    const Buffer<T> data = allocate<T>(vectors ? 0 : blocks * tape.data_size * width);
    const Buffer<T> cache = allocate<T>(blocks * tape.cache_size * width);
    std::vector<char> zero_rows(rows.count), zero_columns(blocks);
    std::atomic<std::int64_t> done{0};
    const auto prepare = [&](std::int64_t index, int, const std::atomic<bool>&) {
        if (index >= blocks) {
            for (std::int64_t row = (index - blocks) * kSegment; row < std::min((index - blocks + 1) * kSegment, rows.count); ++row)
                zero_rows[row] = has_zeros(rows.cache + row * tape.cache_size, tape.cache_size);
            return;
        }
        const std::int64_t first = index * width, count = std::min<std::int64_t>(width, columns.count - first);
        if (!vectors) interleave(columns.data, tape.data_size, first, columns.count, width, &data[first * tape.data_size]);
        interleave(columns.cache, tape.cache_size, first, columns.count, width, &cache[first * tape.cache_size]);
        zero_columns[index] = has_zeros(columns.cache + first * tape.cache_size, count * tape.cache_size);
    };
    const std::int64_t preparations = blocks + (rows.count + kSegment - 1) / kSegment;
    if (!run_tasks(preparations, static_cast<double>(rows.count + blocks * width) * (tape.cache_size + (vectors ? 0 : tape.data_size)), threads, done, poll, [] { return 0; }, prepare)) return false;
    // A block of columns stays in the cache for all rows of a task.
    const std::int64_t length = std::clamp<std::int64_t>(rows.count * blocks / (kTasks * std::max(threads, 1)), 1, kSegment);
    const std::int64_t segments = (rows.count + length - 1) / length;
    const auto compute = [&](std::int64_t index, Workspace<T>& workspace, const std::atomic<bool>& stop) {
        const std::int64_t first = index / segments * width, end = std::min(first + width, columns.count);
        const std::int64_t from = index % segments * length, to = std::min(rows.count, from + length);
        for (std::int64_t row = from; row < to && !stop; ++row) {
            // The first column needed.
            const std::int64_t begin = upper ? std::max(first, first_row + row - first_column) : first;
            if (begin >= end) break;
            // Whole blocks go straight to the result.
            const bool whole = begin == first && end == first + width;
            const auto target = [&](T* values, T* block) {
                return !values ? nullptr : whole ? values + row * result.stride + first : block;
            };
            T *const nngp = target(result.nngp, workspace.nngp.get()), *const ntk = target(result.ntk, workspace.ntk.get());
            execute(tape, {rows.data + row * tape.data_size,
                           vectors ? columns.data + first * tape.data_size : &data[first * tape.data_size],
                           products.at(row, first), products.data_stride,
                           rows.cache + row * tape.cache_size, &cache[first * tape.cache_size], workspace.slots.get(),
                           workspace.rows.get(), workspace.rings.get(), workspace.accumulators.get(), workspace.lines.get(),
                           workspace.places.get(), nngp, ntk, zero_rows[row] || zero_columns[first / width], true});
            if (!whole) {
                if (nngp) std::copy_n(nngp + (begin - first), end - begin, result.nngp + row * result.stride + begin);
                if (ntk) std::copy_n(ntk + (begin - first), end - begin, result.ntk + row * result.stride + begin);
            }
            done += end - begin;
        }
    };
    return run_tasks(blocks * segments, work(tape, rows.count * blocks * width), threads, done, poll, [&] { return Workspace<T>(tape); }, compute);
}

template <class F, class T>
bool read(const Inputs<F>& inputs, const std::vector<std::int64_t>& sizes, bool scalable, double bias, T* data, double* squares,
          std::int64_t squares_stride, const Units<double>& units, int threads, const Poll& poll) {
    std::atomic<std::int64_t> done{0};
    const std::int64_t size = inputs.size;
    const auto task = [&](std::int64_t index, int, const std::atomic<bool>&) {
        for (std::int64_t row = index * kSegment; row < std::min((index + 1) * kSegment, inputs.count); ++row, ++done) {
            const F* numbers = inputs.numbers + row * size;
            double whole = 0;
            std::int64_t start = 0;
            for (std::size_t which = 0; which < sizes.size(); start += sizes[which++]) {
                const double sum = sum_of_squares(numbers + start, sizes[which]);
                squares[which * squares_stride + row] = sum;
                whole += sum;
            }
            const double mean = whole / static_cast<double>(size);
            // A number of single precision, so that products with inputs of single precision are exact in double precision.
            const double unit = scalable ? static_cast<float>(norm_one(mean + bias)) : 1.0;
            units.of(row)[0] = unit;
            if (units.numbers > 1) {
                // All digits for inputs of double precision: two inputs that differ by a factor get equal norms to rounding.
                const double own = std::is_same_v<F, float> ? static_cast<float>(norm_one(mean)) : norm_one(mean);
                units.of(row)[1] = own;
                units.of(row)[2] = unit / own;
            }
            const double scale = units.scale(row);
            for (std::size_t which = 0; which < sizes.size(); ++which) squares[which * squares_stride + row] *= scale * scale;
            if (data)
                for (std::int64_t i = 0; i < size; ++i)
                    data[row * size + i] = static_cast<T>(static_cast<double>(numbers[i]) * scale);
        }
    };
    return run_tasks((inputs.count + kSegment - 1) / kSegment, static_cast<double>(inputs.count) * size, threads, done, poll, [] { return 0; }, task);
}

template <class F, class T, class O>
bool self(const Tape& tape, const Inputs<F>& inputs, const Units<const double>& units, const Products<T>& products, bool cache_known, O* cache,
          T* nngp, T* ntk, int threads, const Poll& poll) {
    const Execute<T> execute = choose_execute<T>();
    std::atomic<std::int64_t> done{0};
    const int width = tape.batch * kLanes<T>;
    const std::int64_t count = inputs.count;
    const auto scaled = [&](F number, std::int64_t input) { return static_cast<double>(number) * units.scale(input); };
    const auto task = [&](std::int64_t block, Workspace<T>& workspace, const std::atomic<bool>&) {
        const std::int64_t first = block * width;
        if (tape.batch == 1) interleave(inputs.numbers, tape.data_size, first, count, width, workspace.data.get(), scaled);
        if (cache_known) interleave(cache, tape.cache_size, first, count, width, workspace.cache.get());
        for (std::int64_t number = 0; number < units.numbers; ++number)
            for (int place = 0; place < width; ++place)
                workspace.cache[number * width + place] = static_cast<T>(units.of(std::min(first + place, count - 1))[number]);
        std::fill_n(workspace.nngp.get(), width, T(0));  // a tape without output does not write them
        std::fill_n(workspace.ntk.get(), width, T(0));
        execute(tape, {nullptr, workspace.data.get(), products.at(0, first), products.data_stride,
                       nullptr, workspace.cache.get(), workspace.slots.get(), workspace.rows.get(), workspace.rings.get(),
                       workspace.accumulators.get(), workspace.lines.get(), workspace.places.get(), workspace.nngp.get(),
                       workspace.ntk.get(), true, cache_known});
        const std::int64_t end = std::min(first + width, count);
        for (std::int64_t begin = 0; begin < tape.cache_size; begin += kPart)
            for (std::int64_t row = first; row < end; ++row)
                for (std::int64_t i = begin; i < std::min(begin + kPart, tape.cache_size); ++i)
                    cache[row * tape.cache_size + i] = static_cast<O>(workspace.cache[i * width + (row - first)]);
        for (std::int64_t row = first; row < end; ++row) {
            nngp[row] = workspace.nngp[row - first];
            ntk[row] = workspace.ntk[row - first];
            ++done;
        }
    };
    return run_tasks((count + width - 1) / width, work(tape, count + width), threads, done, poll, [&] { return Workspace<T>(tape); }, task);
}

#define NTKIT_CROSS(T)                                                                                                          \
    template bool cross<T>(const Tape&, const Batch<T>&, const Batch<T>&, const Products<T>&, const Result<T>&, bool,           \
                           std::int64_t, std::int64_t, int, const Poll&);
NTKIT_CROSS(float)
NTKIT_CROSS(double)
#define NTKIT_SELF(F, T, O)                                                                                                     \
    template bool self<F, T, O>(const Tape&, const Inputs<F>&, const Units<const double>&, const Products<T>&, bool, O*, T*, T*, int, const Poll&);
#define NTKIT_READ(F, T)                                                                                                        \
    template bool read<F, T>(const Inputs<F>&, const std::vector<std::int64_t>&, bool, double, T*, double*, std::int64_t,       \
                             const Units<double>&, int, const Poll&);
#define NTKIT_FROM(F)          \
    NTKIT_READ(F, float)       \
    NTKIT_READ(F, double)      \
    NTKIT_SELF(F, float, float)   \
    NTKIT_SELF(F, double, float)  \
    NTKIT_SELF(F, double, double)
NTKIT_FROM(float)
NTKIT_FROM(double)

}  // namespace ntkit
