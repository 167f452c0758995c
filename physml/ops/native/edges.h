/* What sums of powers of differences along edges share.
 *
 * The power is a half of a whole number, from 1 to 8: a few products and at most one root. Where the compiler
 * knows it, loops over channels are vectors, so EACH(w, i, twice) is compiled for every one, twice being 2p.
 */
#ifndef PHYSML_EDGES_H
#define PHYSML_EDGES_H

#include "rows.h"
#include "threads.h"

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
INLINE real slope(real d, int twice) {
    const real size = power(d < 0 ? -d : d, twice - 2);
    return d > 0 ? size : d < 0 ? -size : 0;
}

/* Row i of S: sums over the edges i -> j of |q_j - q_i|^p, channel by channel. */
INLINE void powers_of_node(real *restrict to, const real *q, Ends sent, length i, length H, int twice) {
    const real *restrict own = q + i * H;
    clear(to, H);
    for (long long e = sent.start[i]; e < sent.start[i + 1]; e++) {
        const real *restrict other = q + sent.other[e] * H;
        for (length h = 0; h < H; h++) {
            const real d = other[h] - own[h];
            to[h] += power(d < 0 ? -d : d, twice);
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
                           length H, int twice) {
    const real *restrict own = q + i * H, *restrict g = grad + i * H;
    clear(to, H);
    for (long long e = sent.start[i]; e < sent.start[i + 1]; e++) {
        const real *restrict other = q + sent.other[e] * H;
        for (length h = 0; h < H; h++) to[h] += slope(own[h] - other[h], twice);
    }
    for (length h = 0; h < H; h++) to[h] *= g[h];
    for (long long e = received.start[i]; e < received.start[i + 1]; e++) {
        const length k = received.other[e] * H;
        const real *restrict other = q + k, *restrict theirs = grad + k;
        for (length h = 0; h < H; h++) to[h] += theirs[h] * slope(own[h] - other[h], twice);
    }
    for (length h = 0; h < H; h++) to[h] *= (real)0.5 * twice;
}

#define ONE(twice)                                            \
    case twice:                                               \
        for (; i < end; i++) EACH(w, i, twice);               \
        break;
#define ALL                                                                                              \
    ONE(2) ONE(3) ONE(4) ONE(5) ONE(6) ONE(7) ONE(8) ONE(9) ONE(10) ONE(11) ONE(12) ONE(13) ONE(14)     \
    ONE(15) ONE(16)

/* A share of the nodes, each by EACH; a Work has n_nodes and twice_p. */
#define SHARE(name)                                                                      \
    static void name(void *shared, int share, int n_shares) {                            \
        const Work *w = shared;                                                          \
        length i = first_row((int)w->n_nodes, share, n_shares);                          \
        const length end = first_row((int)w->n_nodes, share + 1, n_shares);              \
        switch (w->twice_p) { ALL }                                                      \
    }

#endif
