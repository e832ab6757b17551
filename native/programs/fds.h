// Descriptors of the keeper: closing them, and being told of them by epoll.
#ifndef PROCWIRE_FDS_H
#define PROCWIRE_FDS_H

#include <stdint.h>
#include <sys/epoll.h>

struct kept;

enum watched { WATCH_SIGNALS, WATCH_SERVER, WATCH_END, WATCH_POKE, WATCH_INPUT };

// What an event is about.
struct watch {
  enum watched what;
  struct kept* kept;
};

// Closes it where there is one, and sets it to -1.
void close_fd(int* fd);

// -1 with errno set.
int open_watches(void);
void watch_fd(int fd, uint32_t events, struct watch* watch);
void unwatch_fd(int fd);
// How many there were.
int await_events(struct epoll_event* events, int most, int timeout_ms);

#endif
