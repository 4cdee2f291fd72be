/* Reads and writes in all ways that are counted; what it does is compared with what strace sees. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static char data[1 << 20];

static void *reader(void *path)
{
    int fd = open(path, O_RDONLY);
    while (read(fd, data, 777) > 0)
        ;
    close(fd);
    return NULL;
}

static void streams(void)
{
    FILE *file = fopen("stream", "w+");
    setvbuf(file, NULL, _IONBF, 0);
    for (int i = 0; i < 5; i++)
        fwrite(data, 1, 300, file);
    fputs("a line\n", file);
    fclose(file);
}

static void many(int count)
{
    char name[32];
    int *open_files = calloc(count, sizeof(int));
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "many-%d", i);
        open_files[i] = open(name, O_RDWR | O_CREAT, 0600);
        if (open_files[i] < 0)
            exit(3);
    }
    for (int i = 0; i < count; i++)
        if (write(open_files[i], data, i % 50) < 0)
            exit(4);
    for (int i = 0; i < count; i++)
        close(open_files[i]);
}

int main(int count, char **words)
{
    if (count > 1 && !strcmp(words[1], "again")) {
        reader("first");
        return 0;
    }
    if (count > 2 && !strcmp(words[1], "many")) {
        many(atoi(words[2]));
        return 0;
    }
    struct iovec parts[2] = {{data, 100}, {data + 100, 2000}};
    int fd = open("first", O_RDWR | O_CREAT | O_TRUNC, 0600), pipe_ends[2];
    for (int i = 0; i < 10; i++)
        if (write(fd, data, 1000 * i) < 0)
            return 1;
    if (writev(fd, parts, 2) < 0 || pwrite(fd, data, 70000, 5) < 0 || pwritev(fd, parts, 2, 90) < 0)
        return 1;
    lseek(fd, 0, SEEK_SET);
    readv(fd, parts, 2);
    preadv(fd, parts, 2, 100);
    pread(fd, data, 500, 50000);
    pread(fd, data, 500, 10);
    read(fd, data, sizeof data);
    int twin = dup(fd);
    lseek(fd, 3, SEEK_SET);
    read(twin, data, 3);
    read(fd, data, 3);
    close(fd);
    if (read(fd, data, 3) != -1 || errno != EBADF)
        return 2;
    if (read(twin, (void *)8, 3) != -1 || errno != EFAULT)
        return 2;
    if (pipe(pipe_ends) || write(pipe_ends[1], data, 40) != 40 || read(pipe_ends[0], data, 40) != 40)
        return 2;
    streams();
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, reader, "first");
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    if (!fork()) {
        read(twin, data, 100);
        reader("first");
        _exit(0);
    }
    wait(NULL);
    if (!fork()) {
        execl(words[0], words[0], "again", NULL);
        _exit(9);
    }
    wait(NULL);
    return 0;
}
