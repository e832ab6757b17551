import { type GuardOptions, guardSecrets } from "../exec/host-environment.ts";
import type { ConnectedHost, ExecHost, HostPool, SandboxMode } from "../fanout/row/host-pool.ts";
import type { ApprovalPolicy } from "../tools/policy/approval.ts";
import { UsageError } from "./command.ts";
import { type ConnectValues, connectTo } from "./connect-options.ts";

export const SANDBOX_MODES: readonly SandboxMode[] = ["none", "read-only", "workspace-write"];

export interface ExecHostOptions {
  /** Servers that run the commands; none: this machine does. */
  connect: readonly string[];
  cwd: string | undefined;
  sandbox: SandboxMode;
  /** Can be written as well as `cwd`. */
  writable?: readonly string[];
  values: ConnectValues;
  /** Decides which commands may run; default: nobody is asked, and none leaves the sandbox. */
  approval?: ApprovalPolicy | undefined;
  /** When a server has lost the session, commands go on in a new one. For one agent; a fan-out has other hosts, and retries. */
  renews?: boolean;
  /** Which of the hosts' secrets its commands get. */
  guard: GuardOptions;
  /** How long all servers may be unreachable after one was connected, what aborts the wait, and who is told. Default: not at all. */
  outagePatienceMs?: number | undefined;
  signal?: AbortSignal | undefined;
  onTrouble?: ((message: string) => void) | undefined;
}

/** The machines an agent's commands run on. Nothing is connected before the first command needs it. */
export async function openHostPool(options: ExecHostOptions): Promise<HostPool> {
  const { HostPool } = await import("../fanout/row/host-pool.ts");
  const hosts =
    options.connect.length === 0
      ? [thisMachine(options)]
      : options.connect.map((url) => (options.renews ? renewedServer : server)(url, options));
  const { sandbox, writable = [], approval, outagePatienceMs, signal, onTrouble } = options;
  return new HostPool({
    hosts,
    sandbox,
    writable,
    // One agent works on one thing; rows of a fan-out share hosts, and leave nothing for each other.
    lastingTmp: options.renews,
    approval,
    outagePatienceMs,
    signal,
    onTrouble,
  });
}

export function parseSandbox(value: string | undefined): SandboxMode {
  const mode = SANDBOX_MODES.find((candidate) => candidate === (value ?? "none"));
  if (mode === undefined)
    throw new UsageError(`unknown --sandbox \`${value}\`; expected ${SANDBOX_MODES.join(", ")}`);
  return mode;
}

/** Refuses a URL that no client could connect to before anything is begun. */
export function checkConnectUrls(urls: readonly string[]): void {
  for (const url of urls) {
    if (/^(wss?|unix):\/\/./.test(url)) continue;
    throw new Error(
      `unsupported --connect URL \`${url}\`; expected \`ws://HOST:PORT\`, \`wss://HOST:PORT\` or \`unix://PATH\``,
    );
  }
}

function thisMachine({ cwd, guard }: ExecHostOptions): ExecHost {
  return {
    name: "this machine",
    async connect(): Promise<ConnectedHost> {
      const [{ createLocalBackend }, { availableSandboxes }] = await Promise.all([
        import("../host/this-machine.ts"),
        import("../sandbox/available.ts"),
      ]);
      const backend = createLocalBackend();
      return {
        backend: guardSecrets(backend, guard),
        cwd: cwd ?? process.cwd(),
        shell: null,
        sandboxes: availableSandboxes(),
        isAlive: () => true,
        renewals: () => 0,
        close: () => backend[Symbol.asyncDispose](),
      };
    },
  };
}

function server(url: string, options: ExecHostOptions): ExecHost {
  return {
    name: url,
    async connect(): Promise<ConnectedHost> {
      const { pathFromUri } = await import("../protocol/path-uri.ts");
      let alive = true;
      const client = await connectTo(url, options.values, (state) => {
        if (state.type === "disconnected") alive = false;
      });
      const info = await client.info();
      return {
        backend: guardSecrets(client.backend, options.guard),
        cwd: options.cwd ?? (info.cwd ? pathFromUri(info.cwd) : "/"),
        shell: info.shell.path,
        sandboxes: info.sandboxes ?? [],
        isAlive: () => alive,
        renewals: () => 0,
        close: () => client.close(),
      };
    },
  };
}

function renewedServer(url: string, options: ExecHostOptions): ExecHost {
  return {
    name: url,
    async connect(): Promise<ConnectedHost> {
      const [{ connectRenewed }, { pathFromUri }] = await Promise.all([
        import("./renewed-connection.ts"),
        import("../protocol/path-uri.ts"),
      ]);
      const { backend, info } = await connectRenewed(url, options.values);
      return {
        backend: guardSecrets(backend, options.guard),
        cwd: options.cwd ?? (info.cwd ? pathFromUri(info.cwd) : "/"),
        shell: info.shell.path,
        sandboxes: info.sandboxes ?? [],
        isAlive: () => true,
        renewals: () => backend.renewals,
        close: () => backend.close(),
      };
    },
  };
}
