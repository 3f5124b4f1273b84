// The operations of a tape: one struct per family, with the numbers that all its instructions share. The binding exposes them under
// the same names, with the fields that `fields()` lists.

#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <variant>
#include <vector>

#include "arc_cosine.hpp"
#include "fields.hpp"
#include "series_table.hpp"

namespace ntkit {

constexpr int kAxes = 3;
constexpr std::int32_t kNothing = -1;  // no slot, no cached data

using Axes = std::array<std::int32_t, kAxes>;  // one number per position axis; missing axes come first and have length one

inline std::int64_t positions_of(const Axes& size) { return static_cast<std::int64_t>(size[0]) * size[1] * size[2]; }

// Cached data: what is computed for each input alone, before any pair, and kept.
enum class Cached : std::int32_t {
    deviation,  // sqrt(q)
    half,       // q / 2
    scale,      // 1 / s of a normalisation, then sqrt(q)
    inside,     // H summed over all pairs of positions in a pooling window
    mean,       // q averaged over a pooling window
    series,     // the coefficients of a SeriesTable, position by position
    weights,    // of attention, query by query
};

enum class Function : std::int32_t { erf, gelu, sine, cosine, exponential, polynomial };

// The operations. Fields that end in `_at` say where cached data begin, counted in numbers per input; kNothing if there are none.

struct Input {
    Axes size{};
    std::int32_t data = 0;  // which of the network's inputs
    std::int32_t channels = 0;
    std::int32_t half_at = kNothing;
    bool sizes_matter = false;  // vectors: H of parallel inputs of different norm must be exact too

    static constexpr const char* name = "Input";
    static constexpr auto fields() {
        return std::tuple{Field{"size", &Input::size}, Field{"data", &Input::data}, Field{"channels", &Input::channels},
                          Field{"half_at", &Input::half_at}, Field{"sizes_matter", &Input::sizes_matter}};
    }
};

// phi(z) = a min(z, 0) + b max(z, 0).
struct Rectifier {
    double negative_slope = 0;       // a
    double positive_slope = 1;       // b
    std::int32_t deviation_at = kNothing;
    bool signed_covariance = false;  // K may be negative
    bool rounded = false;            // H was rounded to the precision of the variances
    double trained_gain = 0;         // the multiple of K' that a trained gain before the activation adds to Theta'

    ScaledArcCosine<float> arc_cosine32;  // times (b - a)^2 and the factor of the layer it is fused with; set by the Tape
    ScaledArcCosine<double> arc_cosine64;

    template <class T>
    const ScaledArcCosine<T>& arc_cosine() const {
        if constexpr (sizeof(T) == sizeof(float)) return arc_cosine32;
        else return arc_cosine64;
    }

    static constexpr const char* name = "Rectifier";
    static constexpr auto fields() {
        return std::tuple{Field{"negative_slope", &Rectifier::negative_slope}, Field{"positive_slope", &Rectifier::positive_slope},
                          Field{"deviation_at", &Rectifier::deviation_at}, Field{"signed_covariance", &Rectifier::signed_covariance},
                          Field{"rounded", &Rectifier::rounded}, Field{"trained_gain", &Rectifier::trained_gain}};
    }
};

// K' = weight S(K) + bias, Theta' = weight_rate weight S(K) + bias_rate + weight S(Theta), with S the sum over the window.
struct Layer {
    Axes in_size{}, out_size{};
    Axes kernel{1, 1, 1}, stride{1, 1, 1}, dilation{1, 1, 1};
    Axes padding{};  // before the first position; negative if the first positions are skipped
    std::array<bool, kAxes> circular{};
    double weight = 1, bias = 0, weight_rate = 0, bias_rate = 0;
    std::int32_t half_in_at = kNothing;   // of the input, for windows that reach into the padding
    std::int32_t half_out_at = kNothing;  // of the output, for the Theta of planes that hold H
    std::int32_t unit_at = 0;             // what the value one became where it reads
    std::optional<Rectifier> activation;  // fused
    std::int32_t number = kNothing;       // which of the network's layers it is, for Tape::with_gains

    static constexpr const char* name = "Layer";
    static constexpr auto fields() {
        return std::tuple{Field{"in_size", &Layer::in_size}, Field{"out_size", &Layer::out_size}, Field{"kernel", &Layer::kernel},
                          Field{"stride", &Layer::stride}, Field{"dilation", &Layer::dilation}, Field{"padding", &Layer::padding},
                          Field{"circular", &Layer::circular}, Field{"weight", &Layer::weight}, Field{"bias", &Layer::bias},
                          Field{"weight_rate", &Layer::weight_rate}, Field{"bias_rate", &Layer::bias_rate},
                          Field{"half_in_at", &Layer::half_in_at}, Field{"half_out_at", &Layer::half_out_at},
                          Field{"unit_at", &Layer::unit_at}, Field{"activation", &Layer::activation},
                          Field{"number", &Layer::number}};
    }
};

struct Rectified {
    Axes size{};
    Rectifier activation;

    static constexpr const char* name = "Rectified";
    static constexpr auto fields() {
        return std::tuple{Field{"size", &Rectified::size}, Field{"activation", &Rectified::activation}};
    }
};

struct Smooth {
    Axes size{};
    Function function = Function::erf;
    // polynomial: c[m] C(m, j) (m - j - 1)!! at [j, m] for coefficients c, zero where m - j is odd or negative
    std::vector<double> hermite_terms;
    std::int32_t deviation_at = kNothing, half_at = kNothing;
    bool rounded = false;     // whether an earlier activation or normalisation has computed H as a difference
    double trained_gain = 0;  // the multiple of E[u phi'(u) v phi'(v)] that a trained gain before the activation adds to Theta'
    std::vector<double> gain_terms;  // polynomial with a trained gain: hermite_terms of z phi'(z)

    static constexpr const char* name = "Smooth";
    static constexpr auto fields() {
        return std::tuple{Field{"size", &Smooth::size}, Field{"function", &Smooth::function},
                          Field{"hermite_terms", &Smooth::hermite_terms}, Field{"deviation_at", &Smooth::deviation_at},
                          Field{"half_at", &Smooth::half_at}, Field{"rounded", &Smooth::rounded},
                          Field{"trained_gain", &Smooth::trained_gain}, Field{"gain_terms", &Smooth::gain_terms}};
    }
};

// With rho the correlation, E[phi phi] = a_0 a_0' + s s' sum_n alpha_n alpha_n' rho^n (Mehler 1866), whose derivative in K is
// E[phi' phi'].
struct Series {
    Axes size{};
    std::shared_ptr<const SeriesTable> table;
    std::int32_t series_at = kNothing, deviation_at = kNothing, half_at = kNothing;
    bool rounded = false;  // H comes from a nonlinear operation, and rounds like the variances
    Powers powers;         // set by the Tape

    static constexpr const char* name = "Series";
    static constexpr auto fields() {
        return std::tuple{Field{"size", &Series::size}, Field{"table", &Series::table}, Field{"series_at", &Series::series_at},
                          Field{"deviation_at", &Series::deviation_at}, Field{"half_at", &Series::half_at}, Field{"rounded", &Series::rounded}};
    }
};

// K' = K / (s s'), Theta' = Theta / (s s') + weight_rate K' + bias_rate.
struct Normalize {
    Axes size{};
    std::int32_t scale_at = kNothing;
    double weight_rate = 0, bias_rate = 0;

    static constexpr const char* name = "Normalize";
    static constexpr auto fields() {
        return std::tuple{Field{"size", &Normalize::size}, Field{"scale_at", &Normalize::scale_at},
                          Field{"weight_rate", &Normalize::weight_rate}, Field{"bias_rate", &Normalize::bias_rate}};
    }
};

// The product of two independent values: K' = K1 K2, Theta' = Theta1 K2 + K1 Theta2.
struct Product {
    Axes size{};
    std::int32_t first_half_at = kNothing, second_half_at = kNothing;

    static constexpr const char* name = "Product";
    static constexpr auto fields() {
        return std::tuple{Field{"size", &Product::size}, Field{"first_half_at", &Product::first_half_at},
                          Field{"second_half_at", &Product::second_half_at}};
    }
};

struct Fill {
    Axes size{};
    double square = 0;  // of the constant

    static constexpr const char* name = "Fill";
    static constexpr auto fields() { return std::tuple{Field{"size", &Fill::size}, Field{"square", &Fill::square}}; }
};

// Average pooling along one axis.
struct Pool {
    Axes in_size{}, out_size{};
    std::int32_t axis = 0, kernel = 1, stride = 1, padding = 0;
    bool wide = false;            // sums are long enough for an accumulator in double precision
    std::vector<double> weights;  // of each position in a window, one number per window
    std::vector<double> totals;   // the sum of the weights in a window, one number per window
    std::int32_t inside_at = kNothing, mean_at = kNothing;

    static constexpr const char* name = "Pool";
    static constexpr auto fields() {
        return std::tuple{Field{"in_size", &Pool::in_size}, Field{"out_size", &Pool::out_size}, Field{"axis", &Pool::axis},
                          Field{"kernel", &Pool::kernel}, Field{"stride", &Pool::stride}, Field{"padding", &Pool::padding},
                          Field{"wide", &Pool::wide}, Field{"weights", &Pool::weights}, Field{"totals", &Pool::totals},
                          Field{"inside_at", &Pool::inside_at}, Field{"mean_at", &Pool::mean_at}};
    }
};

// Positions read from elsewhere: the output's q is the input's sum over the axes of in_stride * q, where q along `axis` stands for
// index[q].
struct Select {
    Axes in_size{}, out_size{};
    Axes in_stride{};                  // how far the input moves, in positions, for a step along each output axis
    std::int32_t axis = kNothing;      // kNothing: the positions along every axis are read in order
    std::vector<std::int32_t> index;   // for each position along `axis`, which one is read; negative: zero
    std::int32_t half_in_at = kNothing;  // of the input, for the H of a value and a zero

    static constexpr const char* name = "Select";
    static constexpr auto fields() {
        return std::tuple{Field{"in_size", &Select::in_size}, Field{"out_size", &Select::out_size}, Field{"in_stride", &Select::in_stride},
                          Field{"axis", &Select::axis}, Field{"index", &Select::index}, Field{"half_in_at", &Select::half_in_at}};
    }
};

// A linear map of the positions along one axis: x'[q] = sum_p A[q, p] x[p].
struct Map {
    Axes in_size{}, out_size{};
    std::int32_t axis = 0;
    bool wide = false;                      // sums are long enough for an accumulator in double precision
    std::vector<double> matrix;             // A, row by row
    std::vector<std::int32_t> first, last;  // of each row: the columns before `first`, and those from `last` on, are zero
    std::vector<double> totals;             // the sum of each row
    std::int32_t inside_at = kNothing, mean_at = kNothing;

    static constexpr const char* name = "Map";
    static constexpr auto fields() {
        return std::tuple{Field{"in_size", &Map::in_size}, Field{"out_size", &Map::out_size}, Field{"axis", &Map::axis},
                          Field{"wide", &Map::wide}, Field{"matrix", &Map::matrix}, Field{"first", &Map::first}, Field{"last", &Map::last},
                          Field{"totals", &Map::totals}, Field{"inside_at", &Map::inside_at}, Field{"mean_at", &Map::mean_at}};
    }
};

// Every entry K[p, p'] of a value at once, for operations that mix positions freely: position p P + p' of a slot.

// A linear map of all positions, x'[q] = sum_p A[q, p] x[p], from whole covariances to whole ones. A is cached, or the data of an input,
// or the same for all inputs.
struct Matrix {
    std::int32_t rows = 1, columns = 1;  // positions after and before
    std::int32_t cached_at = kNothing, data = kNothing;
    bool transposed = false;     // what is stored is A^T
    std::vector<double> numbers;  // of the same A for all inputs, row by row

    static constexpr const char* name = "Matrix";
    static constexpr auto fields() {
        return std::tuple{Field{"rows", &Matrix::rows}, Field{"columns", &Matrix::columns}, Field{"cached_at", &Matrix::cached_at},
                          Field{"data", &Matrix::data}, Field{"transposed", &Matrix::transposed}, Field{"numbers", &Matrix::numbers}};
    }
};

// The weights of attention whose logits are constants of each input: of the logits factor K[a, b] + mask[a, b], a softmax over b, or
// low min(z, 0) + high max(z, 0) where the mask does not hide b.
struct Weights {
    std::int32_t tokens = 1;
    double factor = 1;
    bool softmax = true;
    double low = 0, high = 1;
    std::vector<double> mask;  // empty: zeros
    std::int32_t target_at = kNothing;

    static constexpr const char* name = "Weights";
    static constexpr auto fields() {
        return std::tuple{Field{"tokens", &Weights::tokens}, Field{"factor", &Weights::factor}, Field{"softmax", &Weights::softmax},
                          Field{"low", &Weights::low}, Field{"high", &Weights::high}, Field{"mask", &Weights::mask},
                          Field{"target_at", &Weights::target_at}};
    }
};

// Integers, one at each position: K = 1 where two are equal, and neither is `padding`.
struct Lookup {
    Axes size{};
    std::int32_t data = 0;
    double padding = -1;

    static constexpr const char* name = "Lookup";
    static constexpr auto fields() {
        return std::tuple{Field{"size", &Lookup::size}, Field{"data", &Lookup::data}, Field{"padding", &Lookup::padding}};
    }
};

// Numbers that all pairs of inputs share: added to K[p, p'], and others to Theta[p, p'].
struct Table {
    Axes size{};
    std::vector<double> covariance, tangent;  // (P, P); empty: zeros

    static constexpr const char* name = "Table";
    static constexpr auto fields() {
        return std::tuple{Field{"size", &Table::size}, Field{"covariance", &Table::covariance}, Field{"tangent", &Table::tangent}};
    }
};

struct Reduce {
    Axes in_size{}, out_size{};
    Axes out_stride{};  // how far the output moves, in positions, for a step along each input axis; 0: summed over
    double factor = 1;

    static constexpr const char* name = "Reduce";
    static constexpr auto fields() {
        return std::tuple{Field{"in_size", &Reduce::in_size}, Field{"out_size", &Reduce::out_size},
                          Field{"out_stride", &Reduce::out_stride}, Field{"factor", &Reduce::factor}};
    }
};

struct Convert {
    Axes size{};
    std::int32_t half_at = kNothing;

    static constexpr const char* name = "Convert";
    static constexpr auto fields() { return std::tuple{Field{"size", &Convert::size}, Field{"half_at", &Convert::half_at}}; }
};

// From the scale of the data to the common one: each value times a = unit / scale of its input.
struct Rescale {
    Axes size{};
    std::int32_t ratio_at = kNothing;  // a
    std::int32_t half_at = kNothing;   // of the input, for H

    static constexpr const char* name = "Rescale";
    static constexpr auto fields() {
        return std::tuple{Field{"size", &Rescale::size}, Field{"ratio_at", &Rescale::ratio_at}, Field{"half_at", &Rescale::half_at}};
    }
};

struct Store {
    Axes size{};
    Cached what = Cached::half;
    std::int32_t target_at = kNothing;
    double factor = 1;            // deviation: multiplies the variance before the root
    double eps = 0;               // scale: s^2 = q + eps
    std::int32_t unit_at = 0;     // scale: what the value one became, for eps
    std::array<bool, kAxes> mean_over{};  // scale: the axes over which q is averaged
    std::shared_ptr<const SeriesTable> table;  // series
    std::int32_t number = kNothing;  // of the layer whose weight `factor` is one over

    static constexpr const char* name = "Store";
    static constexpr auto fields() {
        return std::tuple{Field{"size", &Store::size}, Field{"what", &Store::what}, Field{"target_at", &Store::target_at},
                          Field{"factor", &Store::factor}, Field{"eps", &Store::eps}, Field{"unit_at", &Store::unit_at},
                          Field{"mean_over", &Store::mean_over},
                          Field{"table", &Store::table}, Field{"number", &Store::number}};
    }
};

// For instructions that need only the positions of a plane.
struct Plain {
    Axes size{};

    static constexpr const char* name = "Plain";
    static constexpr auto fields() { return std::tuple{Field{"size", &Plain::size}}; }
};

using Operation = std::variant<Input, Layer, Rectified, Smooth, Series, Normalize, Product, Fill, Pool, Select, Map, Reduce, Convert, Rescale, Store, Plain, Matrix, Weights, Lookup, Table>;

}  // namespace ntkit
