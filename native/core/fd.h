// Descriptors: closed once, and pipes that are enlarged within one budget.
#ifndef PROCWIRE_FD_H
#define PROCWIRE_FD_H

#include <unistd.h>

#include <cstdint>

namespace procwire {

inline void closeFd(int& fd) {
  if (fd >= 0) close(fd);
  fd = -1;
}

// Enlarges a pipe that has carried enough to be worth it, as long as the whole program's budget lasts.
void growPipe(int fd, uint64_t carriedBytes, bool& grown);
void giveBackPipe(bool& grown);

}  // namespace procwire

#endif
