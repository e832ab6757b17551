import type { ProcessListing, StartParams } from "../../exec/exec-process.ts";
import { invalidParams, invalidRequest } from "../../protocol/errors.ts";
import { cwdFromUri } from "../../protocol/path-uri.ts";
import type { WireStartParams } from "../../protocol/process-schemas.ts";
import type { ShareTokens } from "../auth/share-tokens.ts";
import type { Handlers } from "../handlers.ts";
import { type ServerConfig, SNAPSHOT_ANSWER_BYTES } from "../server-config.ts";
import type { SharedProcess } from "../session/shared-process.ts";
import type { Session } from "../session.ts";

type ProcessMethod =
  | "process/start"
  | "process/read"
  | "process/write"
  | "process/signal"
  | "process/terminate"
  | "process/closeStdin"
  | "process/resize"
  | "process/wait"
  | "process/snapshot"
  | "process/list"
  | "process/attach"
  | "process/detach"
  | "process/inputs"
  | "process/claimQueries"
  | "process/tree"
  | "process/share"
  | "process/kill";

export interface ProcessMethodDeps {
  session: () => Session;
  /** The processes of every session this connection may see. */
  listAll: () => ProcessListing[];
  /** The process of this handle; refuses one that this connection may not use like one that is unknown. */
  processOf: (handle: string) => SharedProcess;
  share: ShareTokens["issue"];
  config: ServerConfig;
  /** Why processes cannot outlive this server; null: they can. */
  whyNotKept: string | null | undefined;
  /** Counts the waits of this connection. */
  waits: { enter: () => () => void };
}

/** `process/*`: the current generation and what procwire adds to it. */
export function processMethods(deps: ProcessMethodDeps): Handlers<ProcessMethod> {
  const { session, listAll, processOf, share, config, waits, whyNotKept } = deps;
  return {
    "process/start": async (params, context) => {
      const own = session();
      const { entry, begin } = await own.start(startParams(params, config, whyNotKept));
      context.afterAnswer(begin);
      const { processId, sandboxType, droppedEnv } = entry.process;
      // Clients that asked for nothing get exactly the answer they know.
      return {
        processId,
        sandboxType,
        handle: own.isExtended ? entry.handle : undefined,
        droppedEnv: droppedEnv && [...droppedEnv],
      };
    },

    "process/read": ({ processId, ...params }, context) => session().read(processId, params, context),

    "process/write": ({ processId, chunk, writeId }) => session().write(processId, chunk, writeId),

    "process/closeStdin": ({ processId }) =>
      session().inOrder(processId, async (process) => {
        if (!process) return { status: "unknownProcess" };
        return process.closeStdin();
      }),

    "process/resize": ({ processId, size }) =>
      session().inOrder(processId, async (process) => {
        if (!process) throw session().unknown(processId);
        await process.resize(size);
        return {};
      }),

    "process/signal": async ({ processId, signal }) => {
      const process = await session().steered(processId);
      await process?.signal(signal);
      return {};
    },

    "process/terminate": ({ processId, mode }) => session().terminate(processId, mode ?? { type: "force" }),

    "process/wait": async ({ processId, ...params }, context) => {
      const leave = waits.enter();
      try {
        const process = await session().get(processId);
        return await process.wait({ ...params, signal: context.gone });
      } finally {
        leave();
      }
    },

    "process/snapshot": async ({ processId }, { admit }) => {
      const own = session();
      const { process, shared } = await own.entry(processId);
      await admit(SNAPSHOT_ANSWER_BYTES);
      const lifetime = own.isExtended ? shared.lifetime : undefined;
      return { ...(await process.snapshot()), handle: shared.handle, lifetime };
    },

    "process/list": async ({ allSessions }) => {
      const own = session();
      const processes = allSessions ? listAll() : own.listings();
      return {
        processes: own.isExtended
          ? processes
          : processes.map((one) => ({ ...one, lifetime: undefined, status: undefined })),
      };
    },

    "process/attach": async ({ handle, size, ...options }, context) => {
      const shared = processOf(handle);
      const { process } = shared;
      const { entry, begin } = session().attachProcess(shared, options);
      // The driver's terminal is the process's. One that ends just now has no use for a size.
      if (options.role === "driver" && size && process.size)
        await process.resize(size).catch(() => undefined);
      context.afterAnswer(begin);
      const { argv, cwd, tty, startedAtMs, running } = process.listing();
      return {
        processId: entry.processId,
        handle,
        // Another one may have taken over meanwhile.
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

    "process/inputs": async ({ processId }) => (await session().entry(processId)).shared.inputs(),

    "process/claimQueries": async ({ processId, seq }) => {
      const { role, shared } = await session().entry(processId);
      const granted = role === "owner" ? shared.claims?.claim(seq) : undefined;
      if (granted === undefined)
        throw invalidRequest(
          `process ${processId} was not started by this session with terminalQueries "claimed"`,
        );
      return { granted };
    },

    "process/tree": async ({ handle }) => processOf(handle).process.tree(),

    "process/share": async ({ handle, role, ttlMs }) => share(processOf(handle), role, ttlMs),

    "process/kill": async ({ handle, signal, mode }) => {
      const { process } = processOf(handle);
      if (signal === undefined) return process.terminate(mode ?? { type: "force" });
      if (mode) throw invalidParams("give either signal or mode: a signal is sent, a mode ends the process");
      const running = process.log.exit === null;
      await process.signal(signal);
      return { running };
    },
  };
}

/** From the wire's params to what a backend starts. */
function startParams(
  params: WireStartParams,
  config: ServerConfig,
  whyNotKept: ProcessMethodDeps["whyNotKept"],
): StartParams {
  const { argv, cwd, mode = "direct", networkProxy, sandboxType, ...rest } = params;
  if (argv.length === 0) throw invalidParams("argv must not be empty");
  requireAllowed(mode, config);
  if (networkProxy !== undefined) throw invalidParams("networkProxy is not supported by this server");
  const { processId, env, tty, pipeStdin, arg0, envPolicy, sandbox, size, timeoutMs, secretGuard, limits } =
    rest;
  const { lifetime, maxAgeMs, terminalQueries, recordInput } = rest;
  if (lifetime === "kept" && whyNotKept !== null)
    throw invalidParams(`lifetime "kept" is refused: ${whyNotKept ?? "this server runs without --keep"}`);
  if (lifetime === "kept" && sandbox)
    throw invalidParams(
      'lifetime "kept" is refused behind walls: the server that raised them looks after them, and ends before the process; give the lifetime "server", or no sandbox',
    );
  // Without walls there is nothing to manage, and it is passed over as by the reference server.
  if (sandbox && (rest.enforceManagedNetwork || rest.managedNetwork))
    throw invalidParams(
      "sandbox intent cannot be enforced on this executor: a managed network is not supported",
    );
  return {
    processId,
    argv,
    cwd: cwdFromUri(cwd),
    cwdIdentity: rest.cwdIdentity,
    env,
    tty,
    mode,
    pipeStdin,
    arg0,
    envPolicy,
    secretGuard,
    sandbox,
    size,
    timeoutMs,
    limits,
    lifetime,
    maxAgeMs,
    terminalQueries,
    recordInput,
    // A label is only believed of a request that the caller's own policy has resolved.
    sandboxType: mode === "prepared" ? sandboxType : undefined,
  };
}

export function requireAllowed(mode: "direct" | "prepared", config: ServerConfig): void {
  const allowed = mode === "direct" ? config.allowDirectExec : config.allowPreparedExec;
  if (!allowed) throw invalidRequest(`${mode} exec is not allowed on this server`);
}
