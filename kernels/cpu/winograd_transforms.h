// The matrices of Winograd's F(4x4, 3x3), each applied to eight channels at once: Transform<In, Out>(in, out,
// T) is out = T in T', with `in` of In x In and `out` of Out x Out vectors.
#ifndef CATCHMENT_KERNELS_CPU_WINOGRAD_TRANSFORMS_H_
#define CATCHMENT_KERNELS_CPU_WINOGRAD_TRANSFORMS_H_

#include <immintrin.h>

namespace catchment::winograd {

typedef float Vector __attribute__((vector_size(32), may_alias));

// B': six values of an input tile.
struct InputTransform {
  static void Apply(const Vector* x, Vector* y) {
    const Vector even = x[4] - 4 * x[2], odd = x[3] - 4 * x[1];
    const Vector even2 = x[4] - x[2], odd2 = 2 * (x[3] - x[1]);
    y[0] = 4 * x[0] - 5 * x[2] + x[4];
    y[1] = even + odd;
    y[2] = even - odd;
    y[3] = even2 + odd2;
    y[4] = even2 - odd2;
    y[5] = 4 * x[1] - 5 * x[3] + x[5];
  }
};

// G: three weights.
struct WeightTransform {
  static void Apply(const Vector* g, Vector* u) {
    const Vector outer = (g[0] + g[2]) * (-1.0f / 6), inner = g[1] * (1.0f / 6);
    const Vector outer2 = g[0] * (1.0f / 24) + g[2] * (1.0f / 6), inner2 = g[1] * (1.0f / 12);
    u[0] = g[0] * 0.25f;
    u[1] = outer - inner;
    u[2] = outer + inner;
    u[3] = outer2 + inner2;
    u[4] = outer2 - inner2;
    u[5] = g[2];
  }
};

// G': back to three gradients of weights.
struct WeightGradientTransform {
  static void Apply(const Vector* u, Vector* g) {
    const Vector sum = (u[1] + u[2]) * (1.0f / 6), sum2 = u[3] + u[4];
    g[0] = u[0] * 0.25f - sum + sum2 * (1.0f / 24);
    g[1] = (u[2] - u[1]) * (1.0f / 6) + (u[3] - u[4]) * (1.0f / 12);
    g[2] = sum2 * (1.0f / 6) - sum + u[5];
  }
};

// A': six products to four outputs.
struct OutputTransform {
  static void Apply(const Vector* m, Vector* y) {
    const Vector sum = m[1] + m[2], difference = m[1] - m[2];
    const Vector sum2 = m[3] + m[4], difference2 = m[3] - m[4];
    y[0] = m[0] + sum + sum2;
    y[1] = difference + 2 * difference2;
    y[2] = sum + 4 * sum2;
    y[3] = difference + 8 * difference2 + m[5];
  }
};

// A: four gradients of outputs.
struct OutputGradientTransform {
  static void Apply(const Vector* d, Vector* z) {
    const Vector even = d[0] + d[2], odd = d[1] + d[3];
    const Vector even2 = d[0] + 4 * d[2], odd2 = 2 * (d[1] + 4 * d[3]);
    z[0] = d[0];
    z[1] = even + odd;
    z[2] = even - odd;
    z[3] = even2 + odd2;
    z[4] = even2 - odd2;
    z[5] = d[3];
  }
};

template <int kIn, int kOut, typename T>
inline void Transform(const Vector* in, Vector* out, T) {
  Vector columns[kOut * kIn];
#pragma GCC unroll 6
  for (int j = 0; j < kIn; ++j) {
    Vector x[kIn], y[kOut];
#pragma GCC unroll 6
    for (int i = 0; i < kIn; ++i) x[i] = in[i * kIn + j];
    T::Apply(x, y);
#pragma GCC unroll 6
    for (int i = 0; i < kOut; ++i) columns[i * kIn + j] = y[i];
  }
#pragma GCC unroll 6
  for (int i = 0; i < kOut; ++i) T::Apply(columns + i * kIn, out + i * kOut);
}

}  // namespace catchment::winograd

#endif  // CATCHMENT_KERNELS_CPU_WINOGRAD_TRANSFORMS_H_
