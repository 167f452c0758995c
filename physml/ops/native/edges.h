/* What sums of powers of differences along edges share.
 *
 * The power p is a half of a whole number, from 1 to 8: a few products and at most one root. Where the compiler
 * knows it, loops over channels are vectors, so a library is made for each: -DTWICE_P= is 2p.
 */
#ifndef PHYSML_EDGES_H
#define PHYSML_EDGES_H

#include "rows.h"
#include "threads.h"

#ifndef TWICE_P
#error "compile with -DTWICE_P=2 to 16, which is 2p"
#endif

typedef struct {
    const long long *start, *other; /* (N + 1): where the edges of a node begin; (E): their other ends */
} Ends;

/* |d|^(twice / 2), with `twice` known to the compiler. */
INLINE real power(real d, int twice) {
    real x = twice >= 2 ? d : 1;
    for (int k = 2; k <= twice / 2; k++) x *= d;
    if (twice % 2) x *= sizeof(real) == sizeof(float) ? (real)sqrtf((float)d) : (real)sqrt((double)d);
    return x;
}

/* Of |d|^p / p: sign(d) |d|^(p - 1). */
INLINE real slope(real d) {
    const real size = power(d < 0 ? -d : d, TWICE_P - 2);
    return d > 0 ? size : d < 0 ? -size : 0;
}

/* Row i of S: sums over the edges i -> j of |q_j - q_i|^p, channel by channel. */
INLINE void powers_of_node(real *restrict to, const real *q, Ends sent, length i, length H) {
    const real *restrict own = q + i * H;
    clear(to, H);
    for (long long e = sent.start[i]; e < sent.start[i + 1]; e++) {
        const real *restrict other = q + sent.other[e] * H;
        for (length h = 0; h < H; h++) {
            const real d = other[h] - own[h];
            to[h] += power(d < 0 ? -d : d, TWICE_P);
        }
    }
}

/* The gradient of q_i, with g that of S; f is the slope of |d|^p, which is odd in d:
 *
 * sum over edges i -> j of g_i f(q_i - q_j)  +  sum over edges k -> i of g_k f(q_i - q_k)
 *
 * It gathers from both ends, where a scatter would let threads meet.
 */
INLINE void slopes_of_node(real *restrict to, const real *q, const real *grad, Ends sent, Ends received, length i,
                           length H) {
    const real *restrict own = q + i * H, *restrict g = grad + i * H;
    clear(to, H);
    for (long long e = sent.start[i]; e < sent.start[i + 1]; e++) {
        const real *restrict other = q + sent.other[e] * H;
        for (length h = 0; h < H; h++) to[h] += slope(own[h] - other[h]);
    }
    for (length h = 0; h < H; h++) to[h] *= g[h];
    for (long long e = received.start[i]; e < received.start[i + 1]; e++) {
        const length k = received.other[e] * H;
        const real *restrict other = q + k, *restrict theirs = grad + k;
        for (length h = 0; h < H; h++) to[h] += theirs[h] * slope(own[h] - other[h]);
    }
    for (length h = 0; h < H; h++) to[h] *= (real)0.5 * TWICE_P;
}

/* A share of the nodes, each by `of_node`; a Work has n_nodes. */
#define SHARE(name, of_node)                                                                      \
    static void name(void *shared, int share, int n_shares) {                                     \
        const Work *w = shared;                                                                   \
        const length end = first_row((int)w->n_nodes, share + 1, n_shares);                       \
        for (length i = first_row((int)w->n_nodes, share, n_shares); i < end; i++) of_node(w, i); \
    }

#endif
