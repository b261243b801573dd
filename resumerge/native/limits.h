/* Numbers held to a distance from others. */

/* x limited to m - reach .. m + reach, never -0; NaN where either is. */
void EXPORT(limited)(const Vector *v, const Vector *middle, double reach_given, int64_t count,
                     float *out) {
    const float reach = (float)reach_given;
    float held[CHUNK], held_middle[CHUNK];
    for (int64_t start = 0; start < count; start += CHUNK) {
        int n = chunk_at(start, count);
        const float *x = take(v, start, n, held);
        const float *m = take(middle, start, n, held_middle);
        float *to = out + start;
        for (int i = 0; i < n; i++) {
            float low = m[i] - reach, high = m[i] + reach;
            float y = x[i] < low ? low : x[i];
            y = y > high ? high : y;
            to[i] = (m[i] != m[i] ? m[i] : y) + 0.0f;
        }
    }
}
