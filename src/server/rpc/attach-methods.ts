import { invalidParams, invalidRequest } from "../../protocol/errors.ts";
import { canAccess, type Principal } from "../auth/principal.ts";
import type { ShareTokens } from "../auth/share-tokens.ts";
import { findNetworkLog } from "../network/network-log.ts";
import type { ScreenCache } from "../session/screen-cache.ts";
import type { Session } from "../session/session.ts";
import type { SharedProcess } from "../session/shared-process.ts";
import type { Handlers } from "./handler-types.ts";

export type AttachMethod =
  | "process/attach"
  | "process/detach"
  | "process/screen"
  | "process/inputs"
  | "process/claimQueries"
  | "process/tree"
  | "process/connections"
  | "process/share"
  | "process/listShares"
  | "process/revokeShare"
  | "process/kill";

export interface AttachMethodDeps {
  session: () => Session;
  /** Returns the process with this handle. A handle that the connection may not use is unknown to it. */
  findProcess: (handle: string) => SharedProcess;
  /** Principal of the connection. */
  principal: Principal;
  shares: ShareTokens;
  screens: ScreenCache;
}

/** The methods on processes that several sessions can use, most of them by handle. */
export function attachMethods(deps: AttachMethodDeps): Handlers<AttachMethod> {
  const { session, findProcess, principal, shares, screens } = deps;
  return {
    "process/attach": async ({ handle, size, screen: hasScreen, ...options }, context) => {
      const shared = findProcess(handle);
      const { process } = shared;
      const { entry, begin } = session().attachProcess(shared, options);
      // The driver's terminal size applies to the process. Ignore the error of a process that has just ended.
      if (options.role === "driver" && size && process.size) await process.resize(size).catch(() => undefined);
      // The session is attached, so a screen that cannot be rendered must not fail the call.
      const screen = hasScreen ? await screens.render(process).catch(() => null) : null;
      context.afterResponse(() => begin(screen?.seq));
      const { argv, cwd, tty, startedAtMs, running, name, labels } = process.listing();
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
        driver: entry.takeDriver(),
        screen: screen ?? undefined,
        name,
        labels,
      };
    },

    "process/detach": async ({ processId }) => {
      session().detachProcess(processId);
      return {};
    },

    "process/screen": async ({ processId }) => {
      const { process } = await session().getProcess(processId);
      const screen = await screens.render(process);
      if (screen) return screen;
      throw invalidRequest(
        process.size === null
          ? `process ${processId} has no terminal`
          : `the terminal of process ${processId} is too large to render: ${process.size.cols}x${process.size.rows}`,
      );
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

    "process/connections": async ({ handle }) =>
      findNetworkLog(findProcess(handle).process)?.list() ?? { connections: [], omitted: 0 },

    "process/share": async ({ handle, role, ttlMs }) =>
      shares.issue(findProcess(handle), { role, ttlMs, createdBy: principal }),

    "process/listShares": async ({ handle }) => {
      const only = handle === undefined ? null : findProcess(handle);
      return { shares: shares.list((shared) => (only ? shared === only : canAccess(principal, shared.ownerId))) };
    },

    "process/revokeShare": async ({ handle, shareId }) => ({
      revoked: shares.revoke(findProcess(handle), shareId),
    }),

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
