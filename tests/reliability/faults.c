/* Makes one call of a process that writes fail: the n-th one, once. Preloaded by faults.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static long before_the_fault = -1, counted = 0;
static int kind = 0; /* an errno, or 0 for a write that takes only half of what it is given */

void fault_arm(long number, int what) {
  before_the_fault = number;
  counted = 0;
  kind = what;
}

long fault_calls(void) { return counted; }

static int due(void) {
  counted++;
  return before_the_fault >= 0 && before_the_fault-- == 0;
}

/* Files and folders, but not standard error: that is where the one line goes. */
static int counts(int file) {
  struct stat found;
  return file != 2 && fstat(file, &found) == 0 && (S_ISREG(found.st_mode) || S_ISDIR(found.st_mode));
}

static int failed(void) {
  if (!kind) return 0;
  errno = kind;
  return 1;
}

ssize_t write(int file, const void *data, size_t size) {
  ssize_t (*real)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
  if (size && counts(file) && due()) {
    if (failed()) return -1;
    size = (size + 1) / 2;
  }
  return real(file, data, size);
}

int fsync(int file) {
  int (*real)(int) = dlsym(RTLD_NEXT, "fsync");
  return counts(file) && due() && failed() ? -1 : real(file);
}

int rename(const char *from, const char *to) {
  int (*real)(const char *, const char *) = dlsym(RTLD_NEXT, "rename");
  return due() && failed() ? -1 : real(from, to);
}

int mkdir(const char *path, mode_t mode) {
  int (*real)(const char *, mode_t) = dlsym(RTLD_NEXT, "mkdir");
  return due() && failed() ? -1 : real(path, mode);
}

#define OPEN(name)                                                    \
  int name(const char *path, int flags, ...) {                        \
    int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, #name);    \
    va_list rest;                                                     \
    va_start(rest, flags);                                            \
    int mode = flags & O_CREAT ? va_arg(rest, int) : 0;               \
    va_end(rest);                                                     \
    return flags & O_CREAT && due() && failed() ? -1 : real(path, flags, mode); \
  }
OPEN(open)
OPEN(open64)
