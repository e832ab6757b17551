import { invalidRequest } from "../../protocol/errors.ts";
import type { MethodName, ParamsOf } from "../../protocol/methods.ts";
import type { ShareGrant } from "./principal.ts";

const VIEWER: ReadonlySet<MethodName> = new Set([
  ...(["initialize", "environment/status", "process/attach", "process/detach", "process/list"] as const),
  ...([
    "process/read",
    "process/wait",
    "process/snapshot",
    "process/inputs",
    "process/tree",
    "process/connections",
    "process/screen",
  ] as const),
]);
const DRIVER: ReadonlySet<MethodName> = new Set([
  ...VIEWER,
  ...(["process/write", "process/closeStdin", "process/resize", "process/signal", "process/terminate"] as const),
]);

/** Throws if a share token does not grant a method. The session registry checks which process the request names. */
export function requireShareAccess<M extends MethodName>(share: ShareGrant, method: M, params: ParamsOf<M>): void {
  if (!(share.role === "driver" ? DRIVER : VIEWER).has(method))
    throw invalidRequest(
      `${method} is not allowed: this connection uses a share link, which grants the role ${share.role} on one process`,
    );
  if (method === "process/attach" && share.role === "viewer" && "role" in params && params.role === "driver")
    throw invalidRequest("role `driver` is not allowed: this share link grants the role viewer; attach as viewer");
}
