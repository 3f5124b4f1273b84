// Chains of layers that run row by row.
//
// In a chain each layer reads the previous one, which nothing else reads. A row of a layer is computed as soon as the rows that
// it reads are ready, and only those rows are kept, in a ring. They stay in the second-level cache, whereas whole planes would not.

#pragma once

#include <vector>

#include "inputs.hpp"
#include "sums.hpp"
#include "windows.hpp"

namespace ntkit::NTKIT_TARGET {
namespace {

template <class T, bool Self>
class Chain {
    using Lanes = typename Vector<T>::Lanes;

    struct Level {
        const Operation* op;
        const Instruction* step;
        const Layer* layer;  // null for an input and a reduction
        RectifierRule<T, Self> rule;
        Region from, to;
        Plane<T> out;
        int next;    // its next row
        int ahead;   // how many rows ahead it reads
        bool twice;  // it computes two rows at a time
    };

public:
    Chain(const Context<T, Self>& context, Windows<T, Self>& windows) : context_(context), windows_(windows) {}

    // How many instructions from here on form a chain. A chain must not write what it still reads: the slot before it.
    int length(std::size_t first) const {
        const Tape& tape = context_.tape;
        const Instruction& start = tape.instructions[first];
        if (tape.batch > 1 || !start.chained) return 1;
        if (positions_of(sizes(tape.operations[start.operation]).out) <= kPlanePositions) return 1;
        std::int64_t used = 0;
        int longest = 1;
        for (std::size_t i = first;; ++i) {
            const Instruction& step = tape.instructions[i];
            const Operation& op = tape.operations[step.operation];
            if (!by_rows(op, step.kind) || (step.kind == Kind::input && i > first)) return longest;
            if (i > first) used += 2 * rows_kept(op) * sizes(op).in[2];
            if (used > kRingPositions) return longest;
            const bool reduces = step.kind == Kind::reduce;
            if (reduces || start.kind == Kind::input || step.out_slot != start.in_slot) longest = static_cast<int>(i - first) + 1;
            if (reduces || !step.chained) return longest;
        }
    }

    void run(std::size_t first, int length) {
        levels_.clear();
        for (int l = 0; l < length; ++l) {
            const Instruction& step = context_.tape.instructions[first + l];
            const Operation& op = context_.tape.operations[step.operation];
            const Layer* const layer = std::get_if<Layer>(&op);
            const int ahead = layer ? rows_read(op) - 1 - layer->padding[1] : 0;
            const bool reduces = step.kind == Kind::reduce;
            const auto [in_size, out_size] = sizes(op);
            const Region from(in_size, step.in_offset), to = reduces ? from : Region(out_size, step.out_offset);
            const RectifierRule<T, Self> rule = layer ? layer_rule(context_, *layer, step) : RectifierRule<T, Self>{};
            const bool twice = layer && Windows<T, Self>::three_by_three(*layer);
            levels_.push_back({&op, &step, layer, rule, from, to, reduces ? Plane<T>{} : context_.slot(step.out_slot), to.low[1], ahead, twice});
        }
        Lanes* ring = reinterpret_cast<Lanes*>(context_.block.rings);
        for (int l = 0; l + 1 < length; ++l) {
            const int kept = rows_kept(*levels_[l + 1].op);
            const long size = static_cast<long>(kept) * levels_[l].to.size[2];
            levels_[l].out = {ring, ring + size, kept};
            ring += 2 * size;
        }
        advance(length - 1, levels_.back().to.high[1]);
    }

private:
    struct Sizes {
        Axes in, out;
    };
    // Only for operations that a chain may contain.
    static Sizes sizes(const Operation& operation) {
        if (const auto* op = std::get_if<Layer>(&operation)) return {op->in_size, op->out_size};
        if (const auto* op = std::get_if<Reduce>(&operation)) return {op->in_size, op->out_size};
        const Axes& size = std::get<Input>(operation).size;
        return {size, size};
    }

    static bool by_rows(const Operation& operation, Kind kind) {
        if (kind != Kind::input && kind != Kind::layer && kind != Kind::reduce) return false;
        const auto [in, out] = sizes(operation);
        if (in[0] != 1 || out[0] != 1) return false;
        const Layer* const op = std::get_if<Layer>(&operation);
        return !op || (op->kernel[0] == 1 && op->padding[0] == 0 && op->stride[1] == 1 && !op->circular[1]);
    }

    static int rows_read(const Operation& operation) {
        const Layer* const op = std::get_if<Layer>(&operation);
        return op ? (op->kernel[1] - 1) * op->dilation[1] + 1 : 1;
    }
    // Rows kept of the previous level: one more if this level computes two rows at a time, and one more if the previous one does.
    static int rows_kept(const Operation& operation) { return rows_read(operation) + 2; }

    // Computes the rows of a level up to `end`, and perhaps one more.
    void advance(int l, int end) {
        Level& level = levels_[l];
        while (level.next < end) {
            const int j = level.next;
            const int count = level.twice && Windows<T, Self>::four_rows(*level.layer, level.from, level.to, j) ? 2 : 1;
            if (l > 0) advance(l - 1, std::min(j + count + level.ahead, levels_[l - 1].to.high[1]));
            const Plane<T> in = l > 0 ? levels_[l - 1].out : context_.slot(level.step->in_slot);
            if (level.layer) {
                if (level.to.high[2] > level.to.low[2]) {
                    const Columns columns(*level.layer, level.from, level.to);
                    const typename Windows<T, Self>::Job job{*level.layer, *level.step, level.rule, level.from, level.to, in, level.out};
                    if (count == 2) windows_.two_rows(job, j, columns);
                    else windows_.one_row(job, 0, j, columns);
                }
            } else if (level.step->kind == Kind::input) {
                InputReader<T, Self>{context_}.row(std::get<Input>(*level.op), *level.step, level.to, 0, j, level.out);
            } else {
                reduce_row(context_, std::get<Reduce>(*level.op), *level.step, level.from, 0, j, in);
            }
            level.next += count;
        }
    }

    Context<T, Self> context_;
    Windows<T, Self>& windows_;
    std::vector<Level> levels_;
};

}  // namespace
}  // namespace ntkit::NTKIT_TARGET
