#ifndef PROCWIRE_WIRE_BINDINGS_H
#define PROCWIRE_WIRE_BINDINGS_H

#include "core/call.h"

namespace procwire {

void bindWire(napi_env env, Bindings& bindings);

}  // namespace procwire

#endif
