import { invalidParams, invalidRequest } from "../../protocol/errors.ts";
import type { ShareTokens } from "../auth/share-tokens.ts";
import type { Session } from "../session/session.ts";
import type { SharedProcess } from "../session/shared-process.ts";
import type { Handlers } from "./handler-types.ts";

export type AttachMethod =
  | "process/attach"
  | "process/detach"
  | "process/inputs"
  | "process/claimQueries"
  | "process/tree"
  | "process/share"
  | "process/kill";

export interface AttachMethodDeps {
  session: () => Session;
  /** Returns the process with this handle. A handle that the connection may not use is unknown to it. */
  findProcess: (handle: string) => SharedProcess;
  share: ShareTokens["issue"];
}

/** The methods on processes that several sessions can use, most of them by handle. */
export function attachMethods({ session, findProcess, share }: AttachMethodDeps): Handlers<AttachMethod> {
  return {
    "process/attach": async ({ handle, size, ...options }, context) => {
      const shared = findProcess(handle);
      const { process } = shared;
      const { entry, begin } = session().attachProcess(shared, options);
      // The driver's terminal size applies to the process. Ignore the error of a process that has just ended.
      if (options.role === "driver" && size && process.size) await process.resize(size).catch(() => undefined);
      context.afterResponse(begin);
      const { argv, cwd, tty, startedAtMs, running } = process.listing();
      return {
        processId: entry.processId,
        handle,
        // Another session may have become the driver meanwhile.
        role: entry.role === "driver" ? "driver" : "viewer",
        argv,
        cwd,
        tty,
        size: process.size ?? undefined,
        startedAtMs,
        running,
        nextSeq: process.log.nextSeq,
      };
    },

    "process/detach": async ({ processId }) => {
      session().detachProcess(processId);
      return {};
    },

    "process/inputs": async ({ processId }) => (await session().getProcess(processId)).shared.inputs(),

    "process/claimQueries": async ({ processId, seq }) => {
      const { role, shared } = await session().getProcess(processId);
      const granted = role === "owner" ? shared.queryArbiter?.claim(seq) : undefined;
      if (granted === undefined)
        throw invalidRequest(`process ${processId} was not started by this session with terminalQueries "claimed"`);
      return { granted };
    },

    "process/tree": async ({ handle }) => findProcess(handle).process.tree(),

    "process/share": async ({ handle, role, ttlMs }) => share(findProcess(handle), role, ttlMs),

    "process/kill": async ({ handle, signal, mode }) => {
      const { process } = findProcess(handle);
      if (signal === undefined) return process.terminate(mode ?? { type: "force" });
      if (mode) throw invalidParams("signal and mode are mutually exclusive");
      const running = process.log.exit === null;
      await process.signal(signal);
      return { running };
    },
  };
}
