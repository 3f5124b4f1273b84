// Runs the instructions of a tape, one after the other, on one block of pairs.

#pragma once

#include "activations.hpp"
#include "chains.hpp"
#include "context.hpp"
#include "inputs.hpp"
#include "maps.hpp"
#include "normalisation.hpp"
#include "input_cache.hpp"
#include "pooling.hpp"
#include "products.hpp"
#include "selection.hpp"
#include "series.hpp"
#include "sums.hpp"
#include "whole.hpp"
#include "windows.hpp"

namespace ntkit::NTKIT_TARGET {
namespace {

// Self: each input with itself.
template <class T, bool Self>
class Machine {
public:
    Machine(const Tape& tape, const Block<T>& block, long row = 0, long width = 0)
        : context_{tape, block, row, width}, windows_(context_), chain_(context_, windows_) {}

    void run() {
        const Tape& tape = context_.tape;
        const std::size_t count = tape.instructions.size();
        for (std::size_t i = 0; i < count; ++i) {
            const Instruction& step = tape.instructions[i];
            if (context_.block.cache_known && step.cache_only) continue;
            if constexpr (!Self) {
                if (step.whole) {
                    run_rows(step, tape.operations[step.operation]);
                    continue;
                }
                if (const int length = chain_.length(i); length > 1) {
                    chain_.run(i, length);
                    i += length - 1;
                    continue;
                }
            }
            run(step, tape.operations[step.operation]);
        }
    }

private:
    // check_tape.cpp ensures that every operation has the type its instruction needs.
    template <class Op>
    static const Op& as(const Operation& operation) {
        return *std::get_if<Op>(&operation);
    }

    // An instruction that computes a whole covariance: row by row, unless it is in whole.cpp.
    void run_rows(const Instruction& step, const Operation& op) {
        switch (step.kind) {
            case Kind::input:
            case Kind::lookup:
            case Kind::table: return run_whole(context_.tape, context_.block, step, op);
            default:
                for (long row = 0; row < step.whole; ++row) {
                    if (step.kind == Kind::independent || step.kind == Kind::relabel) run_whole(context_.tape, context_.block, step, op, row);
                    else Machine(context_.tape, context_.block, row, step.whole).run(step, op);
                }
        }
    }

    void run(const Instruction& step, const Operation& op) {
        switch (step.kind) {
            case Kind::input: return InputReader<T, Self>{context_}.run(as<Input>(op), step);
            case Kind::layer: return windows_.run(as<Layer>(op), step);
            case Kind::rectified: return rectified(context_, as<Rectified>(op), step);
            case Kind::smooth: return smooth(context_, as<Smooth>(op), step);
            case Kind::series: return series(context_, as<Series>(op), step);
            case Kind::normalize: return normalize(context_, as<Normalize>(op), step);
            case Kind::multiply: return multiply(context_, as<Product>(op), step);
            case Kind::fill: return fill(context_, as<Fill>(op), step);
            case Kind::clear: return clear(context_, step);
            case Kind::pool: return pool(context_, as<Pool>(op), step);
            case Kind::pool_end: return pool_end(context_, as<Pool>(op), step);
            case Kind::variance_pool: return variance_pool(context_, as<Pool>(op), step);
            case Kind::variance_pool_end: return variance_pool_end(context_, as<Pool>(op), step);
            case Kind::select: return select_positions(context_, as<Select>(op), step);
            case Kind::map: return map_positions(context_, as<Map>(op), step);
            case Kind::map_end: return pool_end(context_, as<Map>(op), step);
            case Kind::variance_map: return variance_map(context_, as<Map>(op), step);
            case Kind::variance_map_end: return variance_pool_end(context_, as<Map>(op), step);
            case Kind::reduce: return reduce(context_, as<Reduce>(op), step);
            case Kind::relabel:
            case Kind::place:
            case Kind::independent:
            case Kind::lookup:
            case Kind::table:
            case Kind::gather:
            case Kind::left:
            case Kind::right:
            case Kind::scatter:
            case Kind::weights: return run_whole(context_.tape, context_.block, step, op);
            case Kind::settle: return settle(context_, as<Plain>(op), step);
            case Kind::combine: return combine(context_, as<Plain>(op), step);
            case Kind::convert: return convert(context_, as<Convert>(op), step);
            case Kind::rescale: return rescale(context_, as<Rescale>(op), step);
            case Kind::store: return keep(context_, as<Store>(op), step);
            case Kind::output: return output(context_, step);
        }
    }

    Context<T, Self> context_;
    Windows<T, Self> windows_;
    Chain<T, Self> chain_;
};

}  // namespace
}  // namespace ntkit::NTKIT_TARGET
