import type { GuardOptions } from "../../exec/backend/secret-filter.ts";
import { type ExecHost, localHost, serverHost } from "../../host/exec-host.ts";
import type { HostPool } from "../../host/host-pool.ts";
import type { ApprovalPolicy } from "../../tools/policy/approval.ts";
import { SANDBOX_MODES, type SandboxMode } from "../../tools/policy/sandbox-mode.ts";
import { UsageError } from "../command.ts";
import { type ConnectValues, serverAddress, serverUrl } from "./connect-options.ts";

export interface HostValues {
  cwd: string | undefined;
  values: ConnectValues;
  /** Go on in a new session when the server lost the session. */
  renews?: boolean | undefined;
  /** Of this machine: a person can attach to the terminals. */
  attachable?: boolean | undefined;
  guard: GuardOptions;
}

export interface HostPoolValues extends HostValues {
  /** Servers that run the commands; none: this machine does. */
  connect: readonly string[];
  sandbox: SandboxMode;
  /** Can be written as well as `cwd`. */
  writable?: readonly string[];
  /** Decides which commands may run; default: nobody is asked, and none leaves the sandbox. */
  approval?: ApprovalPolicy | undefined;
  /** How long servers that were there before may all be away, what cuts that short, and who is told. Default: not at all. */
  outagePatienceMs?: number | undefined;
  signal?: AbortSignal | undefined;
  onTrouble?: ((message: string) => void) | undefined;
}

export const ATTACHABLE_OPTIONS = { attachable: { type: "boolean" } } as const;

/** The machine that a command line names: a server by its URL, else this one. */
export function hostOf(
  url: string | undefined,
  { cwd, values, renews = false, attachable = false, guard }: HostValues,
): ExecHost {
  return url === undefined
    ? localHost({ cwd, guard, isAttachable: attachable })
    : serverHost(serverAddress(url, values), { cwd, guard, renews });
}

/** The machines an agent's commands run on. Nothing is connected before the first command needs it. */
export async function openHostPool(options: HostPoolValues): Promise<HostPool> {
  const { HostPool } = await import("../../host/host-pool.ts");
  const urls = options.connect.length === 0 ? [undefined] : options.connect;
  const hosts = urls.map((url) => hostOf(url, options));
  const { sandbox, writable = [], approval, outagePatienceMs, signal, onTrouble } = options;
  // One agent works on one thing; rows of a fan-out share hosts, and leave nothing for each other.
  const lastingTmp = options.renews;
  return new HostPool({
    hosts,
    sandbox,
    writable,
    lastingTmp,
    isAttachable: options.renews,
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

/** The servers that `--connect` names, several in one with commas; a shell's command has commas of its own. */
export function serverUrls(named: readonly string[]): string[] {
  return named
    .flatMap((urls) => (urls.startsWith("exec:") ? [urls] : urls.split(",")))
    .flatMap((url) => serverUrl(url) ?? []);
}
