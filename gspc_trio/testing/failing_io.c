/* Lets a part of the reads, writes and syncs of regular files fail with EIO; preloaded, for tests (ASPIDE 2.2).

GSPC_FAILING names a file that holds a percentage and a directory: "25 /tmp". Calls on files below that directory
fail by chance. As long as the file is not there, or empty, none fails; so a test can begin and end it. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* Read the order by system calls alone: the functions of the C library are those below. */
static int ordered(char *directory) {
    const char *name = getenv("GSPC_FAILING");
    char text[PATH_MAX];
    long size, file;
    int percent = 0;

    if (!name || (file = syscall(SYS_openat, AT_FDCWD, name, O_RDONLY | O_CLOEXEC)) < 0) return 0;
    size = syscall(SYS_read, file, text, sizeof text - 1);
    syscall(SYS_close, file);
    if (size <= 0) return 0;
    text[size] = 0;
    if (sscanf(text, "%d %4095s", &percent, directory) != 2) return 0;
    return percent;
}

static unsigned chance(void) {
    static __thread uint64_t state;
    struct timespec now;

    if (!state) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        state = (uint64_t)now.tv_nsec * 2654435761u + (uint64_t)(uintptr_t)&state + (uint64_t)getpid();
    }
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (unsigned)(state >> 33) % 100;
}

/* Whether a call on this descriptor is to fail; errno says so then. */
static int fails(int descriptor) {
    char directory[PATH_MAX], link[64], path[PATH_MAX];
    struct stat what;
    int before = errno, percent = ordered(directory), failed = 0;
    ssize_t size;

    if (percent > 0 && !fstat(descriptor, &what) && S_ISREG(what.st_mode)) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
        size = readlink(link, path, sizeof path - 1);
        failed = size > 0 && (size_t)size > strlen(directory) && !strncmp(path, directory, strlen(directory)) &&
                 path[strlen(directory)] == '/' && (int)chance() < percent;
    }
    errno = failed ? EIO : before;
    return failed;
}

#define WRAP(type, name, parameters, arguments)                                  \
    type name parameters {                                                       \
        static type(*next) parameters;                                           \
        if (!next) next = (type(*) parameters)dlsym(RTLD_NEXT, #name);           \
        return fails(descriptor) ? (type)-1 : next arguments;                    \
    }

WRAP(ssize_t, read, (int descriptor, void *to, size_t size), (descriptor, to, size))
WRAP(ssize_t, write, (int descriptor, const void *from, size_t size), (descriptor, from, size))
WRAP(ssize_t, pread64, (int descriptor, void *to, size_t size, off64_t at), (descriptor, to, size, at))
WRAP(ssize_t, pwrite64, (int descriptor, const void *from, size_t size, off64_t at), (descriptor, from, size, at))
WRAP(ssize_t, readv, (int descriptor, const struct iovec *to, int count), (descriptor, to, count))
WRAP(ssize_t, writev, (int descriptor, const struct iovec *from, int count), (descriptor, from, count))
WRAP(int, fsync, (int descriptor), (descriptor))
WRAP(int, fdatasync, (int descriptor), (descriptor))
