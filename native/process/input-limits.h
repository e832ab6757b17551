// The limits of a child's input, on either lane; `src/native/addon.ts` sets them when it loads the addon.
#ifndef PROCWIRE_INPUT_LIMITS_H
#define PROCWIRE_INPUT_LIMITS_H

#include <cstddef>

namespace procwire {

struct InputLimits {
  size_t queuedBytes = 0;
  size_t rememberedWriteIds = 0;
};

// The limits of this thread: each environment that loads the addon has a thread of its own.
inline InputLimits& inputLimits() {
  thread_local InputLimits limits;
  return limits;
}

}  // namespace procwire

#endif
