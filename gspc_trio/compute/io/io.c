/* Counts the reads and writes of regular files that a process makes; preloaded (ASPIDE 2.2).

A process adds to a slot of an area in memory that others see; GSPC_IO_AREA in the environment names the file of
the area. A slot is given back when its process ends and goes on counting for the next one, so the sums over all
slots only grow. Each amount is kept twice, for even and odd frames of 5 s: who looks once in each frame knows in
which one an operation has ended, though it ended between two looks.

What a call returns, and errno, are as without this library. What is not known of a descriptor is found out at its
next use; so nothing breaks where it changes unseen. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#undef fread_unlocked
#undef fwrite_unlocked

#define MAGIC 0x316f692d63707367ULL
#define DESCRIPTORS (1 << 16)
#define FILES (1 << 16)
#define FRAME_NS 5000000000LL

enum { READ, WRITE };
enum { UNKNOWN, REGULAR, OTHER };
enum { BYTES, DURATION_NS, DISTINCT, PATTERNS, SIZES = PATTERNS + 3, AMOUNTS = SIZES + 10 };

struct slot {
    _Atomic int32_t pid;
    int32_t unused;
    _Atomic uint64_t other_bytes[2];
    _Atomic uint64_t amounts[2][2][AMOUNTS]; /* by frame, by direction */
};

struct area {
    uint64_t magic;
    uint32_t slots_max;
    uint32_t slot_bytes;
    _Atomic int64_t wall_ns;   /* to be added to the monotonic clock for frames */
    _Atomic uint32_t task;     /* changes with each: its files count anew */
    _Atomic uint32_t highest;  /* so many slots were ever used */
    _Atomic uint64_t unseen;   /* processes that found no slot */
    char unused[4096 - 40];
    struct slot slots[]; /* see area.py */
};

struct file {
    _Atomic uint8_t kind;
    uint8_t appends;
    uint8_t shared; /* with another descriptor, which may move the position */
    uint32_t forks;
    uint32_t name;
    _Atomic int64_t position;
    _Atomic int64_t last_end[2];
};

struct name {
    _Atomic uint64_t hash;
    _Atomic uint64_t user[2]; /* process and task that have read, or written, it last */
};

static struct area *area;
static struct slot *own;
static uint64_t own_pid;
static struct file files[DESCRIPTORS];
static struct name names[FILES];
static _Atomic uint32_t forks;
static _Atomic int highest_used;

#define REAL(function) \
    ({ \
        static __typeof__(&function) found; \
        if (!found) \
            found = (__typeof__(&function))dlsym(RTLD_NEXT, #function); \
        found; \
    })

static inline int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static inline void add(_Atomic uint64_t *amount, uint64_t more)
{
    atomic_fetch_add_explicit(amount, more, memory_order_relaxed);
}

/* -- Slots ---------------------------------------------------------------------------------------------- */

static void take_slot(void)
{
    int32_t pid = getpid();
    own = NULL;
    for (uint32_t number = 0; number < area->slots_max; number++) {
        struct slot *slot = &area->slots[number];
        int32_t user = atomic_load(&slot->pid);
        if (user && user != pid && !(kill(user, 0) && errno == ESRCH))
            continue;
        if (!atomic_compare_exchange_strong(&slot->pid, &user, pid))
            continue;
        uint32_t highest = atomic_load(&area->highest);
        while (highest <= number && !atomic_compare_exchange_weak(&area->highest, &highest, number + 1))
            ;
        own = slot;
        own_pid = pid;
        return;
    }
    atomic_fetch_add(&area->unseen, 1);
}

static void forked(void) { atomic_fetch_add(&forks, 1); }

static void in_child(void)
{
    int before = errno;
    forked();
    if (area)
        take_slot();
    errno = before;
}

/* Count from now on in the area of this file; return 0, or -1 if it is none. */
int gspc_io_attach(const char *path)
{
    static int watches;
    struct stat found;
    int descriptor = open(path, O_RDWR | O_CLOEXEC);
    if (descriptor < 0)
        return -1;
    void *mapped = MAP_FAILED;
    if (!fstat(descriptor, &found) && found.st_size >= (off_t)sizeof(struct area))
        mapped = mmap(NULL, found.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (mapped == MAP_FAILED)
        return -1;
    struct area *wanted = mapped;
    uint64_t bytes = sizeof(struct area) + (uint64_t)wanted->slots_max * sizeof(struct slot);
    if (wanted->magic != MAGIC || wanted->slot_bytes != sizeof(struct slot) || bytes > (uint64_t)found.st_size) {
        munmap(mapped, found.st_size);
        return -1;
    }
    area = wanted;
    take_slot();
    if (!watches++)
        pthread_atfork(NULL, forked, in_child);
    return 0;
}

__attribute__((constructor)) static void begin(void)
{
    int before = errno;
    const char *path = getenv("GSPC_IO_AREA");
    if (path && *path)
        gspc_io_attach(path);
    errno = before;
}

__attribute__((destructor)) static void end(void)
{
    int32_t pid = getpid();
    if (own)
        atomic_compare_exchange_strong(&own->pid, &pid, 0);
}

/* -- Descriptors ------------------------------------------------------------------------------------------ */

static uint32_t name_of(dev_t device, ino_t node)
{
    uint64_t hash = (uint64_t)node * 0x9e3779b97f4a7c15ULL ^ (uint64_t)device * 0xc2b2ae3d27d4eb4fULL;
    hash = (hash ^ hash >> 29) * 0xbf58476d1ce4e5b9ULL;
    hash = (hash ^ hash >> 32) | 1;
    uint32_t place = hash >> 16;
    for (int tries = 0; tries < 64; tries++, place++) {
        struct name *name = &names[place % FILES];
        uint64_t known = 0;
        if (atomic_compare_exchange_strong(&name->hash, &known, hash) || known == hash)
            return place % FILES;
    }
    return FILES; /* no room: it counts at each opening */
}

/* Whether what looks like a regular file is none: an entry of the kernel, or memory without a name. */
static int is_no_file(int descriptor, struct stat *found)
{
    struct statfs system;
    if (fstatfs(descriptor, &system))
        return 0;
    uint32_t kind = system.f_type;
    return kind == 0x9fa0 || kind == 0x62656572 || kind == 0x27e0eb || (kind == 0x01021994 && !found->st_nlink);
}

static void look_at(int descriptor, struct file *file)
{
    struct stat found;
    int before = errno;
    if (fstat(descriptor, &found)) {
        errno = before;
        return;
    }
    int kind = S_ISREG(found.st_mode) && !is_no_file(descriptor, &found) ? REGULAR : OTHER;
    if (kind == REGULAR) {
        int64_t position = REAL(lseek)(descriptor, 0, SEEK_CUR);
        int flags = fcntl(descriptor, F_GETFL);
        file->appends = flags >= 0 && flags & O_APPEND;
        file->forks = atomic_load(&forks);
        file->name = name_of(found.st_dev, found.st_ino);
        atomic_store(&file->position, position);
        atomic_store(&file->last_end[READ], position);
        atomic_store(&file->last_end[WRITE], position);
    }
    int highest = atomic_load(&highest_used);
    while (highest < descriptor && !atomic_compare_exchange_weak(&highest_used, &highest, descriptor))
        ;
    atomic_store(&file->kind, kind);
    errno = before;
}

static inline void forget(int descriptor)
{
    if ((unsigned)descriptor < DESCRIPTORS && files[descriptor].kind != UNKNOWN) {
        files[descriptor].shared = 0;
        atomic_store(&files[descriptor].kind, UNKNOWN);
    }
}

static void forget_all(unsigned first, unsigned last)
{
    for (unsigned each = first; each <= last && each <= (unsigned)highest_used; each++)
        forget(each);
}

static void share(int from, int to)
{
    if (to < 0)
        return;
    if (from != to)
        forget(to);
    if ((unsigned)from < DESCRIPTORS && (unsigned)to < DESCRIPTORS)
        files[from].shared = files[to].shared = 1;
}

/* -- Counting --------------------------------------------------------------------------------------------- */

/* Return when a call begins; 0: it is none of a regular file. */
static inline int64_t begins(int descriptor)
{
    if (!own || (unsigned)descriptor >= DESCRIPTORS)
        return 0;
    struct file *file = &files[descriptor];
    uint8_t kind = atomic_load_explicit(&file->kind, memory_order_relaxed);
    if (kind == UNKNOWN) {
        look_at(descriptor, file);
        kind = file->kind;
    }
    return kind == REGULAR ? now_ns() : 0;
}

static inline int range_of(uint64_t bytes)
{
    static const uint64_t most[9] = {
        100, 1 << 10, 10 << 10, 100 << 10, 1 << 20, 4 << 20, 10 << 20, 100 << 20, 1 << 30,
    };
    int range = 0;
    while (range < 9 && bytes > most[range])
        range++;
    return range;
}

static inline int first_of_task(struct file *file, int direction)
{
    uint64_t user = own_pid << 32 | atomic_load_explicit(&area->task, memory_order_relaxed);
    if (file->name == FILES)
        return file->last_end[direction] == 0;
    _Atomic uint64_t *last = &names[file->name].user[direction];
    return atomic_load_explicit(last, memory_order_relaxed) != user && atomic_exchange(last, user) != user;
}

/* Count a call that has moved so many bytes; at: its position in the file, -1: where the descriptor stands. */
static inline void moved_at(int descriptor, int direction, int64_t begun, int64_t at, int64_t bytes, int buffered)
{
    struct slot *slot = own;
    if (bytes < 0 || !slot)
        return;
    if (!begun) {
        add(&slot->other_bytes[direction], bytes);
        return;
    }
    int64_t ended = now_ns();
    struct file *file = &files[descriptor];
    int64_t wall_ns = atomic_load_explicit(&area->wall_ns, memory_order_relaxed);
    _Atomic uint64_t *amounts = slot->amounts[(uint64_t)(ended + wall_ns) / FRAME_NS & 1][direction];
    int64_t last = atomic_load_explicit(&file->last_end[direction], memory_order_relaxed);
    if (at < 0) {
        if (direction == WRITE && file->appends)
            at = last;
        else if (!buffered && (file->shared || file->forks != forks)) {
            int before = errno;
            at = REAL(lseek)(descriptor, 0, SEEK_CUR) - bytes;
            errno = before;
        } else
            at = atomic_fetch_add_explicit(&file->position, bytes, memory_order_relaxed);
    }
    atomic_store_explicit(&file->last_end[direction], at + bytes, memory_order_relaxed);
    add(&amounts[PATTERNS + (at == last ? 0 : at > last ? 1 : 2)], 1);
    add(&amounts[SIZES + range_of(bytes)], 1);
    add(&amounts[BYTES], bytes);
    add(&amounts[DURATION_NS], ended - begun);
    if (first_of_task(file, direction))
        add(&amounts[DISTINCT], 1);
}

#define READS(name, parameters, call, descriptor, direction, at) \
    ssize_t name parameters \
    { \
        int64_t begun = begins(descriptor); \
        ssize_t bytes = REAL(name) call; \
        moved_at(descriptor, direction, begun, at, bytes, 0); \
        return bytes; \
    }

READS(read, (int fd, void *data, size_t size), (fd, data, size), fd, READ, -1)
READS(write, (int fd, const void *data, size_t size), (fd, data, size), fd, WRITE, -1)
READS(pread, (int fd, void *data, size_t size, off_t at), (fd, data, size, at), fd, READ, at)
READS(pwrite, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at), fd, WRITE, at)
READS(pread64, (int fd, void *data, size_t size, off64_t at), (fd, data, size, at), fd, READ, at)
READS(pwrite64, (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at), fd, WRITE, at)
READS(readv, (int fd, const struct iovec *parts, int count), (fd, parts, count), fd, READ, -1)
READS(writev, (int fd, const struct iovec *parts, int count), (fd, parts, count), fd, WRITE, -1)
READS(preadv, (int fd, const struct iovec *parts, int count, off_t at), (fd, parts, count, at), fd, READ, at)
READS(pwritev, (int fd, const struct iovec *parts, int count, off_t at), (fd, parts, count, at), fd, WRITE, at)
READS(preadv64, (int fd, const struct iovec *parts, int count, off64_t at), (fd, parts, count, at), fd, READ, at)
READS(pwritev64, (int fd, const struct iovec *parts, int count, off64_t at), (fd, parts, count, at), fd, WRITE, at)
READS(preadv2, (int fd, const struct iovec *parts, int count, off_t at, int flags),
    (fd, parts, count, at, flags), fd, READ, at)
READS(pwritev2, (int fd, const struct iovec *parts, int count, off_t at, int flags),
    (fd, parts, count, at, flags), fd, WRITE, at)
READS(preadv64v2, (int fd, const struct iovec *parts, int count, off64_t at, int flags),
    (fd, parts, count, at, flags), fd, READ, at)
READS(pwritev64v2, (int fd, const struct iovec *parts, int count, off64_t at, int flags),
    (fd, parts, count, at, flags), fd, WRITE, at)

/* What programs call that were compiled with checks of sizes. */
#define CHECKED(name, parameters, call) \
    ssize_t name parameters \
    { \
        if (size > room) \
            abort(); \
        return call; \
    }

CHECKED(__read_chk, (int fd, void *data, size_t size, size_t room), read(fd, data, size))
CHECKED(__pread_chk, (int fd, void *data, size_t size, off_t at, size_t room), pread(fd, data, size, at))
CHECKED(__pread64_chk, (int fd, void *data, size_t size, off64_t at, size_t room), pread64(fd, data, size, at))

/* A call that reads from one file and writes to another is an operation of both. */
static void copied(int from, int64_t begun_from, int64_t at_from, int to, int64_t begun_to, int64_t at_to, ssize_t bytes)
{
    moved_at(from, READ, begun_from, at_from, bytes, 0);
    moved_at(to, WRITE, begun_to, at_to, bytes, 0);
}

#define SENDS(name, offset) \
    ssize_t name(int to, int from, offset *at, size_t size) \
    { \
        int64_t begun_from = begins(from), begun_to = begins(to), from_at = at ? *at : -1; \
        ssize_t bytes = REAL(name)(to, from, at, size); \
        copied(from, begun_from, from_at, to, begun_to, -1, bytes); \
        return bytes; \
    }

SENDS(sendfile, off_t)
SENDS(sendfile64, off64_t)

ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t size, unsigned flags)
{
    int64_t begun_from = begins(from), begun_to = begins(to);
    int64_t at_from = from_at ? *from_at : -1, at_to = to_at ? *to_at : -1;
    ssize_t bytes = REAL(copy_file_range)(from, from_at, to, to_at, size, flags);
    copied(from, begun_from, at_from, to, begun_to, at_to, bytes);
    return bytes;
}

/* -- Positions, opening and closing ----------------------------------------------------------------------- */

#define SEEKS(name, offset) \
    offset name(int fd, offset by, int whence) \
    { \
        offset at = REAL(name)(fd, by, whence); \
        if (at >= 0 && (unsigned)fd < DESCRIPTORS) \
            atomic_store_explicit(&files[fd].position, at, memory_order_relaxed); \
        return at; \
    }

SEEKS(lseek, off_t)
SEEKS(lseek64, off64_t)

#define MODE(flags) \
    ({ \
        mode_t mode = 0; \
        if (flags & (O_CREAT | O_TMPFILE)) { \
            va_list more; \
            va_start(more, flags); \
            mode = va_arg(more, mode_t); \
            va_end(more); \
        } \
        mode; \
    })

#define OPENS(name, parameters, call) \
    int name parameters \
    { \
        int fd = REAL(name) call; \
        forget(fd); \
        return fd; \
    }

OPENS(open, (const char *path, int flags, ...), (path, flags, MODE(flags)))
OPENS(open64, (const char *path, int flags, ...), (path, flags, MODE(flags)))
OPENS(openat, (int at, const char *path, int flags, ...), (at, path, flags, MODE(flags)))
OPENS(openat64, (int at, const char *path, int flags, ...), (at, path, flags, MODE(flags)))
OPENS(creat, (const char *path, mode_t mode), (path, mode))
OPENS(creat64, (const char *path, mode_t mode), (path, mode))

int close(int fd) { return forget(fd), REAL(close)(fd); }
int close_range(unsigned first, unsigned last, int flags)
{
    return forget_all(first, last), REAL(close_range)(first, last, flags);
}
void closefrom(int first) { forget_all(first < 0 ? 0 : first, ~0U), REAL(closefrom)(first); }

#define COPIES(name, parameters, call) \
    int name parameters \
    { \
        int made = REAL(name) call; \
        share(fd, made); \
        return made; \
    }

COPIES(dup, (int fd), (fd))
COPIES(dup2, (int fd, int wanted), (fd, wanted))
COPIES(dup3, (int fd, int wanted, int flags), (fd, wanted, flags))

#define CONTROLS(name) \
    int name(int fd, int command, ...) \
    { \
        va_list more; \
        va_start(more, command); \
        void *argument = va_arg(more, void *); \
        va_end(more); \
        int result = REAL(name)(fd, command, argument); \
        if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) \
            share(fd, result); \
        else if (command == F_SETFL && result == 0 && (unsigned)fd < DESCRIPTORS) \
            files[fd].appends = ((long)argument & O_APPEND) != 0; \
        return result; \
    }

CONTROLS(fcntl)
CONTROLS(fcntl64)

/* -- Streams: the calls that the program makes, whatever is kept in their buffers -------------------------- */

static int of_stream(FILE *stream)
{
    int before = errno, fd = own ? fileno_unlocked(stream) : -1;
    errno = before;
    return fd;
}

#define STREAMS(result, name, parameters, call, stream, direction, bytes) \
    result name parameters \
    { \
        int fd = of_stream(stream); \
        int64_t begun = begins(fd); \
        result made = REAL(name) call; \
        if (fd >= 0) \
            moved_at(fd, direction, begun, -1, bytes, 1); \
        return made; \
    }

STREAMS(size_t, fread, (void *data, size_t size, size_t count, FILE *stream), (data, size, count, stream), stream,
    READ, (int64_t)(made * size))
STREAMS(size_t, fread_unlocked, (void *data, size_t size, size_t count, FILE *stream), (data, size, count, stream),
    stream, READ, (int64_t)(made * size))
STREAMS(size_t, fwrite, (const void *data, size_t size, size_t count, FILE *stream), (data, size, count, stream),
    stream, WRITE, (int64_t)(made * size))
STREAMS(size_t, fwrite_unlocked, (const void *data, size_t size, size_t count, FILE *stream),
    (data, size, count, stream), stream, WRITE, (int64_t)(made * size))
STREAMS(char *, fgets, (char *data, int size, FILE *stream), (data, size, stream), stream, READ,
    made ? (int64_t)strlen(made) : -1)
STREAMS(int, fputs, (const char *data, FILE *stream), (data, stream), stream, WRITE,
    made < 0 ? -1 : (int64_t)strlen(data))
STREAMS(ssize_t, getline, (char **data, size_t *size, FILE *stream), (data, size, stream), stream, READ, made)
STREAMS(ssize_t, getdelim, (char **data, size_t *size, int end, FILE *stream), (data, size, end, stream), stream,
    READ, made)
STREAMS(ssize_t, __getdelim, (char **data, size_t *size, int end, FILE *stream), (data, size, end, stream), stream,
    READ, made)
STREAMS(int, fgetc, (FILE * stream), (stream), stream, READ, made < 0 ? -1 : 1)
STREAMS(int, getc, (FILE * stream), (stream), stream, READ, made < 0 ? -1 : 1)
STREAMS(int, fputc, (int character, FILE *stream), (character, stream), stream, WRITE, made < 0 ? -1 : 1)
STREAMS(int, putc, (int character, FILE *stream), (character, stream), stream, WRITE, made < 0 ? -1 : 1)
STREAMS(int, puts, (const char *data), (data), stdout, WRITE, made < 0 ? -1 : (int64_t)strlen(data) + 1)
STREAMS(int, vfprintf, (FILE * stream, const char *format, va_list more), (stream, format, more), stream, WRITE, made)
STREAMS(int, vprintf, (const char *format, va_list more), (format, more), stdout, WRITE, made)

extern int __vfprintf_chk(FILE *stream, int flag, const char *format, va_list more);
STREAMS(int, __vfprintf_chk, (FILE * stream, int flag, const char *format, va_list more), (stream, flag, format, more),
    stream, WRITE, made)

#define PRINTS(name, parameters, call, last) \
    int name parameters \
    { \
        va_list more; \
        va_start(more, last); \
        int made = call; \
        va_end(more); \
        return made; \
    }

PRINTS(fprintf, (FILE * stream, const char *format, ...), vfprintf(stream, format, more), format)
PRINTS(printf, (const char *format, ...), vfprintf(stdout, format, more), format)
PRINTS(__fprintf_chk, (FILE * stream, int flag, const char *format, ...), __vfprintf_chk(stream, flag, format, more),
    format)
PRINTS(__printf_chk, (int flag, const char *format, ...), __vfprintf_chk(stdout, flag, format, more), format)

static void stands(FILE *stream)
{
    int fd = of_stream(stream);
    if ((unsigned)fd < DESCRIPTORS) {
        int before = errno;
        int64_t at = ftello(stream);
        errno = before;
        atomic_store(&files[fd].position, at);
    }
}

#define SEEKS_STREAM(name, parameters, call) \
    int name parameters \
    { \
        int result = REAL(name) call; \
        if (!result) \
            stands(stream); \
        return result; \
    }

SEEKS_STREAM(fseek, (FILE * stream, long by, int whence), (stream, by, whence))
SEEKS_STREAM(fseeko, (FILE * stream, off_t by, int whence), (stream, by, whence))
SEEKS_STREAM(fseeko64, (FILE * stream, off64_t by, int whence), (stream, by, whence))
SEEKS_STREAM(fsetpos, (FILE * stream, const fpos_t *at), (stream, at))

void rewind(FILE *stream)
{
    REAL(rewind)(stream);
    stands(stream);
}

#define STREAM_OPENS(name, parameters, call) \
    FILE *name parameters \
    { \
        FILE *stream = REAL(name) call; \
        if (stream) \
            forget(of_stream(stream)); \
        return stream; \
    }

STREAM_OPENS(fopen, (const char *path, const char *mode), (path, mode))
STREAM_OPENS(fopen64, (const char *path, const char *mode), (path, mode))
STREAM_OPENS(tmpfile, (void), ())
STREAM_OPENS(tmpfile64, (void), ())

#define FORGETS(result, name, parameters, call) \
    result name parameters \
    { \
        forget(of_stream(stream)); \
        return REAL(name) call; \
    }

FORGETS(FILE *, freopen, (const char *path, const char *mode, FILE *stream), (path, mode, stream))
FORGETS(FILE *, freopen64, (const char *path, const char *mode, FILE *stream), (path, mode, stream))
FORGETS(int, fclose, (FILE * stream), (stream))
