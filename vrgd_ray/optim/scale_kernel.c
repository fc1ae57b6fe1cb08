/* The GSNR scale of one layer on a CPU, in two passes over memory. Same definition as gsnr_scale in gsnr.py.
 *
 * Sums run in the element type over short stretches and in double over stretches, so that rounding does
 * not grow with the layer. Comparisons are written so that 0/0, an element without gradient, fails them.
 */
#include <stddef.h>
#include <stdint.h>

#define STRETCH 4096

#define KERNELS(T, NAME)                                                                                              \
    /* Sum of mean^2/var over the elements below `largest`; adds their number to *count. */                           \
    double NAME##_ratio_total(const T *restrict mean, const T *restrict var, int64_t size, double largest,            \
                              int64_t *count) {                                                                       \
        double total = 0;                                                                                             \
        const T limit = (T)largest;                                                                                   \
        for (int64_t start = 0; start < size; start += STRETCH) {                                                     \
            const int64_t end = start + STRETCH < size ? start + STRETCH : size;                                      \
            T part = 0;                                                                                               \
            int32_t number = 0;                                                                                       \
            _Pragma("omp simd reduction(+ : part, number)") for (int64_t i = start; i < end; i++) {                   \
                const T ratio = mean[i] / var[i] * mean[i];                                                           \
                part += ratio < limit ? ratio : 0;                                                                    \
                number += ratio < limit;                                                                              \
            }                                                                                                         \
            total += part;                                                                                            \
            *count += number;                                                                                         \
        }                                                                                                             \
        return total;                                                                                                 \
    }                                                                                                                 \
                                                                                                                      \
    /* out = s*mean, or with an average: average += share*(s - average), out = average*mean. */                       \
    void NAME##_scaled_gradient(const T *restrict mean, const T *restrict var, T *restrict average, T *restrict out,  \
                                int64_t size, double largest, double per_mean, double lower, double upper,            \
                                double share) {                                                                       \
        const T limit = (T)largest, factor = (T)per_mean, low = (T)lower, high = (T)upper, newest = (T)share;         \
        const T neutral = 1 < low ? low : 1 > high ? high : 1;                                                        \
        _Pragma("omp simd") for (int64_t i = 0; i < size; i++) {                                                      \
            const T ratio = mean[i] / var[i] * mean[i], relative = ratio * factor;                                    \
            const T clipped = relative < low ? low : relative > high ? high : relative;                               \
            const T ordinary = relative == relative ? clipped : neutral;                                              \
            const T s = ratio >= limit ? high : ordinary;                                                             \
            const T weight = average ? average[i] + newest * (s - average[i]) : s;                                    \
            if (average) average[i] = weight;                                                                         \
            out[i] = weight * mean[i];                                                                                \
        }                                                                                                             \
    }

KERNELS(float, float)
KERNELS(double, double)
