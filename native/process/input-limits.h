// What a child's input keeps to, whichever way it comes; `src/native/addon.ts` sets it when it loads the addon.
#ifndef PROCWIRE_INPUT_LIMITS_H
#define PROCWIRE_INPUT_LIMITS_H

#include <cstddef>

namespace procwire {

struct InputLimits {
  size_t queuedBytes = 0;
  size_t rememberedWriteIds = 0;
};

// Those of this thread: each environment that loads the addon has a thread of its own.
inline InputLimits& inputLimits() {
  thread_local InputLimits limits;
  return limits;
}

}  // namespace procwire

#endif
