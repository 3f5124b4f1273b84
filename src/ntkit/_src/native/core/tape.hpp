// A tape: the instructions that one block of pairs runs, and the numbers they need. The planner in Python builds it from the
// structs below, which the binding exposes under the same names.
//
// For two inputs x, x' the covariance of a layer is K[p, p'], where p and p' are positions along up to three axes. The plane of
// offset d holds the entries (p, p + d) for every p such that p + d is a position too. Activations, sums and convolutions of
// stride one map a plane to itself, so a tape works plane by plane, and only on the planes that the output needs. A plane
// is stored for kLanes<T> pairs side by side (position-major, lanes innermost), so every instruction is vector code without
// remainders. Vectors have no positions to keep the arithmetic units busy; `batch` blocks of lanes take their place.
//
// Where a nonlinear operation follows, a plane holds not K but half the mean squared difference
//
//     H[p, p'] = E (u_p - v_p')^2 / 2 = (q_p + q'_p') / 2 - K[p, p'],    q, q' the variances.
//
// ReLU-like activations contain a square root of 1 - rho, which K loses to rounding near rho = 1 and H does not: H is as exact for
// two nearly equal inputs as for any others, and zero for equal ones. The last linear layers work on K itself.
// Inputs are scaled to norm one first (biases with them), because H of a large and a small value loses the small one.
//
// With biases, a common scale must keep both the data and the biases from vanishing, and then two inputs that are nearly parallel but
// of different norm have a large H, which has lost their angle. So if a layer that reads the angle alone comes before the first bias,
// the data have a scale of their own up to there, which makes every norm one, and the instruction `rescale` changes to the common one.

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "operations.hpp"

namespace ntkit {

template <class T>
constexpr int kLanes = 64 / sizeof(T);

// What an instruction does. Each comment names the operation it belongs to.
enum class Kind : std::int32_t {
    input,         // Input: read the data
    layer,         // Layer: a linear layer or convolution, with the activation after it if that is fused
    rectified,     // Rectified: a min(z, 0) + b max(z, 0)
    smooth,        // Smooth: an activation that is smooth at rho = 1
    series,        // Series: an activation without kinks, by its Hermite coefficients
    normalize,     // Normalize: y = x / s
    multiply,      // Product: multiply by a plane
    fill,          // Fill: set a plane to a constant
    clear,         // Plain: set an accumulator to zero
    pool,          // Pool: add the window sums of one plane
    pool_end,      // Pool: subtract the variation inside the two windows from their sum
    variance_pool,      // Pool: the mean of the variances in each window
    variance_pool_end,  // Pool: the variance of a pooled value
    select,        // Select: copy the entries of one plane to where they are read; without a plane, write those of zeros
    map,           // Map: add what one plane gives to the sums of two rows
    map_end,       // Map: subtract the variation inside the two rows from their sum
    variance_map,       // Map: the weighted sum of the variances in each row
    variance_map_end,   // Map: the variance of a mapped value
    reduce,        // Reduce: sum over some axes into an accumulator
    relabel,       // Select: copy a plane to where its entries are after axes were merged
    place,         // Select: copy a whole covariance to its block of another, where values are joined
    independent,   // Convert: what the entries between independent values are
    lookup,        // Lookup: read integers
    table,         // Table: add numbers that all pairs share
    gather,        // Convert: copy a plane to its places in a whole covariance
    left,          // Matrix: multiply a whole covariance by A(x) from the left
    right,         // Matrix: multiply a whole covariance by A(x')^T from the right
    scatter,       // Convert: copy a plane out of a whole covariance
    weights,       // Weights: keep the weights of attention
    settle,        // Plain: copy a finished accumulator to a slot
    combine,       // Plain: add a multiple of a plane
    convert,       // Convert: K from H
    rescale,       // Rescale: from the scale of the data to the common one
    store,         // Store: keep cached data
    output,        // Plain: write K and Theta as the result
};

struct Instruction {
    Kind kind = Kind::output;
    std::int32_t operation = 0;
    std::int32_t out_slot = kNothing;  // accumulator for clear, reduce, a wide pool and a wide map
    std::int32_t in_slot = kNothing;   // accumulator for settle; kNothing: reads no plane
    Axes in_offset{}, out_offset{};
    double factor = 1;                 // of the plane and its Theta in combine, of the terms of gains in rectified and normalize
    bool theta_in = false;             // the input plane has a Theta
    bool theta_out = false;            // the output plane gets a Theta
    bool covariance_in = false;        // the input plane holds K, not H
    bool covariance_out = false;
    bool cache_only = false;             // computes variances: skipped if these are already known
    std::int32_t whole = 0;            // P: computes every K[p, p'] of P positions at once, row by row, not a plane
    bool chained = false;              // the next instruction reads the output, and nothing else does
};

struct Tape {
    std::vector<Operation> operations;
    std::vector<Instruction> instructions;
    std::int32_t batch = 1;                   // blocks of lanes run at once, in networks of vectors
    std::vector<std::int64_t> slot_start{0};  // in positions; the last number is where the last slot ends
    std::int32_t accumulators = 0;
    std::int64_t accumulator_positions = 0;
    std::int64_t cache_size = 0;                // cached numbers per input; the first is the input's unit: what the value one became
    std::vector<std::int64_t> data_start;     // where the numbers of each of the network's inputs begin
    std::int64_t data_size = 0;               // numbers per input, all of the network's inputs together
    std::int64_t row_positions = 0;           // longest row that a window reads, including its padding
    std::int64_t window_rows = 0;             // largest number of rows of a window

    // Checks everything; throws std::invalid_argument with the operation or instruction at fault.
    Tape(std::vector<Operation> operations, std::vector<Instruction> instructions, std::int32_t batch,
         const std::vector<std::int64_t>& slots, std::int32_t accumulators, std::int64_t accumulator_positions, std::int64_t cache_size,
         const std::vector<std::int64_t>& data_sizes);

    // The same tape for other gains of the network's layers: for each its weight, bias, weight_rate and bias_rate, zero where they were.
    Tape with_gains(const std::vector<std::array<double, 4>>& layers) const;

    std::int64_t slots() const { return static_cast<std::int64_t>(slot_start.size()) - 1; }
    std::int64_t slot_positions(std::int32_t slot) const { return slot_start[slot + 1] - slot_start[slot]; }
};

// check_tape.cpp
void check_tape(const Tape& tape);

// print_tape.cpp
const char* name_of(Kind kind);
const char* name_of(Cached what);
const char* name_of(Function function);
std::string text_of(const Operation& operation);
std::string text_of(const Instruction& instruction);
std::string text_of(const Tape& tape);

}  // namespace ntkit
