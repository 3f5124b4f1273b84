// A tape as readable text, for print(tape) in Python and the messages of check_tape.cpp.

#include <cstdio>
#include <type_traits>

#include "tape.hpp"

namespace ntkit {
namespace {

std::string text(std::int32_t value) { return std::to_string(value); }
std::string text(std::int64_t value) { return std::to_string(value); }
std::string text(bool value) { return value ? "yes" : "no"; }
std::string text(double value) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.6g", value);
    return digits;
}
std::string text(Cached value) { return name_of(value); }
std::string text(Function value) { return name_of(value); }

template <class Values>
std::string joined(const Values& values, const char* between) {
    std::string all;
    for (const auto& value : values) all += (all.empty() ? "" : between) + text(value);
    return all;
}

std::string text(const Axes& value) { return joined(value, "x"); }
std::string text(const std::array<bool, kAxes>& value) { return joined(value, "x"); }
template <class Number>
std::string text(const std::vector<Number>& values) {
    constexpr std::size_t most = 6;
    const std::vector<Number> shown(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(std::min(values.size(), most)));
    return "[" + joined(shown, ", ") + (values.size() > most ? ", ... " + std::to_string(values.size()) + " in all]" : "]");
}

std::string text(const std::vector<std::int32_t>& values) { return "[" + joined(values, ", ") + "]"; }

template <class Struct>
std::string fields_text(const Struct& value);

std::string text(const Rectifier& value) { return "(" + fields_text(value) + ")"; }
std::string text(const std::optional<Rectifier>& value) { return value ? text(*value) : "none"; }

std::string text(const std::shared_ptr<const SeriesTable>& value) {
    if (!value) return "none";
    return "(" + text(value->terms()) + " terms up to " + text(value->orders.empty() ? 0 : value->orders.back()) + ", s up to " +
           text(static_cast<double>(value->pieces()) * value->piece) + ")";
}

template <class Value>
bool equal(const Value& a, const Value& b) {
    if constexpr (std::is_same_v<Value, Rectifier>) return fields_text(a) == fields_text(b);
    else if constexpr (std::is_same_v<Value, std::optional<Rectifier>>) return text(a) == text(b);
    else return a == b;
}

// The fields that differ from their defaults, and every enum.
template <class Struct>
std::string fields_text(const Struct& value) {
    const Struct defaults{};
    std::string all;
    for_each_field<Struct>([&](const char* name, auto member) {
        constexpr bool shown = std::is_enum_v<std::remove_cvref_t<decltype(value.*member)>>;
        if (!shown && equal(value.*member, defaults.*member)) return;
        all += (all.empty() ? "" : ", ") + std::string(name) + " " + text(value.*member);
    });
    return all;
}

std::string padded(std::string line, std::size_t width) {
    if (line.size() < width) line.append(width - line.size(), ' ');
    return line;
}

bool writes_accumulator(const Tape& tape, const Instruction& step) {
    if (step.kind == Kind::clear || step.kind == Kind::reduce) return true;
    const Operation& operation = tape.operations[step.operation];
    const Pool* const pool = step.kind == Kind::pool ? std::get_if<Pool>(&operation) : nullptr;
    const Map* const map = step.kind == Kind::map ? std::get_if<Map>(&operation) : nullptr;
    return (pool && pool->wide) || (map && map->wide);
}

std::string place(const char* what, std::int32_t index, const Axes& offset) {
    return std::string(what) + " " + std::to_string(index) + " [" + joined(offset, ",") + "]";
}

std::string line(const Instruction& step, bool sums) {
    std::string from = step.in_slot == kNothing ? "" : place(step.kind == Kind::settle ? "sum" : "slot", step.in_slot, step.in_offset);
    std::string to = step.out_slot == kNothing ? "" : "-> " + place(sums ? "sum" : "slot", step.out_slot, step.out_offset);
    std::string flags = step.in_slot == kNothing ? "" : std::string(step.covariance_in ? "K" : "H") + (step.theta_in ? "+Theta" : "");
    flags = padded(flags, 8);
    if (step.out_slot != kNothing) flags += std::string("-> ") + (step.covariance_out ? "K" : "H") + (step.theta_out ? "+Theta" : "");
    if (step.factor != 1) flags += "  times " + text(step.factor);
    if (step.whole) flags += "  whole " + text(step.whole);
    if (step.cache_only) flags += "  cache only";
    if (step.chained) flags += "  chained";
    return padded(name_of(step.kind), 13) + "op " + padded(std::to_string(step.operation), 4) + padded(from, 20) + padded(to, 23) + flags;
}

}  // namespace

const char* name_of(Kind kind) {
    switch (kind) {
        case Kind::input: return "input";
        case Kind::layer: return "layer";
        case Kind::rectified: return "rectified";
        case Kind::smooth: return "smooth";
        case Kind::series: return "series";
        case Kind::normalize: return "normalize";
        case Kind::multiply: return "multiply";
        case Kind::fill: return "fill";
        case Kind::clear: return "clear";
        case Kind::pool: return "pool";
        case Kind::pool_end: return "pool_end";
        case Kind::variance_pool: return "variance_pool";
        case Kind::variance_pool_end: return "variance_pool_end";
        case Kind::select: return "select";
        case Kind::map: return "map";
        case Kind::map_end: return "map_end";
        case Kind::variance_map: return "variance_map";
        case Kind::variance_map_end: return "variance_map_end";
        case Kind::reduce: return "reduce";
        case Kind::relabel: return "relabel";
        case Kind::place: return "place";
        case Kind::independent: return "independent";
        case Kind::lookup: return "lookup";
        case Kind::table: return "table";
        case Kind::gather: return "gather";
        case Kind::left: return "left";
        case Kind::right: return "right";
        case Kind::scatter: return "scatter";
        case Kind::weights: return "weights";
        case Kind::settle: return "settle";
        case Kind::combine: return "combine";
        case Kind::convert: return "convert";
        case Kind::rescale: return "rescale";
        case Kind::store: return "store";
        case Kind::output: return "output";
    }
    return "unknown";
}

const char* name_of(Cached what) {
    switch (what) {
        case Cached::deviation: return "deviation";
        case Cached::half: return "half";
        case Cached::scale: return "scale";
        case Cached::inside: return "inside";
        case Cached::mean: return "mean";
        case Cached::series: return "series";
        case Cached::weights: return "weights";
    }
    return "unknown";
}

const char* name_of(Function function) {
    switch (function) {
        case Function::erf: return "erf";
        case Function::gelu: return "gelu";
        case Function::sine: return "sine";
        case Function::cosine: return "cosine";
        case Function::exponential: return "exponential";
        case Function::polynomial: return "polynomial";
    }
    return "unknown";
}

std::string text_of(const Operation& operation) {
    return std::visit([](const auto& op) { return padded(op.name, 11) + fields_text(op); }, operation);
}

std::string text_of(const Instruction& instruction) { return line(instruction, false); }

std::string text_of(const Tape& tape) {
    std::string all = "tape: batch " + std::to_string(tape.batch) + ", slots of ";
    for (std::int32_t slot = 0; slot < tape.slots(); ++slot) all += (slot ? ", " : "") + text(tape.slot_positions(slot));
    all += " positions, " + text(tape.accumulators) + " sums of " + text(tape.accumulator_positions) + ", " + text(tape.data_size) +
           " data and " + text(tape.cache_size) + " cached numbers per input\noperations\n";
    for (std::size_t i = 0; i < tape.operations.size(); ++i) all += padded(std::to_string(i), 6) + text_of(tape.operations[i]) + "\n";
    all += "instructions\n";
    for (std::size_t i = 0; i < tape.instructions.size(); ++i)
        all += padded(std::to_string(i), 6) + line(tape.instructions[i], writes_accumulator(tape, tape.instructions[i])) + "\n";
    return all;
}

}  // namespace ntkit
