// Base class of objects registered with a Loop: child, socket, listener.
#ifndef PROCWIRE_CORE_LOOP_OBJECT_H
#define PROCWIRE_CORE_LOOP_OBJECT_H

#include <node_api.h>

#include <cstdint>
#include <utility>

#include "core/fd.h"
#include "core/napi.h"

namespace procwire {

class LoopObject;

// One watched descriptor. `fd` is -1 once it is closed, which identifies events that were already queued as stale.
struct Watch {
  LoopObject* owner = nullptr;
  int fd = -1;
  uint32_t armed = 0;    // registered epoll events; 0: not registered
  bool delayed = false;  // read when the coalescing timer fires, not when it is readable
  bool refused = false;  // epoll_ctl failed; the timer retries with `pendingEvents`
  uint32_t pendingEvents = 0;
  bool bulk = false;  // served after all other descriptors

  // Takes ownership of a descriptor.
  void open(UniqueFd owned) {
    fd = owned.get();
    owned_ = std::move(owned);
  }

  // Watches a descriptor that another object owns and keeps open longer.
  void borrow(int borrowed) { fd = borrowed; }

  // Closes an owned descriptor. It must not be armed, unless the loop shuts down: a child that has not called exec yet
  // holds copies of all descriptors, which keep an armed one registered.
  void close() {
    fd = -1;
    owned_.reset();
  }

  // Gives up ownership.
  UniqueFd release() {
    fd = -1;
    return std::move(owned_);
  }

 private:
  UniqueFd owned_;
};

// Reference counted: freed when the loop, JavaScript and all other objects have released it.
class LoopObject {
 public:
  // Called when a descriptor of this object is ready.
  virtual void onReady(Watch& watch, uint32_t events) = 0;
  // Called when the coalescing timer reaches a delayed descriptor of this object.
  virtual void onDelayElapsed(Watch&) {}
  // Called at the end of the loop iteration after `Loop::scheduleFlush`.
  virtual void onFlush() {}
  // Called from the event loop after `Loop::deferSettle`, outside of the call that requested it.
  virtual void onSettle() {}
  // Called after `Loop::scheduleIdle`, when everything queued was sent.
  virtual void onIdle() {}
  // Called when the loop shuts down: frees everything without emitting events.
  virtual void destroyWithoutEvents() = 0;

  void retain() { references_++; }
  void release() {
    if (--references_ == 0) delete this;
  }

  // Returns the JavaScript handle. Call once, within a handle scope.
  napi_value handle(napi_env env) {
    napi_value external = nullptr;
    const auto finalize = [](napi_env, void* object, void*) { static_cast<LoopObject*>(object)->release(); };
    retain();
    if (!NAPI_CHECK(napi_create_external(env, this, finalize, nullptr, &external))) release();
    return external;
  }

 protected:
  virtual ~LoopObject() = default;

  // Reports whether `onFlush` is still pending in this iteration.
  bool awaitsFlush() const { return awaitsFlush_; }

 private:
  friend class Loop;

  int references_ = 1;
  bool awaitsFlush_ = false;
};

}  // namespace procwire

#endif
