// With x = 1 - |rho| in [0, 1] and t = x / (1 - c x),
//
//     acos(1 - x) = 2 pi sqrt(t) p(t),    sqrt(1 - rho^2) - |rho| acos |rho| = 2 pi x sqrt(t) g(t),
//
// with p and g smooth: the square root holds the near singularity of acos, at x = 0. As functions of x they have another one at
// x = 2. The map to t, with 0 < c < 1 / 2, moves it further away from the interval, so that a polynomial in t needs fewer terms
// than one in x: 5 and 5 instead of 7 and 6 (float), 14 and 13 instead of 18 and 17 (double).
//
// Minimax polynomials, from the constant up. Errors relative to acos and to the other function (double): 6e-17 and 8e-17.
// Relative to 1 / 2 - acos / (2 pi) and to E[relu relu] for rho >= 0 (float): 8.5e-8 and 9.5e-8, and relative to the functions
// themselves less than three times as much.

#pragma once

namespace ntkit {

template <class T>
struct ArcCosine;

template <>
struct ArcCosine<double> {
    static constexpr double c = 0.25;

    static constexpr double p[] = {
        0.22507907903927650389,
        -0.0093782949599659773054,
        0.0024618024268073300906,
        -0.00028260486697957629286,
        0.000081663179056102957878,
        -0.000011786155515610395504,
        3.4460692400006458503e-6,
        -5.5305247318511639302e-7,
        1.5870551615379583081e-7,
        -2.3682078998628627111e-8,
        4.5002226079655851916e-9,
        6.4030942149364918771e-10,
        -3.6226398446851415776e-10,
        9.4361753812317850269e-11,
    };

    static constexpr double g[] = {
        0.15005271935951766596,
        -0.011253953951960621511,
        0.0019091529024267593729,
        -0.00032796120531858033666,
        0.000067023482629823845035,
        -0.000013413395691066005735,
        2.918336430885356979e-6,
        -6.2239070963747695029e-7,
        1.3863712925337770813e-7,
        -2.9358059419598925881e-8,
        5.7793823567701014974e-9,
        -8.5540350113787720361e-10,
        7.4166982178508965783e-11,
    };
};

template <>
struct ArcCosine<float> {
    static constexpr double c = 0.234375;

    static constexpr double p[] = {
        0.225079136394,
        -0.00762135557998,
        0.00226852870461,
        -0.000196767822774,
        6.65551131499e-5,
    };

    static constexpr double g[] = {
        0.150052676773,
        -0.0100800793607,
        0.00164951257509,
        -0.000237216511435,
        3.03395401015e-5,
    };
};

// The same times the factor of a layer, which is multiplied into the coefficients once.
template <class T>
struct ScaledArcCosine {
    T p[sizeof(ArcCosine<T>::p) / sizeof(double)];
    T g[sizeof(ArcCosine<T>::g) / sizeof(double)];

    ScaledArcCosine() = default;
    explicit ScaledArcCosine(double factor) {
        for (unsigned i = 0; i < sizeof(p) / sizeof(T); ++i) p[i] = static_cast<T>(factor * ArcCosine<T>::p[i]);
        for (unsigned i = 0; i < sizeof(g) / sizeof(T); ++i) g[i] = static_cast<T>(factor * ArcCosine<T>::g[i]);
    }
};

}  // namespace ntkit
