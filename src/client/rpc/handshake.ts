import type { Clock } from "../../async/clock.ts";
import { withDeadline } from "../../async/deadline.ts";
import { invalidRequest } from "../../protocol/errors.ts";
import type { EnvironmentInfo, Extension } from "../../protocol/methods.ts";
import { EXTENSIONS } from "../../protocol/methods.ts";
import type { Caller } from "../caller.ts";

/** The facts of a server from its answer to `initialize`. Negotiated anew on every connection. */
export interface ServerTraits {
  /** Null for a server of the first generation, which has no sessions to come back to. */
  sessionId: string | null;
  environmentInfo: EnvironmentInfo | null;
  /** It has what procwire adds to the protocol: closing stdin, resizing, waiting, taking over, … */
  extended: boolean;
  granted: ReadonlySet<Extension>;
  /** Tells this client from others that have had the session; null where the server gives no such id. */
  attachmentId: string | null;
  /** Names the server that answered; null where servers do not tell. Another one than before is another server. */
  generation: string | null;
}

export interface HandshakeOptions {
  clientName: string;
  timeoutMs: number;
  clock: Clock;
  resumeSessionId: string | null;
  /** Takes the session even when a connection is still attached to it. Only servers with the extensions know it. */
  takeOver: boolean;
  /** Only if nobody has had the session since the client that was given this id. */
  takeOverFrom: string | null;
}

/** Opens a session, or resumes one. */
export async function shakeHands(caller: Caller, options: HandshakeOptions): Promise<ServerTraits> {
  const answer = await withDeadline(
    caller.call("initialize", {
      clientName: options.clientName,
      extensions: [...EXTENSIONS],
      resumeSessionId: options.resumeSessionId ?? undefined,
      takeOver: options.takeOver || undefined,
      takeOverFrom: options.takeOverFrom ?? undefined,
    }),
    options.timeoutMs,
    "initialize",
    options.clock,
  );
  const { resumeSessionId } = options;
  if (resumeSessionId !== null && answer.sessionId !== resumeSessionId)
    throw invalidRequest(`unknown session id ${resumeSessionId}: the server opened another one`);
  caller.initialized();
  const named = answer.extensions ?? [];
  return {
    sessionId: answer.sessionId ?? null,
    environmentInfo: answer.environmentInfo ?? null,
    extended: answer.extensions !== undefined,
    attachmentId: answer.attachmentId ?? null,
    generation: answer.generation ?? null,
    granted: new Set(EXTENSIONS.filter((extension) => named.includes(extension))),
  };
}
