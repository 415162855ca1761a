// A pretended libcuda.so.1. Each start of CUDA is a line of the file in MGPUBENCH_CUDA_STARTS: the
// process, its parent, and whether it sees GPUs. Then it says that there is no GPU.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NO_DEVICE = 100, VERSION = 13000 };

int cuInit(unsigned flags) {
  const char *path = getenv("MGPUBENCH_CUDA_STARTS");
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  char line[64];
  int length = snprintf(line, sizeof line, "%d %d %s\n", getpid(), getppid(),
                        visible && !*visible ? "hidden" : "visible");
  int file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND, 0644) : -1;
  if (file < 0 || write(file, line, length) != length) abort();
  close(file);
  return NO_DEVICE;
}

int cuDriverGetVersion(int *version) {
  *version = VERSION;
  return 0;
}

static int refuse(void) { return NO_DEVICE; }

int cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long flags,
                        int *status) {
  if (status) *status = 0;
  *function = (void *)refuse;
  if (!strcmp(name, "cuInit")) *function = (void *)cuInit;
  if (!strcmp(name, "cuDriverGetVersion")) *function = (void *)cuDriverGetVersion;
  if (!strcmp(name, "cuGetProcAddress")) *function = (void *)cuGetProcAddress_v2;
  return 0;
}

int cuGetProcAddress(const char *name, void **function, int version, unsigned long flags) {
  return cuGetProcAddress_v2(name, function, version, flags, 0);
}
