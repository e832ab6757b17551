// Waits for children that no event loop can wait for: children without a pidfd, and children of a loop that shut
// down. It waits by pid, so it never reaps a child of Node or of another library.
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
#include <memory>
#include <utility>
#include <vector>

#include "core/detached-thread.h"
#include "process/spawn.h"

namespace procwire {
namespace {

constexpr long kPollIntervalMs = 5;

struct Waited {
  pid_t pid;
  UniqueFd writeEnd;  // none: reap the child
};

struct WaitThread {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
  std::vector<Waited> waited;
  bool running = false;
};

// Returns true once the child needs no further check.
bool checkExited(const Waited& child) {
  siginfo_t info = {};
  int flags = WEXITED | WNOHANG | (child.writeEnd ? WNOWAIT : 0);
  int result = waitid(P_PID, static_cast<id_t>(child.pid), &info, flags);
  return result < 0 ? errno != EINTR : info.si_pid != 0;
}

void* waitMain(void* argument) {
  WaitThread* self = static_cast<WaitThread*>(argument);
  pthread_setname_np(pthread_self(), "procwire-wait");
  pthread_mutex_lock(&self->mutex);
  for (;;) {
    while (self->waited.empty()) pthread_cond_wait(&self->wake, &self->mutex);
    for (size_t at = 0; at < self->waited.size();) {
      if (!checkExited(self->waited[at])) {
        at++;
        continue;
      }
      // Closes the write end of the finished child.
      self->waited[at] = std::move(self->waited.back());
      self->waited.pop_back();
    }
    pthread_mutex_unlock(&self->mutex);
    struct timespec pause = {0, kPollIntervalMs * 1000000};
    nanosleep(&pause, nullptr);
    pthread_mutex_lock(&self->mutex);
  }
}

WaitThread* waitThread() {
  // Never destroyed: the thread waits on it until the process exits, even while exit() runs destructors.
  static WaitThread* instance = new WaitThread;
  return instance;
}

void add(Waited child) {
  WaitThread* instance = waitThread();
  pthread_mutex_lock(&instance->mutex);
  // If no thread can be created now, the next child retries, and the thread then serves this child too.
  if (!instance->running) instance->running = startDetachedThread(waitMain, instance) == 0;
  instance->waited.push_back(std::move(child));
  pthread_cond_signal(&instance->wake);
  pthread_mutex_unlock(&instance->mutex);
}

void* sleepMain(void* argument) {
  const std::unique_ptr<Waited> child(static_cast<Waited*>(argument));
  pthread_setname_np(pthread_self(), "procwire-wait");
  siginfo_t info;
  while (waitid(P_PID, static_cast<id_t>(child->pid), &info, WEXITED | WNOWAIT) < 0 && errno == EINTR) {}
  return nullptr;
}

// A thread that exists only to test whether threads can be created.
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

bool threadExists(pid_t thread) { return syscall(SYS_tgkill, getpid(), thread, 0) == 0; }

}  // namespace

bool ensureWaitThread() {
  WaitThread* instance = waitThread();
  pthread_mutex_lock(&instance->mutex);
  if (!instance->running) instance->running = startDetachedThread(waitMain, instance) == 0;
  const bool isRunning = instance->running;
  pthread_mutex_unlock(&instance->mutex);
  return isRunning;
}

bool canMakeThreads(size_t count) {
  // Each thread waits at its own mutex, so that all exist at the same time.
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
    // The kernel counts a joined thread for a moment longer.
    while (threadExists(trials[at].thread)) sched_yield();
  }
  return threads.size() == count;
}

bool watchExitBlocking(pid_t pid, UniqueFd writeEnd) {
  std::unique_ptr<Waited> child(new Waited{pid, std::move(writeEnd)});
  if (startDetachedThread(sleepMain, child.get()) != 0) return false;
  // The thread owns it now.
  child.release();
  return true;
}

void watchExit(pid_t pid, UniqueFd writeEnd) { add({pid, std::move(writeEnd)}); }

void enqueueReap(pid_t pid) { add({pid, UniqueFd()}); }

}  // namespace procwire
