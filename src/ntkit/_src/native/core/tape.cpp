#include "tape.hpp"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <utility>

namespace ntkit {
namespace {

void prepare(Rectifier& rectifier, double factor) {
    const double jump = rectifier.positive_slope - rectifier.negative_slope, whole = jump * jump * factor;
    rectifier.arc_cosine32 = ScaledArcCosine<float>(whole);
    rectifier.arc_cosine64 = ScaledArcCosine<double>(whole);
}

const std::array<double, 4>& gains_of(const std::vector<std::array<double, 4>>& layers, std::int32_t number) {
    if (number < 0 || number >= std::ssize(layers)) throw std::invalid_argument("there are no gains of layer " + std::to_string(number));
    return layers[number];
}

}  // namespace

Tape::Tape(std::vector<Operation> given_operations, std::vector<Instruction> given_instructions, std::int32_t batch,
           const std::vector<std::int64_t>& slots, std::int32_t accumulators, std::int64_t accumulator_positions,
           std::int64_t cache_size, const std::vector<std::int64_t>& data_sizes)
    : operations(std::move(given_operations)), instructions(std::move(given_instructions)), batch(batch),
      accumulators(accumulators), accumulator_positions(accumulator_positions), cache_size(cache_size) {
    for (const std::int64_t positions : slots) {
        if (positions < 1) throw std::invalid_argument("a slot must have at least one position. Got " + std::to_string(positions));
        slot_start.push_back(slot_start.back() + positions);
    }
    for (const std::int64_t size : data_sizes) {
        if (size < 0) throw std::invalid_argument("the size of data must not be negative. Got " + std::to_string(size));
        data_start.push_back(data_size);
        data_size += size;
    }
    check_tape(*this);
    for (Operation& operation : operations) {
        if (auto* const rectified = std::get_if<Rectified>(&operation)) prepare(rectified->activation, 1.0);
        if (auto* const series = std::get_if<Series>(&operation)) series->powers = Powers(series->table->orders);
        if (auto* const layer = std::get_if<Layer>(&operation)) {
            if (layer->activation) prepare(*layer->activation, layer->weight);
            row_positions = std::max<std::int64_t>(row_positions, static_cast<std::int64_t>(layer->out_size[2] - 1) * layer->stride[2] +
                                                                      static_cast<std::int64_t>(layer->kernel[2] - 1) * layer->dilation[2] + 1);
            window_rows = std::max<std::int64_t>(window_rows, static_cast<std::int64_t>(layer->kernel[0]) * layer->kernel[1]);
        }
    }
}

Tape Tape::with_gains(const std::vector<std::array<double, 4>>& layers) const {
    Tape other = *this;
    for (Operation& operation : other.operations) {
        if (auto* const layer = std::get_if<Layer>(&operation); layer && layer->number != kNothing) {
            const std::array<double, 4>& gains = gains_of(layers, layer->number);
            double* const numbers[] = {&layer->weight, &layer->bias, &layer->weight_rate, &layer->bias_rate};
            for (int i = 0; i < 4; ++i) {
                if (!(gains[i] >= 0) || (gains[i] == 0) != (*numbers[i] == 0))
                    throw std::invalid_argument("gains must be zero where those of the tape are, and positive elsewhere. Got " +
                                                std::to_string(gains[i]) + " for layer " + std::to_string(layer->number));
                *numbers[i] = gains[i];
            }
            if (layer->activation) prepare(*layer->activation, layer->weight);
        }
        if (auto* const store = std::get_if<Store>(&operation); store && store->number != kNothing)
            store->factor = 1.0 / gains_of(layers, store->number)[0];
    }
    return other;
}

}  // namespace ntkit
