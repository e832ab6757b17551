import { looksSecret } from "../exec/backend/secret-filter.ts";
import type { EnvPolicy, SecretGuard } from "../exec/exec-process.ts";

export interface EnvironmentRequest {
  env: Record<string, string>;
  envPolicy?: EnvPolicy | null | undefined;
  secretGuard?: SecretGuard | undefined;
}

/**
 * The environment of a child. Without a policy it is exactly the request's own. With one: the host's, cut down to core
 * or nothing, without what looks like a secret, without `exclude`, with `set`, cut down to `includeOnly`; the request's
 * own variables come last and pass every filter. A `secretGuard` decides more exactly what looks like a secret.
 * Credentials of the host itself are stripped from every source.
 */
export function childEnvironment(
  request: EnvironmentRequest,
  host: Record<string, string | undefined>,
): Record<string, string> {
  const policy = request.envPolicy;
  const variables = new Map<string, string>();
  if (policy) {
    for (const [name, value] of inherited(policy, host)) variables.set(name, value);
    if (request.secretGuard) for (const name of secrets(request, host)) variables.delete(name);
    else if (!policy.ignoreDefaultExcludes) dropMatching(variables, SECRET_PATTERNS);
    dropMatching(variables, policy.exclude.map(wildcard));
    for (const [name, value] of Object.entries(policy.set)) variables.set(name, value);
    if (policy.includeOnly.length > 0) keepMatching(variables, policy.includeOnly.map(wildcard));
  }
  for (const [name, value] of Object.entries(request.env)) variables.set(name, value);
  for (const name of variables.keys()) if (ALWAYS_STRIPPED.has(name.toUpperCase())) variables.delete(name);
  return Object.fromEntries(variables);
}

/** The names of the host's variables that a guard keeps from this child, in order. */
export function droppedSecrets(
  request: EnvironmentRequest,
  host: Record<string, string | undefined>,
): string[] {
  const env = childEnvironment(request, host);
  return [...secrets(request, host)].filter((name) => !Object.hasOwn(env, name)).sort();
}

function* secrets(
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

const SECRET_PATTERNS = ["*KEY*", "*SECRET*", "*TOKEN*"].map(wildcard);

/** What lets a program act as the host itself; no child may have it, whatever the request says. */
const ALWAYS_STRIPPED = new Set([
  "OPENAI_IDENTITY_TOKEN_FILE",
  "OPENAI_FEDERATION_RULE_ID",
  "OPENAI_WORKLOAD_IDENTITY_CONTEXT",
  "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN",
  "NODE_REPL_AUTH_TOKEN",
  "CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE",
]);

function* inherited(
  policy: EnvPolicy,
  host: Record<string, string | undefined>,
): Generator<[name: string, value: string]> {
  if (policy.inherit === "none") return;
  for (const [name, value] of Object.entries(host)) {
    if (value === undefined) continue;
    if (policy.inherit === "core" && !CORE_NAMES.has(name.toUpperCase())) continue;
    yield [name, value];
  }
}

function dropMatching(variables: Map<string, string>, patterns: readonly Wildcard[]): void {
  for (const name of variables.keys()) if (patterns.some((matches) => matches(name))) variables.delete(name);
}

function keepMatching(variables: Map<string, string>, patterns: readonly Wildcard[]): void {
  for (const name of variables.keys()) if (!patterns.some((matches) => matches(name))) variables.delete(name);
}

type Wildcard = (name: string) => boolean;

/** `*` is any run of characters, `?` any one; case does not matter. Time is at most name times pattern, however many stars. */
function wildcard(pattern: string): Wildcard {
  const wanted = [...pattern.toLowerCase()];
  return (name) => {
    const text = [...name.toLowerCase()];
    let at = 0;
    let p = 0;
    let star = -1;
    let retryFrom = 0;
    while (at < text.length) {
      if (wanted[p] === "*") {
        star = p++;
        retryFrom = at;
      } else if (p < wanted.length && (wanted[p] === "?" || wanted[p] === text[at])) {
        p++;
        at++;
      } else if (star >= 0) {
        p = star + 1;
        at = ++retryFrom;
      } else {
        return false;
      }
    }
    while (wanted[p] === "*") p++;
    return p === wanted.length;
  };
}
