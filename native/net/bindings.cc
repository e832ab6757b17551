// N-API bindings of sockets and byte codecs, for `src/native/`.
#include "net/bindings.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "net/byte-codec.h"
#include "net/listener-channel.h"
#include "net/listener.h"
#include "net/scan-job.h"
#include "net/socket.h"
#include "net/stdio-transfer.h"
#include "process/child.h"
#include "process/supervisor-channel.h"

namespace procwire {
namespace {

// ---- sockets

// (host, port, backlog, onConnection, inheritedFd or null) -> [listener, port or null], or the errno. Without a port,
// `host` is the path of a Unix socket. A new listener is also sent to the supervisor, for the next server.
napi_value listenAt(napi_env env, napi_callback_info info) {
  Call call(env, info);
  const int port = static_cast<int>(call[1].optionalNumber().value_or(-1));
  const int backlog = static_cast<int>(call[2].number());
  // A listening socket inherited from the previous server.
  const int inheritedFd = static_cast<int>(call[4].optionalNumber().value_or(-1));
  UniqueFd fd = inheritedFd >= 0 ? UniqueFd(inheritedFd)
                : port < 0       ? listenUnix(call[0].string(), backlog)
                                 : listenTcp(call[0].string(), port, backlog);
  if (!fd) return call.toValue(errno);
  UniqueFd timer = makeTimer();
  if (!timer) return call.toValue(errno);
  if (hasSupervisor() && inheritedFd < 0) sendListener(fd.get());
  const int boundTo = boundPort(fd.get());
  Listener* listener = new Listener(call.loop(), std::move(fd), std::move(timer), call[3].ref());
  ArrayBuilder result(env);
  result.push(listener->handle(env));
  result.push(nonZero(boundTo));
  call.loop()->add(listener);
  return result.get();
}

// (onListeners) -> [channel, the sandbox's end], or the errno. The caller owns the end, which exec closes.
napi_value newListenerChannel(napi_env env, napi_callback_info info) {
  Call call(env, info);
  UniqueFd serverEnd, sandboxEnd;
  if (!openListenerChannel(serverEnd, sandboxEnd)) return call.toValue(errno);
  ListenerChannel* channel = new ListenerChannel(call.loop(), std::move(serverEnd), call[0].ref());
  ArrayBuilder result(env);
  result.push(channel->handle(env));
  result.push(sandboxEnd.release());
  call.loop()->add(channel);
  return result.get();
}

// (path) -> [a connected, non-blocking datagram socket, which the caller owns], or the errno
napi_value openDatagram(napi_env env, napi_callback_info info) {
  Call call(env, info);
  UniqueFd fd = connectDatagram(call[0].string());
  if (!fd) return call.toValue(errno);
  ArrayBuilder result(env);
  result.push(fd.release());
  return result.get();
}

// (input, output) -> a socket of a client on duplicates of both descriptors, or the errno
napi_value openClientSocket(napi_env env, napi_callback_info info) {
  Call call(env, info);
  const auto duplicate = [&call](size_t at) {
    return UniqueFd(fcntl(static_cast<int>(call[at].number()), F_DUPFD_CLOEXEC, 0));
  };
  UniqueFd input = duplicate(0);
  UniqueFd output = duplicate(1);
  if (!input || !output) return call.toValue(errno);
  Socket* socket = new Socket(call.loop(), std::move(input), std::move(output));
  const napi_value handle = socket->handle(env);
  call.loop()->add(socket);
  return handle;
}

// (host, port or null) -> a socket of a client, which may still be connecting; the errno; or null if `host` is a name
// or an invalid path. Without a port, `host` is the path of a Unix socket.
napi_value connectSocket(napi_env env, napi_callback_info info) {
  Call call(env, info);
  UniqueFd fd = connectStream(call[0].string(), static_cast<int>(call[1].optionalNumber().value_or(-1)));
  if (!fd) return call.toValue(nonZero(errno));
  Socket* socket = new Socket(call.loop(), std::move(fd));
  const napi_value handle = socket->handle(env);
  call.loop()->add(socket);
  return handle;
}

// (socket, listener): the listener has the members of SocketCallbacks.
napi_value startSocket(napi_env env, napi_callback_info info) {
  Call call(env, info);
  if (Socket* socket = call.object<Socket>())
    socket->start(
        {call[1].property("onData").ref(), call[1].property("onWrite").ref(), call[1].property("onEvent").ref()});
  return nullptr;
}

// (socket, maxMessageBytes, maxQueuedBytes, received): `received` holds frame bytes that were already emitted.
napi_value upgradeToFrames(napi_env env, napi_callback_info info) {
  Call call(env, info);
  const Bytes received = call[3].bytes();
  if (Socket* socket = call.object<Socket>())
    socket->upgradeToFrames(static_cast<size_t>(call[1].number()), static_cast<size_t>(call[2].number()),
                            reinterpret_cast<char*>(received.data), received.length);
  return nullptr;
}

// (socket, text): sends one text message.
napi_value sendText(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Socket* socket = call.object<Socket>();
  const size_t length = call[1].stringLength();
  if (char* payload = socket ? socket->textFrame(length) : nullptr) call[1].copyString(payload, length);
  return nullptr;
}

// (socket, head, bytes, tail, opening): sends one frame whose middle part is `bytes` in base64. `opening` is the first
// byte of the frame: opcode and FIN.
napi_value sendChunk(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Socket* socket = call.object<Socket>();
  const size_t head = call[1].stringLength();
  const Bytes bytes = call[2].bytes();
  const size_t middle = base64EncodedLength(bytes.length);
  const size_t tail = call[3].stringLength();
  const char opening = static_cast<char>(static_cast<int>(call[4].number()));
  char* payload = socket ? socket->textFrame(head + middle + tail, opening) : nullptr;
  if (!payload) return nullptr;
  call[1].copyString(payload, head);
  base64Encode(bytes.data, bytes.length, reinterpret_cast<uint8_t*>(payload + head));
  call[3].copyString(payload + head + middle, tail);
  return nullptr;
}

// (socket, bytes): sends bytes unchanged, for example a complete control frame.
napi_value sendBytes(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Socket* socket = call.object<Socket>();
  const Bytes bytes = call[1].bytes();
  if (bytes.length == 0) return nullptr;
  if (char* to = socket ? socket->rawFrame(bytes.length) : nullptr) memcpy(to, bytes.data, bytes.length);
  return nullptr;
}

// (connection, input, output) -> the errno, or null
napi_value transferStdio(napi_env env, napi_callback_info info) {
  Call call(env, info);
  const auto descriptor = [&call](size_t at) { return static_cast<int>(call[at].number()); };
  return call.toValue(nonZero(sendStdio(descriptor(0), descriptor(1), descriptor(2))));
}

// (socket) -> the descriptor, which the caller now owns, or null if the socket cannot be detached
napi_value detachSocket(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Socket* socket = call.object<Socket>();
  return call.toValue(nonNegative(socket ? socket->detach().release() : -1));
}

// (socket, processId, child)
napi_value routeDirectInput(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Socket* socket = call.object<Socket>();
  Child* child = call.object<Child>(2);
  if (socket && child) socket->route(call[1].string(), child);
  return nullptr;
}

// (socket, processId)
napi_value unrouteDirectInput(napi_env env, napi_callback_info info) {
  Call call(env, info);
  if (Socket* socket = call.object<Socket>()) socket->unroute(call[1].string());
  return nullptr;
}

// (socket, paused)
napi_value pauseDirectInput(napi_env env, napi_callback_info info) {
  Call call(env, info);
  if (Socket* socket = call.object<Socket>()) socket->pauseDirectInput(call[1].boolean());
  return nullptr;
}

// ---- bytes

// (from, to, toOffset) -> number of bytes written, or -1 if they do not fit
napi_value encode(napi_env env, napi_callback_info info) {
  Call call(env, info);
  const Bytes from = call[0].bytes();
  const Bytes to = call[1].bytes();
  const size_t offset = static_cast<size_t>(call[2].number());
  if (offset > to.length || to.length - offset < base64EncodedLength(from.length)) return call.toValue(-1.0);
  return call.toValue(static_cast<double>(base64Encode(from.data, from.length, to.data + offset)));
}

// (from, fromOffset, fromLength, to) -> number of bytes written, or -1 if the input is not strict base64 or does not
// fit
napi_value decode(napi_env env, napi_callback_info info) {
  Call call(env, info);
  const Bytes from = call[0].bytes();
  const size_t offset = static_cast<size_t>(call[1].number());
  const size_t length = static_cast<size_t>(call[2].number());
  const Bytes to = call[3].bytes();
  if (offset > from.length || from.length - offset < length) return call.toValue(-1.0);
  const uint8_t* const text = from.data + offset;
  if (to.length < base64DecodedLength({reinterpret_cast<const char*>(text), length})) return call.toValue(-1.0);
  return call.toValue(static_cast<double>(base64Decode(text, length, to.data)));
}

// (bytes, offset, length, key)
napi_value unmaskBytes(napi_env env, napi_callback_info info) {
  Call call(env, info);
  const Bytes bytes = call[0].bytes();
  const size_t offset = static_cast<size_t>(call[1].number());
  const size_t length = static_cast<size_t>(call[2].number());
  const uint32_t key = static_cast<uint32_t>(static_cast<int64_t>(call[3].number()));
  if (offset <= bytes.length && bytes.length - offset >= length) unmask(bytes.data + offset, length, key);
  return nullptr;
}

// (bytes): returns the memory of all whole pages within the bytes to the system. Their content is lost.
napi_value releasePages(napi_env env, napi_callback_info info) {
  const Bytes bytes = Call(env, info)[0].bytes();
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t start = reinterpret_cast<uintptr_t>(bytes.data);
  const uintptr_t from = (start + page - 1) & ~(page - 1);
  const uintptr_t to = (start + bytes.length) & ~(page - 1);
  // A failure leaves the memory to the allocator.
  if (to > from) madvise(reinterpret_cast<void*>(from), to - from, MADV_DONTNEED);
  return nullptr;
}

}  // namespace

Bindings netBindings(napi_env env) {
  return {
      binding("listenAt", listenAt),
      binding("closeListener", invoke<Listener, &Listener::close>),
      binding("openListenerChannel", newListenerChannel),
      binding("closeListenerChannel", invoke<ListenerChannel, &ListenerChannel::close>),
      binding("connectDatagram", openDatagram),
      binding("openClientSocket", openClientSocket),
      binding("connectSocket", connectSocket),
      binding("startSocket", startSocket),
      binding("upgradeToFrames", upgradeToFrames),
      binding("sendText", sendText),
      binding("sendChunk", sendChunk),
      binding("sendBytes", sendBytes),
      binding("transferStdio", transferStdio),
      binding("transferLine", toValue(env, kTransferLine)),
      binding("pauseSocket", invoke<Socket, &Socket::pause>),
      binding("resumeSocket", invoke<Socket, &Socket::resume>),
      binding("endSocket", invoke<Socket, &Socket::end>),
      binding("destroySocket", invoke<Socket, &Socket::destroy>),
      binding("detachSocket", detachSocket),
      binding("queuedBytes", getNumber<Socket, &Socket::queuedBytes>),
      binding("sentBytes", getNumber<Socket, &Socket::sentBytes>),
      binding("receivedBytes", getNumber<Socket, &Socket::receivedBytes>),
      binding("routeDirectInput", routeDirectInput),
      binding("unrouteDirectInput", unrouteDirectInput),
      binding("pauseDirectInput", pauseDirectInput),
      binding("base64Encode", encode),
      binding("base64Decode", decode),
      binding("unmask", unmaskBytes),
      binding("releasePages", releasePages),
      binding("tokenKinds", tokenKinds(env)),
      binding("scanMessage", startMessageScan),
  };
}

}  // namespace procwire
