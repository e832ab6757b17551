// What JavaScript sees. Each function takes plain values and answers plain values; `src/local/native.ts` is the only
// caller and has the types. Arguments are checked there, so a wrong one here is a bug and answers undefined.
#include <errno.h>
#include <malloc.h>
#include <node_api.h>
#include <string.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <vector>

#include "wire/bytes.h"
#include "process/child.h"
#include "wire/listener.h"
#include "core/loop.h"
#include "process/process-tree.h"
#include "wire/socket.h"
#include "process/spawn.h"
#include "process/wait-thread.h"
#include "wire/write-request.h"

namespace procwire {
namespace {

constexpr size_t kMaxArguments = 10;

struct Call {
  napi_env env;
  size_t count = kMaxArguments;
  napi_value argv[kMaxArguments];

  Call(napi_env env, napi_callback_info info) : env(env) {
    napi_get_cb_info(env, info, &count, argv, nullptr, nullptr);
  }

  double number(size_t at) const {
    double value = 0;
    napi_get_value_double(env, argv[at], &value);
    return value;
  }

  bool boolean(size_t at) const {
    bool value = false;
    napi_get_value_bool(env, argv[at], &value);
    return value;
  }

  std::string text(size_t at) const {
    size_t length = 0;
    if (napi_get_value_string_utf8(env, argv[at], nullptr, 0, &length) != napi_ok) return {};
    std::string value(length, 0);
    napi_get_value_string_utf8(env, argv[at], &value[0], length + 1, &length);
    return value;
  }

  // Strings, each ended by a zero byte.
  std::vector<std::string> texts(size_t at) const {
    const std::string block = text(at);
    std::vector<std::string> found;
    for (size_t from = 0; from < block.size();) {
      size_t end = block.find('\0', from);
      if (end == std::string::npos) end = block.size();
      found.emplace_back(block, from, end - from);
      from = end + 1;
    }
    return found;
  }

  struct Bytes {
    uint8_t* data = nullptr;
    size_t length = 0;
  };

  Bytes bytes(size_t at) const {
    Bytes found;
    napi_typedarray_type type;
    void* data = nullptr;
    if (napi_get_typedarray_info(env, argv[at], &type, &found.length, &data, nullptr, nullptr) != napi_ok ||
        type != napi_uint8_array)
      return {};
    found.data = static_cast<uint8_t*>(data);
    return found;
  }

  Loop* loop() const {
    void* loop = nullptr;
    napi_get_instance_data(env, &loop);
    return static_cast<Loop*>(loop);
  }

  // Null only for a value that never was a child.
  Child* child(size_t at = 0) const { return static_cast<Child*>(external(at)); }
  // The same for a socket.
  Socket* socket() const { return static_cast<Socket*>(external(0)); }

  void* external(size_t at) const {
    void* found = nullptr;
    return at < count && napi_get_value_external(env, argv[at], &found) == napi_ok ? found : nullptr;
  }

  // How long a text is in UTF-8.
  size_t textLength(size_t at) const {
    size_t length = 0;
    napi_get_value_string_utf8(env, argv[at], nullptr, 0, &length);
    return length;
  }

  // Copies that many bytes, and a zero behind them.
  void copyText(size_t at, char* to, size_t length) const {
    napi_get_value_string_utf8(env, argv[at], to, length + 1, &length);
  }

  napi_value answer(double value) const {
    napi_value made;
    napi_create_double(env, value, &made);
    return made;
  }

  napi_value answer(bool value) const {
    napi_value made;
    napi_get_boolean(env, value, &made);
    return made;
  }

  napi_value answer(const std::vector<pid_t>& pids) const {
    napi_value made;
    napi_create_array_with_length(env, pids.size(), &made);
    for (size_t at = 0; at < pids.size(); at++)
      napi_set_element(env, made, static_cast<uint32_t>(at), answer(static_cast<double>(pids[at])));
    return made;
  }

  // Six numbers per process; `native.ts` has the same order.
  napi_value answer(const std::vector<ProcessEntry>& entries) const {
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
};

// (child, socket or listener): does the one thing it is asked for
template <class Kind, void (Kind::*what)()>
napi_value ask(napi_env env, napi_callback_info info) {
  if (Kind* asked = static_cast<Kind*>(Call(env, info).external(0))) (asked->*what)();
  return nullptr;
}

// ---- processes

// (file, argv block, env block, cwd, terminal, pipeStdin, rows, cols, onDone, onEvent)
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
  call.loop()->spawn(std::move(request), call.argv[8], call.argv[9]);
  return nullptr;
}

napi_value write(napi_env env, napi_callback_info info) {
  Call call(env, info);
  const Call::Bytes bytes = call.bytes(1);
  Child* child = call.child();
  return call.answer(child ? static_cast<double>(child->write(reinterpret_cast<const char*>(bytes.data), bytes.length))
                           : 0.0);
}

napi_value queuedInput(napi_env env, napi_callback_info info) {
  Call call(env, info);
  const Child* child = call.child();
  return call.answer(child ? static_cast<double>(child->queuedBytes()) : 0.0);
}

napi_value resize(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Child* child = call.child();
  return call.answer(child && child->resize(static_cast<unsigned short>(call.number(1)),
                                            static_cast<unsigned short>(call.number(2))));
}

// [rows, cols, echo, canonical], or undefined without a terminal.
napi_value terminalState(napi_env env, napi_callback_info info) {
  Call call(env, info);
  unsigned short rows, cols;
  bool echo, canonical;
  Child* child = call.child();
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
  Child* child = call.child();
  return call.answer(child && child->signalGroup(static_cast<int>(call.number(1))));
}

// (child, writeId)
napi_value knowsWrite(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Child* child = call.child();
  return call.answer(child && child->writeIds().has(call.text(1)));
}

// (child, writeId)
napi_value rememberWrite(napi_env env, napi_callback_info info) {
  Call call(env, info);
  if (Child* child = call.child()) child->writeIds().add(call.text(1));
  return nullptr;
}

// ---- sockets

// (host, port, backlog, onConnection) -> [listener, port], or the errno. Port -1: the host is a unix socket's path.
napi_value listenAt(napi_env env, napi_callback_info info) {
  Call call(env, info);
  const int port = static_cast<int>(call.number(1));
  const int backlog = static_cast<int>(call.number(2));
  const int fd = port < 0 ? listenUnix(call.text(0), backlog) : listenTcp(call.text(0), port, backlog);
  if (fd < 0) return call.answer(static_cast<double>(errno));
  napi_ref onConnection;
  napi_create_reference(env, call.argv[3], 1, &onConnection);
  Listener* listener = new Listener(call.loop(), fd, onConnection);
  napi_value made;
  napi_create_array_with_length(env, 2, &made);
  napi_set_element(env, made, 0, listener->handle());
  napi_set_element(env, made, 1, call.answer(static_cast<double>(boundPort(fd))));
  call.loop()->add(listener);
  return made;
}

// (socket, onEvent)
napi_value startSocket(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Socket* socket = call.socket();
  napi_ref onEvent;
  if (socket && napi_create_reference(env, call.argv[1], 1, &onEvent) == napi_ok) socket->start(onEvent);
  return nullptr;
}

// (socket, most bytes of a message, bytes of frames received already)
napi_value carryFrames(napi_env env, napi_callback_info info) {
  Call call(env, info);
  const Call::Bytes received = call.bytes(2);
  if (Socket* socket = call.socket())
    socket->carryFrames(static_cast<size_t>(call.number(1)), reinterpret_cast<char*>(received.data), received.length);
  return nullptr;
}

// (socket, text): one text message
napi_value sendText(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Socket* socket = call.socket();
  const size_t length = call.textLength(1);
  if (char* payload = socket ? socket->textFrame(length) : nullptr) call.copyText(1, payload, length);
  return nullptr;
}

// (socket, head, bytes, tail): one text message whose middle is the bytes as base64
napi_value sendChunk(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Socket* socket = call.socket();
  const size_t head = call.textLength(1);
  const Call::Bytes bytes = call.bytes(2);
  const size_t middle = (bytes.length + 2) / 3 * 4;
  const size_t tail = call.textLength(3);
  char* payload = socket ? socket->textFrame(head + middle + tail) : nullptr;
  if (!payload) return nullptr;
  call.copyText(1, payload, head);
  base64Encode(bytes.data, bytes.length, reinterpret_cast<uint8_t*>(payload + head));
  call.copyText(3, payload + head + middle, tail);
  return nullptr;
}

// (socket, bytes): as they are, such as a whole control frame
napi_value sendBytes(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Socket* socket = call.socket();
  const Call::Bytes bytes = call.bytes(1);
  if (char* to = socket ? socket->rawFrame(bytes.length) : nullptr) memcpy(to, bytes.data, bytes.length);
  return nullptr;
}

napi_value queuedBytes(napi_env env, napi_callback_info info) {
  Call call(env, info);
  const Socket* socket = call.socket();
  return call.answer(socket ? static_cast<double>(socket->queuedBytes()) : 0.0);
}

napi_value receivedBytes(napi_env env, napi_callback_info info) {
  Call call(env, info);
  const Socket* socket = call.socket();
  return call.answer(socket ? static_cast<double>(socket->receivedBytes()) : 0.0);
}

// (socket, processId, child)
napi_value routeInput(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Socket* socket = call.socket();
  Child* child = call.child(2);
  if (socket && child) socket->route(call.text(1), child);
  return nullptr;
}

// (socket, processId)
napi_value unrouteInput(napi_env env, napi_callback_info info) {
  Call call(env, info);
  if (Socket* socket = call.socket()) socket->unroute(call.text(1));
  return nullptr;
}

// ---- the process table

napi_value entry(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::vector<ProcessEntry> found(1);
  if (!readEntry(static_cast<pid_t>(call.number(0)), found[0])) found.clear();
  return call.answer(found);
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
  return call.answer(descendantsOf(static_cast<pid_t>(call.number(0))));
}

// (pid, pts or -1, ...pipe inodes)
napi_value holds(napi_env env, napi_callback_info info) {
  Call call(env, info);
  std::vector<uint64_t> pipes;
  for (size_t at = 2; at < call.count && at < kMaxArguments; at++) pipes.push_back(static_cast<uint64_t>(call.number(at)));
  return call.answer(holdsEnds(static_cast<pid_t>(call.number(0)), pipes, static_cast<int>(call.number(1))));
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

// ---- bytes

// (from, to, toOffset) -> bytes written, or -1 when they do not fit
napi_value encode(napi_env env, napi_callback_info info) {
  Call call(env, info);
  const Call::Bytes from = call.bytes(0);
  const Call::Bytes to = call.bytes(1);
  const size_t offset = static_cast<size_t>(call.number(2));
  const size_t needed = (from.length + 2) / 3 * 4;
  if (offset > to.length || to.length - offset < needed) return call.answer(-1.0);
  return call.answer(static_cast<double>(base64Encode(from.data, from.length, to.data + offset)));
}

// (from, fromOffset, fromLength, to) -> bytes written, or -1 when it is not strict base64 or does not fit
napi_value decode(napi_env env, napi_callback_info info) {
  Call call(env, info);
  const Call::Bytes from = call.bytes(0);
  const size_t offset = static_cast<size_t>(call.number(1));
  const size_t length = static_cast<size_t>(call.number(2));
  const Call::Bytes to = call.bytes(3);
  if (offset > from.length || from.length - offset < length) return call.answer(-1.0);
  const uint8_t* const text = from.data + offset;
  size_t needed = length / 4 * 3;
  if (length >= 4) needed -= (text[length - 1] == '=') + (text[length - 2] == '=');
  if (to.length < needed) return call.answer(-1.0);
  return call.answer(static_cast<double>(base64Decode(text, length, to.data)));
}

// (bytes, offset, length, key)
napi_value unmaskBytes(napi_env env, napi_callback_info info) {
  Call call(env, info);
  const Call::Bytes bytes = call.bytes(0);
  const size_t offset = static_cast<size_t>(call.number(1));
  const size_t length = static_cast<size_t>(call.number(2));
  uint32_t key = 0;
  napi_get_value_uint32(env, call.argv[3], &key);
  if (offset <= bytes.length && bytes.length - offset >= length) unmask(bytes.data + offset, length, key);
  return nullptr;
}

// (message) -> [id, processId, writeId or undefined, chunk] of a plain `process/write`, or undefined
napi_value parseWrite(napi_env env, napi_callback_info info) {
  Call call(env, info);
  const Call::Bytes bytes = call.bytes(0);
  WriteRequest request;
  napi_value members[4], found;
  if (!parseWriteRequest({reinterpret_cast<const char*>(bytes.data), bytes.length}, request) ||
      !writeRequestMembers(env, request, members))
    return nullptr;
  napi_create_array_with_length(env, 4, &found);
  for (uint32_t at = 0; at < 4; at++) napi_set_element(env, found, at, members[at]);
  return found;
}

// (): looks once at what is ready now, without waiting for the event loop's next round
napi_value pump(napi_env env, napi_callback_info info) {
  Call call(env, info);
  if (Loop* loop = call.loop()) loop->pump();
  return nullptr;
}

// (): keeps freed memory of large chunks instead of giving it back and faulting it in again. Changes the whole program.
napi_value keepFreedMemory(napi_env, napi_callback_info) {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 4 * 1024 * 1024);
  mallopt(M_TRIM_THRESHOLD, 32 * 1024 * 1024);
#endif
  return nullptr;
}

// (count) -> whether so many threads can be made now
napi_value tryThreads(napi_env env, napi_callback_info info) {
  Call call(env, info);
  return call.answer(canMakeThreads(static_cast<size_t>(call.number(0))));
}

// (code): ends the program here and now. exit() would first wait for libuv's threads, and one of them may wait for ever.
napi_value exitNow(napi_env env, napi_callback_info info) {
  Call call(env, info);
  _exit(static_cast<int>(call.number(0)));
}

// ---- for tests

napi_value forcePlainPaths(napi_env env, napi_callback_info info) {
  Call call(env, info);
  useOldCallsOnly(call.boolean(0));
  disableWideInstructions(call.boolean(0));
  return nullptr;
}

napi_value initialize(napi_env env, napi_value exports) {
  Loop* loop = Loop::create(env);
  if (!loop) {
    napi_throw_error(env, nullptr, "this runtime's event loop is not the libuv the addon was made for");
    return nullptr;
  }
  napi_set_instance_data(env, loop, nullptr, nullptr);
  const napi_property_descriptor functions[] = {
#define FUNCTION(name, function) {name, nullptr, function, nullptr, nullptr, nullptr, napi_enumerable, nullptr}
      FUNCTION("spawn", spawn),
      FUNCTION("write", write),
      FUNCTION("queuedInput", queuedInput),
      FUNCTION("closeStdin", (ask<Child, &Child::closeStdin>)),
      FUNCTION("pause", (ask<Child, &Child::pause>)),
      FUNCTION("resume", (ask<Child, &Child::resume>)),
      FUNCTION("cut", (ask<Child, &Child::cut>)),
      FUNCTION("resize", resize),
      FUNCTION("terminalState", terminalState),
      FUNCTION("signalGroup", signalGroup),
      FUNCTION("refuseInput", (ask<Child, &Child::refuseInput>)),
      FUNCTION("knowsWrite", knowsWrite),
      FUNCTION("rememberWrite", rememberWrite),
      FUNCTION("listenAt", listenAt),
      FUNCTION("closeListener", (ask<Listener, &Listener::close>)),
      FUNCTION("startSocket", startSocket),
      FUNCTION("carryFrames", carryFrames),
      FUNCTION("sendText", sendText),
      FUNCTION("sendChunk", sendChunk),
      FUNCTION("sendBytes", sendBytes),
      FUNCTION("pauseSocket", (ask<Socket, &Socket::pause>)),
      FUNCTION("resumeSocket", (ask<Socket, &Socket::resume>)),
      FUNCTION("endSocket", (ask<Socket, &Socket::end>)),
      FUNCTION("destroySocket", (ask<Socket, &Socket::destroy>)),
      FUNCTION("queuedBytes", queuedBytes),
      FUNCTION("receivedBytes", receivedBytes),
      FUNCTION("routeInput", routeInput),
      FUNCTION("unrouteInput", unrouteInput),
      FUNCTION("entry", entry),
      FUNCTION("childPids", children),
      FUNCTION("orphanPids", orphans),
      FUNCTION("descendants", descendants),
      FUNCTION("holds", holds),
      FUNCTION("signal", signal),
      FUNCTION("setSubreaper", subreaper),
      FUNCTION("reap", reap),
      FUNCTION("base64Encode", encode),
      FUNCTION("base64Decode", decode),
      FUNCTION("unmask", unmaskBytes),
      FUNCTION("parseWrite", parseWrite),
      FUNCTION("pump", pump),
      FUNCTION("keepFreedMemory", keepFreedMemory),
      FUNCTION("canMakeThreads", tryThreads),
      FUNCTION("exitNow", exitNow),
      FUNCTION("forcePlainPaths", forcePlainPaths),
#undef FUNCTION
  };
  napi_define_properties(env, exports, sizeof functions / sizeof *functions, functions);
  return exports;
}

}  // namespace
}  // namespace procwire

NAPI_MODULE_INIT() { return procwire::initialize(env, exports); }
