// What JavaScript asks of processes; `src/native/native-process.ts` is the only caller.
#include "process/bindings.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "core/fd.h"
#include "process/child.h"
#include "process/keeper-channel.h"
#include "process/mark.h"
#include "process/process-tree.h"
#include "process/spawn.h"
#include "process/tree-group.h"

namespace procwire {
namespace {

// ---- one process

// (file, argv block, env block, cwd, terminal, pipeStdin, rows, cols, onDone, onEvent, descriptors, limits, cgroups,
// directory, record, most bytes of output, wants a group of its own) -> its mark, before anybody can have it; 0: it
// gets none
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
  request->record = call.text(14);
  const double mostOutputBytes = call.number(15);
  if (mostOutputBytes < 9e15) request->mostOutputBytes = static_cast<uint64_t>(mostOutputBytes);
  request->wantsGroup = call.boolean(16);
  startProgram(*call.loop(), std::move(request), call.argv[8], call.argv[9]);
  return call.answer(static_cast<double>(mark));
}

// (child, bytes, writeId or undefined)
napi_value write(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Child* child = call.object<Child>();
  if (!child) return nullptr;
  const Call::Bytes bytes = call.bytes(1);
  const bool hasId = call.isText(2);
  const std::string id = hasId ? call.text(2) : std::string();
  child->write(reinterpret_cast<const char*>(bytes.data), bytes.length, hasId ? &id : nullptr);
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
  return call.answer(child && child->knowsWrite(call.text(1)));
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

// 0: it has none; below 0: it has changed a half of it
napi_value mark(napi_env env, napi_callback_info info) {
  Call call(env, info);
  return call.answer(markOf(static_cast<pid_t>(call.number(0))));
}

// (pid, startTime, signal) -> 0 or the errno
napi_value signal(napi_env env, napi_callback_info info) {
  Call call(env, info);
  return call.answer(static_cast<double>(signalProcess(
      static_cast<pid_t>(call.number(0)), static_cast<uint64_t>(call.number(1)), static_cast<int>(call.number(2)))));
}

napi_value groupPids(napi_env env, napi_callback_info info) {
  Call call(env, info);
  return call.answer(treeGroupPids(static_cast<GroupLease>(call.number(0))));
}

// (directory, marks of kept processes) -> 0 or the errno
napi_value openGroups(napi_env env, napi_callback_info info) {
  Call call(env, info);
  return call.answer(static_cast<double>(openTreeGroups(call.text(0), call.numbers(1))));
}

napi_value killGroup(napi_env env, napi_callback_info info) {
  Call call(env, info);
  killTreeGroup(static_cast<GroupLease>(call.number(0)));
  return nullptr;
}

napi_value subreaper(napi_env env, napi_callback_info info) {
  Call call(env, info);
  return call.answer(static_cast<double>(setSubreaper(call.boolean(0))));
}

napi_value reap(napi_env env, napi_callback_info info) {
  Call call(env, info);
  return call.answer(reapChild(static_cast<pid_t>(call.number(0))));
}

// ---- the keeper

Inheritance& inheritance() {
  static Inheritance left;
  return left;
}

// (fd, count, hung after ms) -> the descriptor of a listening socket, -1 where there is none; or the errno as text
napi_value openKeeperAt(napi_env env, napi_callback_info info) {
  Call call(env, info);
  const bool opened = openKeeper(static_cast<int>(call.number(0)), static_cast<unsigned>(call.number(1)),
                                 static_cast<uint64_t>(call.number(2)), inheritance());
  if (opened) return call.answer(static_cast<double>(inheritance().listener));
  napi_value why;
  const char* const text =
      errno == EPROTO ? "its messages are of another version; restart the whole service, which ends what is kept"
                      : strerror(errno);
  napi_create_string_utf8(env, text, NAPI_AUTO_LENGTH, &why);
  return why;
}

// () -> the version of the memory of kept processes that the keeper reads, and the one that is written here
napi_value keptVersions(napi_env env, napi_callback_info info) {
  Call call(env, info);
  napi_value versions;
  napi_create_array_with_length(env, 2, &versions);
  napi_set_element(env, versions, 0, call.answer(static_cast<double>(inheritance().version)));
  napi_set_element(env, versions, 1, call.answer(static_cast<double>(KEPT_VERSION)));
  return versions;
}

// (onLeave)
napi_value watchKeeperLeave(napi_env env, napi_callback_info info) {
  Call call(env, info);
  watchKeeper(*call.loop(), call.argv[0]);
  return nullptr;
}

// (word)
napi_value tellKeeperWord(napi_env env, napi_callback_info info) {
  Call call(env, info);
  return call.answer(tellKeeper(call.number(0) == KEEPER_READY ? KEEPER_READY : KEEPER_ALIVE));
}

napi_value texted(napi_env env, const char* text, size_t length) {
  napi_value made;
  napi_create_string_utf8(env, text, length, &made);
  return made;
}

// A process whose record cannot be read is ended by the keeper, which knows what it started.
void endUnreadable(Inherited& inherited) {
  for (int& fd : inherited.fds) closeFd(fd);
  tellKeeper(KEEPER_FORGET, inherited.id);
}

napi_value keptEntries(napi_env env, Call& call, const Kept& kept) {
  napi_value entries;
  uint32_t count = 0;
  napi_create_array(env, &entries);
  kept.each([&](const kept_entry& entry, const char* bytes) {
    napi_value made, copy;
    napi_create_array_with_length(env, 4, &made);
    napi_create_buffer_copy(env, entry.length, bytes, nullptr, &copy);
    napi_set_element(env, made, 0, call.answer(static_cast<double>(entry.stream)));
    napi_set_element(env, made, 1, call.answer(static_cast<double>(entry.seq)));
    napi_set_element(env, made, 2, call.answer(static_cast<double>(entry.offset)));
    napi_set_element(env, made, 3, copy);
    napi_set_element(env, entries, count++, made);
  });
  return entries;
}

// (onEvent) -> the next process that an earlier server started: [child, pid, start time, pts, pipes, mark, record,
// left its session, attachments, rows, cols, stdin is closed, entries, seq and bytes before them, seq and status of its
// exit or undefined]; true for one that cannot be read and was ended; undefined when there is none left. It tells
// nothing before `beginKept`.
napi_value takeKept(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Loop* loop = call.loop();
  std::vector<Inherited>& left = inheritance().kept;
  if (left.empty()) return nullptr;
  Inherited inherited = left.back();
  left.pop_back();
  std::unique_ptr<Kept> kept =
      Kept::adopt(inherited.id, std::exchange(inherited.fds[KEPT_MEMORY], -1),
                  std::exchange(inherited.fds[KEPT_TO_KEEPER], -1), std::exchange(inherited.fds[KEPT_TO_SERVER], -1));
  if (!kept) {
    endUnreadable(inherited);
    return call.answer(true);
  }
  const kept_header& header = kept->header();
  napi_ref onEvent;
  napi_create_reference(env, call.argv[0], 1, &onEvent);
  napi_value made, pipes;
  napi_create_array(env, &made);
  napi_create_array(env, &pipes);
  for (uint32_t at = 0, length = 0; at < 3; at++)
    if (header.pipes[at] != 0)
      napi_set_element(env, pipes, length++, call.answer(static_cast<double>(header.pipes[at])));
  const char* record = reinterpret_cast<const char*>(&header) + header.record_at;
  napi_value entries = keptEntries(env, call, *kept);
  napi_value text = texted(env, record, header.record_bytes);
  const double numbers[] = {static_cast<double>(header.pid), static_cast<double>(header.start_time),
                            static_cast<double>(header.pts)};
  const kept_header copy = header;
  const bool isClosed = kept->closeWasTold();
  const bool hasExited = kept->exitWasTold();
  Child* child = new Child(loop, inherited, std::move(kept), onEvent);
  closeFd(inherited.fds[KEPT_PIDFD]);
  uint32_t at = 0;
  napi_set_element(env, made, at++, child->handle(env));
  // A child that has closed lives as long as JavaScript holds it.
  if (isClosed) child->release();
  else loop->add(child);
  for (const double number : numbers) napi_set_element(env, made, at++, call.answer(number));
  napi_set_element(env, made, at++, pipes);
  napi_set_element(env, made, at++, call.answer(static_cast<double>(copy.mark)));
  napi_set_element(env, made, at++, text);
  napi_set_element(env, made, at++, call.answer(copy.left_session != 0));
  napi_set_element(env, made, at++, call.answer(static_cast<double>(copy.attachments)));
  napi_set_element(env, made, at++, call.answer(static_cast<double>(copy.rows)));
  napi_set_element(env, made, at++, call.answer(static_cast<double>(copy.cols)));
  napi_set_element(env, made, at++, call.answer(copy.in_closing != 0));
  napi_set_element(env, made, at++, entries);
  napi_set_element(env, made, at++, call.answer(static_cast<double>(copy.gone_seq)));
  napi_set_element(env, made, at++, call.answer(static_cast<double>(copy.gone_bytes)));
  if (hasExited) {
    napi_set_element(env, made, at++, call.answer(static_cast<double>(copy.exit_seq)));
    napi_set_element(env, made, at++, texted(env, copy.exit_status, copy.exit_status_bytes));
  }
  return made;
}

// (child, status)
napi_value recordExit(napi_env env, napi_callback_info info) {
  Call call(env, info);
  if (Child* child = call.object<Child>()) child->recordExit(call.text(1));
  return nullptr;
}

// (child, has left it, attachments)
napi_value noteSession(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Child* child = call.object<Child>();
  if (!child || !child->kept()) return nullptr;
  KEPT_STORE(child->kept()->header().attachments, static_cast<uint32_t>(call.number(2)));
  KEPT_STORE(child->kept()->header().left_session, call.boolean(1) ? 1u : 0u);
  return nullptr;
}

}  // namespace

Bindings processBindings(napi_env env) {
  return {
      binding("childEvents", names(env, kEventNames)),
      binding("spawn", spawn),
      binding("write", write),
      binding("queuedInput", numberOf<Child, &Child::queuedBytes>),
      binding("writtenInput", numberOf<Child, &Child::writtenBytes>),
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
      binding("openTreeGroups", openGroups),
      binding("treeGroupPids", groupPids),
      binding("killTreeGroup", killGroup),
      binding("setSubreaper", subreaper),
      binding("reap", reap),
      binding("openKeeper", openKeeperAt),
      binding("watchKeeper", watchKeeperLeave),
      binding("tellKeeper", tellKeeperWord),
      binding("keptVersions", keptVersions),
      binding("takeKept", takeKept),
      binding("beginKept", ask<Child, &Child::begin>),
      binding("recordExit", recordExit),
      binding("recordClosed", ask<Child, &Child::recordClosed>),
      binding("forgetKept", ask<Child, &Child::forgetKept>),
      binding("noteSession", noteSession),
  };
}

}  // namespace procwire
