// Declarations of the libuv functions that the addon calls. Node's headers are not always installed, and these
// signatures are stable across libuv 1.x. Handles stay opaque; their sizes are queried at run time.
#ifndef PROCWIRE_CORE_UV_DECLARATIONS_H
#define PROCWIRE_CORE_UV_DECLARATIONS_H

#include <stddef.h>
#include <stdint.h>

extern "C" {
struct uv_loop_s;

typedef void (*uv_close_callback)(void* handle);
typedef void (*uv_poll_callback)(void* handle, int status, int events);
typedef void (*uv_timer_callback)(void* handle);
typedef void (*uv_async_callback)(void* handle);
typedef void (*uv_prepare_callback)(void* handle);

int uv_backend_fd(const struct uv_loop_s* loop);
size_t uv_handle_size(int type);
const char* uv_handle_type_name(int type);
void* uv_handle_get_data(const void* handle);
void uv_handle_set_data(void* handle, void* data);
void uv_close(void* handle, uv_close_callback callback);
void uv_ref(void* handle);
void uv_unref(void* handle);
int uv_poll_init(struct uv_loop_s* loop, void* handle, int fd);
int uv_poll_start(void* handle, int events, uv_poll_callback callback);
int uv_timer_init(struct uv_loop_s* loop, void* handle);
int uv_timer_start(void* handle, uv_timer_callback callback, uint64_t timeout, uint64_t repeat);
int uv_timer_stop(void* handle);
int uv_async_init(struct uv_loop_s* loop, void* handle, uv_async_callback callback);
int uv_async_send(void* handle);
int uv_prepare_init(struct uv_loop_s* loop, void* handle);
int uv_prepare_start(void* handle, uv_prepare_callback callback);
}

// Values of libuv's uv_handle_type. `loop.cc` verifies their names at startup.
constexpr int kUvAsync = 1;
constexpr int kUvPoll = 8;
constexpr int kUvPrepare = 9;
constexpr int kUvTimer = 13;
constexpr int kUvReadable = 1;

#endif
