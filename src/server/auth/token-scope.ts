import { posix } from "node:path";
import { isObject } from "../../base/type-guards.ts";
import type { ProcessLimits } from "../../exec/backend/process-limits.ts";
import { isRequiredSandbox, REQUIRED_SANDBOXES, type RequiredSandbox } from "../../exec/backend/sandbox-requirement.ts";
import { isMethodName, type MethodName } from "../../protocol/methods.ts";

/** Groups of methods that a scope grants. */
export const SCOPE_GROUPS = [
  "process",
  "files:read",
  "files:write",
  "http",
  "forward",
  "attach:viewer",
  "attach:driver",
  "share",
  "console",
  "access",
] as const;
export type ScopeGroup = (typeof SCOPE_GROUPS)[number];

/** Limits that a scope sets for each process. */
const SCOPE_LIMITS = [
  "processes",
  "memoryBytes",
  "wallTimeMs",
  "outputBytes",
] as const satisfies (keyof ProcessLimits)[];
export type ScopeLimit = (typeof SCOPE_LIMITS)[number];

/** Rights of a token. A token without a scope grants everything. */
export interface TokenScope {
  readonly grants: readonly (ScopeGroup | MethodName)[];
  /** Directories of files and working directories. Null: all. */
  readonly roots: readonly string[] | null;
  /** Minimum sandbox of each process. Null: none. */
  readonly sandbox: RequiredSandbox | null;
  readonly limits: Pick<ProcessLimits, ScopeLimit>;
}

/** Name of the JWT claim with the scope. */
export const SCOPE_CLAIM = "procwire";

/** Parses the claim `procwire`. Returns the problem as text if it is invalid. */
export function parseScope(claim: unknown): TokenScope | string {
  if (!isObject(claim)) return "must be an object";
  const { scope, roots = null, sandbox = null, limits = {}, ...unknown } = claim;
  const [other] = Object.keys(unknown);
  if (other !== undefined) return `has the unknown field \`${other}\``;
  if (!isStrings(scope)) return "needs `scope`, an array of strings";
  const unknownGrant = scope.find((grant) => !isGrant(grant));
  if (unknownGrant !== undefined) return `grants the unknown scope \`${unknownGrant}\``;
  if (roots !== null && !(isStrings(roots) && roots.length > 0 && roots.every(isPlainRoot)))
    return "has invalid `roots`; expected absolute paths without `.` and `..`";
  if (sandbox !== null && !(typeof sandbox === "string" && isRequiredSandbox(sandbox)))
    return `has an invalid \`sandbox\`; expected ${REQUIRED_SANDBOXES.join(", ")}`;
  const parsedLimits = parseLimits(limits);
  if (typeof parsedLimits === "string") return parsedLimits;
  const parsed: TokenScope = { grants: scope.filter(isGrant), roots, sandbox, limits: parsedLimits };
  return contradiction(parsed) ?? parsed;
}

/** Returns why a scope could be escaped, with the remedy, or null. */
function contradiction({ grants, roots, sandbox }: TokenScope): string | null {
  const starts = grants.some((grant) => STARTS.has(grant));
  if (roots && starts && sandbox === null)
    return "has `roots` and `process`, but no `sandbox`: a process could leave the roots; add `sandbox: workspace-write`";
  if ((roots || sandbox) && grants.some((grant) => DRIVES.has(grant)))
    return "has `attach:driver` with `roots` or `sandbox`: processes of other tokens are not confined; remove `attach:driver`";
  return null;
}

const STARTS: ReadonlySet<string> = new Set(["process", "process/start", "command/exec"]);
const DRIVES: ReadonlySet<string> = new Set(["attach:driver"]);

/** Returns a text that is equal for equal scopes, or null without a scope. A session belongs to one scope. */
export function scopeKey(scope: TokenScope | undefined): string | null {
  if (!scope) return null;
  const { grants, roots, sandbox, limits } = scope;
  return JSON.stringify([
    [...grants].sort(),
    roots && [...roots].sort(),
    sandbox,
    SCOPE_LIMITS.map((name) => limits[name]),
  ]);
}

function parseLimits(limits: unknown): TokenScope["limits"] | string {
  if (!isObject(limits)) return "has invalid `limits`; expected an object";
  const parsed: { [N in ScopeLimit]?: number } = {};
  for (const [key, value] of Object.entries(limits)) {
    const name = SCOPE_LIMITS.find((known) => known === key);
    if (!name) return `has the unknown limit \`${key}\`; expected ${SCOPE_LIMITS.join(", ")}`;
    if (typeof value !== "number" || !Number.isSafeInteger(value) || value < 1)
      return `has an invalid limit \`${key}\`; expected a positive whole number`;
    parsed[name] = value;
  }
  return parsed;
}

export function isGrant(text: string): text is ScopeGroup | MethodName {
  return SCOPE_GROUPS.some((group) => group === text) || isMethodName(text);
}

const isPlainRoot = (path: string) => path.startsWith("/") && !path.includes("\0") && posix.normalize(path) === path;

function isStrings(value: unknown): value is string[] {
  return Array.isArray(value) && value.every((item) => typeof item === "string");
}
