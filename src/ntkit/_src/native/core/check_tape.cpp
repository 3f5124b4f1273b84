// Reports what is wrong with a tape before it runs: which operation or instruction, why, and what was expected.

#include <algorithm>
#include <cstdlib>

#include "check.hpp"

namespace ntkit {
namespace {

class Checker {
public:
    explicit Checker(const Tape& tape)
        : tape_(tape), slot_written_(tape.slots()), sum_written_(std::max(tape.accumulators, 0)) {}

    void run() {
        try {
            NTKIT_REQUIRE(tape_.batch >= 1, "the batch must be at least 1. Got " + text(tape_.batch));
            NTKIT_REQUIRE(tape_.cache_size >= 1, "there must be at least one cached number per input, its scale. Got " + text(tape_.cache_size));
            NTKIT_REQUIRE(tape_.accumulators >= 0 && tape_.accumulator_positions >= 0,
                          "accumulators and their positions must not be negative");
        } catch (const Wrong& wrong) {
            throw std::invalid_argument(std::string(wrong.what()) + ".");
        }
        for (std::int64_t i = 0; i < std::ssize(tape_.operations); ++i) try {
                check_operation(tape_, tape_.operations[i]);
            } catch (const Wrong& wrong) {
                throw std::invalid_argument("operation " + text(i) + " (" + text_of(tape_.operations[i]) + "): " + wrong.what() + ".");
            }
        for (instruction_ = 0; instruction_ < std::ssize(tape_.instructions); ++instruction_) {
            const Instruction& step = tape_.instructions[instruction_];
            try {
                NTKIT_REQUIRE(step.operation >= 0 && step.operation < std::ssize(tape_.operations),
                              "there is no operation " + text(step.operation) + ", only " + text(std::ssize(tape_.operations)));
                if (step.whole) check_whole(step, tape_.operations[step.operation]);
                check(step, tape_.operations[step.operation]);
                if (step.chained) check_chained(step);
            } catch (const Wrong& wrong) {
                throw std::invalid_argument("instruction " + text(instruction_) + " (" + text_of(step) + "): " + wrong.what() + ".");
            }
        }
    }

private:
    template <class Op>
    const Op& as(const Operation& operation) const {
        const Op* const op = std::get_if<Op>(&operation);
        NTKIT_REQUIRE(op != nullptr, std::string("it needs an operation ") + Op::name + ", not " + text_of(operation));
        return *op;
    }

    void read_slot(const Instruction& step, const Axes& size) const {
        NTKIT_REQUIRE(step.in_slot != kNothing, "it reads no slot");
        NTKIT_REQUIRE(step.in_slot >= 0 && step.in_slot < tape_.slots(), "there is no slot " + text(step.in_slot) + ", only " + text(tape_.slots()));
        NTKIT_REQUIRE(positions_of(size) <= tape_.slot_positions(step.in_slot), "the plane of " + text(size) + " ends behind the " +
                                                                         text(tape_.slot_positions(step.in_slot)) + " positions of slot " + text(step.in_slot));
        NTKIT_REQUIRE(slot_written_[step.in_slot], "nothing has written slot " + text(step.in_slot));
        check_offset(step.in_offset, size);
    }
    void write_slot(const Instruction& step, const Axes& size) {
        NTKIT_REQUIRE(step.out_slot >= 0 && step.out_slot < tape_.slots(), "there is no slot " + text(step.out_slot) + ", only " + text(tape_.slots()));
        NTKIT_REQUIRE(positions_of(size) <= tape_.slot_positions(step.out_slot), "the plane of " + text(size) + " ends behind the " +
                                                                          text(tape_.slot_positions(step.out_slot)) + " positions of slot " + text(step.out_slot));
        slot_written_[step.out_slot] = true;
        check_offset(step.out_offset, size);
    }
    void check_sum(std::int32_t index, const Axes& size) const {
        NTKIT_REQUIRE(index >= 0 && index < tape_.accumulators, "there is no accumulator " + text(index) + ", only " + text(tape_.accumulators));
        NTKIT_REQUIRE(positions_of(size) <= tape_.accumulator_positions, "the plane of " + text(size) + " ends behind the " +
                                                                       text(tape_.accumulator_positions) + " positions of an accumulator");
    }
    void add_to_sum(const Instruction& step, const Axes& size) const {
        check_sum(step.out_slot, size);
        NTKIT_REQUIRE(sum_written_[step.out_slot], "nothing has cleared accumulator " + text(step.out_slot));
        check_offset(step.out_offset, size);
    }
    // An offset out of range would leave no entry in the plane.
    void check_offset(const Axes& offset, const Axes& size) const {
        for (int axis = 0; axis < kAxes; ++axis)
            NTKIT_REQUIRE(std::abs(offset[axis]) < size[axis] || (offset[axis] == 0 && size[axis] == 1),
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
                else NTKIT_REQUIRE(leaves_input(op), "it reads no plane, though its windows stay inside the input");
                NTKIT_REQUIRE(step.covariance_in || !leaves_input(op) || op.half_in_at != kNothing, "half_in_at is needed for the padding of H");
                const bool adds_k = !op.activation && !step.covariance_in && step.theta_out && op.weight_rate != 0;
                NTKIT_REQUIRE(!adds_k || op.half_out_at != kNothing, "half_out_at is needed, because Theta gets K and the plane holds H");
                NTKIT_REQUIRE(!op.activation || !step.covariance_in, "an activation reads H, and the layer it is fused with reads K");
                return write_slot(step, op.out_size);
            }
            case Kind::rectified: return unary(step, as<Rectified>(operation).size);
            case Kind::smooth: {
                const Smooth& op = as<Smooth>(operation);
                NTKIT_REQUIRE(step.covariance_out || op.half_at != kNothing, "half_at is needed to write H");
                return unary(step, op.size);
            }
            case Kind::series: {
                const Series& op = as<Series>(operation);
                NTKIT_REQUIRE(step.covariance_out || op.half_at != kNothing, "half_at is needed to write H");
                return unary(step, op.size);
            }
            case Kind::normalize: return unary(step, as<Normalize>(operation).size);
            case Kind::multiply: {
                const Product& op = as<Product>(operation);
                const bool halves = op.first_half_at != kNothing && op.second_half_at != kNothing;
                NTKIT_REQUIRE(step.covariance_out || halves, "first_half_at and second_half_at are needed to multiply H");
                NTKIT_REQUIRE(step.covariance_in == step.covariance_out, "both planes of a product must hold K, or both H");
                read_slot(step, op.size);
                return rewrite_slot(step, op.size);
            }
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
                check_ends(op);
                return rewrite_slot(step, op.out_size);
            }
            case Kind::variance_pool: {
                const Pool& op = as<Pool>(operation);
                read_slot(step, op.in_size);
                return write_slot(step, op.out_size);
            }
            case Kind::variance_pool_end: {
                const Pool& op = as<Pool>(operation);
                read_slot(step, op.out_size);
                return rewrite_slot(step, op.out_size);
            }
            case Kind::select: {
                const Select& op = as<Select>(operation);
                if (step.in_slot != kNothing) {
                    read_slot(step, op.in_size);
                } else {
                    const bool zeros = std::any_of(op.index.begin(), op.index.end(), [](std::int32_t p) { return p < 0; });
                    NTKIT_REQUIRE(step.covariance_out || !zeros || op.half_in_at != kNothing, "half_in_at is needed for the H of zeros");
                }
                return write_slot(step, op.out_size);
            }
            case Kind::map: {
                const Map& op = as<Map>(operation);
                read_slot(step, op.in_size);
                return op.wide ? add_to_sum(step, op.out_size) : rewrite_slot(step, op.out_size);
            }
            case Kind::map_end: {
                const Map& op = as<Map>(operation);
                check_ends(op);
                return rewrite_slot(step, op.out_size);
            }
            case Kind::variance_map: {
                const Map& op = as<Map>(operation);
                read_slot(step, op.in_size);
                return write_slot(step, op.out_size);
            }
            case Kind::variance_map_end: {
                const Map& op = as<Map>(operation);
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
                NTKIT_REQUIRE(sum_written_[step.in_slot], "nothing has written accumulator " + text(step.in_slot));
                return write_slot(step, op.size);
            }
            case Kind::combine: {
                const Plain& op = as<Plain>(operation);
                read_slot(step, op.size);
                return rewrite_slot(step, op.size);
            }
            case Kind::relabel: {
                const Select& op = as<Select>(operation);
                NTKIT_REQUIRE(positions_of(op.in_size) == positions_of(op.out_size), "merging axes must keep the number of positions");
                read_slot(step, op.in_size);
                return write_slot(step, op.out_size);
            }
            case Kind::place: {
                const Select& op = as<Select>(operation);
                const std::int64_t start = std::find(op.index.begin(), op.index.end(), 0) - op.index.begin();
                NTKIT_REQUIRE(op.axis == kAxes - 1 && start + positions_of(op.in_size) <= positions_of(op.out_size), "the block must lie inside");
                read_slot(step, whole(op.in_size));
                return write_slot(step, whole(op.out_size));
            }
            case Kind::independent: return write_slot(step, needs_half(step.covariance_out, as<Convert>(operation)).size);
            case Kind::lookup: return write_slot(step, as<Lookup>(operation).size);
            case Kind::table: return rewrite_slot(step, as<Table>(operation).size);
            case Kind::gather: {
                const Convert& op = needs_half(step.covariance_in || !step.covariance_out, as<Convert>(operation));
                read_slot(step, op.size);
                return write_slot(step, whole(op.size));
            }
            case Kind::left: {
                const Matrix& op = as<Matrix>(operation);
                read_slot(step, {1, op.columns, op.columns});
                return write_slot(step, {1, op.rows, op.columns});
            }
            case Kind::right: {
                const Matrix& op = as<Matrix>(operation);
                read_slot(step, {1, op.rows, op.columns});
                return write_slot(step, {1, op.rows, op.rows});
            }
            case Kind::scatter: {
                const Convert& op = needs_half(step.covariance_out || !step.covariance_in, as<Convert>(operation));
                read_slot(step, whole(op.size));
                return write_slot(step, op.size);
            }
            case Kind::weights: {
                const Weights& op = as<Weights>(operation);
                return read_slot(step, {1, op.tokens, op.tokens});
            }
            case Kind::convert: return unary(step, needs_half(false, as<Convert>(operation)).size);
            case Kind::rescale: {
                const Rescale& op = as<Rescale>(operation);
                NTKIT_REQUIRE(step.covariance_in == step.covariance_out, "both planes must hold K, or both H");
                NTKIT_REQUIRE(step.covariance_out || op.half_at != kNothing, "half_at is needed to rescale H");
                return unary(step, op.size);
            }
            case Kind::store: return read_slot(step, as<Store>(operation).size);
            case Kind::output: {
                const Plain& op = as<Plain>(operation);
                NTKIT_REQUIRE(positions_of(op.size) == tape_.batch, "the output must have no positions. Got " + text(op.size));
                return read_slot(step, op.size);
            }
        }
        throw Wrong("there is no such kind of instruction");
    }

    // Operations that treat every entry alone may run on whole covariances.
    void check_whole(const Instruction& step, const Operation& operation) const {
        switch (step.kind) {
            case Kind::layer: {
                const Layer& op = as<Layer>(operation);
                NTKIT_REQUIRE(positions_of(op.kernel) == 1 && op.in_size == op.out_size && op.padding == Axes{}, "a window reads other entries");
                break;
            }
            case Kind::input: case Kind::rectified: case Kind::smooth: case Kind::series: case Kind::normalize: case Kind::multiply:
            case Kind::fill: case Kind::combine: case Kind::convert: case Kind::rescale: case Kind::relabel: case Kind::independent:
            case Kind::lookup: case Kind::table: break;
            default: throw Wrong("it works on planes, not on whole covariances");
        }
        NTKIT_REQUIRE(tape_.batch == 1, "there are no whole covariances in a network of vectors");
        NTKIT_REQUIRE(step.in_offset == Axes{} && step.out_offset == Axes{}, "whole covariances have no offset");
        const std::int64_t positions = std::visit([](const auto& op) -> std::int64_t {
            if constexpr (requires { op.size; }) return positions_of(op.size);
            else if constexpr (requires { op.out_size; }) return positions_of(op.out_size);
            else return 0;
        }, operation);
        NTKIT_REQUIRE(positions == step.whole, "it is whole for " + text(step.whole) + " positions and has " + text(positions));
        for (const std::int32_t slot : {step.in_slot, step.out_slot})
            NTKIT_REQUIRE(slot == kNothing || (slot >= 0 && slot < tape_.slots() && tape_.slot_positions(slot) >= positions * positions),
                          "slot " + text(slot) + " is too small for a whole covariance");
    }

    static Axes whole(const Axes& size) {
        const auto count = static_cast<std::int32_t>(positions_of(size));
        return {1, count, count};
    }
    static const Convert& needs_half(bool covariance, const Convert& op) {
        NTKIT_REQUIRE(covariance || op.half_at != kNothing, "half_at is needed, because the plane holds H");
        return op;
    }

    template <class Op>
    static void check_ends(const Op& op) {
        NTKIT_REQUIRE(op.inside_at != kNothing, "inside_at is needed and not set");
        const bool even = std::equal(op.totals.begin() + 1, op.totals.end(), op.totals.begin());
        NTKIT_REQUIRE(even || op.mean_at != kNothing, "mean_at is needed where the totals of windows differ");
    }

    void check_chained(const Instruction& step) const {
        NTKIT_REQUIRE(step.kind == Kind::input || step.kind == Kind::layer, "only an input or a layer can be chained");
        NTKIT_REQUIRE(instruction_ + 1 < std::ssize(tape_.instructions), "it is chained, and nothing follows");
        const Instruction& next = tape_.instructions[instruction_ + 1];
        NTKIT_REQUIRE((next.kind == Kind::layer || next.kind == Kind::reduce) && next.in_slot == step.out_slot,
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
        NTKIT_REQUIRE(step.out_slot >= 0 && step.out_slot < tape_.slots(), "there is no slot " + text(step.out_slot) + ", only " + text(tape_.slots()));
        NTKIT_REQUIRE(slot_written_[step.out_slot], "nothing has written slot " + text(step.out_slot) + ", which it changes");
    }

    const Tape& tape_;
    std::vector<bool> slot_written_, sum_written_;
    std::int64_t instruction_ = 0;  // which one is being checked
};

}  // namespace

void check_tape(const Tape& tape) { Checker(tape).run(); }

}  // namespace ntkit
