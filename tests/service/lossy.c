/* A disk that fails at its N-th flush, for files named store.db and store.db-wal. Load it with LD_PRELOAD.

   What is flushed without an error reaches $LOSSY_DISK/NAME; the rest is in the page cache only, which the process
   itself reads. A flush that fails drops what was waiting, as Linux does: those pages are clean afterwards, and a later
   flush that succeeds does not write them. Every descriptor that was open then is told once. */
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

enum { FILES = 2, DESCRIPTORS = 1024 };
struct change { off64_t at; size_t size; char *bytes; struct change *next; }; /* bytes NULL: cut the file at `at` */
static struct { int disk; struct change *first, **last; } files[FILES];
static int file_of[DESCRIPTORS]; /* 1 + the number of the file, 0: none of ours */
static char told[DESCRIPTORS];   /* an error that this descriptor has not heard of */
static long flushes;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static int file_named(const char *path) {
    const char *name = strrchr(path, '/');
    name = name ? name + 1 : path;
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

static void settle(int number, int keep) {
    ssize_t (*put)(int, const void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pwrite64");
    int (*cut)(int, off64_t) = dlsym(RTLD_NEXT, "ftruncate64");
    struct change *next;
    for (struct change *one = files[number].first; one; one = next) {
        next = one->next;
        if (!one->bytes) cut(files[number].disk, one->at); /* lengths are kept apart from contents */
        else if (keep) put(files[number].disk, one->bytes, one->size, one->at);
        free(one->bytes);
        free(one);
    }
    files[number].first = NULL;
    files[number].last = &files[number].first;
}

int open64(const char *path, int flags, ...) {
    int (*plain)(const char *, int, ...) = dlsym(RTLD_NEXT, "open64");
    va_list more;
    va_start(more, flags);
    int fd = plain(path, flags, va_arg(more, int));
    va_end(more);
    int number = file_named(path);
    if (fd < 0 || fd >= DESCRIPTORS || !number) return fd;
    pthread_mutex_lock(&turn);
    file_of[fd] = number;
    told[fd] = 0;
    if (!files[number - 1].disk) {
        char name[4096];
        snprintf(name, sizeof name, "%s/%s", getenv("LOSSY_DISK"), number == 1 ? "store.db" : "store.db-wal");
        files[number - 1].disk = plain(name, O_RDWR | O_CREAT, 0600);
    }
    pthread_mutex_unlock(&turn);
    return fd;
}

int close(int fd) {
    if (fd >= 0 && fd < DESCRIPTORS) file_of[fd] = 0;
    return ((int (*)(int))dlsym(RTLD_NEXT, "close"))(fd);
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t at) {
    pthread_mutex_lock(&turn);
    ssize_t done = ((ssize_t(*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64"))(fd, bytes, size, at);
    if (done > 0 && fd < DESCRIPTORS && file_of[fd]) note(fd, at, bytes, done);
    pthread_mutex_unlock(&turn);
    return done;
}

int ftruncate64(int fd, off64_t size) {
    pthread_mutex_lock(&turn);
    int bad = ((int (*)(int, off64_t))dlsym(RTLD_NEXT, "ftruncate64"))(fd, size);
    if (!bad && fd < DESCRIPTORS && file_of[fd]) note(fd, size, NULL, 0);
    pthread_mutex_unlock(&turn);
    return bad;
}

int fdatasync(int fd) {
    if (fd < 0 || fd >= DESCRIPTORS || !file_of[fd]) return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
    int bad = 0, number = file_of[fd] - 1;
    pthread_mutex_lock(&turn);
    if (++flushes == atol(getenv("LOSSY_FAIL_AT"))) {
        settle(number, 0);
        for (int other = 0; other < DESCRIPTORS; other++) told[other] |= file_of[other] == number + 1;
    }
    if (told[fd]) {
        bad = 1;
        told[fd] = 0;
    }
    settle(number, 1); /* new changes are written, whatever became of older ones */
    pthread_mutex_unlock(&turn);
    if (bad) errno = EIO;
    return bad ? -1 : 0;
}
