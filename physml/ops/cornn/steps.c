/* coRNN, a few steps forward with weights as they lie in memory (dot.h).
 *
 * f_n = tanh(W y_{n-1} + Wcal z_{n-1} + V u_n + b)
 * z_n = a z_{n-1} + c f_n - d y_{n-1},  y_n = y_{n-1} + dt z_n
 *
 * B rows of a batch, T steps, D features, H hidden units. Rows go in groups whose pre-activations stay near.
 */
#include "dot.h"

/* 0, or 1 if there was no memory. All but u contiguous: path (T, B, H), the others (B, ..) or weights.
 * u_row, u_step: strides of u, whose features lie together. */
int cornn_steps(const real *u, ptrdiff_t u_row, ptrdiff_t u_step, const real *y, const real *z, const real *W,
                const real *Wcal, const real *V, const real *b, real *path, real *y_last, real *z_last,
                ptrdiff_t n_steps, ptrdiff_t n_batch, ptrdiff_t d_in, ptrdiff_t n_hidden, double dt, double a,
                double c, double d) {
    const length H = n_hidden, most = rows_nearby(H), size = n_batch * H;
    real nearby[NEARBY + VL], *pre = H <= NEARBY ? nearby : reals(H + VL);
    if (!pre) return 1;
    memcpy(z_last, z, (size_t)size * sizeof(real));
    for (length row = 0, rows; row < n_batch; row += rows) {
        rows = least(most, n_batch - row);
        const real *old = y + row * H;
        real *speed = z_last + row * H;
        for (length n = 0; n < n_steps; n++) {
            real *new = path + n * size + row * H;
            const Product products[] = {{old, W, H, H}, {speed, Wcal, H, H},
                                        {u + row * u_row + n * u_step, V, u_row, d_in}};
            dots(rows, H, products, 3, b, pre, H);
            for (length r = 0; r < rows; r++)
                for (length h = 0; h < H; h += VL) {
                    const vec y_h = load_end(old + r * H, h, H), f = vec_tanh(load(pre + r * H + h));
                    const vec z_h = (real)a * load_end(speed + r * H, h, H) + (real)c * f - (real)d * y_h;
                    store_end(speed + r * H, h, H, z_h);
                    store_end(new + r * H, h, H, y_h + (real)dt * z_h);
                }
            old = new;
        }
    }
    memcpy(y_last, path + (n_steps - 1) * size, (size_t)size * sizeof(real));
    if (pre != nearby) free(pre);
    return 0;
}
