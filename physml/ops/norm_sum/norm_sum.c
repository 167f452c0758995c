/* S_i = sum over edges e: i -> j of ||q_j - q_i||_p, the norm over channels.  Axes: N nodes, E edges, H channels.
 *
 * Differences are scaled by the largest of an edge, so that no power runs out of range. A thread owns nodes, sums
 * over a node's edges in the order in which they are stored, and keeps each edge's norm n_e for the way back, where
 * the gradient of q_i gathers from both ends:
 *
 * sum over edges e: i -> j of g_i f((q_i - q_j) / n_e)  +  sum over edges e: k -> i of g_k f((q_i - q_k) / n_e),
 * f(d) = sign(d) |d|^(p-1)
 */

#include <float.h>

#include "edges.h"

#define BLOCK 64 /* channels */

typedef struct {
    length n_nodes, n_channels;
    Ends sent, received;
    const long long *received_order; /* (E): which of the edges, in the order of those sent, is received */
    const real *q, *grad;            /* (N, H); (N) */
    real *norm;                      /* (E), in the order of the edges sent */
    real *to;                        /* (N), or (N, H) backwards */
} Work;

INLINE real most(vec x) {
    real top = x[0];
    for (int k = 1; k < VL; k++) top = x[k] > top ? x[k] : top;
    return top;
}

/* 1 / x, for x too small for that a number that is large enough: differences below it count for nothing. */
INLINE real inverse(real x) {
    const real least_x = 4 * (sizeof(real) == sizeof(float) ? (real)FLT_MIN : (real)DBL_MIN);
    return 1 / (x < least_x ? least_x : x);
}

INLINE real largest(const real *a, const real *b, length n) {
    vec top = {0};
    for (length h = 0; h < n; h += VL) {
        const vec d = load_end(a, h, n) - load_end(b, h, n);
        top = vec_max(pick(d < 0, -d, d), top);
    }
    return most(top);
}

INLINE real norm_of(const real *a, const real *b, length n) {
    const real top = largest(a, b, n), share = inverse(top);
    vec total = {0};
    for (length h = 0; h < n; h += BLOCK) {
        real powers[BLOCK] = {0};
        const length end = least(BLOCK, n - h);
        for (length k = 0; k < end; k++) {
            const real d = (a[h + k] - b[h + k]) * share;
            powers[k] = power(d < 0 ? -d : d, TWICE_P);
        }
        for (length k = 0; k < BLOCK; k += VL) total += load(powers + k);
    }
    return top * (real)pow((double)sum(total), 2.0 / TWICE_P);
}

INLINE void sum_of_node(const Work *w, length i) {
    const length H = w->n_channels;
    real total = 0;
    for (long long e = w->sent.start[i]; e < w->sent.start[i + 1]; e++)
        total += w->norm[e] = norm_of(w->q + i * H, w->q + w->sent.other[e] * H, H);
    w->to[i] = total;
}

INLINE void add_slopes(real *restrict to, const real *restrict own, const real *restrict other, real norm, real grad,
                       length n) {
    const real share = inverse(norm);
    for (length h = 0; h < n; h++) to[h] += grad * slope((own[h] - other[h]) * share);
}

INLINE void slope_of_node(const Work *w, length i) {
    const length H = w->n_channels;
    real *to = w->to + i * H;
    clear(to, H);
    for (long long e = w->sent.start[i]; e < w->sent.start[i + 1]; e++)
        add_slopes(to, w->q + i * H, w->q + w->sent.other[e] * H, w->norm[e], w->grad[i], H);
    for (long long e = w->received.start[i]; e < w->received.start[i + 1]; e++) {
        const length k = w->received.other[e];
        add_slopes(to, w->q + i * H, w->q + k * H, w->norm[w->received_order[e]], w->grad[k], H);
    }
}

SHARE(sums, sum_of_node)
SHARE(slopes, slope_of_node)

/* sizes: N, H. sent, received: starts and other ends of the edges that each node sends, and receives. */
void norm_sum_forward(int n_threads, const long long sizes[2], const long long *sent_start,
                      const long long *sent_other, const real *q, real *norm, real *total) {
    Work w = {.n_nodes = sizes[0], .n_channels = sizes[1], .sent = {sent_start, sent_other},
              .q = q, .norm = norm, .to = total};
    in_threads(sums, &w, n_threads);
}

void norm_sum_backward(int n_threads, const long long sizes[2], const long long *sent_start,
                       const long long *sent_other, const long long *received_start, const long long *received_other,
                       const long long *received_order, const real *q, real *norm, const real *grad, real *to_q) {
    Work w = {.n_nodes = sizes[0], .n_channels = sizes[1], .sent = {sent_start, sent_other},
              .received = {received_start, received_other}, .received_order = received_order, .q = q, .grad = grad,
              .norm = norm, .to = to_q};
    in_threads(slopes, &w, n_threads);
}
