// What lives on a loop: a child, a socket, a listener. The loop knows no more of them than this.
#ifndef PROCWIRE_RESIDENT_H
#define PROCWIRE_RESIDENT_H

#include <node_api.h>

#include <cstdint>

namespace procwire {

class Resident;

// One watched descriptor. `fd` is -1 once it is closed, so an event that was already on its way is recognised as stale.
struct Watch {
  Resident* owner = nullptr;
  int fd = -1;
  uint32_t armed = 0;    // epoll events asked for now; 0: not registered
  bool delayed = false;  // waiting for the coalescing timer instead
  bool refused = false;  // epoll had no room; `wanted` is asked for again by the timer
  uint32_t wanted = 0;
  bool bulk = false;  // its events come after those of all others
};

// Counted: it is freed when neither the loop, nor JavaScript, nor another resident needs it any more.
class Resident {
 public:
  // A descriptor of its own is ready.
  virtual void onReady(Watch& watch, uint32_t events) = 0;
  // The coalescing timer has come to a descriptor of its own that was delayed.
  virtual void onDelayOver(Watch&) {}
  // The turn ends, and `Loop::flushLater` was asked for.
  virtual void onFlush() {}
  // `Loop::settleSoon` was asked for.
  virtual void onSettle() {}
  // The loop is going away: frees everything without an event.
  virtual void abandon() = 0;

  void retain() { references_++; }
  void release() {
    if (--references_ == 0) delete this;
  }

  // The object JavaScript holds; made once, within the caller's handle scope.
  napi_value handle(napi_env env) {
    napi_value external;
    retain();
    napi_create_external(
        env, this, [](napi_env, void* resident, void*) { static_cast<Resident*>(resident)->release(); }, nullptr,
        &external);
    return external;
  }

 protected:
  virtual ~Resident() = default;

  // Whether `onFlush` is still to come in this turn.
  bool awaitsFlush() const { return awaitsFlush_; }

 private:
  friend class Loop;

  int references_ = 1;
  bool awaitsFlush_ = false;
};

}  // namespace procwire

#endif
