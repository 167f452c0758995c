/* S_ia = sum over edges e: j -> i of w_ea x_ja.  Axes: N nodes, E edges, A heads, C channels of a head.
 *
 * A thread owns nodes and sums over a node's edges in the order in which they are stored, so that the number of
 * threads changes no bit. Backwards a node j gathers, along the edges that it sends, the gradients g of S:
 *
 * gradient of x_ja = sum over edges e: j -> i of w_ea g_ia,    gradient of w_ea = g_ia . x_ja
 *
 * Each gathered row serves both. Heads, and blocks of a wide head's channels, are taken one after the other and
 * copied to one piece first: what is gathered of all nodes then stays in the cache of a core.
 */

#include "rows.h"
#include "threads.h"

#define BLOCK 64 /* channels, whole vectors */
#define AHEAD 12 /* edges whose rows are fetched early: a processor does not foresee where they lie */

typedef struct {
    length n_nodes, n_heads, n_channels;
    const long long *start, *other, *order; /* (N + 1): where a node's edges begin; (E): other ends; places */
    const real *given, *weight;             /* (N, A, C), gathered from the other ends; (E, A) */
    const real *x;                          /* (N, A, C), of the node itself; NULL: no gradient of w */
    real *to, *to_weight;                   /* (N, A, C); (E, A) */
    real *rows;                             /* (threads, N, BLOCK): `given`, a block of channels at a time */
} Work;

/* n channels from c on of head a, at node i; `rows` are what is gathered, each of whole vectors. */
INLINE void node(const Work *w, const real *rows, length i, length a, length c, length n) {
    const length A = w->n_heads, at = (i * A + a) * w->n_channels + c;
    const length last = w->start[w->n_nodes] - 1;
    vec total[BLOCK / VL] = {0}, own[BLOCK / VL];
    if (w->x)
        for (length k = 0; k < n; k += VL) own[k / VL] = load_end(w->x + at, k, n);
    for (long long e = w->start[i]; e < w->start[i + 1]; e++) {
        expect(rows + w->other[least(e + AHEAD, last)] * (length)whole(n), n);
        const real *row = rows + w->other[e] * (length)whole(n);
        const length place = w->order[e] * A + a;
        const real weight = w->weight[place];
        vec product = {0};
        for (length k = 0; k < n; k += VL) {
            const vec other = load(row + k);
            total[k / VL] += weight * other;
            if (w->x) product += own[k / VL] * other;
        }
        if (w->x) w->to_weight[place] = sum(product) + (c > 0 ? w->to_weight[place] : 0);
    }
    for (length k = 0; k < n; k += VL) store_end(w->to + at, k, n, total[k / VL]);
}

/* The loops over channels are unrolled where their number is known to the compiler. */
static void block(const Work *w, const real *rows, length first, length end, length a, length c, length n) {
    if (n == BLOCK)
        for (length i = first; i < end; i++) node(w, rows, i, a, c, BLOCK);
    else if (n == BLOCK / 2)
        for (length i = first; i < end; i++) node(w, rows, i, a, c, BLOCK / 2);
    else
        for (length i = first; i < end; i++) node(w, rows, i, a, c, n);
}

static void gather(const Work *w, real *rows, length a, length c, length n) {
    const length row = (length)whole(n);
    for (length i = 0; i < w->n_nodes; i++) {
        copy(rows + i * row, w->given + (i * w->n_heads + a) * w->n_channels + c, n);
        clear(rows + i * row + n, row - n);
    }
}

static void nodes(void *shared, int share, int n_shares) {
    Work *w = shared;
    const length N = w->n_nodes, A = w->n_heads, C = w->n_channels;
    const length first = first_row((int)N, share, n_shares), end = first_row((int)N, share + 1, n_shares);
    real *rows = w->rows + share * N * BLOCK;
    for (length a = 0; a < A; a++)
        for (length c = 0; c < C; c += BLOCK) {
            const length n = least(BLOCK, C - c);
            gather(w, rows, a, c, n);
            block(w, rows, first, end, a, c, n);
        }
}

static int run(Work *w, int n_threads) {
    w->rows = calloc((size_t)n_threads * (size_t)w->n_nodes * BLOCK, sizeof(real));
    if (!w->rows) return 1;
    in_threads(nodes, w, n_threads);
    free(w->rows);
    return 0;
}

/* sizes: N, A, C. start, other, order: of the edges that each node receives. */
int weighted_sum_forward(int n_threads, const long long sizes[3], const long long *start, const long long *other,
                          const long long *order, const real *x, const real *weight, real *total) {
    Work w = {.n_nodes = sizes[0], .n_heads = sizes[1], .n_channels = sizes[2], .start = start, .other = other,
              .order = order, .given = x, .weight = weight, .to = total};
    return run(&w, n_threads);
}

/* start, other, order: of the edges that each node sends. */
int weighted_sum_backward(int n_threads, const long long sizes[3], const long long *start, const long long *other,
                           const long long *order, const real *x, const real *weight, const real *grad, real *to_x,
                           real *to_weight) {
    Work w = {.n_nodes = sizes[0], .n_heads = sizes[1], .n_channels = sizes[2], .start = start, .other = other,
              .order = order, .given = grad, .weight = weight, .x = x, .to = to_x, .to_weight = to_weight};
    return run(&w, n_threads);
}
