// exp, tanh and erf of float32 lanes, each within one unit in the last place of the true value.
//
// The vector levels reduce the argument and evaluate polynomials fitted for this file (weighted minimax, so
// that the bound holds near zero too). The scalar level, which is the reference, asks the C library in
// double.
#pragma once

#include "vector_math_lanes.h"

namespace graphsink {
namespace {

#if defined(__AVX2__)

// c[0] + x c[1] + ... + x^(n-1) c[n-1], by Horner's rule.
template <int n>
inline Lanes polynomial(Lanes x, const float (&c)[n]) {
    Lanes result = broadcast(c[n - 1]);
    for (int i = n - 2; i >= 0; --i) result = fused(result, x, broadcast(c[i]));
    return result;
}

inline Lanes exp(Lanes x) {
    // ln(2) in two parts: n times the upper one is exact.
    constexpr float kLog2E = 1.44269504f, kLn2High = 0.693145752f, kLn2Low = 1.42860677e-06f;
    // (exp(r) - 1 - r) / r^2 for |r| <= ln(2) / 2, error 2^-34.
    constexpr float kTail[] = {0.5f,           0.166666672f, 0.0416662693f,
                               0.00833326485f, 0.001394619f, 0.000199179733f};
    // Beyond these the result is infinite or zero. A NaN passes: it is what `greatest` returns, and 100 is
    // not below it.
    x = greatest(broadcast(-110.0f), x);
    x = below(broadcast(100.0f), x, broadcast(100.0f), x);
    const Lanes n = nearest_integer(mul(x, broadcast(kLog2E)));
    const Lanes exact = fused(n, broadcast(-kLn2High), x);
    const Lanes r = fused(n, broadcast(-kLn2Low), exact);
    // What the rounding of r lost; without it the error comes close to one unit in the last place.
    const Lanes lost = fused(n, broadcast(-kLn2Low), sub(exact, r));
    const Lanes tail = add(fused(mul(r, r), polynomial(r, kTail), lost), r);
    return times_power_of_two(add(tail, broadcast(1.0f)), n);
}

inline Lanes tanh(Lanes x) {
    // (tanh(x) - x) / x^3 in x^2, for |x| <= 1, error 2^-31 of the result.
    constexpr float kSmall[] = {-0.333333284f,   0.133331746f,   -0.0539507158f,   0.0217743553f,
                                -0.00857107528f, 0.00304812705f, -0.000821208407f, 0.000116210511f};
    const Lanes size = absolute(x), square = mul(x, x);
    const Lanes small = fused(mul(x, square), polynomial(square, kSmall), x);
    const Lanes power = exp(add(size, size));
    const Lanes large = sub(broadcast(1.0f), div(broadcast(2.0f), add(power, broadcast(1.0f))));
    // A NaN is not below 1 and comes out of `large`.
    return below(size, broadcast(1.0f), small, with_sign_of(large, x));
}

inline Lanes erf(Lanes x) {
    // erf(x) / x - 1 in x^2, for |x| < 0.9, error 2^-30 of the result.
    constexpr float kSmall[] = {0.128379166f,   -0.376126289f,    0.112836242f,   -0.02685556f,
                                0.00519175315f, -0.000803975272f, 7.94310035e-05f};
    // (erf(x) - erf(c)) / (x - c) in x - c, for 0.9 <= x < 1.9. The centre c is chosen so that erf(c) is
    // almost a float32: the steep part of erf would otherwise cost more than half a unit.
    constexpr float kCentre = 1.37513924f, kAtCentre = 0.948193789f;
    constexpr float kMiddle[] = {0.170294553f,    -0.234178796f,   0.157920718f,
                                 -0.0305188019f,  -0.030588828f,   0.0221207608f,
                                 -0.00139879005f, -0.00406608498f, 0.00141948566f};
    // log(erfc(x)) for 1.9 <= x <= 4: the weight of its error falls with erfc.
    constexpr float kLogRest[] = {-0.0216213055f, -1.06930578f,   -0.703583121f,
                                  -0.0635304078f, 0.00835329201f, -0.000493291649f};
    const Lanes size = absolute(x), square = mul(x, x), t = sub(size, broadcast(kCentre));
    const Lanes small = fused(x, polynomial(square, kSmall), x);
    const Lanes middle = fused(t, polynomial(t, kMiddle), broadcast(kAtCentre));
    // erf(4) is 1 in float32. 4 is not below a NaN, so that one passes.
    const Lanes capped = below(broadcast(4.0f), size, broadcast(4.0f), size);
    const Lanes far = sub(broadcast(1.0f), exp(polynomial(capped, kLogRest)));
    const Lanes large = below(size, broadcast(1.9f), middle, far);
    return below(size, broadcast(0.9f), small, with_sign_of(large, x));
}

#else

inline Lanes exp(Lanes x) {
    return static_cast<float>(::exp(static_cast<double>(x)));
}
inline Lanes tanh(Lanes x) {
    return static_cast<float>(::tanh(static_cast<double>(x)));
}
inline Lanes erf(Lanes x) {
    return static_cast<float>(::erf(static_cast<double>(x)));
}

#endif

}  // namespace
}  // namespace graphsink
