// N-API bindings of processes, for `src/native/`.
#include "process/bindings.h"

#include <stddef.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/fd.h"
#include "process/child-exec.h"
#include "process/child.h"
#include "process/process-cgroup.h"
#include "process/process-table.h"
#include "process/spawn.h"
#include "process/tree-tag.h"
#include "programs/private-process.h"

namespace procwire {
namespace {

// Larger numbers from JavaScript mean no limit.
constexpr double kMaxSafeInteger = 9007199254740991;

// ---- one process

// (options) -> the tree tag that the process is going to carry, or null. `src/native/addon.ts` declares the options as
// NativeSpawnOptions.
napi_value spawn(napi_env env, napi_callback_info info) {
  Call call(env, info);
  const Argument options = call[0];
  auto request = std::make_unique<SpawnRequest>();
  request->file = options.property("file").string();
  request->argv = options.property("argv").strings();
  request->envp = options.property("env").strings();
  request->cwd = options.property("cwd").string();
  request->directory = static_cast<int>(options.property("directory").optionalNumber().value_or(-1));
  request->terminal = options.property("terminal").boolean();
  request->rows = static_cast<unsigned short>(options.property("rows").number());
  request->cols = static_cast<unsigned short>(options.property("cols").number());
  request->pipeStdin = options.property("pipeStdin").boolean();
  request->inheritedFds = options.property("descriptors").integers();
  const std::vector<double> limits = options.property("limits").numbers();
  for (size_t at = 0; at + 2 < limits.size(); at += 3)
    request->limits.push_back(
        {static_cast<int>(limits[at]), {static_cast<uint64_t>(limits[at + 1]), static_cast<uint64_t>(limits[at + 2])}});
  request->cgroups = options.property("cgroups").strings();
  request->landlock = options.property("landlock").boolean();
  request->wantsCgroup = options.property("wantsCgroup").boolean();
  request->persistentRecord = options.property("persistentRecord").string();
  const std::optional<double> maxOutputBytes = options.property("maxOutputBytes").optionalNumber();
  if (maxOutputBytes && *maxOutputBytes < kMaxSafeInteger)
    request->maxOutputBytes = static_cast<uint64_t>(*maxOutputBytes);
  request->callbacks = {options.property("onOutput").ref(), options.property("onEvent").ref()};
  request->onDone = options.property("onDone").ref();
  // Read last: if it is missing, the worker terminates, and other options may be missing too.
  if (!request->onDone) return nullptr;
  const uint64_t treeTag = request->treeTag = nextTreeTag(request->tagLimits);
  startProcess(*call.loop(), std::move(request));
  return call.toValue(nonZero(treeTag));
}

// (child, bytes, writeId or undefined)
napi_value write(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Child* child = call.object<Child>();
  if (!child) return nullptr;
  const Bytes bytes = call[1].bytes();
  const bool hasId = call[2].isString();
  const std::string id = hasId ? call[2].string() : std::string();
  child->write(reinterpret_cast<const char*>(bytes.data), bytes.length, hasId ? &id : nullptr);
  return nullptr;
}

napi_value resize(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Child* child = call.object<Child>();
  return call.toValue(child && child->resize(static_cast<unsigned short>(call[1].number()),
                                             static_cast<unsigned short>(call[2].number())));
}

// (child) -> { rows, cols, echo, canonical }, or undefined without a terminal
napi_value terminalState(napi_env env, napi_callback_info info) {
  Call call(env, info);
  unsigned short rows, cols;
  bool echo, canonical;
  Child* child = call.object<Child>();
  if (!child || !child->terminalState(rows, cols, echo, canonical)) return nullptr;
  ObjectBuilder state(env);
  state.set("rows", static_cast<int>(rows));
  state.set("cols", static_cast<int>(cols));
  state.set("echo", echo);
  state.set("canonical", canonical);
  return state.get();
}

napi_value signalGroup(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Child* child = call.object<Child>();
  return call.toValue(child && child->signalGroup(static_cast<int>(call[1].number())));
}

// (child) -> its start time in the process table, or null if it could not be read
napi_value startTime(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Child* child = call.object<Child>();
  return call.toValue(nonZero(child ? child->startTime() : 0));
}

// (child, writeId)
napi_value hasWriteId(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Child* child = call.object<Child>();
  return call.toValue(child && child->hasWriteId(call[1].string()));
}

// (maxQueuedBytes, maxWriteIds, maxWriteIdBytes): for children that start from now on.
napi_value setInputLimits(napi_env env, napi_callback_info info) {
  Call call(env, info);
  inputLimits() = {static_cast<size_t>(call[0].number()), static_cast<size_t>(call[1].number()),
                   static_cast<size_t>(call[2].number())};
  return nullptr;
}

// Numbers of the resource limits that `spawn` takes.
napi_value resourceLimits(napi_env env) {
  ObjectBuilder limits(env);
  limits.set("cpuSeconds", static_cast<int>(RLIMIT_CPU));
  limits.set("dataBytes", static_cast<int>(RLIMIT_DATA));
  limits.set("openFiles", static_cast<int>(RLIMIT_NOFILE));
  return limits.get();
}

// ---- the process table

constexpr const char* kProcessEntryFields[] = {"pid", "parent", "group", "session", "startTime", "zombie"};
constexpr size_t kFieldsPerEntry = sizeof kProcessEntryFields / sizeof kProcessEntryFields[0];

// Packs the fields of each process into one Float64Array, in the order of kProcessEntryFields.
napi_value toValue(napi_env env, const std::vector<ProcessEntry>& entries) {
  napi_value buffer, result;
  void* memory = nullptr;
  const size_t count = entries.size() * kFieldsPerEntry;
  if (!NAPI_OK(napi_create_arraybuffer(env, count * sizeof(double), &memory, &buffer))) return nullptr;
  double* to = static_cast<double*>(memory);
  for (const ProcessEntry& entry : entries) {
    const double fields[kFieldsPerEntry] = {static_cast<double>(entry.pid),       static_cast<double>(entry.parent),
                                            static_cast<double>(entry.group),     static_cast<double>(entry.session),
                                            static_cast<double>(entry.startTime), entry.zombie ? 1.0 : 0.0};
    to = std::copy(fields, fields + kFieldsPerEntry, to);
  }
  return NAPI_CHECK(napi_create_typedarray(env, napi_float64_array, count, buffer, 0, &result)) ? result : nullptr;
}

napi_value entry(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::vector<ProcessEntry> found(1);
  if (!readEntry(static_cast<pid_t>(call[0].number()), found[0])) found.clear();
  return toValue(env, found);
}

napi_value children(napi_env env, napi_callback_info info) {
  Call call(env, info);
  return call.toValue(childPids(static_cast<pid_t>(call[0].number())));
}

// () -> pids of the children of all threads except the spawner threads. These are the orphans, because the kernel
// reparents orphans to the main thread.
napi_value orphans(napi_env env, napi_callback_info info) {
  return Call(env, info).toValue(childPids(getpid(), spawnerThreads()));
}

napi_value descendants(napi_env env, napi_callback_info info) {
  Call call(env, info);
  return toValue(env, descendantsOf(static_cast<pid_t>(call[0].number())));
}

// (pid, pts or null, ...pipe inodes)
napi_value hasStdioOpenIn(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::vector<uint64_t> pipes;
  for (size_t at = 2; at < call.count && at < kMaxArguments; at++)
    pipes.push_back(static_cast<uint64_t>(call[at].number()));
  const int pts = static_cast<int>(call[1].optionalNumber().value_or(-1));
  return call.toValue(hasStdioOpen(static_cast<pid_t>(call[0].number()), pipes, pts));
}

// (pid) -> { tag, isTampered }, or null without a tag. The process has tampered if its tag check does not match.
napi_value treeTag(napi_env env, napi_callback_info info) {
  Call call(env, info);
  const FoundTag found = readTreeTag(static_cast<pid_t>(call[0].number()));
  if (found.tag == 0) return call.toValue(nonZero(found.tag));
  ObjectBuilder result(env);
  result.set("tag", found.tag);
  result.set("isTampered", found.isTampered);
  return result.get();
}

// (pid, startTime, signal) -> the errno, or null
napi_value signal(napi_env env, napi_callback_info info) {
  Call call(env, info);
  const int err = signalProcess(static_cast<pid_t>(call[0].number()), static_cast<uint64_t>(call[1].number()),
                                static_cast<int>(call[2].number()));
  return call.toValue(nonZero(err));
}

napi_value processCgroupPids(napi_env env, napi_callback_info info) {
  Call call(env, info);
  return call.toValue(cgroupPids(static_cast<CgroupLease>(call[0].number())));
}

// (directory, tree tags of persistent processes) -> the errno, or null
napi_value openCgroupsIn(napi_env env, napi_callback_info info) {
  Call call(env, info);
  return call.toValue(nonZero(openProcessCgroups(call[0].string(), call[1].numbers())));
}

napi_value killProcessCgroup(napi_env env, napi_callback_info info) {
  Call call(env, info);
  killCgroup(static_cast<CgroupLease>(call[0].number()));
  return nullptr;
}

napi_value subreaper(napi_env env, napi_callback_info info) {
  Call call(env, info);
  return call.toValue(setSubreaper(call[0].boolean()));
}

napi_value reap(napi_env env, napi_callback_info info) {
  Call call(env, info);
  return call.toValue(reapChild(static_cast<pid_t>(call[0].number())));
}

// () -> the version of Landlock, or null if it is unavailable
napi_value getLandlockAbi(napi_env env, napi_callback_info info) {
  Call call(env, info);
  return call.toValue(nonZero(landlockAbi()));
}

// Hides memory and secrets of this process from other processes of the same user.
napi_value makePrivate(napi_env, napi_callback_info) {
  make_process_private();
  return nullptr;
}

}  // namespace

Bindings processBindings(napi_env env) {
  return {
      binding("processEntryFields", nameList(env, kProcessEntryFields)),
      binding("resourceLimits", resourceLimits(env)),
      binding("spawn", spawn),
      binding("write", write),
      binding("queuedInput", getNumber<Child, &Child::queuedBytes>),
      binding("writtenInput", getNumber<Child, &Child::writtenBytes>),
      binding("startTime", startTime),
      binding("closeStdin", invoke<Child, &Child::closeStdin>),
      binding("pause", invoke<Child, &Child::pause>),
      binding("resume", invoke<Child, &Child::resume>),
      binding("closeStreams", invoke<Child, &Child::closeStreams>),
      binding("resize", resize),
      binding("terminalState", terminalState),
      binding("signalGroup", signalGroup),
      binding("rejectDirectInput", invoke<Child, &Child::rejectDirectInput>),
      binding("hasWriteId", hasWriteId),
      binding("setInputLimits", setInputLimits),
      binding("entry", entry),
      binding("childPids", children),
      binding("orphanPids", orphans),
      binding("descendants", descendants),
      binding("hasStdioOpen", hasStdioOpenIn),
      binding("tagOf", treeTag),
      binding("signal", signal),
      binding("openProcessCgroups", openCgroupsIn),
      binding("processCgroupPids", processCgroupPids),
      binding("killProcessCgroup", killProcessCgroup),
      binding("setSubreaper", subreaper),
      binding("reap", reap),
      binding("makeProcessPrivate", makePrivate),
      binding("landlockAbi", getLandlockAbi),
  };
}

}  // namespace procwire
