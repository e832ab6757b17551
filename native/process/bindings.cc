// What JavaScript asks of processes; `src/native/native-process.ts` is the only caller.
#include "process/bindings.h"

#include <unistd.h>

#include <memory>

#include "process/child.h"
#include "process/mark.h"
#include "process/process-tree.h"
#include "process/spawn.h"

namespace procwire {
namespace {

// ---- one process

// (file, argv block, env block, cwd, terminal, pipeStdin, rows, cols, onDone, onEvent, descriptors, limits, cgroups,
// directory) -> its mark, before anybody can have it; 0: it gets none
napi_value spawn(napi_env env, napi_callback_info info) {
  Call call(env, info);
  auto request = std::make_unique<SpawnRequest>();
  request->file = call.text(0);
  request->argv = call.texts(1);
  request->envp = call.texts(2);
  request->cwd = call.text(3);
  request->terminal = call.boolean(4);
  request->pipeStdin = call.boolean(5);
  request->rows = static_cast<unsigned short>(call.number(6));
  request->cols = static_cast<unsigned short>(call.number(7));
  request->passed = call.integers(10);
  const std::vector<double> limits = call.numbers(11);
  for (size_t at = 0; at + 2 < limits.size(); at += 3)
    request->limits.push_back(
        {static_cast<int>(limits[at]), {static_cast<uint64_t>(limits[at + 1]), static_cast<uint64_t>(limits[at + 2])}});
  request->cgroups = call.texts(12);
  request->directory = static_cast<int>(call.number(13));
  const uint64_t mark = request->mark = nextMark(request->marking);
  startProgram(*call.loop(), std::move(request), call.argv[8], call.argv[9]);
  return call.answer(static_cast<double>(mark));
}

// (child, bytes, writeId or undefined)
napi_value write(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Child* child = call.object<Child>();
  if (!child) return nullptr;
  const Call::Bytes bytes = call.bytes(1);
  if (call.isText(2)) child->writeIds().add(call.text(2));
  child->write(reinterpret_cast<const char*>(bytes.data), bytes.length);
  return nullptr;
}

napi_value resize(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Child* child = call.object<Child>();
  return call.answer(
      child && child->resize(static_cast<unsigned short>(call.number(1)), static_cast<unsigned short>(call.number(2))));
}

// [rows, cols, echo, canonical], or undefined without a terminal.
napi_value terminalState(napi_env env, napi_callback_info info) {
  Call call(env, info);
  unsigned short rows, cols;
  bool echo, canonical;
  Child* child = call.object<Child>();
  if (!child || !child->terminalState(rows, cols, echo, canonical)) return nullptr;
  napi_value made;
  napi_create_array_with_length(env, 4, &made);
  napi_set_element(env, made, 0, call.answer(static_cast<double>(rows)));
  napi_set_element(env, made, 1, call.answer(static_cast<double>(cols)));
  napi_set_element(env, made, 2, call.answer(echo));
  napi_set_element(env, made, 3, call.answer(canonical));
  return made;
}

napi_value signalGroup(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Child* child = call.object<Child>();
  return call.answer(child && child->signalGroup(static_cast<int>(call.number(1))));
}

// (child, writeId)
napi_value knowsWrite(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Child* child = call.object<Child>();
  return call.answer(child && child->writeIds().has(call.text(1)));
}

// (most bytes queued for a child, how many of its write ids are remembered)
napi_value setInputLimits(napi_env env, napi_callback_info info) {
  Call call(env, info);
  inputLimits() = {static_cast<size_t>(call.number(0)), static_cast<size_t>(call.number(1))};
  return nullptr;
}

// ---- the process table

// Six numbers per process; `src/native/native-process.ts` has the same order.
napi_value answer(napi_env env, const std::vector<ProcessEntry>& entries) {
  napi_value buffer, made;
  void* memory = nullptr;
  napi_create_arraybuffer(env, entries.size() * 6 * sizeof(double), &memory, &buffer);
  double* to = static_cast<double*>(memory);
  for (const ProcessEntry& entry : entries) {
    *to++ = entry.pid;
    *to++ = entry.parent;
    *to++ = entry.group;
    *to++ = entry.session;
    *to++ = static_cast<double>(entry.startTime);
    *to++ = entry.zombie;
  }
  napi_create_typedarray(env, napi_float64_array, entries.size() * 6, buffer, 0, &made);
  return made;
}

napi_value entry(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::vector<ProcessEntry> found(1);
  if (!readEntry(static_cast<pid_t>(call.number(0)), found[0])) found.clear();
  return answer(env, found);
}

napi_value children(napi_env env, napi_callback_info info) {
  Call call(env, info);
  return call.answer(childPids(static_cast<pid_t>(call.number(0))));
}

// This program's children that the spawner did not start, and is not about to: orphans come to the main thread.
napi_value orphans(napi_env env, napi_callback_info info) {
  return Call(env, info).answer(childPids(getpid(), spawnerThreads()));
}

napi_value descendants(napi_env env, napi_callback_info info) {
  Call call(env, info);
  return answer(env, descendantsOf(static_cast<pid_t>(call.number(0))));
}

// (pid, pts or -1, ...pipe inodes)
napi_value holds(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::vector<uint64_t> pipes;
  for (size_t at = 2; at < call.count && at < kMaxArguments; at++)
    pipes.push_back(static_cast<uint64_t>(call.number(at)));
  return call.answer(holdsEnds(static_cast<pid_t>(call.number(0)), pipes, static_cast<int>(call.number(1))));
}

// 0: it has none
napi_value mark(napi_env env, napi_callback_info info) {
  Call call(env, info);
  return call.answer(static_cast<double>(markOf(static_cast<pid_t>(call.number(0)))));
}

// (pid, startTime, signal) -> 0 or the errno
napi_value signal(napi_env env, napi_callback_info info) {
  Call call(env, info);
  return call.answer(static_cast<double>(signalProcess(
      static_cast<pid_t>(call.number(0)), static_cast<uint64_t>(call.number(1)), static_cast<int>(call.number(2)))));
}

napi_value subreaper(napi_env env, napi_callback_info info) {
  Call call(env, info);
  return call.answer(static_cast<double>(setSubreaper(call.boolean(0))));
}

napi_value reap(napi_env env, napi_callback_info info) {
  Call call(env, info);
  return call.answer(reapChild(static_cast<pid_t>(call.number(0))));
}

}  // namespace

Bindings processBindings(napi_env env) {
  return {
      binding("childEvents", names(env, kEventNames)),
      binding("spawn", spawn),
      binding("write", write),
      binding("queuedInput", numberOf<Child, &Child::queuedBytes>),
      binding("closeStdin", ask<Child, &Child::closeStdin>),
      binding("pause", ask<Child, &Child::pause>),
      binding("resume", ask<Child, &Child::resume>),
      binding("cut", ask<Child, &Child::cut>),
      binding("resize", resize),
      binding("terminalState", terminalState),
      binding("signalGroup", signalGroup),
      binding("refuseInput", ask<Child, &Child::refuseInput>),
      binding("knowsWrite", knowsWrite),
      binding("setInputLimits", setInputLimits),
      binding("entry", entry),
      binding("childPids", children),
      binding("orphanPids", orphans),
      binding("descendants", descendants),
      binding("holds", holds),
      binding("markOf", mark),
      binding("signal", signal),
      binding("setSubreaper", subreaper),
      binding("reap", reap),
  };
}

}  // namespace procwire
