import type { ByteStream } from "../../forward/byte-stream.ts";
import { invalidRequest } from "../../protocol/errors.ts";
import type { Principal } from "../auth/principal.ts";
import type { ForwardService } from "../host-services.ts";
import type { Handlers } from "../rpc/handler-types.ts";

/** Access of the server's clients to its web console. The gateway that serves the console provides it. */
export interface ConsoleAccess {
  /** Unix socket of the console; null if it is served on a TCP port, which browsers reach themselves. */
  readonly socketPath: string | null;
  /** Returns a one-time login of the principal: the fragment of the login URL. */
  newLogin(principal: Principal): { fragment: string; validMs: number };
}

export function consoleMethods(find: () => ConsoleAccess | null, principal: Principal): Handlers<"console/login"> {
  return {
    "console/login": async () => requireConsole(find()).newLogin(principal),
  };
}

/** Connects to the console on a Unix socket, for a browser that cannot. */
export async function connectConsole(
  access: ConsoleAccess | null,
  service: ForwardService,
  signal: AbortSignal,
): Promise<ByteStream> {
  const { socketPath } = requireConsole(access);
  if (socketPath === null)
    throw invalidRequest("the web console of this server has a TCP port; open that in the browser");
  return service.connect({ path: socketPath }, signal);
}

function requireConsole(access: ConsoleAccess | null): ConsoleAccess {
  if (access) return access;
  throw invalidRequest("this server has no web console; start it with `procwire serve --web` or `procwire start`");
}
