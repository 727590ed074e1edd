/* A disk that fails, or loses its power, at a chosen system call. Load it with LD_PRELOAD; `sweep.py` steers it.

   Below the folder of a store, what is flushed without an error reaches FOLDER/disk; the rest of store.db and
   store.db-wal is in the page cache only, which the process itself reads. A flush that fails drops what was waiting, as
   Linux does: those pages are clean afterwards, and a later flush that succeeds does not write them. Every descriptor
   that was open then is told once. When the power goes, of what was waiting some reaches the disk, in whole sectors. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILES = 2, DESCRIPTORS = 1024, ROLES = 3, SECTOR = 512 };
enum { WRITE, SYNC, CUT, RENAME, KINDS };
struct change { off64_t at; size_t size; char *bytes; struct change *next; }; /* bytes NULL: cut the file at `at` */
static struct { int disk; struct change *first, **last; } files[FILES];
static int file_of[DESCRIPTORS]; /* 1 + the number of the file, 0: none of those two */
static char below[DESCRIPTORS];  /* a file of the folder */
static char told[DESCRIPTORS];   /* an error that this descriptor has not heard of */
static char folder[4096];
static long calls[ROLES][KINDS], all, power_at, power_after, fail_at, fail_times;
static int role, fail_role, fail_kind, fail_error, fired;
static unsigned seed;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

void disk_folder(const char *path) { snprintf(folder, sizeof folder, "%s/", path); }
void disk_role(int number) { role = number; }
int disk_fired(void) { return fired; }
long disk_calls(int number, int kind) { return calls[number][kind]; }
void disk_power(long at, long after_fault, unsigned chance) {
    power_at = at, power_after = after_fault, seed = chance;
}
void disk_fail(int number, int kind, long at, long times, int error) {
    fail_role = number, fail_kind = kind, fail_at = at, fail_times = times, fail_error = error;
}

static int is_below(const char *path) { return *folder && !strncmp(path, folder, strlen(folder)); }

static int file_named(const char *path) {
    const char *name = path + strlen(folder);
    return !strcmp(name, "store.db") ? 1 : !strcmp(name, "store.db-wal") ? 2 : 0;
}

static void note(int fd, off64_t at, const void *bytes, size_t size) {
    int number = file_of[fd] - 1;
    struct change *new = calloc(1, sizeof *new);
    new->at = at;
    new->size = size;
    if (bytes) new->bytes = memcpy(malloc(size), bytes, size);
    if (!files[number].last) files[number].last = &files[number].first;
    *files[number].last = new;
    files[number].last = &new->next;
}

static void settle(int number, int keep) { /* keep 0: lengths only, which are kept apart from contents; 2: some of it */
    ssize_t (*put)(int, const void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pwrite64");
    int (*cut)(int, off64_t) = dlsym(RTLD_NEXT, "ftruncate64");
    int some = keep == 2 ? rand_r(&seed) % 5 : 4; /* quarters of the sectors */
    struct change *next;
    for (struct change *one = files[number].first; one; one = next) {
        next = one->next;
        if (!one->bytes) cut(files[number].disk, one->at);
        for (size_t done = 0, size; keep && one->bytes && done < one->size; done += size) {
            size = SECTOR - (one->at + done) % SECTOR;
            if (size > one->size - done) size = one->size - done;
            if (keep == 1 || rand_r(&seed) % 4 < some) put(files[number].disk, one->bytes + done, size, one->at + done);
        }
        free(one->bytes);
        free(one);
    }
    files[number].first = NULL;
    files[number].last = &files[number].first;
}

static int fails(int kind) { /* count a call; whether it is one that fails */
    long number = ++calls[role][kind];
    if (++all == power_at) {
        for (int each = 0; each < FILES; each++) settle(each, 2);
        _exit(9);
    }
    if (role != fail_role || kind != fail_kind || number < fail_at || number >= fail_at + fail_times) return 0;
    if (power_after && !power_at) power_at = all + power_after;
    return fired = 1;
}

int open64(const char *path, int flags, ...) {
    int (*plain)(const char *, int, ...) = dlsym(RTLD_NEXT, "open64");
    va_list more;
    va_start(more, flags);
    int fd = plain(path, flags, va_arg(more, int));
    va_end(more);
    if (fd < 0 || fd >= DESCRIPTORS || !is_below(path)) return fd;
    int number = file_named(path);
    pthread_mutex_lock(&turn);
    below[fd] = 1;
    file_of[fd] = number;
    told[fd] = 0;
    if (number && !files[number - 1].disk) {
        char name[4200];
        snprintf(name, sizeof name, "%sdisk/%s", folder, number == 1 ? "store.db" : "store.db-wal");
        files[number - 1].disk = plain(name, O_RDWR | O_CREAT, 0600);
    }
    pthread_mutex_unlock(&turn);
    return fd;
}

int close(int fd) {
    if (fd >= 0 && fd < DESCRIPTORS) file_of[fd] = below[fd] = 0;
    return ((int (*)(int))dlsym(RTLD_NEXT, "close"))(fd);
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t at) {
    ssize_t (*plain)(int, const void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pwrite64");
    if (fd < 0 || fd >= DESCRIPTORS || !below[fd]) return plain(fd, bytes, size, at);
    pthread_mutex_lock(&turn);
    int bad = fails(WRITE);
    ssize_t done = bad ? -1 : plain(fd, bytes, size, at);
    if (done > 0 && file_of[fd]) note(fd, at, bytes, done);
    pthread_mutex_unlock(&turn);
    if (bad) errno = fail_error;
    return done;
}

int ftruncate64(int fd, off64_t size) {
    int (*plain)(int, off64_t) = dlsym(RTLD_NEXT, "ftruncate64");
    if (fd < 0 || fd >= DESCRIPTORS || !below[fd]) return plain(fd, size);
    pthread_mutex_lock(&turn);
    int bad = fails(CUT), done = bad ? -1 : plain(fd, size);
    if (!done && file_of[fd]) note(fd, size, NULL, 0);
    pthread_mutex_unlock(&turn);
    if (bad) errno = fail_error;
    return done;
}

static int flush(int fd, const char *call) {
    int (*plain)(int) = dlsym(RTLD_NEXT, call);
    if (fd < 0 || fd >= DESCRIPTORS || !below[fd]) return plain(fd);
    pthread_mutex_lock(&turn);
    int bad = fails(SYNC), number = file_of[fd] - 1;
    if (number >= 0) {
        if (bad) {
            settle(number, 0);
            for (int other = 0; other < DESCRIPTORS; other++) told[other] |= file_of[other] == number + 1;
        }
        bad = told[fd];
        told[fd] = 0;
        settle(number, 1); /* new changes are written, whatever became of older ones */
    }
    pthread_mutex_unlock(&turn);
    if (bad) errno = fail_error;
    return bad ? -1 : 0;
}

int fsync(int fd) { return flush(fd, "fsync"); }
int fdatasync(int fd) { return flush(fd, "fdatasync"); }

int rename(const char *from, const char *to) {
    int bad = is_below(from) && fails(RENAME);
    if (bad) errno = fail_error;
    return bad ? -1 : ((int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename"))(from, to);
}
