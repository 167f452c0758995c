/* S_i = sum over edges i -> j of |q_j - q_i|^p, channel by channel.  Axes: N nodes, E edges, H channels.
 *
 * p is a half of a whole number, from 1 to 8: a few products and at most one root. A thread owns nodes. It sums
 * over a node's edges in the order in which they are stored, so that the number of threads changes no bit, and
 * no (E, H) array is ever written. The slope of |d|^p is odd in d. So the gradient of q_i is
 *
 * sum over edges i -> j of g_i f(q_i - q_j)  +  sum over edges k -> i of g_k f(q_i - q_k),
 * f(d) = p sign(d) |d|^(p-1)
 *
 * with g the gradient of S: it gathers from both ends, where a scatter would let threads meet.
 */

#include "edges.h"

typedef struct {
    length n_nodes, n_channels;
    int twice_p;
    Ends sent, received;
    const real *q, *grad; /* (N, H) */
    real *to;             /* (N, H) */
} Work;

INLINE void sum_of_node(const Work *w, length i, int twice) {
    const length H = w->n_channels;
    const real *restrict own = w->q + i * H;
    real *restrict to = w->to + i * H;
    clear(to, H);
    for (long long e = w->sent.start[i]; e < w->sent.start[i + 1]; e++) {
        const real *restrict other = w->q + w->sent.other[e] * H;
        for (length h = 0; h < H; h++) {
            const real d = other[h] - own[h];
            to[h] += power(d < 0 ? -d : d, twice);
        }
    }
}

INLINE void slope_of_node(const Work *w, length i, int twice) {
    const length H = w->n_channels;
    const real *restrict own = w->q + i * H, *restrict grad = w->grad + i * H;
    real *restrict to = w->to + i * H;
    clear(to, H);
    for (long long e = w->sent.start[i]; e < w->sent.start[i + 1]; e++) {
        const real *restrict other = w->q + w->sent.other[e] * H;
        for (length h = 0; h < H; h++) to[h] += slope(own[h] - other[h], twice);
    }
    for (length h = 0; h < H; h++) to[h] *= grad[h];
    for (long long e = w->received.start[i]; e < w->received.start[i + 1]; e++) {
        const length k = w->received.other[e] * H;
        const real *restrict other = w->q + k, *restrict theirs = w->grad + k;
        for (length h = 0; h < H; h++) to[h] += theirs[h] * slope(own[h] - other[h], twice);
    }
    for (length h = 0; h < H; h++) to[h] *= (real)0.5 * twice;
}

#define EACH sum_of_node
SHARE(sums)
#undef EACH
#define EACH slope_of_node
SHARE(slopes)
#undef EACH

static Work work_of(const long long sizes[3], const real *q, const long long *sent[2]) {
    return (Work){.n_nodes = sizes[0], .n_channels = sizes[1], .twice_p = (int)sizes[2], .q = q,
                  .sent = {sent[0], sent[1]}};
}

/* sizes: N, H, 2p. sent, received: starts and other ends of the edges that each node sends, and receives. */
void gradient_sum_forward(int n_threads, const long long sizes[3], const long long *sent_start,
                          const long long *sent_other, const real *q, real *total) {
    Work w = work_of(sizes, q, (const long long *[2]){sent_start, sent_other});
    w.to = total;
    in_threads(sums, &w, n_threads);
}

void gradient_sum_backward(int n_threads, const long long sizes[3], const long long *sent_start,
                           const long long *sent_other, const long long *received_start,
                           const long long *received_other, const real *q, const real *grad, real *to_q) {
    Work w = work_of(sizes, q, (const long long *[2]){sent_start, sent_other});
    w.received = (Ends){received_start, received_other};
    w.grad = grad;
    w.to = to_q;
    in_threads(slopes, &w, n_threads);
}
