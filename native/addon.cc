// The addon as JavaScript loads it: `src/native/addon.ts` has its types.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <node_api.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include "core/call.h"
#include "process/bindings.h"
#include "process/spawn.h"
#include "process/wait-thread.h"
#include "wire/bindings.h"
#include "wire/bytes.h"

namespace procwire {
namespace {

// (onQuiet): keeps freed memory of large chunks until the program is quiet, instead of returning it to the system and
// faulting it in again. Changes the whole program.
napi_value keepFreedMemory(napi_env env, napi_callback_info info) {
  Call call(env, info);
  call.loop()->memory().keep(call.argv[0]);
  return nullptr;
}

// (count) -> whether this many threads can be made now
napi_value tryThreads(napi_env env, napi_callback_info info) {
  Call call(env, info);
  return call.answer(canMakeThreads(static_cast<size_t>(call.number(0))));
}

// (code): ends the program at once. exit() would first wait for libuv's threads, and one of them may wait for ever.
napi_value exitNow(napi_env env, napi_callback_info info) {
  Call call(env, info);
  _exit(static_cast<int>(call.number(0)));
}

// (fd) -> 0 when the file is locked by this program alone now, else the errno: EWOULDBLOCK while another one has it.
napi_value lockFile(napi_env env, napi_callback_info info) {
  Call call(env, info);
  const int result = flock(static_cast<int>(call.number(0)), LOCK_EX | LOCK_NB);
  return call.answer(result == 0 ? 0.0 : static_cast<double>(errno));
}

// Descriptors that this program inherited, beyond its standard streams, are not passed to programs that it starts.
napi_value closeOnExec(napi_env, napi_callback_info) {
  DIR* open = opendir("/proc/self/fd");
  if (!open) return nullptr;
  while (const struct dirent* entry = readdir(open)) {
    const int fd = atoi(entry->d_name);
    if (fd > STDERR_FILENO) fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
  closedir(open);
  return nullptr;
}

// For tests: do without what an older kernel or another machine does not have.
napi_value forcePlainPaths(napi_env env, napi_callback_info info) {
  Call call(env, info);
  useOldCallsOnly(call.boolean(0));
  disableWideInstructions(call.boolean(0));
  return nullptr;
}

// For tests: start programs as under an emulator that refuses vfork.
napi_value forceFork(napi_env env, napi_callback_info info) {
  Call call(env, info);
  useForkOnly(call.boolean(0));
  return nullptr;
}

napi_value initialize(napi_env env, napi_value exports) {
  Loop* loop = Loop::create(env);
  if (!loop) {
    napi_throw_error(env, nullptr, "this runtime's event loop is not the libuv the addon was made for");
    return nullptr;
  }
  napi_set_instance_data(env, loop, nullptr, nullptr);
  const Bindings whole = {
      binding("keepFreedMemory", keepFreedMemory),
      binding("canMakeThreads", tryThreads),
      binding("exitNow", exitNow),
      binding("lockFile", lockFile),
      binding("closeOnExec", closeOnExec),
      binding("forcePlainPaths", forcePlainPaths),
      binding("forceFork", forceFork),
  };
  for (const Bindings& bindings : {processBindings(env), wireBindings(env), whole})
    napi_define_properties(env, exports, bindings.size(), bindings.data());
  return exports;
}

}  // namespace
}  // namespace procwire

NAPI_MODULE_INIT() { return procwire::initialize(env, exports); }
