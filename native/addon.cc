// Entry point of the addon. `src/native/addon.ts` declares its exports for TypeScript.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <node_api.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include "core/napi-call.h"
#include "files/bindings.h"
#include "net/bindings.h"
#include "net/byte-codec.h"
#include "process/bindings.h"
#include "process/spawn.h"
#include "process/wait-thread.h"

namespace procwire {
namespace {

// (onIdle): retains freed memory of large chunks until the server is idle. Returning it at once would cost page faults
// for the next chunk. Affects the whole process.
napi_value retainFreedMemory(napi_env env, napi_callback_info info) {
  Call call(env, info);
  call.loop()->trimmer().enable(call.argv[0]);
  return nullptr;
}

// (): returns free memory to the system now.
napi_value releaseFreeMemory(napi_env env, napi_callback_info info) {
  Call call(env, info);
  call.loop()->trimmer().releaseFreeMemory();
  return nullptr;
}

// (count) -> whether `count` more threads can be created now
napi_value tryThreads(napi_env env, napi_callback_info info) {
  Call call(env, info);
  return call.toValue(canMakeThreads(static_cast<size_t>(call[0].number())));
}

// (code): exits immediately. exit() would first join libuv's threads, one of which may block forever.
napi_value exitNow(napi_env env, napi_callback_info info) {
  Call call(env, info);
  _exit(static_cast<int>(call[0].number()));
}

// (fd) -> null if this process now holds the exclusive lock, else the errno: EWOULDBLOCK while another one holds it.
napi_value lockFile(napi_env env, napi_callback_info info) {
  Call call(env, info);
  const int result = flock(static_cast<int>(call[0].number()), LOCK_EX | LOCK_NB);
  return call.toValue(nonZero(result == 0 ? 0 : errno));
}

// (fd, offset, length) -> null if the file system reserved these bytes for the file, else the errno. Keeps the size.
napi_value reserveSpace(napi_env env, napi_callback_info info) {
  Call call(env, info);
  int result;
  do
    result = fallocate(static_cast<int>(call[0].number()), FALLOC_FL_KEEP_SIZE, static_cast<off_t>(call[1].number()),
                       static_cast<off_t>(call[2].number()));
  while (result < 0 && errno == EINTR);
  return call.toValue(nonZero(result == 0 ? 0 : errno));
}

// Sets close-on-exec on every inherited descriptor except stdio, so that children do not inherit them.
napi_value closeOnExec(napi_env, napi_callback_info) {
  const UniqueDirectory open(opendir("/proc/self/fd"));
  while (const struct dirent* entry = open ? readdir(open.get()) : nullptr) {
    const int fd = atoi(entry->d_name);
    if (fd > STDERR_FILENO) fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
  return nullptr;
}

// For tests: disables system calls and instructions that older machines lack.
napi_value forcePlainPaths(napi_env env, napi_callback_info info) {
  Call call(env, info);
  forceLegacySyscalls(call[0].boolean());
  disableWideInstructions(call[0].boolean());
  return nullptr;
}

// For tests: starts processes as if an emulator rejected vfork.
napi_value setForceFork(napi_env env, napi_callback_info info) {
  Call call(env, info);
  forceFork(call[0].boolean());
  return nullptr;
}

napi_value initialize(napi_env env, napi_value exports) {
  Loop* loop = Loop::create(env);
  if (!loop) {
    NAPI_CHECK(napi_throw_error(env, nullptr, "cannot load addon: the event loop is not a supported libuv"));
    return nullptr;
  }
  NAPI_CHECK(napi_set_instance_data(env, loop, nullptr, nullptr));
  const Bindings ownBindings = {
      binding("retainFreedMemory", retainFreedMemory),
      binding("releaseFreeMemory", releaseFreeMemory),
      binding("canMakeThreads", tryThreads),
      binding("exitNow", exitNow),
      binding("lockFile", lockFile),
      binding("reserveSpace", reserveSpace),
      binding("closeOnExec", closeOnExec),
      binding("forcePlainPaths", forcePlainPaths),
      binding("forceFork", setForceFork),
  };
  for (const Bindings& bindings :
       {processBindings(env), supervisorBindings(env), netBindings(env), fileBindings(env), ownBindings})
    NAPI_CHECK(napi_define_properties(env, exports, bindings.size(), bindings.data()));
  return exports;
}

}  // namespace
}  // namespace procwire

NAPI_MODULE_INIT() { return procwire::initialize(env, exports); }
