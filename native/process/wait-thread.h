// A thread that waits for children nothing else can wait for.
#ifndef PROCWIRE_WAIT_THREAD_H
#define PROCWIRE_WAIT_THREAD_H

#include <stddef.h>
#include <sys/types.h>

namespace procwire {

// Where there are no pidfds: closes `writeEnd` once the child has ended, without reaping it.
void watchExit(pid_t pid, int writeEnd);

// The same by a thread of its own that sleeps until then; false when there is no room for one.
bool watchExitAsleep(pid_t pid, int writeEnd);

// Starts a detached thread with a small stack that takes no signal; false when the machine has no room for it.
bool startThread(void* (*main)(void*), void* argument);

// The thread that `watchExit` and `reapLater` need; false when it is not there and cannot be made.
bool haveWaitThread();

// Whether this many more threads can be made now. Makes them, and ends them again before it returns.
bool canMakeThreads(size_t count);

}  // namespace procwire

#endif
