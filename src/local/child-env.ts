import { looksSecret } from "../exec/backend/secret-filter.ts";
import type { EnvPolicy, SecretGuard } from "../exec/exec-process.ts";

export interface EnvironmentRequest {
  env: Record<string, string>;
  envPolicy?: EnvPolicy | undefined;
  secretGuard?: SecretGuard | undefined;
}

/**
 * Builds the environment of a child. Without a policy it is exactly `request.env`. With a policy, the host's variables
 * are filtered in this order: `inherit`, default secret names, `exclude`, `set`, `includeOnly`. `request.env` is added last and
 * passes every filter. A `secretGuard` replaces the default secret names with a more exact check.
 * Credentials of the host itself are removed from every source.
 */
export function buildChildEnv(
  request: EnvironmentRequest,
  host: Record<string, string | undefined>,
): Record<string, string> {
  const policy = request.envPolicy;
  if (!policy) return removeCredentials({ ...request.env });
  const variables = new Map<string, string>();
  for (const [name, value] of inherited(policy, host)) variables.set(name, value);
  if (request.secretGuard) for (const name of secretNames(request, host)) variables.delete(name);
  else if (!policy.ignoreDefaultExcludes) removeWhere(variables, matchesAny(SECRET_PATTERNS));
  removeWhere(variables, matchesAny(policy.exclude));
  for (const [name, value] of Object.entries(policy.set)) variables.set(name, value);
  const isIncluded = matchesAny(policy.includeOnly);
  if (policy.includeOnly.length > 0) removeWhere(variables, (name) => !isIncluded(name));
  for (const [name, value] of Object.entries(request.env)) variables.set(name, value);
  return removeCredentials(Object.fromEntries(variables));
}

function removeCredentials(env: Record<string, string>): Record<string, string> {
  for (const name of Object.keys(env)) if (ALWAYS_STRIPPED.has(name.toUpperCase())) delete env[name];
  return env;
}

/** Returns the sorted names of the host's variables that the secret filter removes for this child. */
export function filteredSecretNames(request: EnvironmentRequest, host: Record<string, string | undefined>): string[] {
  const env = buildChildEnv(request, host);
  return [...secretNames(request, host)].filter((name) => !Object.hasOwn(env, name)).sort();
}

function* secretNames(
  { envPolicy, secretGuard }: EnvironmentRequest,
  host: Record<string, string | undefined>,
): Generator<string> {
  if (!envPolicy || envPolicy.ignoreDefaultExcludes || !secretGuard) return;
  for (const [name, value] of inherited(envPolicy, host)) {
    if (looksSecret(name, value) && !secretGuard.inherit.includes(name)) yield name;
  }
}

const CORE_NAMES = new Set([
  "PATH",
  "SHELL",
  "TMPDIR",
  "TEMP",
  "TMP",
  "HOME",
  "LANG",
  "LC_ALL",
  "LC_CTYPE",
  "LOGNAME",
  "USER",
]);

const SECRET_PATTERNS = ["*KEY*", "*SECRET*", "*TOKEN*"];

/** Credentials with which a process could act as the host. No child receives them, not even by request. */
const ALWAYS_STRIPPED = new Set([
  "OPENAI_IDENTITY_TOKEN_FILE",
  "OPENAI_FEDERATION_RULE_ID",
  "OPENAI_WORKLOAD_IDENTITY_CONTEXT",
  "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN",
  "NODE_REPL_AUTH_TOKEN",
  "CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE",
]);

/**
 * The service manager's variables about this server. With them a child could report a service state, and the
 * service manager would act on it. A request may still set these variables.
 */
const SERVICE_NAMES = new Set(["NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"]);

function* inherited(
  policy: EnvPolicy,
  host: Record<string, string | undefined>,
): Generator<[name: string, value: string]> {
  if (policy.inherit === "none") return;
  for (const [name, value] of Object.entries(host)) {
    if (value === undefined || SERVICE_NAMES.has(name)) continue;
    if (policy.inherit === "core" && !CORE_NAMES.has(name.toUpperCase())) continue;
    yield [name, value];
  }
}

function removeWhere(variables: Map<string, string>, isRemoved: (name: string) => boolean): void {
  for (const name of variables.keys()) if (isRemoved(name)) variables.delete(name);
}

function matchesAny(patterns: readonly string[]): (name: string) => boolean {
  const wildcards = patterns.map(wildcard);
  return (name) => wildcards.some((matches) => matches(name));
}

/** `*` matches any run of characters, `?` any one character; case is ignored. Time is at most O(name × pattern). */
function wildcard(pattern: string): (name: string) => boolean {
  const wanted = [...pattern.toLowerCase()];
  return (name) => {
    const text = [...name.toLowerCase()];
    let textAt = 0;
    let patternAt = 0;
    let star: number | null = null;
    let retryFrom = 0;
    while (textAt < text.length) {
      if (wanted[patternAt] === "*") {
        star = patternAt++;
        retryFrom = textAt;
      } else if (patternAt < wanted.length && (wanted[patternAt] === "?" || wanted[patternAt] === text[textAt])) {
        patternAt++;
        textAt++;
      } else if (star !== null) {
        patternAt = star + 1;
        textAt = ++retryFrom;
      } else {
        return false;
      }
    }
    while (wanted[patternAt] === "*") patternAt++;
    return patternAt === wanted.length;
  };
}
