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
