#ifndef PROCWIRE_PROCESS_BINDINGS_H
#define PROCWIRE_PROCESS_BINDINGS_H

#include "core/napi-call.h"

namespace procwire {

Bindings processBindings(napi_env env);
Bindings supervisorBindings(napi_env env);

}  // namespace procwire

#endif
