// Watched descriptors of the supervisor.
#ifndef PROCWIRE_PROGRAMS_EPOLL_WATCH_H
#define PROCWIRE_PROGRAMS_EPOLL_WATCH_H

#include <stdint.h>
#include <sys/epoll.h>

struct persistent_process;

enum watch_kind { WATCH_SIGNALS, WATCH_SERVER, WATCH_EXIT, WATCH_WAKE, WATCH_INPUT };

// Data of an epoll registration.
struct watch {
  enum watch_kind kind;
  struct persistent_process* process;
};

// Returns 0, or -1 with errno set.
int open_watches(void);
void watch_fd(int fd, uint32_t events, struct watch* watch);
void unwatch_fd(int fd);
// Closes a descriptor that may be watched, and sets it to -1. Closing alone leaves the registration, and its pointer to
// the watch, in the kernel for as long as another process has the same file open.
void close_watched_fd(int* fd);
// Returns the number of events.
int wait_for_events(struct epoll_event* events, int max_events, int timeout_ms);

#endif
