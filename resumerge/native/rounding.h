/* Floats into the type that is stored. */

/* Elements of a vector into another type: to nearest, ties to even. */
void EXPORT(round_to)(const Vector *v, int64_t count, int64_t dtype, void *out) {
    float held[CHUNK];
    for (int64_t start = 0; start < count; start += CHUNK) {
        int n = chunk_at(start, count);
        const float *x = take(v, start, n, held);
        if (dtype == F32) {
            float *to = (float *)out + start;
            for (int i = 0; i < n; i++) to[i] = one_nan(x[i]);
        } else {
            uint16_t *to = (uint16_t *)out + start;
            if (dtype == BF16)
                for (int i = 0; i < n; i++) to[i] = to_bf16(x[i]);
            else
                for (int i = 0; i < n; i++) to[i] = to_f16(x[i]);
        }
    }
}
