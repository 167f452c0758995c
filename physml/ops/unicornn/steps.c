/* One layer of UnICORNN, one step forward with weights as they lie in memory (dot.h).
 *
 * s = dt sigmoid(c),  z' = z - s [tanh(w y + V x + b [+ Lambda x_skip]) + alpha y],  y' = y + s z'
 *
 * B rows of a batch, D features, H hidden units. Rows go in groups whose pre-activations stay near.
 */
#include "dot.h"

/* 0, or 1 if there was no memory. Contiguous: x (B, D), V (H, D), skipped (B, D_skip) or NULL, Lambda (H, D_skip);
 * y, z and the new ones (B, H). */
int unicornn_step(const real *x, const real *V, const real *b, const real *skipped, const real *Lambda,
                  const real *w, const real *c, const real *y, const real *z, real *y_new, real *z_new,
                  ptrdiff_t n_batch, ptrdiff_t d_in, ptrdiff_t d_skip, ptrdiff_t n_hidden, double dt,
                  double alpha) {
    const length H = n_hidden, most = rows_nearby(H);
    real nearby[NEARBY + VL], *pre = H <= NEARBY ? nearby : reals(H + VL);
    if (!pre) return 1;
    for (length row = 0, rows; row < n_batch; row += rows) {
        rows = least(most, n_batch - row);
        const Product products[] = {{x + row * d_in, V, d_in, d_in},
                                    {skipped ? skipped + row * d_skip : NULL, Lambda, d_skip, d_skip}};
        dots(rows, H, products, skipped ? 2 : 1, b, pre, H);
        for (length r = 0; r < rows; r++)
            for (length h = 0; h < H; h += VL) {
                const length at = (row + r) * H;
                const vec s = (real)dt * vec_sigmoid(load_end(c, h, H)), old = load_end(y + at, h, H);
                const vec push = load_end(w, h, H) * old + load(pre + r * H + h);
                const vec new = load_end(z + at, h, H) - s * (vec_tanh(push) + (real)alpha * old);
                store_end(z_new + at, h, H, new);
                store_end(y_new + at, h, H, old + s * new);
            }
    }
    if (pre != nearby) free(pre);
    return 0;
}
