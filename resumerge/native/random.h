/* Random masks: a byte of Philox's stream decides an element, rarely with a word of a second
 * stream. */
#pragma once

#include "philox.h"
#include "vectors.h"

enum { FIRST_BITS = 0, MORE_BITS = 1 };

/* A mask of bytes: 1 where a random byte is below `whole`, and where it is equal and a random word
 * of the stream of more bits, one for each such element, is below `fraction`. */
static void random_mask_unchecked(const Seed *seed, uint8_t whole, uint64_t fraction, int64_t count,
                                  uint8_t *mask) {
    Stream first = stream_of(seed, FIRST_BITS), more = stream_of(seed, MORE_BITS);
    uint64_t words[4];
    int used = 4;
    for (int64_t start = 0; start < count; start += CHUNK) {
        int n = chunk_at(start, count);
        uint8_t ties[CHUNK] = {0}, *to = mask + start;
        draw_bytes(&first, n, to);
        for (int i = 0; i < n; i++) ties[i] = to[i] == whole;
        for (int i = 0; i < n; i++) to[i] = to[i] < whole;
        for (int i = 0; i < n; i += 8) {
            uint64_t any;
            memcpy(&any, ties + i, sizeof any);
            if (!any) continue;
            for (int k = i; k < i + 8; k++) {
                if (!ties[k]) continue;
                if (used == 4) {
                    draw(&more, words);
                    used = 0;
                }
                to[k] = words[used++] < fraction;
            }
        }
    }
}
