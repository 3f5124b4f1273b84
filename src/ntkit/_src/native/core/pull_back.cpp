#include "pull_back.hpp"

#include <algorithm>
#include <atomic>
#include <string_view>
#include <utility>

#include "interleave.hpp"
#include "simd.hpp"
#include "tasks.hpp"
#include "workspace.hpp"

namespace ntkit {
namespace {

constexpr int kWidth = kLanes<double>;
constexpr std::int64_t kSegment = 16;  // most rows in one task
constexpr std::int64_t kTasks = 16;    // tasks per thread, if there are enough rows

PullBack choose_pull_back() {
#if defined(NTKIT_X86)
    const std::string_view level = simd_level();
    if (level == "avx512") return avx512::pull_back_block;
    if (level == "avx2") return avx2::pull_back_block;
#endif
    return baseline::pull_back_block;
}

struct Memory {
    Workspace<double> forward;
    std::int64_t slots, accumulators, cache, data, products, gains, pairs;  // numbers of each
    Buffer<double> numbers;
    Adjoints adjoints;

    Memory(const Tape& tape, const Pulled& pulled)
        : forward(tape), slots(2 * tape.slot_start.back() * kWidth), accumulators(tape.accumulators * 2 * tape.accumulator_positions * kWidth),
          cache(tape.cache_size * kWidth), data(tape.batch > 1 ? 0 : tape.data_size * kWidth),
          products(tape.batch > 1 ? static_cast<std::int64_t>(tape.data_start.size()) * tape.batch * kWidth : 0),
          gains(pulled.gains ? static_cast<std::int64_t>(tape.operations.size()) * kGains * kWidth : 0), pairs(tape.batch * kWidth),
          numbers(allocate<double>(slots + accumulators + cache + data + products + gains + 2 * pairs)) {
        double* next = numbers.get();
        const auto take = [&](std::int64_t count) { return std::exchange(next, next + count); };
        adjoints.slots = take(slots);
        adjoints.accumulators = take(accumulators);
        adjoints.products = take(products);
        adjoints.cache = take(cache);
        adjoints.data = take(data);
        adjoints.gains = take(gains);
        if (!pulled.gains) adjoints.gains = nullptr;
        nngp_ = take(pairs);
        ntk_ = take(pairs);
        std::fill_n(adjoints.slots, slots + accumulators, 0.0);
        adjoints.nngp = pulled.nngp ? nngp_ : nullptr;
        adjoints.ntk = pulled.ntk ? ntk_ : nullptr;
    }

    // The adjoints of a row, and those of a block.
    void clear_row() { std::fill_n(adjoints.cache, cache + data + gains, 0.0); }
    void clear_block() { std::fill_n(adjoints.products, products, 0.0); }

    void read(const double* nngp, const double* ntk, std::int64_t count) {
        const auto copy = [&](const double* from, double* to) {
            if (from) std::fill(std::copy_n(from, count, to), to + pairs, 0.0);
        };
        copy(nngp, nngp_);
        copy(ntk, ntk_);
    }

private:
    double *nngp_, *ntk_;
};

void sum_lanes(const double* from, std::int64_t count, double* to) {
    for (std::int64_t i = 0; i < count; ++i, from += kWidth) {
        double sum = 0;
        for (int lane = 0; lane < kWidth; ++lane) sum += from[lane];
        to[i] = sum;
    }
}

std::vector<Segment> segments_of(const Tape& tape, const std::vector<std::int64_t>& ends) {
    std::vector<Segment> segments;
    std::int64_t first = 0;
    for (const std::int64_t last : ends) {
        Segment segment{first, last, {}};
        for (std::int64_t i = first; i < last; ++i) {
            const Instruction& step = tape.instructions[i];
            const bool sums = step.kind == Kind::clear || step.kind == Kind::reduce ||
                              (step.kind == Kind::pool && std::get<Pool>(tape.operations[step.operation]).wide);
            if (!sums && step.out_slot != kNothing) segment.slots.push_back(step.out_slot);
        }
        std::sort(segment.slots.begin(), segment.slots.end());
        segment.slots.erase(std::unique(segment.slots.begin(), segment.slots.end()), segment.slots.end());
        segments.push_back(std::move(segment));
        first = last;
    }
    return segments;
}

}  // namespace

bool has_adjoint(const Tape& tape, const Instruction& step) {
    const Operation& operation = tape.operations[step.operation];
    switch (step.kind) {
        case Kind::layer: return !std::get<Layer>(operation).activation;
        case Kind::smooth: {
            const Smooth& op = std::get<Smooth>(operation);
            return op.trained_gain == 0;
        }
        case Kind::input:
        case Kind::rectified:
        case Kind::normalize:
        case Kind::fill:
        case Kind::clear:
        case Kind::pool:
        case Kind::pool_end:
        case Kind::reduce:
        case Kind::settle:
        case Kind::combine:
        case Kind::convert:
        case Kind::rescale:
        case Kind::output: return true;
        default: return false;
    }
}

bool pull_back(const Tape& tape, const std::vector<std::int64_t>& ends, const Batch<double>& rows, const Batch<double>& columns, const Products<double>& products,
               const Pulled& pulled, int threads, const Poll& poll) {
    const PullBack run = choose_pull_back();
    const std::vector<Segment> segments = segments_of(tape, ends);
    const bool vectors = tape.batch > 1;
    const int width = tape.batch * kWidth;  // columns in a block
    const std::int64_t blocks = (columns.count + width - 1) / width, inputs = static_cast<std::int64_t>(tape.data_start.size());
    const std::int64_t operations = static_cast<std::int64_t>(tape.operations.size());
    const Buffer<double> data = allocate<double>(vectors ? 0 : blocks * tape.data_size * width);
    const Buffer<double> cache = allocate<double>(blocks * tape.cache_size * width);
    std::atomic<std::int64_t> done{0};
    const auto prepare = [&](std::int64_t index, int, const std::atomic<bool>&) {
        const std::int64_t first = index * width;
        if (!vectors) interleave(columns.data, tape.data_size, first, columns.count, width, &data[first * tape.data_size]);
        interleave(columns.cache, tape.cache_size, first, columns.count, width, &cache[first * tape.cache_size]);
    };
    const double read = static_cast<double>(blocks * width) * (tape.cache_size + (vectors ? 0 : tape.data_size));
    if (!run_tasks(blocks, read, threads, done, poll, [] { return 0; }, prepare)) return false;
    const std::int64_t length = std::clamp<std::int64_t>(rows.count / (kTasks * std::max(threads, 1)), 1, kSegment);
    const auto compute = [&](std::int64_t index, Memory& memory, const std::atomic<bool>& stop) {
        for (std::int64_t row = index * length; row < std::min(rows.count, (index + 1) * length) && !stop; ++row) {
            memory.clear_row();
            for (std::int64_t first = 0; first < columns.count; first += width) {
                const std::int64_t count = std::min<std::int64_t>(width, columns.count - first), at = row * columns.count + first;
                memory.clear_block();
                memory.read(pulled.nngp ? pulled.nngp + at : nullptr, pulled.ntk ? pulled.ntk + at : nullptr, count);
                Workspace<double>& work = memory.forward;
                run(tape, segments,
                    {rows.data + row * tape.data_size, vectors ? columns.data + first * tape.data_size : &data[first * tape.data_size],
                     products.at(row, first), products.data_stride, rows.cache + row * tape.cache_size, &cache[first * tape.cache_size],
                     work.slots.get(), work.rows.get(), work.rings.get(), work.accumulators.get(), work.lines.get(), work.places.get(),
                     work.nngp.get(), work.ntk.get(), true, true},
                    memory.adjoints);
                for (std::int64_t input = 0; vectors && input < inputs; ++input)
                    std::copy_n(memory.adjoints.products + input * width, count, pulled.products + (input * rows.count * columns.count + at));
                done += count;
            }
            sum_lanes(memory.adjoints.cache, tape.cache_size, pulled.cache + row * tape.cache_size);
            if (!vectors) sum_lanes(memory.adjoints.data, tape.data_size, pulled.data + row * tape.data_size);
            if (pulled.gains) sum_lanes(memory.adjoints.gains, operations * kGains, pulled.gains + row * operations * kGains);
        }
    };
    const double pulled_back = static_cast<double>(rows.count * blocks * width) * static_cast<double>(tape.instructions.size());
    return run_tasks((rows.count + length - 1) / length, pulled_back, threads, done, poll, [&] { return Memory(tape, pulled); }, compute);
}

}  // namespace ntkit
