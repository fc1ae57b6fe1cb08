/* The scale, and the whole step of VR-Adam, VR-AdamW and VR-LAMB, on a CPU, in few passes over memory.
 *
 * Definitions: gsnr_scale in gsnr.py, and the docstrings of the optimizers. Compiled once per element type T. Sums run
 * in T over short stretches and in double over stretches, so that rounding does not grow with the layer. Comparisons
 * are written so that 0/0, an element without gradient, fails them. Names have a prefix because the C library, which
 * knows a function `advance`, would otherwise get calls that are meant for ours.
 */
#include <stdint.h>
#include <tgmath.h>

#define STRETCH 256 /* elements: what a step reads and writes of them, 6 KiB, stays in the first-level cache */
#define FOR_STRETCHES for (int64_t start = 0, end; end = fmin(start + STRETCH, p->size), start < end; start = end)

/* kernels.py says what the fields mean. */
typedef struct {
    T *mean, *variance, *average, *first, *second, *param;
    int64_t size;
    double ratio, count, weights, length, per_mean, factor;
} Piece;

typedef struct {
    double largest, lower, upper, newest, sign, beta1, beta2, correction1, correction2, eps, coupled, decoupled, lr;
    int64_t trust;
} Options;

typedef struct {
    T limit, per_mean, lower, upper, neutral;
} Scale;

static Scale scale_of(const Piece *p, const Options *o) {
    return (Scale){o->largest, p->per_mean, o->lower, o->upper, fmin(fmax(1.0, o->lower), o->upper)};
}

static inline T scale(T mean, T variance, Scale s) {
    const T ratio = mean / variance * mean, relative = ratio * s.per_mean;
    const T clipped = relative < s.lower ? s.lower : relative > s.upper ? s.upper : relative;
    const T ordinary = relative == relative ? clipped : s.neutral;
    return ratio >= s.limit ? s.upper : ordinary;
}

/* Sum and number of the ratios of a piece that are below the limit. */
void vrgd_ratios(Piece *p, const Options *o) {
    const T *restrict mean = p->mean, *restrict variance = p->variance, limit = o->largest;
    p->ratio = p->count = 0;
    FOR_STRETCHES {
        T total = 0;
        int32_t number = 0;
#pragma omp simd reduction(+ : total, number)
        for (int64_t i = start; i < end; i++) {
            const T ratio = mean[i] / variance[i] * mean[i];
            total += ratio < limit ? ratio : 0;
            number += ratio < limit;
        }
        p->ratio += total;
        p->count += number;
    }
}

/* Give the pieces of one layer the layer's mean ratio; where that is 0, 0 * infinity marks elements as neutral. */
void vrgd_share_ratio(Piece *pieces, int64_t number) {
    double ratio = 0, count = 0;
    for (int64_t i = 0; i < number; i++) ratio += pieces[i].ratio, count += pieces[i].count;
    for (int64_t i = 0; i < number; i++) pieces[i].per_mean = ratio != 0 ? fmax(count, 1.0) / ratio : INFINITY;
}

/* out = s*mean */
void vrgd_scaled_gradient(const Piece *p, const Options *o, T *restrict out) {
    const T *restrict mean = p->mean, *restrict variance = p->variance;
    const Scale s = scale_of(p, o);
#pragma omp simd
    for (int64_t i = 0; i < p->size; i++) out[i] = scale(mean[i], variance[i], s) * mean[i];
}

static void momenta(const Piece *p, const Options *o, Scale s, int64_t start, int64_t end) {
    const T *restrict mean = p->mean, *restrict variance = p->variance, *restrict param = p->param;
    T *restrict average = p->average, *restrict first = p->first, *restrict second = p->second;
    const T newest = o->newest, sign = o->sign, decay = o->coupled;
    const T beta2 = o->beta2, share1 = 1 - o->beta1, share2 = 1 - o->beta2;
#pragma omp simd
    for (int64_t i = start; i < end; i++) {
        const T weight = average[i] + newest * (scale(mean[i], variance[i], s) - average[i]);
        const T gradient = sign * weight * mean[i] + decay * param[i];
        average[i] = weight;
        first[i] += share1 * (gradient - first[i]);
        second[i] = beta2 * second[i] + share2 * gradient * gradient;
    }
}

typedef struct {
    T first, second, eps, decay;
} Adam;

static Adam adam_of(const Options *o) { return (Adam){o->correction1, o->correction2, o->eps, o->decoupled}; }

static inline T direction(T first, T second, T param, Adam a) {
    return first * a.first / (sqrt(second) * a.second + a.eps) + a.decay * param;
}

static void norms(Piece *p, Adam a, int64_t start, int64_t end) {
    const T *restrict first = p->first, *restrict second = p->second, *restrict param = p->param;
    T weights = 0, length = 0;
#pragma omp simd reduction(+ : weights, length)
    for (int64_t i = start; i < end; i++) {
        const T step = direction(first[i], second[i], param[i], a);
        weights += param[i] * param[i];
        length += step * step;
    }
    p->weights += weights;
    p->length += length;
}

static void move_stretch(const Piece *p, Adam a, int64_t start, int64_t end) {
    const T *restrict first = p->first, *restrict second = p->second, factor = p->factor;
    T *restrict param = p->param;
#pragma omp simd
    for (int64_t i = start; i < end; i++) param[i] -= factor * direction(first[i], second[i], param[i], a);
}

/* Advance the mean scale and the momenta; take the step, or with a trust ratio only measure what it depends on. */
void vrgd_advance(Piece *p, const Options *o) {
    const Scale s = scale_of(p, o);
    const Adam a = adam_of(o);
    p->factor = o->lr;
    p->weights = p->length = 0;
    FOR_STRETCHES {
        momenta(p, o, s, start, end);
        o->trust ? norms(p, a, start, end) : move_stretch(p, a, start, end);
    }
}

/* Give the pieces of one layer the layer's trust ratio times lr. */
void vrgd_share_factor(Piece *pieces, int64_t number, const Options *o) {
    double weights = 0, length = 0;
    for (int64_t i = 0; i < number; i++) weights += pieces[i].weights, length += pieces[i].length;
    const double ratio = weights > 0 && length > 0 ? sqrt(weights / length) : 1;
    for (int64_t i = 0; i < number; i++) pieces[i].factor = o->lr * ratio;
}

void vrgd_move(const Piece *p, const Options *o) { move_stretch(p, adam_of(o), 0, p->size); }

/* The whole step of layers that are one piece each. */
void vrgd_steps(Piece *pieces, const Options *o, int64_t number) {
    for (Piece *p = pieces; p < pieces + number; p++) {
        vrgd_ratios(p, o);
        vrgd_share_ratio(p, 1);
        vrgd_advance(p, o);
        if (o->trust) {
            vrgd_share_factor(p, 1, o);
            vrgd_move(p, o);
        }
    }
}
