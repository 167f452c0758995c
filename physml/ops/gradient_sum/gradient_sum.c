/* S_i = sum over edges i -> j of |q_j - q_i|^p, channel by channel.  Axes: N nodes, E edges, H channels.
 *
 * A thread owns nodes. It sums over a node's edges in the order in which they are stored, so that the number of
 * threads changes no bit, and no (E, H) array is ever written. edges.h has the sums, and their gradients.
 */

#include "edges.h"

typedef struct {
    length n_nodes, n_channels;
    Ends sent, received;
    const real *q, *grad; /* (N, H) */
    real *to;             /* (N, H) */
} Work;

INLINE void sum_of_node(const Work *w, length i) {
    powers_of_node(w->to + i * w->n_channels, w->q, w->sent, i, w->n_channels);
}

INLINE void slope_of_node(const Work *w, length i) {
    const length H = w->n_channels;
    slopes_of_node(w->to + i * H, w->q, w->grad, w->sent, w->received, i, H);
}

SHARE(sums, sum_of_node)
SHARE(slopes, slope_of_node)

static Work work_of(const long long sizes[2], const real *q, const long long *sent[2]) {
    return (Work){.n_nodes = sizes[0], .n_channels = sizes[1], .q = q,
                  .sent = {sent[0], sent[1]}};
}

/* sizes: N, H. sent, received: starts and other ends of the edges that each node sends, and receives. */
void gradient_sum_forward(int n_threads, const long long sizes[2], const long long *sent_start,
                          const long long *sent_other, const real *q, real *total) {
    Work w = work_of(sizes, q, (const long long *[2]){sent_start, sent_other});
    w.to = total;
    in_threads(sums, &w, n_threads);
}

void gradient_sum_backward(int n_threads, const long long sizes[2], const long long *sent_start,
                           const long long *sent_other, const long long *received_start,
                           const long long *received_other, const real *q, const real *grad, real *to_q) {
    Work w = work_of(sizes, q, (const long long *[2]){sent_start, sent_other});
    w.received = (Ends){received_start, received_other};
    w.grad = grad;
    w.to = to_q;
    in_threads(slopes, &w, n_threads);
}
