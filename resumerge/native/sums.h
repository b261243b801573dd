/* Sums of vectors, element by element. */

/* sum(w_i * x_i), each product and each sum rounded to float, in the order given. */
void EXPORT(weighted_sum)(const Vector *terms, const float *weights, int64_t terms_count,
                          int64_t count, float *out) {
    float held[CHUNK];
    for (int64_t start = 0; start < count; start += CHUNK) {
        int n = chunk_at(start, count);
        float *to = out + start;
        for (int k = 0; k < terms_count; k++) {
            const float *x = take(&terms[k], start, n, held);
            float w = weights[k];
            if (k == 0)
                for (int i = 0; i < n; i++) to[i] = x[i] * w;
            else
                for (int i = 0; i < n; i++) to[i] = to[i] + x[i] * w;
        }
    }
}
