import { realpathSync } from "node:fs";
import { resolve } from "node:path";
import { type GuardOptions, guardSecrets } from "../exec/backend/secret-filter.ts";
import type { ExecBackend } from "../exec/exec-process.ts";
import type { EnvironmentInfo } from "../protocol/methods.ts";
import { pathFromUri } from "../protocol/path-uri.ts";
import { connectServer, type ServerAddress } from "./connect-server.ts";

/** A machine that can run commands: this one, or a server far away. Nothing is opened before `connect`. */
export interface ExecHost {
  /** What errors call it. */
  name: string;
  connect(): Promise<ConnectedHost>;
}

export interface ConnectedHost {
  backend: ExecBackend;
  /** Where commands run unless they say otherwise: absolute, on that machine. */
  cwd: string;
  /** Null: this machine's, which the caller knows better. */
  shell: string | null;
  /** The sandboxes it says it has. */
  sandboxes: readonly string[];
  /** Absolute and free of links, as walls need it; a path on a server is taken as it is given. */
  realPath(path: string): string;
  /** False once it has been lost for good. */
  isAlive(): boolean;
  /** Where a person reaches the same processes; null: nowhere. */
  attachUrl: string | null;
  /** How often it was lost and begun anew without being given up. */
  renewals(): number;
  close(): Promise<void>;
}

export interface HostOptions {
  /** Where commands run; default: here, or where the server runs. */
  cwd?: string | undefined;
  /** Which of the host's secrets its commands get. */
  guard: GuardOptions;
}

export interface ServerHostOptions extends HostOptions {
  /** Go on in a new session when the server lost the session. For one agent; a fan-out has other hosts, and retries. */
  renews: boolean;
}

export interface LocalHostOptions extends HostOptions {
  /** Its processes are on a server of its own on a unix socket, so that a person can attach to them. */
  isAttachable?: boolean | undefined;
}

export function localHost({ cwd, guard, isAttachable = false }: LocalHostOptions): ExecHost {
  return {
    name: "this machine",
    async connect() {
      if (isAttachable) return (await import("./attachable-host.ts")).connectAttachable({ cwd, guard });
      const [{ createLocalBackend }, { availableSandboxes }] = await Promise.all([
        import("./this-machine.ts"),
        import("../sandbox/sandbox-probe.ts"),
      ]);
      const backend = createLocalBackend();
      return {
        backend: guardSecrets(backend, guard),
        cwd: cwd ?? process.cwd(),
        shell: null,
        sandboxes: availableSandboxes(),
        realPath: (path) => realpathSync(resolve(path)),
        isAlive: () => true,
        attachUrl: null,
        renewals: () => 0,
        close: () => backend[Symbol.asyncDispose](),
      };
    },
  };
}

export function serverHost(address: ServerAddress, options: ServerHostOptions): ExecHost {
  const connect = options.renews ? connectRenewed : connectOnce;
  return { name: address.url, connect: () => connect(address, options) };
}

async function connectOnce(address: ServerAddress, options: HostOptions): Promise<ConnectedHost> {
  let alive = true;
  const client = await connectServer(address, (state) => {
    if (state.type === "disconnected") alive = false;
  });
  return {
    ...farHost(client.backend, await client.info(), options),
    attachUrl: address.url,
    isAlive: () => alive,
    renewals: () => 0,
    close: () => client.close(),
  };
}

async function connectRenewed(address: ServerAddress, options: HostOptions): Promise<ConnectedHost> {
  const { openRenewedSession } = await import("./reopening-session.ts");
  const { backend, info } = await openRenewedSession(address);
  return {
    ...farHost(backend, info, options),
    attachUrl: address.url,
    isAlive: () => true,
    renewals: () => backend.renewals,
    close: () => backend.close(),
  };
}

/** What a server says about its host. */
function farHost(backend: ExecBackend, info: EnvironmentInfo, { cwd, guard }: HostOptions) {
  return {
    backend: guardSecrets(backend, guard),
    cwd: cwd ?? (info.cwd ? pathFromUri(info.cwd) : "/"),
    shell: info.shell.path,
    sandboxes: info.sandboxes ?? [],
    realPath: (path: string) => path,
  };
}
