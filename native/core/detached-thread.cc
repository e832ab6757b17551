#include "core/detached-thread.h"

#include <pthread.h>
#include <signal.h>

#include <cstddef>

namespace procwire {
namespace {

constexpr size_t kThreadStackBytes = 512 * 1024;

}  // namespace

int startDetachedThread(void* (*run)(void*), void* argument) {
  sigset_t all, before;
  sigfillset(&all);
  // The new thread inherits the mask.
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, kThreadStackBytes);
  pthread_t thread;
  const int err = pthread_create(&thread, &attributes, run, argument);
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return err;
}

}  // namespace procwire
