/* Reading several ranges of files by one call: other threads run meanwhile, and none in between. */

#include <errno.h>
#include <unistd.h>

typedef struct {
    uint8_t *to;
    int64_t offset;
    int64_t size;
    int64_t file;
} Range;

/* Returns 0, or 1 where something could not be read, or was not there. */
int32_t EXPORT(read_ranges)(const Range *ranges, int64_t count) {
    for (int32_t i = 0; i < count; i++) {
        const Range *range = ranges + i;
        for (int64_t done = 0; done < range->size;) {
            ssize_t number = pread((int)range->file, range->to + done, (size_t)(range->size - done),
                                   (off_t)(range->offset + done));
            if (number <= 0 && !(number < 0 && errno == EINTR)) return 1;
            if (number > 0) done += number;
        }
    }
    return 0;
}
