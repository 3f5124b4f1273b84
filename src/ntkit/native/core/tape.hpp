// The instructions that one block of pairs runs, and the numbers they need.
//
// For two inputs x, x' a layer's covariance is K[p, p'] with p, p' positions in up to three axes. The plane of offset
// d holds K[p, p + d] for every p such that p + d is a position too. Activations, sums and convolutions of stride one
// map a plane to itself, so a tape works plane by plane, and only on the planes that the output needs. A plane is
// stored for kLanes pairs side by side (position-major, lanes innermost), so every instruction is vector code without
// remainders. Vectors have no positions to fill the arithmetic units with, so there several blocks of lanes take their place.

#pragma once

#include <cstdint>
#include <vector>

namespace ntkit {

constexpr int kLanes = 4;
constexpr int kAxes = 3;

enum class Kind : std::int32_t {
    input = 0,      // K = x . x' / C
    affine = 1,     // K' = w K + b, Theta' = r K + t + w Theta
    conv = 2,       // the same of the mean over a window
    rectified = 3,  // E[phi phi], Theta E[phi' phi'] of a min(z, 0) + b max(z, 0)
    clear = 4,      // zero
    pool = 5,       // add window sums of one plane
    reduce = 6,     // sum over some axes
    combine = 7,    // add a multiple
    variance = 8,   // remember K[p, p] as the variance that an activation reads
    output = 9,     // hand over K and Theta
};

// What all instructions of one operation share.
struct Operation {
    std::int32_t in_size[kAxes];
    std::int32_t out_size[kAxes];
    std::int32_t kernel[kAxes];
    std::int32_t stride[kAxes];
    std::int32_t dilation[kAxes];
    std::int32_t padding[kAxes];      // before the first position
    std::int32_t out_stride[kAxes];   // reduce: step of the output for a step along each input axis, in positions
    std::int32_t index;               // input: which data; rectified, variance: which activation
    std::int32_t channels;            // input
    double constants[4];              // affine, conv: w, b, r, t; rectified: a, b; reduce: factor
    std::vector<double> factors;      // pool: for each window what its sum is multiplied with
};

struct Instruction {
    Kind kind;
    std::int32_t operation;
    std::int32_t out;           // slot
    std::int32_t in;            // slot
    std::int32_t theta;         // bit 0: the input has a Theta, bit 1: the output has one
    std::int32_t in_offset[kAxes];
    std::int32_t out_offset[kAxes];
    double factor;              // combine: of K and of Theta; affine: unused
};

struct Tape {
    std::vector<Operation> operations;
    std::vector<Instruction> instructions;
    std::int32_t batch = 1;            // blocks of lanes run at once; in networks of vectors they stand in for positions
    std::int32_t slots = 0;
    std::int64_t slot_positions = 0;   // the largest plane
    std::vector<std::int64_t> activation_start;  // where each activation's positions begin among all of them
    std::int64_t activation_positions = 0;       // of all activations together
    std::vector<std::int64_t> data_start;        // where each data's numbers begin, in an input's row
    std::int64_t data_size = 0;                  // numbers of one input
};

}  // namespace ntkit
