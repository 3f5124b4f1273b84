// For x = 1 - |rho| in [0, 1]:
//
//     acos(1 - x) = 2 pi sqrt(x) p(x),    sqrt(1 - rho^2) - |rho| acos |rho| = 2 pi x sqrt(x) g(x),
//
// with p and g smooth: the only singularity of acos that is near, at x = 0, is in the square root. Polynomials of least relative
// error (double: 1e-16 and 4e-17, float: 1.0e-7 and 1.2e-7), from the constant up.

#pragma once

namespace ntkit {

template <class T>
struct ArcCosine;

template <>
struct ArcCosine<double> {
    static constexpr double p[] = {
        0.22507907903927649532,
        0.018756589919953652874,
        0.0042202327305239255286,
        0.0012560217071474944675,
        0.00042739492717105848665,
        0.00015737715152191244982,
        0.000060872834336506222304,
        0.000025498393945754157486,
        6.0116287811566634925e-6,
        0.00001773766600835713555,
        -0.000030746783646077416413,
        0.000060111671350203419519,
        -0.000080402950647919790848,
        0.000081353964693750264818,
        -0.000058583251543211906901,
        0.000028946829723135633508,
        -8.7588654357698366953e-6,
        1.2633868395518157486e-6,
    };

    static constexpr double g[] = {
        0.15005271935951768401,
        0.0075026359679726498748,
        0.0012057807808694083478,
        0.00027911591028706175521,
        0.000077708626008573827975,
        0.00002420662175799615781,
        8.1565472720442472221e-6,
        2.7843199035287364384e-6,
        1.4694110164066966311e-6,
        -7.0973871643318765525e-7,
        2.4655106154561006323e-6,
        -3.4417188577107125806e-6,
        3.9208752841508298261e-6,
        -3.0712966470970087917e-6,
        1.6591124111136487365e-6,
        -5.4305543526111001203e-7,
        8.5858635757453815336e-8,
    };
};

template <>
struct ArcCosine<float> {
    static constexpr float p[] = {
        0.2250791022f,
        0.01875444915f,
        0.004252314745f,
        0.001078279639f,
        0.0008836262026f,
        -0.0004105811229f,
        0.000362783446f,
    };

    static constexpr float g[] = {
        0.1500527012f,
        0.007503864617f,
        0.00119242795f,
        0.0003311560155f,
        -1.002152962e-5f,
        8.479557671e-5f,
    };
};

// The same times a factor: what a layer multiplies with is multiplied into the coefficients once and for all.
template <class T>
struct ScaledArcCosine {
    T p[sizeof(ArcCosine<T>::p) / sizeof(T)];
    T g[sizeof(ArcCosine<T>::g) / sizeof(T)];

    ScaledArcCosine() = default;
    explicit ScaledArcCosine(double factor) {
        for (unsigned i = 0; i < sizeof(p) / sizeof(T); ++i) p[i] = static_cast<T>(factor * ArcCosine<T>::p[i]);
        for (unsigned i = 0; i < sizeof(g) / sizeof(T); ++i) g[i] = static_cast<T>(factor * ArcCosine<T>::g[i]);
    }
};

}  // namespace ntkit
