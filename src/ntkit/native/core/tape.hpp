// The instructions that one block of pairs runs, and the numbers they need.
//
// For two inputs x, x' a layer's covariance is K[p, p'] with p, p' positions in up to three axes. The plane of offset
// d holds the entries (p, p + d) for every p such that p + d is a position too. Activations, sums and convolutions of stride
// one map a plane to itself, so a tape works plane by plane, and only on the planes that the output needs. A plane is
// stored for kLanes<T> pairs side by side (position-major, lanes innermost), so every instruction is vector code without
// remainders. Vectors have no positions to fill the arithmetic units with, so there several blocks of lanes take their place.
//
// Where a nonlinear operation follows, a plane holds not K but half the mean squared difference
//
//     H[p, p'] = E (u_p - v_p')^2 / 2 = (q_p + q'_p') / 2 - K[p, p'],    q, q' the variances.
//
// ReLU-like activations have a square root of 1 - rho in them, which K loses near rho = 1 and H does not: H is as exact
// for two nearly equal inputs as for any others, and zero for equal ones. The last linear layers work on K itself.
// Inputs are scaled to norm one first (biases with them), because H of a large and a small value loses the small one.

#pragma once

#include <cstdint>
#include <vector>

#include "arc_cosine.hpp"

namespace ntkit {

template <class T>
constexpr int kLanes = 64 / sizeof(T);
constexpr int kAxes = 3;
constexpr int kConstants = 7;
constexpr int kOwns = 6;
constexpr int kRingPositions = 1024;  // of the rows that a chain of layers keeps: an eighth of a second-level cache
constexpr int kPlanePositions = 1024;  // of planes that chains do nothing for: one that is read, and one that is written, fit a second-level cache

enum class Kind : std::int32_t {
    input = 0,       // of the data
    layer = 1,       // a linear layer or convolution, and the activation after it where it is fused
    rectified = 2,   // a min(z, 0) + b max(z, 0)
    smooth = 3,      // an activation that is smooth at rho = 1
    normalize = 4,   // y = x / s
    clear = 5,       // a constant
    pool = 6,        // add window sums of one plane
    own_pool = 7,    // add window sums of the variances
    pool_end = 8,    // take the variation inside the two windows away from their sum
    own_pool_end = 9,  // the variance of a pooled value from that of its parts
    reduce = 10,     // sum over some axes
    settle = 11,     // a long sum, now complete, as a plane
    combine = 12,    // add a multiple
    convert = 13,    // K from H
    store = 14,      // remember something of each input on its own
    output = 15,     // hand over K and Theta
};

// What of each input on its own is remembered: `Operation::own` says where.
enum class Own : std::int32_t {
    deviation = 0,  // sqrt(q)
    half = 1,       // q / 2
    scale = 2,      // 1 / s of a normalisation, and q / s behind it
    inside = 3,     // H summed over all pairs in a window
    mean = 4,       // q averaged over a window
};

enum class Smooth : std::int32_t { erf = 0, gelu = 1, sine = 2, cosine = 3, exponential = 4, polynomial = 5 };

// What all instructions of one operation share.
struct Operation {
    std::int32_t in_size[kAxes];
    std::int32_t out_size[kAxes];
    std::int32_t kernel[kAxes];
    std::int32_t stride[kAxes];
    std::int32_t dilation[kAxes];
    std::int32_t padding[kAxes];      // before the first position
    std::int32_t circular[kAxes];     // 1 where windows wrap around
    std::int32_t out_stride[kAxes];   // reduce: step of the output for a step along each input axis, in positions
    std::int32_t index;               // input: which data; smooth: which function; store: what
    std::int32_t channels;            // input
    std::int32_t fused;               // layer: 1 where a rectified activation follows
    std::int32_t negative;            // rectified, and a fused layer: 1 where rho may be negative
    // pool, reduce: 1 where sums are long enough for an accumulator in double precision; activations: 1 where H was rounded to
    // the precision of the variances.
    std::int32_t wide;
    // Where, among the numbers of each input on its own, these begin; -1: nowhere.
    // 0: the deviations an activation reads, or the scales of a normalisation; 1: half the variances of the input;
    // 2: half the variances of the output; 3, 4: pool: inside, mean; 5: store: the target.
    std::int32_t own[kOwns];
    // layer: 0 to 3: w / window, b, r / w, t of K' = w M(K) + b, Theta' = r M(K) + t + w M(Theta). rectified, and a fused layer:
    // 4, 5: a, b; 6: the multiple of K' that a trained gain adds to Theta. normalize: 1, 2: what a trained shift, and a trained
    // gain times K', add. store: 0: eps, 1: what a variance is multiplied with before its root is taken, 3: 1 where statistics are
    // over the positions too. clear: 0: the square of the
    // constant. reduce: 0: the factor.
    double constants[kConstants];
    std::vector<double> factors;      // pool: for each window what its sum is multiplied with; smooth: coefficients
    std::vector<double> counts;       // pool: for each window the sum of its weights
    ScaledArcCosine<float> single;    // rectified, and a fused layer
    ScaledArcCosine<double> twice;

    template <class T>
    const ScaledArcCosine<T>& arc_cosine() const {
        if constexpr (sizeof(T) == sizeof(float)) return single;
        else return twice;
    }
};

enum Flag : std::int32_t {
    kThetaIn = 1,
    kThetaOut = 2,
    kCovarianceIn = 4,   // the input plane holds K, not H
    kCovarianceOut = 8,
    kOwnOnly = 16,       // of the variances: not run again in lower precision
    kChained = 32,       // the next instruction reads the output, and nothing else does
};

struct Instruction {
    Kind kind;
    std::int32_t operation;
    std::int32_t out;           // slot, or accumulator
    std::int32_t in;            // slot, or accumulator
    std::int32_t flags;
    std::int32_t in_offset[kAxes];
    std::int32_t out_offset[kAxes];
    double factor;              // combine: of the plane and of Theta
};

struct Tape {
    std::vector<Operation> operations;
    std::vector<Instruction> instructions;
    std::int32_t batch = 1;            // blocks of lanes run at once; in networks of vectors they stand in for positions
    std::vector<std::int64_t> slot_start{0};     // where each slot begins, in positions, and where the last one ends
    std::int32_t accumulators = 0;
    std::int64_t accumulator_positions = 0;
    std::int64_t row_positions = 0;    // the longest row that a window reads, its padding included
    std::int64_t window_rows = 0;      // the most rows that a window has
    std::int64_t own_size = 0;         // numbers of each input on its own
    std::vector<std::int64_t> data_start;        // where each data's numbers begin, in an input's row
    std::int64_t data_size = 0;                  // numbers of one input

    std::int64_t slots() const { return static_cast<std::int64_t>(slot_start.size()) - 1; }
};

}  // namespace ntkit
