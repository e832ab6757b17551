// Monotonic time and pauses for the C programs.
#ifndef PROCWIRE_CORE_MONOTONIC_CLOCK_H
#define PROCWIRE_CORE_MONOTONIC_CLOCK_H

#include <time.h>

static inline long long now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static inline void pause_ms(long ms) {
  struct timespec pause = {ms / 1000, ms % 1000 * 1000000L};
  nanosleep(&pause, NULL);
}

#endif
