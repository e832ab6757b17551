// Threads of the addon that are never joined.
#ifndef PROCWIRE_CORE_DETACHED_THREAD_H
#define PROCWIRE_CORE_DETACHED_THREAD_H

namespace procwire {

// Starts a thread with a small stack and all signals blocked, so that only Node's threads receive signals. Returns the
// errno if it cannot be created, else 0.
int startDetachedThread(void* (*run)(void*), void* argument);

}  // namespace procwire

#endif
