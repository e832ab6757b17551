// Looks after children nobody else can wait for: those without a pidfd, and those whose event loop is gone. It asks
// the kernel for each of them by number, so it can never take a child that belongs to somebody else.
#include "wait-thread.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <vector>

#include "spawn.h"

namespace procwire {
namespace {

constexpr long kLookEveryMs = 5;
constexpr size_t kThreadStackBytes = 512 * 1024;

struct Waited {
  pid_t pid;
  int writeEnd;  // -1: reap it
};

struct WaitThread {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
  std::vector<Waited> waited;
  bool running = false;
};

// True when there is nothing more to do for it.
bool look(const Waited& child) {
  siginfo_t info = {};
  int flags = WEXITED | WNOHANG | (child.writeEnd >= 0 ? WNOWAIT : 0);
  int answer = waitid(P_PID, static_cast<id_t>(child.pid), &info, flags);
  if (answer < 0 ? errno == EINTR : info.si_pid == 0) return false;
  if (child.writeEnd >= 0) close(child.writeEnd);
  return true;
}

void* waitMain(void* argument) {
  WaitThread* self = static_cast<WaitThread*>(argument);
  pthread_setname_np(pthread_self(), "procwire-wait");
  pthread_mutex_lock(&self->mutex);
  for (;;) {
    while (self->waited.empty()) pthread_cond_wait(&self->wake, &self->mutex);
    for (size_t at = 0; at < self->waited.size();) {
      if (!look(self->waited[at])) {
        at++;
        continue;
      }
      self->waited[at] = self->waited.back();
      self->waited.pop_back();
    }
    pthread_mutex_unlock(&self->mutex);
    struct timespec pause = {0, kLookEveryMs * 1000000};
    nanosleep(&pause, nullptr);
    pthread_mutex_lock(&self->mutex);
  }
}

void add(Waited child) {
  // Never destroyed: the thread waits on it until the program is gone, also while exit() runs destructors.
  static WaitThread* only = new WaitThread;
  pthread_mutex_lock(&only->mutex);
  // Should there be no room for the thread now, the next child to come tries again, and serves this one too.
  if (!only->running) only->running = startThread(waitMain, only);
  only->waited.push_back(child);
  pthread_cond_signal(&only->wake);
  pthread_mutex_unlock(&only->mutex);
}

}  // namespace

void watchExit(pid_t pid, int writeEnd) { add({pid, writeEnd}); }

void reapLater(pid_t pid) { add({pid, -1}); }

bool startThread(void* (*main)(void*), void* argument) {
  sigset_t all, before;
  sigfillset(&all);
  // Inherited by the new thread: signals belong to Node's own threads.
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, kThreadStackBytes);
  pthread_t thread;
  bool started = pthread_create(&thread, &attributes, main, argument) == 0;
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

}  // namespace procwire
