/* Elements that matter to several models. */

/* base + scale * sum(y_i) with y_i = w_i * d_i, where at least `least` models vote for an element:
 * |y_i| >= t_i * |sum(y_j) - y_i|. Elsewhere, the base.
 *
 * The vectors are differences from the base. `terms` has room for a chunk of each. */
void EXPORT(voted_sum)(const Vector *base, const Vector *vectors, const float *weights,
                       const float *thresholds, int64_t vectors_count, int64_t least_given,
                       double scale_given, int64_t count, float *terms, float *out) {
    const float scale = (float)scale_given;
    const int32_t least = (int32_t)least_given;
    float held[CHUNK], total[CHUNK];
    int32_t votes[CHUNK];
    for (int64_t start = 0; start < count; start += CHUNK) {
        int n = chunk_at(start, count);
        const float *b = load(base->data, base->dtype, start, n, held);
        for (int k = 0; k < vectors_count; k++) {
            float *term = terms + (size_t)k * CHUNK;
            float w = weights[k];
            take_less(&vectors[k], b, start, n, term);
            for (int i = 0; i < n; i++) {
                term[i] = term[i] * w;
                total[i] = k == 0 ? term[i] : total[i] + term[i];
            }
        }
        memset(votes, 0, sizeof votes);
        for (int k = 0; k < vectors_count; k++) {
            const float *term = terms + (size_t)k * CHUNK;
            float threshold = thresholds[k];
            for (int i = 0; i < n; i++)
                votes[i] += fabsf(term[i]) >= fabsf(total[i] - term[i]) * threshold;
        }
        float *to = out + start;
        for (int i = 0; i < n; i++) to[i] = b[i] + (votes[i] >= least ? total[i] : 0.0f) * scale;
    }
}
