import type { SecretFilterOptions } from "../../exec/backend/secret-filter.ts";
import { type ExecHost, localHost, serverHost } from "../../host/exec-host.ts";
import type { HostPool, HostPoolOptions } from "../../host/host-pool.ts";
import type { CredentialDefinition } from "../../protocol/network/credential-definition.ts";
import { SANDBOX_MODES, type SandboxMode } from "../../tools/policy/sandbox-mode.ts";
import { type ConnectValues, resolveServerUrl, serverAddress } from "./connect-options.ts";
import { parseChoice, secretFlag } from "./parse-options.ts";

export interface HostValues {
  cwd: string | undefined;
  values: ConnectValues;
  /** Whether to open a new session after the server lost the session. */
  reopens?: boolean | undefined;
  /** Whether users can attach to the terminals. Only for the local host. */
  attachable?: boolean | undefined;
  secretFilter: SecretFilterOptions;
  /** Secret files of this program besides `--token-file`, each with its flag. */
  secretFlags?: Readonly<Record<string, string>> | undefined;
  /** Credentials that commands on the local host may name. */
  credentials?: readonly CredentialDefinition[] | undefined;
}

interface SecretCheckValues extends Pick<HostValues, "values" | "secretFlags" | "credentials"> {
  sandbox: SandboxMode;
  /** The flag that disables the sandbox. Default: `--sandbox none`. */
  unsandboxed?: string | undefined;
}

export interface HostPoolValues
  extends HostValues,
    SecretCheckValues,
    Omit<HostPoolOptions, "hosts" | "sharedTmp" | "isAttachable" | "clock"> {
  /** URLs of the servers that run the commands; empty: this host runs them. */
  connect: readonly string[];
}

export const ATTACHABLE_OPTIONS = { attachable: { type: "boolean" } } as const;

/** Returns the host that runs commands: the server of this URL, or this host. */
export function hostFromFlags(
  url: string | undefined,
  { cwd, values, reopens = false, attachable = false, secretFilter, secretFlags = {}, credentials }: HostValues,
): ExecHost {
  const masked = [values["token-file"] ?? [], Object.keys(secretFlags)].flat();
  return url === undefined
    ? localHost({ cwd, secretFilter, masked, isAttachable: attachable, credentials })
    : serverHost(serverAddress(url, values), { cwd, secretFilter, reopens });
}

/**
 * Throws a FlagError if the sandboxes of this host cannot hide a secret file of this program. Without this check, each
 * sandboxed command would be rejected later.
 */
export async function requireHiddenSecrets(
  url: string | undefined,
  { sandbox, unsandboxed = "--sandbox none", ...options }: SecretCheckValues,
): Promise<void> {
  const { values, secretFlags = {}, credentials = [] } = options;
  const flags = { ...secretFlag(values["token-file"], "--token-file"), ...secretFlags };
  if (url !== undefined || sandbox === "none" || (Object.keys(flags).length === 0 && credentials.length === 0)) return;
  const [{ exposedSecrets, rejectExposed }, { secretFilesOf }] = await Promise.all([
    import("../../host/local-sandbox.ts"),
    import("../../host/network/local-network.ts"),
  ]);
  for (const path of secretFilesOf(credentials)) flags[path] ??= "--credential";
  const paths = Object.keys(flags);
  rejectExposed(await exposedSecrets(paths, paths), flags, `run commands without a sandbox (${unsandboxed})`);
}

/** Opens the hosts that run an agent's commands. They connect on first use. */
export async function openHostPool(options: HostPoolValues): Promise<HostPool> {
  await requireHiddenSecrets(options.connect[0], options);
  const { HostPool } = await import("../../host/host-pool.ts");
  const urls = options.connect.length === 0 ? [undefined] : options.connect;
  const hosts = urls.map((url) => hostFromFlags(url, options));
  // A single agent keeps its /tmp between commands. Fan-out rows share hosts and must not share files.
  return new HostPool({ ...options, hosts, sharedTmp: options.reopens, isAttachable: options.reopens });
}

export function parseSandbox(value: string | undefined): SandboxMode {
  return parseChoice("sandbox", value, SANDBOX_MODES) ?? "none";
}

/** Splits `--connect` values at commas, except in `exec:` commands. */
export function serverUrls(named: readonly string[]): string[] {
  return named
    .flatMap((urls) => (urls.startsWith("exec:") ? [urls] : urls.split(",")))
    .flatMap((url) => resolveServerUrl(url) ?? []);
}
