/* Stops SQLite in the middle of a checkpoint: between reading the write-ahead log's state and looking how much of it is
   copied it gives back its mapping of the file, and there $PAUSE.in is made and $PAUSE.go waited for, half a second at
   most. Load it with LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int munmap(void *at, size_t size) {
    static int done;
    const char *pause = getenv("PAUSE");
    char name[4096];
    if (pause && !done && size > 2 << 20) { /* larger than what Python maps for itself */
        done = 1;
        snprintf(name, sizeof name, "%s.in", pause);
        close(open(name, O_CREAT | O_WRONLY, 0600));
        snprintf(name, sizeof name, "%s.go", pause);
        for (int tries = 0; tries < 100 && access(name, F_OK); tries++) usleep(5000);
    }
    return ((int (*)(void *, size_t))dlsym(RTLD_NEXT, "munmap"))(at, size);
}
