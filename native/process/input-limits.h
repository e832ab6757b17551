// Limits of a child's input, direct or ordered. `src/native/load-addon.ts` sets them when it loads the addon.
#ifndef PROCWIRE_PROCESS_INPUT_LIMITS_H
#define PROCWIRE_PROCESS_INPUT_LIMITS_H

#include <cstddef>

namespace procwire {

struct InputLimits {
  size_t queuedBytes = 0;
  size_t writeIds = 0;
  size_t writeIdBytes = 0;
};

// Limits of this thread. Each environment that loads the addon has its own thread.
inline InputLimits& inputLimits() {
  thread_local InputLimits limits;
  return limits;
}

}  // namespace procwire

#endif
