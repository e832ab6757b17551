import type { Clock } from "../../async/clock.ts";
import { withDeadline } from "../../async/deadline.ts";
import { invalidRequest } from "../../protocol/errors.ts";
import { type EnvironmentInfo, EXTENSIONS, type Extension } from "../../protocol/methods.ts";
import type { RpcChannel } from "./rpc-channel.ts";

/** Server properties from the `initialize` result. Negotiated on every connection. */
export interface ServerInfo {
  /** Null for a v0 server, which has no sessions to resume. */
  sessionId: string | null;
  environmentInfo: EnvironmentInfo | null;
  /** True if the server has procwire's extensions: closing stdin, resizing, waiting, takeover. */
  isExtended: boolean;
  grantedExtensions: ReadonlySet<Extension>;
  /** Identifies this client among the clients of a session; null if the server assigns no such id. */
  attachmentId: string | null;
  /** Identifies one run of the server; null if the server does not report it. A new value means a new server. */
  generation: string | null;
}

export interface HandshakeOptions {
  clientName: string;
  timeoutMs: number;
  clock: Clock;
  resumeSessionId: string | null;
  /** Resumes the session even if another connection has it. Requires a server with the extensions. */
  takeOver: boolean;
  /** Takes over only if no other client has had the session since the client with this attachment id. */
  takeOverFrom: string | null;
}

/** Opens or resumes a session. */
export async function performHandshake(channel: RpcChannel, options: HandshakeOptions): Promise<ServerInfo> {
  const result = await withDeadline(
    channel.call("initialize", {
      clientName: options.clientName,
      extensions: EXTENSIONS.filter((extension) => extension !== "binaryBlocks" || channel.enableBinaryBlocks),
      resumeSessionId: options.resumeSessionId ?? undefined,
      takeOver: options.takeOver || undefined,
      takeOverFrom: options.takeOverFrom ?? undefined,
    }),
    options.timeoutMs,
    "initialize",
    options.clock,
  );
  const { resumeSessionId } = options;
  if (resumeSessionId !== null && result.sessionId !== resumeSessionId)
    throw invalidRequest(`unknown session id ${resumeSessionId}: the server opened another one`);
  const offered = result.extensions ?? [];
  if (offered.includes("binaryBlocks")) channel.enableBinaryBlocks?.();
  channel.initialized();
  return {
    sessionId: result.sessionId ?? null,
    environmentInfo: result.environmentInfo ?? null,
    isExtended: result.extensions !== undefined,
    attachmentId: result.attachmentId ?? null,
    generation: result.generation ?? null,
    grantedExtensions: new Set(EXTENSIONS.filter((extension) => offered.includes(extension))),
  };
}
