// Says what is wrong with a tape before anything runs it: which operation or instruction, why, and what was expected.

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "tape.hpp"

// A macro, so that a message is put together only where it is needed.
#define REQUIRE(condition, message) \
    do {                            \
        if (!(condition)) fail(message); \
    } while (false)

namespace ntkit {
namespace {

std::string text(std::int64_t value) { return std::to_string(value); }
std::string text(const Axes& value) { return text(value[0]) + "x" + text(value[1]) + "x" + text(value[2]); }

// The sizes of the planes that an operation reads and writes.
struct Sizes {
    Axes in, out;
};
template <class Op>
Sizes sizes(const Op& op) {
    if constexpr (requires { op.in_size; }) return {op.in_size, op.out_size};
    else return {op.size, op.size};
}

class Checker {
public:
    explicit Checker(const Tape& tape)
        : tape_(tape), slot_written_(tape.slots()), sum_written_(std::max(tape.accumulators, 0)) {}

    void run() {
        REQUIRE(tape_.batch >= 1, "the batch must be at least 1. Got " + text(tape_.batch));
        REQUIRE(tape_.own_size >= 1, "there must be at least one own number per input, its scale. Got " + text(tape_.own_size));
        REQUIRE(tape_.accumulators >= 0 && tape_.accumulator_positions >= 0, "accumulators and their positions must not be negative");
        for (operation_ = 0; operation_ < std::ssize(tape_.operations); ++operation_)
            std::visit([this](const auto& op) { check_sizes(op); check(op); }, tape_.operations[operation_]);
        for (instruction_ = 0; instruction_ < std::ssize(tape_.instructions); ++instruction_) {
            const Instruction& step = tape_.instructions[instruction_];
            REQUIRE(step.operation >= 0 && step.operation < std::ssize(tape_.operations),
                    "there is no operation " + text(step.operation) + ", only " + std::to_string(tape_.operations.size()));
            check(step, tape_.operations[step.operation]);
            if (step.chained) check_chained(step);
        }
    }

private:
    [[noreturn]] void fail(const std::string& message) const {
        std::string where;
        if (instruction_ >= 0)
            where = "instruction " + text(instruction_) + " (" + text_of(tape_.instructions[instruction_]) + "): ";
        else if (operation_ >= 0)
            where = "operation " + text(operation_) + " (" + text_of(tape_.operations[operation_]) + "): ";
        throw std::invalid_argument(where + message + ".");
    }

    // Own data that begin at `start`, `copies` numbers per position.
    void check_own(const char* name, std::int32_t start, const Axes& size, bool needed = false, int copies = 1) const {
        if (start == kNothing) {
            REQUIRE(!needed, std::string(name) + " is needed and not set");
            return;
        }
        const std::int64_t count = copies * positions_of(size) / tape_.batch, end = start + count;
        REQUIRE(start >= 0, std::string(name) + " " + text(start) + " is before the first own number");
        REQUIRE(end <= tape_.own_size, std::string(name) + " [" + text(start) + ", " + text(end) + ") ends behind the " +
                                           text(tape_.own_size) + " own numbers per input");
    }

    template <class Op>
    void check_sizes(const Op& op) const {
        const auto [in, out] = sizes(op);
        for (const Axes& size : {in, out})
            for (const std::int32_t length : size) REQUIRE(length >= 1, "every length must be at least 1. Got " + text(size));
        const Axes block{1, 1, tape_.batch};
        if (tape_.batch > 1)
            for (const Axes& size : {in, out})
                REQUIRE(size == block, "in a network of vectors sizes are 1x1x" + text(tape_.batch) + ". Got " + text(size));
    }

    void check(const Input& op) const {
        REQUIRE(op.data >= 0 && op.data < std::ssize(tape_.data_start), "there is no data " + text(op.data));
        REQUIRE(op.channels >= 1, "channels must be at least 1. Got " + text(op.channels));
        const bool last = op.data + 1 == std::ssize(tape_.data_start);
        const std::int64_t there = (last ? tape_.data_size : tape_.data_start[op.data + 1]) - tape_.data_start[op.data];
        const std::int64_t read = op.channels * positions_of(op.size) / tape_.batch;
        REQUIRE(read == there, "it reads " + text(read) + " numbers per input of data that have " + text(there));
        check_own("half_at", op.half_at, op.size);
    }
    void check(const Layer& op) const {
        for (int axis = 0; axis < kAxes; ++axis)
            REQUIRE(op.kernel[axis] >= 1 && op.stride[axis] >= 1 && op.dilation[axis] >= 1,
                    "kernel, stride and dilation must be at least 1 along every axis");
        check_own("half_in_at", op.half_in_at, op.in_size);
        check_own("half_out_at", op.half_out_at, op.out_size);
        if (op.activation) check_own("activation.deviation_at", op.activation->deviation_at, op.out_size, true);
        REQUIRE(!op.activation || op.weight > 0, "a layer fused with its activation must have a positive weight");
    }
    void check(const Rectified& op) const { check_own("activation.deviation_at", op.activation.deviation_at, op.size, true); }
    void check(const Smooth& op) const {
        check_own("deviation_at", op.deviation_at, op.size, true);
        check_own("half_at", op.half_at, op.size);
        std::size_t terms = 0;
        while (terms * terms < op.hermite_terms.size()) ++terms;
        REQUIRE(terms * terms == op.hermite_terms.size() && (terms > 0) == (op.function == Function::polynomial),
                "a polynomial of n coefficients needs n * n Hermite terms, and nothing else has any. Got " +
                    std::to_string(op.hermite_terms.size()));
    }
    void check(const Normalize& op) const { check_own("scale_at", op.scale_at, op.size, true, 2); }
    void check(const Fill&) const {}
    void check(const Pool& op) const {
        REQUIRE(op.axis >= 0 && op.axis < kAxes, "there is no axis " + text(op.axis));
        REQUIRE(op.kernel >= 1 && op.stride >= 1, "kernel and stride must be at least 1");
        for (int axis = 0; axis < kAxes; ++axis)
            REQUIRE(axis == op.axis || op.in_size[axis] == op.out_size[axis], "only the length of the pooled axis may change");
        const std::int64_t windows = op.out_size[op.axis];
        REQUIRE(std::ssize(op.weights) == windows && std::ssize(op.totals) == windows,
                "there must be one weight and one total for each of the " + text(windows) + " windows");
        check_own("inside_at", op.inside_at, op.out_size);
        check_own("mean_at", op.mean_at, op.out_size);
    }
    void check(const Reduce& op) const {
        std::int64_t last = 0;
        for (int axis = 0; axis < kAxes; ++axis) {
            REQUIRE(op.out_stride[axis] >= 0, "out_stride must not be negative");
            last += static_cast<std::int64_t>(op.in_size[axis] - 1) * op.out_stride[axis];
        }
        REQUIRE(last < positions_of(op.out_size), "its last sum is at " + text(last) + ", behind the " +
                                                      text(positions_of(op.out_size)) + " positions of the output");
    }
    void check(const Convert& op) const { check_own("half_at", op.half_at, op.size, true); }
    void check(const Store& op) const { check_own("target_at", op.target_at, op.size, true, op.what == Own::scale ? 2 : 1); }
    void check(const Plain&) const {}

    template <class Op>
    const Op& as(const Operation& operation) const {
        const Op* const op = std::get_if<Op>(&operation);
        REQUIRE(op != nullptr, std::string("it needs an operation ") + Op::name + ", not " + text_of(operation));
        return *op;
    }

    void read_slot(const Instruction& step, const Axes& size) const {
        REQUIRE(step.in_slot != kNothing, "it reads no slot");
        REQUIRE(step.in_slot >= 0 && step.in_slot < tape_.slots(), "there is no slot " + text(step.in_slot) + ", only " + text(tape_.slots()));
        REQUIRE(positions_of(size) <= tape_.slot_positions(step.in_slot), "the plane of " + text(size) + " ends behind the " +
                                                                         text(tape_.slot_positions(step.in_slot)) + " positions of slot " + text(step.in_slot));
        REQUIRE(slot_written_[step.in_slot], "nothing has written slot " + text(step.in_slot));
        check_offset(step.in_offset, size);
    }
    void write_slot(const Instruction& step, const Axes& size) {
        REQUIRE(step.out_slot >= 0 && step.out_slot < tape_.slots(), "there is no slot " + text(step.out_slot) + ", only " + text(tape_.slots()));
        REQUIRE(positions_of(size) <= tape_.slot_positions(step.out_slot), "the plane of " + text(size) + " ends behind the " +
                                                                          text(tape_.slot_positions(step.out_slot)) + " positions of slot " + text(step.out_slot));
        slot_written_[step.out_slot] = true;
        check_offset(step.out_offset, size);
    }
    void check_sum(std::int32_t index, const Axes& size) const {
        REQUIRE(index >= 0 && index < tape_.accumulators, "there is no accumulator " + text(index) + ", only " + text(tape_.accumulators));
        REQUIRE(positions_of(size) <= tape_.accumulator_positions, "the plane of " + text(size) + " ends behind the " +
                                                                       text(tape_.accumulator_positions) + " positions of an accumulator");
    }
    void add_to_sum(const Instruction& step, const Axes& size) const {
        check_sum(step.out_slot, size);
        REQUIRE(sum_written_[step.out_slot], "nothing has cleared accumulator " + text(step.out_slot));
        check_offset(step.out_offset, size);
    }
    // An offset outside leaves no entry in the plane.
    void check_offset(const Axes& offset, const Axes& size) const {
        for (int axis = 0; axis < kAxes; ++axis)
            REQUIRE(std::abs(offset[axis]) < size[axis] || (offset[axis] == 0 && size[axis] == 1),
                    "offset " + text(offset[axis]) + " along axis " + text(axis) + " is outside a plane of " + text(size));
    }

    // Whether some window reaches outside the input along an axis that does not wrap around.
    static bool leaves_input(const Layer& op) {
        for (int axis = 0; axis < kAxes; ++axis) {
            const std::int64_t first = -op.padding[axis];
            const std::int64_t last = first + static_cast<std::int64_t>(op.out_size[axis] - 1) * op.stride[axis] +
                                      static_cast<std::int64_t>(op.kernel[axis] - 1) * op.dilation[axis];
            if (!op.circular[axis] && (first < 0 || last >= op.in_size[axis])) return true;
        }
        return false;
    }

    void check(const Instruction& step, const Operation& operation) {
        switch (step.kind) {
            case Kind::input: return write_slot(step, as<Input>(operation).size);
            case Kind::layer: {
                const Layer& op = as<Layer>(operation);
                if (step.in_slot != kNothing) read_slot(step, op.in_size);
                else REQUIRE(leaves_input(op), "it reads no plane, though its windows stay inside the input");
                REQUIRE(step.covariance_in || !leaves_input(op) || op.half_in_at != kNothing, "half_in_at is needed for the padding of H");
                const bool adds_k = !op.activation && !step.covariance_in && step.theta_out && op.weight_rate != 0;
                REQUIRE(!adds_k || op.half_out_at != kNothing, "half_out_at is needed, because Theta gets K and the plane holds H");
                REQUIRE(!op.activation || !step.covariance_in, "an activation reads H, and the layer it is fused with reads K");
                return write_slot(step, op.out_size);
            }
            case Kind::rectified: return unary(step, as<Rectified>(operation).size);
            case Kind::smooth: {
                const Smooth& op = as<Smooth>(operation);
                REQUIRE(step.covariance_out || op.half_at != kNothing, "half_at is needed to write H");
                return unary(step, op.size);
            }
            case Kind::normalize: return unary(step, as<Normalize>(operation).size);
            case Kind::fill: {
                const Fill& op = as<Fill>(operation);
                if (step.theta_in) read_slot(step, op.size);
                return write_slot(step, op.size);
            }
            case Kind::clear:
                check_sum(step.out_slot, as<Plain>(operation).size);
                sum_written_[step.out_slot] = true;
                return;
            case Kind::pool: {
                const Pool& op = as<Pool>(operation);
                read_slot(step, op.in_size);
                return op.wide ? add_to_sum(step, op.out_size) : rewrite_slot(step, op.out_size);
            }
            case Kind::pool_end: {
                const Pool& op = as<Pool>(operation);
                REQUIRE(op.inside_at != kNothing, "inside_at is needed and not set");
                const bool even = std::equal(op.totals.begin() + 1, op.totals.end(), op.totals.begin());
                REQUIRE(even || op.mean_at != kNothing, "mean_at is needed where the totals of windows differ");
                return rewrite_slot(step, op.out_size);
            }
            case Kind::own_pool: {
                const Pool& op = as<Pool>(operation);
                read_slot(step, op.in_size);
                return write_slot(step, op.out_size);
            }
            case Kind::own_pool_end: {
                const Pool& op = as<Pool>(operation);
                read_slot(step, op.out_size);
                return rewrite_slot(step, op.out_size);
            }
            case Kind::reduce: {
                const Reduce& op = as<Reduce>(operation);
                read_slot(step, op.in_size);
                return add_to_sum(step, op.out_size);
            }
            case Kind::settle: {
                const Plain& op = as<Plain>(operation);
                check_sum(step.in_slot, op.size);
                REQUIRE(sum_written_[step.in_slot], "nothing has written accumulator " + text(step.in_slot));
                return write_slot(step, op.size);
            }
            case Kind::combine: {
                const Plain& op = as<Plain>(operation);
                read_slot(step, op.size);
                return rewrite_slot(step, op.size);
            }
            case Kind::convert: return unary(step, as<Convert>(operation).size);
            case Kind::store: return read_slot(step, as<Store>(operation).size);
            case Kind::output: {
                const Plain& op = as<Plain>(operation);
                REQUIRE(positions_of(op.size) == tape_.batch, "the output must have no positions. Got " + text(op.size));
                return read_slot(step, op.size);
            }
        }
        fail("there is no such kind of instruction");
    }

    void check_chained(const Instruction& step) const {
        REQUIRE(step.kind == Kind::input || step.kind == Kind::layer, "only an input or a layer can be chained");
        REQUIRE(instruction_ + 1 < std::ssize(tape_.instructions), "it is chained, and nothing follows");
        const Instruction& next = tape_.instructions[instruction_ + 1];
        REQUIRE((next.kind == Kind::layer || next.kind == Kind::reduce) && next.in_slot == step.out_slot,
                "it is chained, and the next instruction is not a layer or reduction that reads slot " + text(step.out_slot));
    }

    void unary(const Instruction& step, const Axes& size) {
        read_slot(step, size);
        write_slot(step, size);
    }
    void rewrite_slot(const Instruction& step, const Axes& size) {
        write_slot_exists(step);
        write_slot(step, size);
    }
    void write_slot_exists(const Instruction& step) const {
        REQUIRE(step.out_slot >= 0 && step.out_slot < tape_.slots(), "there is no slot " + text(step.out_slot) + ", only " + text(tape_.slots()));
        REQUIRE(slot_written_[step.out_slot], "nothing has written slot " + text(step.out_slot) + ", which it changes");
    }

    const Tape& tape_;
    std::vector<bool> slot_written_, sum_written_;
    std::int64_t operation_ = -1, instruction_ = -1;  // which one is being checked
};

}  // namespace

void check_tape(const Tape& tape) { Checker(tape).run(); }

}  // namespace ntkit
