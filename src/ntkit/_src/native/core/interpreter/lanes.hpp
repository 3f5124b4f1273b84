// Several pairs side by side, as GCC/Clang vector types: these are always vectorised, and split if registers are narrower.
// Functions on them have the names of the corresponding instructions: fma, fnmadd, max, abs.

#pragma once

#include <cmath>
#include <cstring>
#include <type_traits>

#if defined(__FMA__)
#include <immintrin.h>
#endif

#include "../tape.hpp"

namespace ntkit::NTKIT_TARGET {
namespace {

// Two registers at a time. One alone would leave the arithmetic units idle most of the time, because each step of Horner's rule
// depends on the previous one; two also halve the work per row of a plane.
template <class V>
struct RegisterPair {
    V a, b;

    RegisterPair() = default;
    RegisterPair(V a, V b) : a(a), b(b) {}
    // Written out, because the compiler would copy the two as bytes.
    RegisterPair(const RegisterPair& x) : a(x.a), b(x.b) {}
    RegisterPair& operator=(const RegisterPair& x) {
        a = x.a;
        b = x.b;
        return *this;
    }

    using Number = std::remove_cvref_t<decltype(V{}[0])>;
    static constexpr int kHalf = sizeof(V) / sizeof(Number);
    Number operator[](int lane) const { return lane < kHalf ? a[lane] : b[lane - kHalf]; }
    void set(int lane, Number value) {
        if (lane < kHalf) a[lane] = value;
        else b[lane - kHalf] = value;
    }
    RegisterPair& operator+=(const RegisterPair& x) { return *this = *this + x; }
    RegisterPair& operator*=(const RegisterPair& x) { return *this = *this * x; }
    RegisterPair& operator*=(Number x) { return *this = *this * x; }
    RegisterPair operator-() const { return {-a, -b}; }
};

#define NTKIT_OPERATOR(op)                                                                 \
    template <class V>                                                                     \
    inline auto operator op(const RegisterPair<V>& x, const RegisterPair<V>& y) {                        \
        return RegisterPair<decltype(x.a op y.a)>{x.a op y.a, x.b op y.b};                        \
    }                                                                                      \
    template <class V>                                                                     \
    inline auto operator op(const RegisterPair<V>& x, typename RegisterPair<V>::Number y) {              \
        return RegisterPair<decltype(x.a op y)>{x.a op y, x.b op y};                              \
    }                                                                                      \
    template <class V>                                                                     \
    inline auto operator op(typename RegisterPair<V>::Number x, const RegisterPair<V>& y) {              \
        return RegisterPair<decltype(x op y.a)>{x op y.a, x op y.b};                              \
    }
NTKIT_OPERATOR(+)
NTKIT_OPERATOR(-)
NTKIT_OPERATOR(*)
NTKIT_OPERATOR(/)
NTKIT_OPERATOR(>)
NTKIT_OPERATOR(<)
NTKIT_OPERATOR(==)
NTKIT_OPERATOR(&)
#undef NTKIT_OPERATOR

template <class M, class V>
inline RegisterPair<V> select(const RegisterPair<M>& mask, const RegisterPair<V>& x, const RegisterPair<V>& y) {
    return {mask.a ? x.a : y.a, mask.b ? x.b : y.b};
}

template <class T>
struct Vector;
template <>
struct Vector<double> {
    typedef double Register __attribute__((vector_size(32)));
    typedef long long Bits __attribute__((vector_size(32)));
    using Lanes = RegisterPair<Register>;
};
template <>
struct Vector<float> {
    typedef float Register __attribute__((vector_size(32)));
    typedef int Bits __attribute__((vector_size(32)));
    using Lanes = RegisterPair<Register>;
};

template <class M>
inline bool any(const RegisterPair<M>& mask) {
    const M bits = mask.a | mask.b;
#if defined(__FMA__)  // the same condition as for including the intrinsics
    return !_mm256_testz_si256((__m256i)bits, (__m256i)bits);
#else
    bool result = false;
    for (int lane = 0; lane < RegisterPair<M>::kHalf; ++lane) result |= bits[lane] != 0;
    return result;
#endif
}

// a b + c, rounded once if the machine supports it. It is written out wherever it is meant, and the compiler may not contract
// other expressions: the same entry must have the same bits in every instantiation of this code.
#if defined(__FMA__)
inline Vector<double>::Register fma(Vector<double>::Register a, Vector<double>::Register b, Vector<double>::Register c) {
    return (Vector<double>::Register)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
}
inline Vector<float>::Register fma(Vector<float>::Register a, Vector<float>::Register b, Vector<float>::Register c) {
    return (Vector<float>::Register)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}
// c - a b
inline Vector<double>::Register fnmadd(Vector<double>::Register a, Vector<double>::Register b, Vector<double>::Register c) {
    return (Vector<double>::Register)_mm256_fnmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
}
inline Vector<float>::Register fnmadd(Vector<float>::Register a, Vector<float>::Register b, Vector<float>::Register c) {
    return (Vector<float>::Register)_mm256_fnmadd_ps((__m256)a, (__m256)b, (__m256)c);
}
inline Vector<double>::Register max(Vector<double>::Register a, Vector<double>::Register b) {
    return (Vector<double>::Register)_mm256_max_pd((__m256d)a, (__m256d)b);
}
inline Vector<float>::Register max(Vector<float>::Register a, Vector<float>::Register b) {
    return (Vector<float>::Register)_mm256_max_ps((__m256)a, (__m256)b);
}
inline Vector<double>::Register min(Vector<double>::Register a, Vector<double>::Register b) {
    return (Vector<double>::Register)_mm256_min_pd((__m256d)a, (__m256d)b);
}
inline Vector<float>::Register min(Vector<float>::Register a, Vector<float>::Register b) {
    return (Vector<float>::Register)_mm256_min_ps((__m256)a, (__m256)b);
}
#else
template <class V>
inline V fma(V a, V b, V c) {
#if defined(__aarch64__)
    V result;
    for (unsigned lane = 0; lane < sizeof(a) / sizeof(a[0]); ++lane) result[lane] = std::fma(a[lane], b[lane], c[lane]);
    return result;
#else
    return a * b + c;
#endif
}
template <class V>
inline V fnmadd(V a, V b, V c) {
    return fma(-a, b, c);
}
template <class V>
inline V max(V a, V b) {
    return a > b ? a : b;
}
template <class V>
inline V min(V a, V b) {
    return a < b ? a : b;
}
#endif

template <class V>
inline RegisterPair<V> fma(const RegisterPair<V>& x, const RegisterPair<V>& y, const RegisterPair<V>& z) {
    return {fma(x.a, y.a, z.a), fma(x.b, y.b, z.b)};
}
template <class V>
inline RegisterPair<V> fnmadd(const RegisterPair<V>& x, const RegisterPair<V>& y, const RegisterPair<V>& z) {
    return {fnmadd(x.a, y.a, z.a), fnmadd(x.b, y.b, z.b)};
}
template <class V>
inline RegisterPair<V> max(const RegisterPair<V>& x, const RegisterPair<V>& y) {
    return {max(x.a, y.a), max(x.b, y.b)};
}
template <class V>
inline RegisterPair<V> min(const RegisterPair<V>& x, const RegisterPair<V>& y) {
    return {min(x.a, y.a), min(x.b, y.b)};
}

template <class T>
inline typename Vector<T>::Lanes broadcast(T value) {
    const auto filled = value - typename Vector<T>::Register{};  // adding zero would turn -0 into 0
    return {filled, filled};
}

inline Vector<float>::Register abs(Vector<float>::Register x) {
    return (Vector<float>::Register)((Vector<float>::Bits)x & 0x7fffffff);
}
inline Vector<double>::Register abs(Vector<double>::Register x) {
    return (Vector<double>::Register)((Vector<double>::Bits)x & 0x7fffffffffffffffLL);
}

// Negative where either of the two is.
inline Vector<float>::Register bit_or(Vector<float>::Register x, Vector<float>::Register y) {
    return (Vector<float>::Register)((Vector<float>::Bits)x | (Vector<float>::Bits)y);
}
inline Vector<double>::Register bit_or(Vector<double>::Register x, Vector<double>::Register y) {
    return (Vector<double>::Register)((Vector<double>::Bits)x | (Vector<double>::Bits)y);
}

inline auto is_negative(Vector<float>::Register x) { return (Vector<float>::Bits)x < 0; }
inline auto is_negative(Vector<double>::Register x) { return (Vector<double>::Bits)x < 0; }

template <class V>
inline V sqrt(V x) {
    V result;
    for (unsigned lane = 0; lane < sizeof(x) / sizeof(x[0]); ++lane) result[lane] = std::sqrt(x[lane]);
    return result;
}

template <class V>
inline RegisterPair<V> abs(const RegisterPair<V>& x) {
    return {abs(x.a), abs(x.b)};
}
template <class V>
inline RegisterPair<V> bit_or(const RegisterPair<V>& x, const RegisterPair<V>& y) {
    return {bit_or(x.a, y.a), bit_or(x.b, y.b)};
}
template <class V>
inline auto is_negative(const RegisterPair<V>& x) {
    return RegisterPair<decltype(is_negative(x.a))>{is_negative(x.a), is_negative(x.b)};
}
template <class V>
inline RegisterPair<V> sqrt(const RegisterPair<V>& x) {
    return {sqrt(x.a), sqrt(x.b)};
}

// Callers' arrays need not be aligned.
template <class T>
inline typename Vector<T>::Lanes load(const T* from) {
    typename Vector<T>::Lanes x;
    std::memcpy(&x.a, from, sizeof(x.a));
    std::memcpy(&x.b, from + kLanes<T> / 2, sizeof(x.b));
    return x;
}
template <class V>
inline void store(const RegisterPair<V>& x, typename RegisterPair<V>::Number* to) {
    std::memcpy(to, &x.a, sizeof(x.a));
    std::memcpy(to + RegisterPair<V>::kHalf, &x.b, sizeof(x.b));
}

}  // namespace
}  // namespace ntkit::NTKIT_TARGET
