#define _GNU_SOURCE
#include "service-state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static int states = -1;

void open_service_state(void) {
  const char* text = getenv(SERVICE_STATE_FD);
  int fd = text ? atoi(text) : -1;
  unsetenv(SERVICE_STATE_FD);
  if (fd > STDERR_FILENO && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0) states = fd;
}

int service_state_fd(void) { return states; }

void restore_service_state(int fd) { states = fd; }

void report_service_state(enum service_state state) {
  const char byte = (char)state;
  while (states >= 0 && write(states, &byte, 1) < 0 && errno == EINTR) {}
}
