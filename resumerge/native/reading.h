/* Reading several ranges of files by one call: other threads run meanwhile, and none in between. */
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

typedef struct {
    uint8_t *to;
    int64_t offset;
    int64_t size;
    int file;
} Range;

/* Returns 0, or 1 where something could not be read, or was not there. */
static int read_ranges_unchecked(const Range *ranges, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        const Range *range = ranges + i;
        for (int64_t done = 0; done < range->size;) {
            ssize_t number = pread(range->file, range->to + done, (size_t)(range->size - done),
                                   (off_t)(range->offset + done));
            if (number <= 0 && !(number < 0 && errno == EINTR)) return 1;
            if (number > 0) done += number;
        }
    }
    return 0;
}
