// A thread that waits for children that no event loop can wait for.
#ifndef PROCWIRE_PROCESS_WAIT_THREAD_H
#define PROCWIRE_PROCESS_WAIT_THREAD_H

#include <stddef.h>
#include <sys/types.h>

#include "core/fd.h"

namespace procwire {

// Without pidfds: closes `writeEnd` once the child has exited, without reaping it.
void watchExit(pid_t pid, UniqueFd writeEnd);

// Like `watchExit`, with a dedicated blocking thread. Returns false if no thread can be created.
bool watchExitBlocking(pid_t pid, UniqueFd writeEnd);

// Starts the thread for `watchExit` and `enqueueReap` unless it runs. Returns false if it cannot be created.
bool ensureWaitThread();

// Reports whether `count` more threads can be created now. Creates them and ends them before it returns.
bool canMakeThreads(size_t count);

}  // namespace procwire

#endif
