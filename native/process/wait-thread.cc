// Waits for children that no event loop can wait for: those without a pidfd, and those whose event loop is gone. It
// asks the kernel for each of them by number, so it can never reap a child of Node or of another library.
#include "process/wait-thread.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <deque>
#include <vector>

#include "process/spawn.h"

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

WaitThread* theOne() {
  // Never destroyed: the thread waits on it until the program is gone, also while exit() runs destructors.
  static WaitThread* only = new WaitThread;
  return only;
}

void add(Waited child) {
  WaitThread* only = theOne();
  pthread_mutex_lock(&only->mutex);
  // Should there be no room for the thread now, the next child to come tries again, and serves this one too.
  if (!only->running) only->running = startThread(waitMain, only);
  only->waited.push_back(child);
  pthread_cond_signal(&only->wake);
  pthread_mutex_unlock(&only->mutex);
}

void* sleepMain(void* argument) {
  Waited* child = static_cast<Waited*>(argument);
  pthread_setname_np(pthread_self(), "procwire-wait");
  siginfo_t info;
  while (waitid(P_PID, static_cast<id_t>(child->pid), &info, WEXITED | WNOWAIT) < 0 && errno == EINTR) {}
  close(child->writeEnd);
  delete child;
  return nullptr;
}

// Threads that are made only to find out whether they can be.
struct Trial {
  pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
  std::atomic<pid_t> thread{0};
};

void* trialMain(void* argument) {
  Trial* trial = static_cast<Trial*>(argument);
  trial->thread = static_cast<pid_t>(syscall(SYS_gettid));
  pthread_mutex_lock(&trial->gate);
  pthread_mutex_unlock(&trial->gate);
  return nullptr;
}

bool isThere(pid_t thread) { return syscall(SYS_tgkill, getpid(), thread, 0) == 0; }

}  // namespace

bool haveWaitThread() {
  WaitThread* only = theOne();
  pthread_mutex_lock(&only->mutex);
  if (!only->running) only->running = startThread(waitMain, only);
  const bool have = only->running;
  pthread_mutex_unlock(&only->mutex);
  return have;
}

bool canMakeThreads(size_t count) {
  // Each has its gate, and all are made before the first is let go.
  std::deque<Trial> trials(count);
  std::vector<pthread_t> threads;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (Trial& trial : trials) {
    pthread_mutex_lock(&trial.gate);
    pthread_t thread;
    if (pthread_create(&thread, nullptr, trialMain, &trial) != 0) {
      pthread_mutex_unlock(&trial.gate);
      break;
    }
    threads.push_back(thread);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  for (size_t at = 0; at < threads.size(); at++) pthread_mutex_unlock(&trials[at].gate);
  for (size_t at = 0; at < threads.size(); at++) {
    pthread_join(threads[at], nullptr);
    // A joined thread is not gone yet: the system counts it a moment longer.
    while (isThere(trials[at].thread)) sched_yield();
  }
  return threads.size() == count;
}

bool watchExitAsleep(pid_t pid, int writeEnd) {
  Waited* child = new Waited{pid, writeEnd};
  if (startThread(sleepMain, child)) return true;
  delete child;
  return false;
}

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
