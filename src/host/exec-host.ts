import { realpathSync } from "node:fs";
import { resolve } from "node:path";
import { filterSecrets, type SecretFilterOptions } from "../exec/backend/secret-filter.ts";
import type { ExecBackend } from "../exec/exec-process.ts";
import type { EnvironmentInfo } from "../protocol/methods.ts";
import { pathFromUri } from "../protocol/path-uri.ts";
import type { PeerAddress } from "../server/host-services.ts";
import { connectServer, type ServerAddress } from "./connect-server.ts";

/** A host that runs commands: the local one or a server. Nothing is opened before `connect`. */
export interface ExecHost {
  /** The name in error messages. */
  name: string;
  connect(): Promise<ConnectedHost>;
}

export interface ConnectedHost {
  backend: ExecBackend;
  /** Absolute default working directory on that host. */
  cwd: string;
  /** Null for the local host, whose shell the caller chooses. */
  shell: string | null;
  /** The sandboxes that the host reports. */
  sandboxes: readonly string[];
  /** Returns an absolute path without links, which sandboxes require; a server's path is returned unchanged. */
  realPath(path: string): string;
  /** Returns true if the peer of a connection to this process is or may be a process that this host sandboxed. */
  isSandboxedPeer(peer: PeerAddress): false | Promise<boolean>;
  /** False once the connection is lost permanently. */
  isAlive(): boolean;
  /** The URL at which users can attach to the processes; null if there is none. */
  attachUrl: string | null;
  /** How often a lost session was replaced by a new one. */
  reopenCount(): number;
  close(): Promise<void>;
}

export interface HostOptions {
  /** Working directory; defaults to that of this process or of the server. */
  cwd?: string | undefined;
  /** Selects the host secrets that commands receive. */
  secretFilter: SecretFilterOptions;
}

export interface ServerHostOptions extends HostOptions {
  /** Opens a new session if the server lost the session. For a single agent; a fan-out retries on other hosts. */
  reopens: boolean;
}

export interface LocalExecHostOptions extends HostOptions {
  /** Token and secret files of this process, hidden from sandboxed processes. */
  masked: readonly string[];
  /** Runs the processes behind an in-process server on a Unix socket, so that users can attach. */
  isAttachable?: boolean | undefined;
}

export function localHost({ isAttachable = false, ...options }: LocalExecHostOptions): ExecHost {
  const { cwd, secretFilter, masked } = options;
  return {
    name: "this machine",
    async connect() {
      if (isAttachable) return (await import("./attachable-host.ts")).connectAttachableHost(options);
      const [{ createLocalBackend }, { localSandbox }, { availableSandboxes }] = await Promise.all([
        import("./create-local-backend.ts"),
        import("./local-sandbox.ts"),
        import("../sandbox/sandbox-probe.ts"),
      ]);
      const sandbox = localSandbox(masked);
      const backend = createLocalBackend({ resolveSandbox: sandbox.resolve });
      return {
        backend: filterSecrets(backend, secretFilter),
        cwd: cwd ?? process.cwd(),
        shell: null,
        sandboxes: availableSandboxes(),
        realPath: (path) => realpathSync(resolve(path)),
        isSandboxedPeer: sandbox.isSandboxedPeer,
        isAlive: () => true,
        attachUrl: null,
        reopenCount: () => 0,
        close: () => backend[Symbol.asyncDispose](),
      };
    },
  };
}

export function serverHost(address: ServerAddress, options: ServerHostOptions): ExecHost {
  const connect = options.reopens ? connectReopening : connectOnce;
  return { name: address.url, connect: () => connect(address, options) };
}

async function connectOnce(address: ServerAddress, options: HostOptions): Promise<ConnectedHost> {
  let alive = true;
  const client = await connectServer(address, (state) => {
    if (state.type === "disconnected") alive = false;
  });
  return {
    ...remoteHost(client.backend, await client.info(), options),
    attachUrl: address.url,
    isAlive: () => alive,
    reopenCount: () => 0,
    close: () => client.close(),
  };
}

async function connectReopening(address: ServerAddress, options: HostOptions): Promise<ConnectedHost> {
  const { openReopeningSession } = await import("./reopening-session.ts");
  const { backend, info } = await openReopeningSession(address);
  return {
    ...remoteHost(backend, info, options),
    attachUrl: address.url,
    isAlive: () => true,
    reopenCount: () => backend.reopenCount,
    close: () => backend.close(),
  };
}

/** The host as the server describes it. */
function remoteHost(backend: ExecBackend, info: EnvironmentInfo, { cwd, secretFilter }: HostOptions) {
  return {
    backend: filterSecrets(backend, secretFilter),
    cwd: cwd ?? (info.cwd ? pathFromUri(info.cwd) : "/"),
    shell: info.shell.path,
    sandboxes: info.sandboxes ?? [],
    realPath: (path: string) => path,
    // Only the server knows which processes it sandboxed, and it may run on this machine.
    isSandboxedPeer: async (peer: PeerAddress) =>
      (await import("../sandbox/sandboxed-peers.ts")).isInOtherNamespace(peer),
  };
}
