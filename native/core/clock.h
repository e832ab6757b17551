#ifndef PROCWIRE_CORE_CLOCK_H
#define PROCWIRE_CORE_CLOCK_H

#include <time.h>

#include <cstdint>

namespace procwire {

constexpr int64_t kNsPerMs = 1000 * 1000;

inline int64_t nowNs() {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
}

}  // namespace procwire

#endif
