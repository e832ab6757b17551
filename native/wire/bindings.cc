// What JavaScript asks of connections and their bytes; `src/native/native-wire.ts` is the only caller.
#include "wire/bindings.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "process/child.h"
#include "process/keeper-channel.h"
#include "wire/bytes.h"
#include "wire/listener.h"
#include "wire/socket.h"
#include "wire/write-request.h"

namespace procwire {
namespace {

// ---- sockets

// (host, port, backlog, onConnection, descriptor or -1) -> [listener, port], or the errno. Port -1: the host is a unix
// socket's path. A keeper above this program is given the socket, for the server after this one.
napi_value listenAt(napi_env env, napi_callback_info info) {
  Call call(env, info);
  const int port = static_cast<int>(call.number(1));
  const int backlog = static_cast<int>(call.number(2));
  // One that listens already, of the server before this one.
  const int inherited = call.count > 4 ? static_cast<int>(call.number(4)) : -1;
  const int fd = inherited >= 0 ? inherited
                 : port < 0     ? listenUnix(call.text(0), backlog)
                                : listenTcp(call.text(0), port, backlog);
  if (fd < 0) return call.answer(static_cast<double>(errno));
  const int timer = makeTimer();
  if (timer < 0) {
    const int err = errno;
    close(fd);
    return call.answer(static_cast<double>(err));
  }
  napi_ref onConnection;
  napi_create_reference(env, call.argv[3], 1, &onConnection);
  if (haveKeeper() && inherited < 0) tellKeeperListener(fd);
  Listener* listener = new Listener(call.loop(), fd, timer, onConnection);
  napi_value made;
  napi_create_array_with_length(env, 2, &made);
  napi_set_element(env, made, 0, listener->handle(env));
  napi_set_element(env, made, 1, call.answer(static_cast<double>(boundPort(fd))));
  call.loop()->add(listener);
  return made;
}

// (socket, onEvent)
napi_value startSocket(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Socket* socket = call.object<Socket>();
  napi_ref onEvent;
  if (socket && napi_create_reference(env, call.argv[1], 1, &onEvent) == napi_ok) socket->start(onEvent);
  return nullptr;
}

// (socket, most bytes of a message, most bytes queued, bytes of frames received already)
napi_value carryFrames(napi_env env, napi_callback_info info) {
  Call call(env, info);
  const Call::Bytes received = call.bytes(3);
  if (Socket* socket = call.object<Socket>())
    socket->carryFrames(static_cast<size_t>(call.number(1)), static_cast<size_t>(call.number(2)),
                        reinterpret_cast<char*>(received.data), received.length);
  return nullptr;
}

// (socket, text): one text message
napi_value sendText(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Socket* socket = call.object<Socket>();
  const size_t length = call.textLength(1);
  if (char* payload = socket ? socket->textFrame(length) : nullptr) call.copyText(1, payload, length);
  return nullptr;
}

// (socket, head, bytes, tail): one text message whose middle is the bytes as base64
napi_value sendChunk(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Socket* socket = call.object<Socket>();
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
  Socket* socket = call.object<Socket>();
  const Call::Bytes bytes = call.bytes(1);
  if (bytes.length == 0) return nullptr;
  if (char* to = socket ? socket->rawFrame(bytes.length) : nullptr) memcpy(to, bytes.data, bytes.length);
  return nullptr;
}

// (socket) -> its descriptor, which is the caller's from now on; -1 when it cannot be given away
napi_value handOverSocket(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Socket* socket = call.object<Socket>();
  return call.answer(socket ? static_cast<double>(socket->handOver()) : -1.0);
}

// (socket, processId, child)
napi_value routeInput(napi_env env, napi_callback_info info) {
  Call call(env, info);
  Socket* socket = call.object<Socket>();
  Child* child = call.object<Child>(2);
  if (socket && child) socket->route(call.text(1), child);
  return nullptr;
}

// (socket, processId)
napi_value unrouteInput(napi_env env, napi_callback_info info) {
  Call call(env, info);
  if (Socket* socket = call.object<Socket>()) socket->unroute(call.text(1));
  return nullptr;
}

// (socket, held)
napi_value holdRoutes(napi_env env, napi_callback_info info) {
  Call call(env, info);
  if (Socket* socket = call.object<Socket>()) socket->holdRoutes(call.boolean(1));
  return nullptr;
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

// (message) -> [id, processId, writeId, chunk] of a `process/write`, or undefined
napi_value readWrite(napi_env env, napi_callback_info info) {
  Call call(env, info);
  const Call::Bytes message = call.bytes(0);
  WriteRequest request;
  napi_value members[4];
  if (!parseWriteRequest({reinterpret_cast<const char*>(message.data), message.length}, request) ||
      !writeRequestMembers(env, request, members))
    return nullptr;
  napi_value made;
  napi_create_array_with_length(env, 4, &made);
  for (uint32_t at = 0; at < 4; at++) napi_set_element(env, made, at, members[at]);
  return made;
}

}  // namespace

Bindings wireBindings(napi_env env) {
  return {
      binding("socketEvents", names(env, kSocketEventNames)),
      binding("listenAt", listenAt),
      binding("closeListener", ask<Listener, &Listener::close>),
      binding("startSocket", startSocket),
      binding("carryFrames", carryFrames),
      binding("sendText", sendText),
      binding("sendChunk", sendChunk),
      binding("sendBytes", sendBytes),
      binding("pauseSocket", ask<Socket, &Socket::pause>),
      binding("resumeSocket", ask<Socket, &Socket::resume>),
      binding("endSocket", ask<Socket, &Socket::end>),
      binding("destroySocket", ask<Socket, &Socket::destroy>),
      binding("handOverSocket", handOverSocket),
      binding("queuedBytes", numberOf<Socket, &Socket::queuedBytes>),
      binding("sentBytes", numberOf<Socket, &Socket::sentBytes>),
      binding("receivedBytes", numberOf<Socket, &Socket::receivedBytes>),
      binding("routeInput", routeInput),
      binding("unrouteInput", unrouteInput),
      binding("holdRoutes", holdRoutes),
      binding("base64Encode", encode),
      binding("base64Decode", decode),
      binding("unmask", unmaskBytes),
      binding("readWrite", readWrite),
  };
}

}  // namespace procwire
