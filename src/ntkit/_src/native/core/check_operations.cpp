// Checks the operations of a tape: sizes, windows, and that cached data and data end where they should.

#include <algorithm>

#include "check.hpp"

namespace ntkit {
namespace {

// The sizes of the planes that an operation reads and writes.
struct Sizes {
    Axes in, out;
};
template <class Op>
Sizes sizes(const Op& op) {
    if constexpr (requires { op.in_size; }) return {op.in_size, op.out_size};
    else if constexpr (requires { op.rows; }) return {{1, 1, op.columns}, {1, 1, op.rows}};
    else if constexpr (requires { op.tokens; }) return {{1, 1, op.tokens}, {1, 1, op.tokens}};
    else return {op.size, op.size};
}

struct OperationChecker {
    const Tape& tape_;

    // Cached data that begin at `start`, `copies` numbers per position.
    void check_cached(const char* name, std::int32_t start, const Axes& size, bool needed = false, std::int64_t copies = 1) const {
        if (start == kNothing) {
            NTKIT_REQUIRE(!needed, std::string(name) + " is needed and not set");
            return;
        }
        const std::int64_t count = copies * positions_of(size) / tape_.batch, end = start + count;
        NTKIT_REQUIRE(start >= 0, std::string(name) + " " + text(start) + " is before the first cached number");
        NTKIT_REQUIRE(end <= tape_.cache_size, std::string(name) + " [" + text(start) + ", " + text(end) + ") ends behind the " +
                                           text(tape_.cache_size) + " cached numbers per input");
    }

    // One cached number, at `at`.
    void check_unit(const char* name, std::int32_t at) const { check_cached(name, at, Axes{1, 1, tape_.batch}, true); }

    template <class Op>
    void check_sizes(const Op& op) const {
        const auto [in, out] = sizes(op);
        for (const Axes& size : {in, out})
            for (const std::int32_t length : size) NTKIT_REQUIRE(length >= 1, "every length must be at least 1. Got " + text(size));
        const Axes block{1, 1, tape_.batch};
        if (tape_.batch > 1)
            for (const Axes& size : {in, out})
                NTKIT_REQUIRE(size == block, "in a network of vectors sizes are 1x1x" + text(tape_.batch) + ". Got " + text(size));
    }

    void check(const Input& op) const {
        NTKIT_REQUIRE(op.data >= 0 && op.data < std::ssize(tape_.data_start), "there is no data " + text(op.data));
        NTKIT_REQUIRE(op.channels >= 1, "channels must be at least 1. Got " + text(op.channels));
        const bool last = op.data + 1 == std::ssize(tape_.data_start);
        const std::int64_t there = (last ? tape_.data_size : tape_.data_start[op.data + 1]) - tape_.data_start[op.data];
        const std::int64_t read = op.channels * positions_of(op.size) / tape_.batch;
        NTKIT_REQUIRE(read == there, "it reads " + text(read) + " numbers per input of data that have " + text(there));
        check_cached("half_at", op.half_at, op.size);
    }
    void check(const Layer& op) const {
        for (int axis = 0; axis < kAxes; ++axis)
            NTKIT_REQUIRE(op.kernel[axis] >= 1 && op.stride[axis] >= 1 && op.dilation[axis] >= 1,
                    "kernel, stride and dilation must be at least 1 along every axis");
        check_cached("half_in_at", op.half_in_at, op.in_size);
        check_cached("half_out_at", op.half_out_at, op.out_size);
        check_unit("unit_at", op.unit_at);
        if (op.activation) check_cached("activation.deviation_at", op.activation->deviation_at, op.out_size, true);
        NTKIT_REQUIRE(!op.activation || op.weight > 0, "a layer fused with its activation must have a positive weight");
    }
    void check(const Rectified& op) const { check_cached("activation.deviation_at", op.activation.deviation_at, op.size, true); }
    void check(const Smooth& op) const {
        check_cached("deviation_at", op.deviation_at, op.size, true);
        check_cached("half_at", op.half_at, op.size);
        std::size_t terms = 0;
        while (terms * terms < op.hermite_terms.size()) ++terms;
        NTKIT_REQUIRE(terms * terms == op.hermite_terms.size() && (terms > 0) == (op.function == Function::polynomial),
                "a polynomial of n coefficients needs n * n Hermite terms, and nothing else has any. Got " +
                    std::to_string(op.hermite_terms.size()));
        NTKIT_REQUIRE(op.gain_terms.size() == (op.trained_gain != 0 ? op.hermite_terms.size() : 0),
                "a polynomial with a trained gain needs as many gain_terms as hermite_terms, and nothing else has any. Got " +
                    std::to_string(op.gain_terms.size()));
    }
    void check_table(const std::shared_ptr<const SeriesTable>& table) const {
        NTKIT_REQUIRE(table != nullptr, "table is needed and not set");
        NTKIT_REQUIRE(table->terms() >= 1 && table->degree >= 1 && table->piece > 0, "orders, degree and piece of a table must be positive");
        std::int32_t before = 0;
        for (const std::int32_t order : table->orders) {
            NTKIT_REQUIRE(order > before, "the orders of a table must be positive and ascend");
            NTKIT_REQUIRE(order <= kMostOrder, "the orders of a table must be at most " + text(kMostOrder) + ". Got " + text(order));
            before = order;
        }
        const std::size_t powers = Powers(table->orders).count();
        NTKIT_REQUIRE(powers <= kMostPowers, "the orders of a table may need " + std::to_string(kMostPowers) + " powers of the correlation. Got " + std::to_string(powers));
        const bool kinked = !table->jumps.empty();
        NTKIT_REQUIRE(!kinked || (std::ssize(table->jumps) == 3 && table->orders[0] == 1), "a table with jumps must have three, and order one");
        NTKIT_REQUIRE(std::ssize(table->closed) == (kinked ? 3 * table->terms() : 0),
                      "a table with jumps must have three closed products for each order, and no other any. Got " + text(std::ssize(table->closed)));
        const std::int64_t each = table->degree * (1 + table->terms());
        NTKIT_REQUIRE(table->pieces() >= 1 && table->pieces() * each == std::ssize(table->coefficients),
                      "a table must have " + text(each) + " coefficients for each piece. Got " + text(std::ssize(table->coefficients)));
    }
    void check(const Series& op) const {
        check_table(op.table);
        check_cached("series_at", op.series_at, op.size, true, 1 + op.table->terms());
        check_cached("deviation_at", op.deviation_at, op.size, true);
        check_cached("half_at", op.half_at, op.size);
    }
    void check(const Normalize& op) const { check_cached("scale_at", op.scale_at, op.size, true, 2); }
    void check(const Product& op) const {
        check_cached("first_half_at", op.first_half_at, op.size);
        check_cached("second_half_at", op.second_half_at, op.size);
    }
    void check(const Fill&) const {}
    void check(const Pool& op) const {
        NTKIT_REQUIRE(op.axis >= 0 && op.axis < kAxes, "there is no axis " + text(op.axis));
        NTKIT_REQUIRE(op.kernel >= 1 && op.stride >= 1, "kernel and stride must be at least 1");
        for (int axis = 0; axis < kAxes; ++axis)
            NTKIT_REQUIRE(axis == op.axis || op.in_size[axis] == op.out_size[axis], "only the length of the pooled axis may change");
        const std::int64_t windows = op.out_size[op.axis];
        NTKIT_REQUIRE(std::ssize(op.weights) == windows && std::ssize(op.totals) == windows,
                "there must be one weight and one total for each of the " + text(windows) + " windows");
        check_cached("inside_at", op.inside_at, op.out_size);
        check_cached("mean_at", op.mean_at, op.out_size);
    }
    void check_one_axis(std::int32_t changed, const Axes& in, const Axes& out) const {
        NTKIT_REQUIRE(changed >= 0 && changed < kAxes, "there is no axis " + text(changed));
        for (int axis = 0; axis < kAxes; ++axis)
            NTKIT_REQUIRE(axis == changed || in[axis] == out[axis], "only the length of the mapped axis may change");
    }
    void check(const Select& op) const {
        NTKIT_REQUIRE(op.axis >= kNothing && op.axis < kAxes, "there is no axis " + text(op.axis));
        const std::int64_t count = op.axis == kNothing ? 0 : op.out_size[op.axis];
        NTKIT_REQUIRE(std::ssize(op.index) == count, "the index must have " + text(count) + " numbers. Got " + text(std::ssize(op.index)));
        std::int64_t last = 0;
        for (int axis = 0; axis < kAxes; ++axis) {
            NTKIT_REQUIRE(op.in_stride[axis] >= 0, "in_stride must not be negative");
            std::int64_t highest = op.out_size[axis] - 1;
            if (axis == op.axis) highest = std::max<std::int64_t>(0, *std::max_element(op.index.begin(), op.index.end()));
            last += highest * op.in_stride[axis];
        }
        NTKIT_REQUIRE(last < positions_of(op.in_size), "it reads position " + text(last) + ", behind the " +
                                                     text(positions_of(op.in_size)) + " positions of the input");
        check_cached("half_in_at", op.half_in_at, op.in_size);
    }
    void check(const Map& op) const {
        check_one_axis(op.axis, op.in_size, op.out_size);
        const std::int64_t rows = op.out_size[op.axis], columns = op.in_size[op.axis];
        NTKIT_REQUIRE(std::ssize(op.matrix) == rows * columns, "the matrix must have " + text(rows) + " times " + text(columns) +
                                                               " numbers. Got " + text(std::ssize(op.matrix)));
        NTKIT_REQUIRE(std::ssize(op.first) == rows && std::ssize(op.last) == rows && std::ssize(op.totals) == rows,
                      "there must be a first, a last and a total for each of the " + text(rows) + " rows");
        for (std::int64_t row = 0; row < rows; ++row)
            NTKIT_REQUIRE(op.first[row] >= 0 && op.first[row] <= op.last[row] && op.last[row] <= columns,
                          "first and last of row " + text(row) + " must lie between 0 and " + text(columns));
        check_cached("inside_at", op.inside_at, op.out_size);
        check_cached("mean_at", op.mean_at, op.out_size);
    }
    void check(const Reduce& op) const {
        std::int64_t last = 0;
        for (int axis = 0; axis < kAxes; ++axis) {
            NTKIT_REQUIRE(op.out_stride[axis] >= 0, "out_stride must not be negative");
            last += static_cast<std::int64_t>(op.in_size[axis] - 1) * op.out_stride[axis];
        }
        NTKIT_REQUIRE(last < positions_of(op.out_size), "its last sum is at " + text(last) + ", behind the " +
                                                      text(positions_of(op.out_size)) + " positions of the output");
    }
    void check(const Convert& op) const { check_cached("half_at", op.half_at, op.size); }
    void check(const Rescale& op) const {
        check_unit("ratio_at", op.ratio_at);
        check_cached("half_at", op.half_at, op.size);
    }
    void check(const Store& op) const {
        if (op.what == Cached::series) check_table(op.table);
        const std::int64_t copies = op.what == Cached::scale ? 2 : op.what == Cached::series ? 1 + op.table->terms() : 1;
        check_cached("target_at", op.target_at, op.size, true, copies);
        check_unit("unit_at", op.unit_at);
    }
    void check(const Plain&) const {}
    void check_data(std::int32_t data, std::int64_t read) const {
        NTKIT_REQUIRE(data >= 0 && data < std::ssize(tape_.data_start), "there is no data " + text(data));
        const bool last = data + 1 == std::ssize(tape_.data_start);
        const std::int64_t there = (last ? tape_.data_size : tape_.data_start[data + 1]) - tape_.data_start[data];
        NTKIT_REQUIRE(read == there, "it reads " + text(read) + " numbers per input of data that have " + text(there));
    }
    void check(const Matrix& op) const {
        const std::int64_t count = static_cast<std::int64_t>(op.rows) * op.columns;
        NTKIT_REQUIRE((op.cached_at != kNothing) + (op.data != kNothing) + !op.numbers.empty() == 1, "a matrix must be cached, data or the same for all inputs");
        NTKIT_REQUIRE(tape_.batch == 1, "there are no matrices in a network of vectors");
        if (op.data != kNothing) check_data(op.data, count);
        else if (op.cached_at != kNothing) check_cached("cached_at", op.cached_at, Axes{1, op.rows, op.columns}, true);
        else NTKIT_REQUIRE(std::ssize(op.numbers) == count, "it must have " + text(count) + " numbers. Got " + text(std::ssize(op.numbers)));
    }
    void check(const Weights& op) const {
        const std::int64_t count = static_cast<std::int64_t>(op.tokens) * op.tokens;
        NTKIT_REQUIRE(tape_.batch == 1, "there is no attention in a network of vectors");
        NTKIT_REQUIRE(op.mask.empty() || std::ssize(op.mask) == count, "the mask must have " + text(count) + " numbers. Got " + text(std::ssize(op.mask)));
        check_cached("target_at", op.target_at, Axes{1, op.tokens, op.tokens}, true);
    }
    void check(const Lookup& op) const {
        NTKIT_REQUIRE(tape_.batch == 1, "integers must have positions");
        check_data(op.data, positions_of(op.size));
    }
    void check(const Table& op) const {
        const std::int64_t count = positions_of(op.size) * positions_of(op.size);
        for (const auto* numbers : {&op.covariance, &op.tangent})
            NTKIT_REQUIRE(numbers->empty() || std::ssize(*numbers) == count, "a table must have " + text(count) + " numbers. Got " + text(std::ssize(*numbers)));
    }
};

}  // namespace

void check_operation(const Tape& tape, const Operation& operation) {
    const OperationChecker checker{tape};
    std::visit([&](const auto& op) {
        checker.check_sizes(op);
        checker.check(op);
    }, operation);
}

}  // namespace ntkit
