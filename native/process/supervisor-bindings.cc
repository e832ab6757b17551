// N-API bindings of the supervisor and of persistent processes. `src/native/supervisor-client.ts`
// and `src/native/native-process.ts` are the only callers.
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "process/bindings.h"
#include "process/child.h"
#include "process/supervisor-channel.h"

namespace procwire {
namespace {

// ---- the supervisor

HandoffState& handoffState() {
  static HandoffState state;
  return state;
}

// (fd, generation, livenessTimeoutMs or null, giveUpAfter or null) -> the listening descriptor, which the caller now
// owns, or null if there is none; or an error text
napi_value connectSupervisorAt(napi_env env, napi_callback_info info) {
  Call call(env, info);
  const bool isConnected = connectSupervisor(
      static_cast<int>(call[0].number()), static_cast<unsigned>(call[1].number()),
      static_cast<uint64_t>(call[2].number()), static_cast<uint64_t>(call[3].number()), handoffState());
  if (isConnected) return call.toValue(nonNegative(handoffState().listener.release()));
  return call.toValue(errno == EPROTO ? "supervisor protocol version differs; restart the service, which terminates "
                                        "persistent processes"
                                      : strerror(errno));
}

// () -> the segment version that the supervisor reads, and the version that this server writes
napi_value stateVersions(napi_env env, napi_callback_info) {
  ArrayBuilder versions(env);
  versions.push(static_cast<double>(handoffState().version));
  versions.push(static_cast<double>(SEGMENT_VERSION));
  return versions.get();
}

// (onHandoff)
napi_value watchHandoff(napi_env env, napi_callback_info info) {
  Call call(env, info);
  watchSupervisor(*call.loop(), call.argv[0]);
  return nullptr;
}

// Messages that JavaScript sends, with their numbers.
napi_value supervisorMessages(napi_env env) {
  ObjectBuilder messages(env);
  messages.set("ready", static_cast<int>(SUPERVISOR_READY));
  messages.set("heartbeat", static_cast<int>(SUPERVISOR_HEARTBEAT));
  return messages.get();
}

// (type): a value of `supervisorMessages`.
napi_value notifySupervisorType(napi_env env, napi_callback_info info) {
  Call call(env, info);
  return call.toValue(notifySupervisor(call[0].number() == SUPERVISOR_READY ? SUPERVISOR_READY : SUPERVISOR_HEARTBEAT));
}

// Names of segment entries for JavaScript, indexed by segment_stream.
constexpr const char* kSegmentEntryNames[] = {"stdout", "stderr", "pty", "exited", "closed", "gap"};
static_assert(SEGMENT_GAP + 1 == sizeof kSegmentEntryNames / sizeof kSegmentEntryNames[0], "one name per stream");

napi_value segmentEntries(napi_env env, const StateSegment& segment) {
  ArrayBuilder entries(env);
  segment.forEachEntry([&](const segment_entry& entry, const char* bytes) {
    ObjectBuilder value(env);
    napi_value copy;
    if (!copyToBuffer(env, bytes, entry.length, copy)) return;
    value.set("stream", static_cast<double>(entry.stream));
    value.set("seq", entry.seq);
    value.set("bytes", copy);
    entries.push(value.get());
  });
  return entries.get();
}

// The fields that `src/native/addon.ts` declares as NativeRestored.
napi_value restoredFields(napi_env env, const StateSegment& segment, const segment_header& header) {
  ObjectBuilder fields(env);
  fields.set("pid", header.pid);
  fields.set("pts", nonNegative(header.pts));
  ArrayBuilder pipes(env);
  for (const uint64_t inode : header.pipes)
    if (inode != 0) pipes.push(inode);
  fields.set("pipes", pipes.get());
  fields.set("treeTag", nonZero(header.tree_tag));
  const char* const base = reinterpret_cast<const char*>(&header);
  fields.set("record", std::string_view(base + header.record_at, header.record_bytes));
  fields.set("isReleased", header.is_released != 0);
  fields.set("attachments", static_cast<double>(header.attachments));
  fields.set("rows", static_cast<double>(header.rows));
  fields.set("cols", static_cast<double>(header.cols));
  fields.set("isStdinClosed", header.in_closing != 0);
  fields.set("entries", segmentEntries(env, segment));
  fields.set("evictedSeq", header.evicted_seq);
  fields.set("evictedBytes", header.evicted_bytes);
  if (segment.isExitEmitted()) {
    fields.set("exitSeq", header.exit_seq);
    fields.set("exitStatus", std::string_view(header.exit_status, header.exit_status_bytes));
  }
  return fields.get();
}

// (onOutput, onEvent) -> the next process of an earlier server as [child, fields]; true if its state segment is
// unreadable, so that the supervisor kills it; undefined if no process is left. The child emits no event before
// `resumePersistent`.
napi_value takePersistent(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Loop* loop = call.loop();
  std::vector<RestoredProcess>& processes = handoffState().processes;
  if (processes.empty()) return nullptr;
  RestoredProcess restored = std::move(processes.back());
  processes.pop_back();
  std::unique_ptr<StateSegment> segment = StateSegment::attach(restored.id, std::move(restored.fds[PERSIST_SEGMENT]),
                                                               std::move(restored.fds[PERSIST_SUPERVISOR_WAKE]),
                                                               std::move(restored.fds[PERSIST_SERVER_WAKE]));
  if (!segment) {
    // The server cannot read pid and tree tag, so the supervisor kills the process tree.
    notifySupervisor(SUPERVISOR_REMOVE, restored.id);
    return call.toValue(true);
  }
  const napi_value fields = restoredFields(env, *segment, segment->header());
  const bool isClosed = segment->isCloseEmitted();
  Child* child = new Child(loop, restored, std::move(segment), {call[0].ref(), call[1].ref()});
  ArrayBuilder result(env);
  result.push(child->handle(env));
  result.push(fields);
  // A closed child lives as long as JavaScript holds its handle.
  if (isClosed) child->release();
  else loop->add(child);
  return result.get();
}

// Sizes of the state segment, and offsets in its header.
napi_value segmentLayout(napi_env env) {
  ObjectBuilder layout(env);
  const auto set = [&](const char* name, size_t value) { layout.set(name, static_cast<double>(value)); };
  set("outputBytes", SEGMENT_OUTPUT_BYTES);
  set("readBytes", SEGMENT_READ_BYTES);
  set("writeIds", SEGMENT_WRITE_IDS);
  set("writeIdBytes", sizeof(write_id_hash));
  set("versionAt", offsetof(segment_header, version));
  set("idsAt", offsetof(segment_header, ids_at));
  set("pidAt", offsetof(segment_header, pid));
  set("readInProgressAt", offsetof(segment_header, read_in_progress));
  set("exitSeqAt", offsetof(segment_header, exit_seq));
  set("writeIdAt", offsetof(segment_header, write_id));
  set("idCountAt", offsetof(segment_header, ids));
  return layout.get();
}

// (child, status)
napi_value recordExit(napi_env env, napi_callback_info info) {
  Call call(env, info);
  if (Child* child = call.object<Child>()) child->recordExit(call[1].string());
  return nullptr;
}

// (child, isReleased, attachments)
napi_value saveSession(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Child* child = call.object<Child>();
  if (!child || !child->stateSegment()) return nullptr;
  SEGMENT_STORE(child->stateSegment()->header().attachments, static_cast<uint32_t>(call[2].number()));
  SEGMENT_STORE(child->stateSegment()->header().is_released, call[1].boolean() ? 1u : 0u);
  return nullptr;
}

}  // namespace

Bindings supervisorBindings(napi_env env) {
  return {
      binding("segmentEntries", nameList(env, kSegmentEntryNames)),
      binding("segmentLayout", segmentLayout(env)),
      binding("supervisorMessages", supervisorMessages(env)),
      binding("openSupervisor", connectSupervisorAt),
      binding("watchSupervisor", watchHandoff),
      binding("notifySupervisor", notifySupervisorType),
      binding("stateVersions", stateVersions),
      binding("takePersistent", takePersistent),
      binding("resumePersistent", invoke<Child, &Child::begin>),
      binding("recordExit", recordExit),
      binding("recordClosed", invoke<Child, &Child::recordClosed>),
      binding("removePersistent", invoke<Child, &Child::releaseSegment>),
      binding("saveSession", saveSession),
  };
}

}  // namespace procwire
