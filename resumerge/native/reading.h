/* Read several ranges of files by one call, during which other threads may run. */
#pragma once

/* For pread, and files of more than 2 GiB where off_t would be short. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS 64
#endif

#include <errno.h>
#include <stdint.h>
#include <unistd.h>

#include "table.h"

/* The destination of the hashes of blocks, 16 bytes each; the last block may be shorter. */
typedef struct {
    void (*hash)(const uint8_t *, int64_t, uint8_t *);
    int64_t block;
    uint8_t *to;
} Hashes;

typedef struct {
    uint8_t *to;
    int64_t offset;
    int64_t size;
    int file;
    Hashes hashes;
} Range;

static int read_unchecked(int file, int64_t offset, uint8_t *to, int64_t size) {
    for (int64_t done = 0; done < size;) {
        ssize_t number = pread(file, to + done, (size_t)(size - done), (off_t)(offset + done));
        if (number <= 0 && !(number < 0 && errno == EINTR)) return 0;
        if (number > 0) done += number;
    }
    return 1;
}

/* A range that is hashed is read block by block, so that a block is still in the processor's cache
 * when it is hashed. Returns 0 if a range could not be read, or the file is too short. */
static int read_ranges_unchecked(const Range *ranges, int64_t count) {
    for (const Range *range = ranges; range < ranges + count; range++) {
        const Hashes *hashes = &range->hashes;
        int64_t piece = hashes->block ? hashes->block : range->size;
        for (int64_t start = 0; start < range->size; start += piece) {
            int64_t size = range->size - start < piece ? range->size - start : piece;
            uint8_t *to = range->to + start;
            if (!read_unchecked(range->file, range->offset + start, to, size)) return 0;
            if (hashes->block) hashes->hash(to, size, hashes->to + start / piece * HASH_BYTES);
        }
    }
    return 1;
}
