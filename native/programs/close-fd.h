// Cleanup convention of the C programs: every descriptor is closed with close_fd, which makes a second close harmless.
#ifndef PROCWIRE_PROGRAMS_CLOSE_FD_H
#define PROCWIRE_PROGRAMS_CLOSE_FD_H

#include <errno.h>
#include <unistd.h>

// Closes the descriptor unless it is -1, and sets it to -1. Leaves errno unchanged.
static inline void close_fd(int* fd) {
  const int err = errno;
  if (*fd >= 0) close(*fd);
  *fd = -1;
  errno = err;
}

#endif
