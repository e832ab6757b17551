import type { HostBackend } from "../../exec/backend/host-backend.ts";
import { mergeLimits, type ProcessLimits } from "../../exec/backend/process-limits.ts";
import type { SandboxRequirement } from "../../exec/backend/sandbox-requirement.ts";
import type { ProcessListing, StartParams, TreeUsage } from "../../exec/exec-process.ts";
import { invalidParams, invalidRequest } from "../../protocol/errors.ts";
import type { MethodName } from "../../protocol/methods.ts";
import { cwdFromUri } from "../../protocol/path-uri.ts";
import type { WireStartParams } from "../../protocol/process-schemas.ts";
import { PROCESS_LIST_RESPONSE_BYTES, type ServerConfig, SNAPSHOT_RESPONSE_BYTES } from "../server-config.ts";
import type { Session } from "../session/session.ts";
import type { AttachMethod } from "./attach-methods.ts";
import type { Handlers } from "./handler-types.ts";

type ProcessMethod = Exclude<Extract<MethodName, `process/${string}`>, AttachMethod>;

export interface ProcessMethodDeps {
  session: () => Session;
  /** Returns the processes of all sessions that this connection may see. */
  listAll: () => ProcessListing[];
  /** Returns the resource usage of live processes by pid; empty if the host reports none. */
  sampleUsage: () => Promise<ReadonlyMap<number, TreeUsage>>;
  config: ServerConfig;
  /** Why persistent processes are unavailable, or null if they are available. */
  persistenceUnavailableReason: string | null;
  confinement: StartConfinement;
  /** Limits the pending waits of this connection. */
  waits: { enter: () => () => void };
  /** Counts a `process/read` that waits for output. Returns the function that ends it. Throws a RequestError at the limit. */
  acquireRead: () => () => void;
}

/** Confinement that the server and the token of the connection require of each start. */
export interface StartConfinement {
  requirement: SandboxRequirement | null;
  limits: ProcessLimits | undefined;
}

/** Returns a backend whose starts are confined. */
export function confined(backend: HostBackend, confinement: StartConfinement): HostBackend {
  return { ...backend, start: (params) => backend.start(confine(params, confinement)) };
}

function confine(params: StartParams, { requirement, limits }: StartConfinement): StartParams {
  if (!requirement && !limits) return params;
  return {
    ...params,
    sandboxRequirement: requirement ?? params.sandboxRequirement,
    limits: limits ? mergeLimits(limits, params.limits) : params.limits,
  };
}

/** The methods on processes of the connection's session. */
export function processMethods(deps: ProcessMethodDeps): Handlers<ProcessMethod> {
  const { session, listAll, sampleUsage, config, waits, acquireRead, persistenceUnavailableReason, confinement } = deps;
  return {
    "process/start": async (params, context) => {
      const start = confine(startParams(params, config, persistenceUnavailableReason), confinement);
      const { entry, begin } = await session().start(start);
      context.afterResponse(begin);
      const { processId, sandboxType, droppedEnv, pid } = entry.process;
      // Codex clients do not receive it, and most of their processes end before another client needs it.
      const handle = session().isExtended ? entry.handle : undefined;
      return { processId, sandboxType, handle, droppedEnv: droppedEnv && [...droppedEnv], pid: pid ?? undefined };
    },

    "process/read": async ({ processId, ...params }, context) =>
      (await session().getProcess(processId)).read(params, context, acquireRead),

    "process/write": ({ processId, chunk, writeId }) => session().input.write(processId, chunk, writeId),

    "process/closeStdin": ({ processId }) =>
      session().input.runInOrder(processId, async (entry) =>
        entry ? entry.process.closeStdin() : { status: "unknownProcess" },
      ),

    "process/resize": ({ processId, size }) =>
      session().input.runInOrder(processId, async (entry) => {
        if (!entry) throw session().unknownProcessError(processId);
        await entry.process.resize(size);
        return {};
      }),

    "process/signal": async ({ processId, signal }) => {
      const process = await session().findWritable(processId);
      await process?.signal(signal);
      return {};
    },

    "process/terminate": async ({ processId, mode = { type: "force" } }) => {
      const process = await session().findWritable(processId);
      return process ? process.terminate(mode) : { running: false };
    },

    "process/wait": async ({ processId, ...params }, context) => {
      const leave = waits.enter();
      try {
        const { process } = await session().getProcess(processId);
        return await process.wait({ ...params, signal: context.disconnected });
      } finally {
        leave();
      }
    },

    "process/snapshot": async ({ processId }, { reserveResponseBytes }) => {
      const { process, shared } = await session().getProcess(processId);
      await reserveResponseBytes(SNAPSHOT_RESPONSE_BYTES);
      return { ...(await process.snapshot()), handle: shared.handle, lifetime: shared.lifetime };
    },

    "process/list": async ({ allSessions, usage }, { chargeResponseBytes }) => {
      await chargeResponseBytes(PROCESS_LIST_RESPONSE_BYTES);
      // Sampled first: the listings then describe the moment of the response.
      const usageByPid = usage ? await sampleUsage() : undefined;
      const own = () =>
        session()
          .ownProcesses()
          .map((shared) => shared.listing());
      const processes = (allSessions ? listAll() : own()).map((listing) =>
        usageByPid && listing.running && listing.pid !== null
          ? { ...listing, usage: usageByPid.get(listing.pid) }
          : listing,
      );
      return { processes };
    },
  };
}

/** Converts wire params to the params of the backend. */
function startParams(params: WireStartParams, config: ServerConfig, unavailableReason: string | null): StartParams {
  const { metadata, shellSnapshot, ...known } = params;
  const { cwd, mode = "direct", sandboxType, ...rest } = known;
  const { argv, lifetime } = rest;
  if (argv.length === 0) throw invalidParams("argv must not be empty");
  requireAllowed(mode, config);
  if (lifetime === "persistent" && unavailableReason !== null)
    throw invalidParams(`lifetime "persistent" is not available: ${unavailableReason}`);
  // Only a prepared request may set the label, because the caller's policy has resolved it.
  const label = mode === "prepared" ? sandboxType : undefined;
  return { ...rest, cwd: cwdFromUri(cwd), mode, sandboxType: label };
}

export function requireAllowed(mode: "direct" | "prepared", config: ServerConfig): void {
  const allowed = mode === "direct" ? config.allowDirectExec : config.allowPreparedExec;
  if (!allowed) throw invalidRequest(`${mode} exec is not allowed on this server`);
}
