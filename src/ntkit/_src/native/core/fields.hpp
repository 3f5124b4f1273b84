// The names of a struct's fields, stated once: the binding, the listing of a tape and the Python stub all read them.

#pragma once

#include <tuple>
#include <utility>

namespace ntkit {

template <class Struct, class Member>
struct Field {
    const char* name;
    Member Struct::* member;
};

template <class Struct, class Member>
Field(const char*, Member Struct::*) -> Field<Struct, Member>;

// Calls visit(name, pointer to member) for every field of a struct that has a static `fields()`.
template <class Struct, class Visit>
void for_each_field(Visit visit) {
    std::apply([&](auto... field) { (visit(field.name, field.member), ...); }, Struct::fields());
}

}  // namespace ntkit
