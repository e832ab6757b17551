#ifndef PROCWIRE_WIRE_BINDINGS_H
#define PROCWIRE_WIRE_BINDINGS_H

#include "core/call.h"

namespace procwire {

Bindings wireBindings(napi_env env);

}  // namespace procwire

#endif
